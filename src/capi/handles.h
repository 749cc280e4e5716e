#pragma once

// What stands behind the handles of sections 2 to 5 of nxd.h, and how functions take them apart.
#include "capi/arguments.h"
#include "core/base/error.h"
#include "core/comm/job.h"
#include "core/comm/store.h"
#include "core/parallel/context.h"

namespace nxd {

inline Store& unwrap(nxd_store_t* store) {
  check_argument(store, "store: expected a store, got NULL");
  return *store->value;
}

inline Context& unwrap(nxd_context_t* ctx) {
  check_argument(ctx, "ctx: expected a context, got NULL");
  return *ctx->value;
}

inline ProcessGroup& unwrap(nxd_group_t* group) {
  check_argument(group, "group: expected a group, got NULL");
  check_state(group->value != nullptr, "group: its layout was destroyed");
  return *group->value;
}

inline Job& unwrap(nxd_job_t* job) {
  check_argument(job, "job: expected a job, got NULL");
  return *job->value;
}

// The context's own handle of a group it holds.
inline nxd_group_t* borrow_group(nxd_context_t* ctx, nxd_axis_t axis,
                                 const std::shared_ptr<ProcessGroup>& group) {
  nxd_group_t& handle = ctx->groups[axis];
  handle.value = group;
  handle.borrowed = true;
  return &handle;
}

}  // namespace nxd
