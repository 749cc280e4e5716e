#pragma once

// Handles of communication, and how functions take them apart.
#include "capi/arguments.h"
#include "core/base/error.h"
#include "core/comm/process_group.h"
#include "core/comm/store/store.h"
#include "core/launch/job.h"
#include "core/world/context.h"

struct nxd_store {
  std::shared_ptr<nxd::Store> value;
  nxd::ForkGuard fork_guard{};
};

struct nxd_group {
  std::shared_ptr<nxd::ProcessGroup> value;
  bool borrowed = false;  // from a context, whose handle owns this one
  nxd::ForkGuard fork_guard{};
};

struct nxd_context {
  std::shared_ptr<nxd::Context> value;
  nxd_group groups[7];  // handed out by axis
  nxd::ForkGuard fork_guard{};
};

struct nxd_work {
  std::shared_ptr<nxd::Work> value;
};

struct nxd_job {
  std::unique_ptr<nxd::Job> value;
  nxd::ForkGuard fork_guard{};
};

namespace nxd {

inline Store& unwrap(nxd_store_t* store) {
  check_argument(store, "store: expected a store, got NULL");
  store->fork_guard.check("store");
  return *store->value;
}

// For calls that come to callbacks of the caller's, which may destroy the handle.
inline std::shared_ptr<Store> hold(nxd_store_t* store) {
  unwrap(store);
  return store->value;
}

inline Context& unwrap(nxd_context_t* ctx) {
  check_argument(ctx, "ctx: expected a context, got NULL");
  ctx->fork_guard.check("ctx");
  return *ctx->value;
}

inline ProcessGroup& unwrap(nxd_group_t* group) {
  check_argument(group, "group: expected a group, got NULL");
  group->fork_guard.check("group");
  check_state(group->value != nullptr, "group: its layout was destroyed");
  return *group->value;
}

inline Work& unwrap(nxd_work_t* work) {
  check_argument(work, "work: expected a work, got NULL");
  return *work->value;
}

inline Job& unwrap(nxd_job_t* job) {
  check_argument(job, "job: expected a job, got NULL");
  job->fork_guard.check("job");
  return *job->value;
}

// The context's own handle of a group it holds.
inline nxd_group_t* borrow_group(nxd_context_t* ctx, nxd_axis_t axis,
                                 const std::shared_ptr<ProcessGroup>& group) {
  nxd_group_t& handle = ctx->groups[axis];
  // One that is handed out already is not written to: another thread may abort through it.
  if (handle.value != group) {
    handle.value = group;
    handle.borrowed = true;
  }
  return &handle;
}

}  // namespace nxd
