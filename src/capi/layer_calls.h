#pragma once

// Calls of layers over buffers: plans for run_layer(), made of a caller's tensors and options.
// Arguments other than the context are read once the group is known, which must tell its peers of
// bad ones.
#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/last_error.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

template <class Options>
CallerWorkspace workspace_of(const Options& given) {
  check_count(given.workspace_bytes, 1, "workspace");
  return {given.workspace != nullptr, given.workspace, given.workspace_bytes};
}

// make(context, group) gives the plan.
template <class Make>
nxd_status_t run_plan(nxd_context_t* ctx, const char* operation, const Make& make) {
  return guard([&] {
    const Context& context = unwrap(ctx);
    run_layer(context, operation, [&](const ProcessGroup& group) { return make(context, group); });
  });
}

// make gives a plan whose workspace is a caller's, of any size.
template <class Make>
nxd_status_t get_workspace(nxd_context_t* ctx, size_t* out_bytes, const Make& make) {
  return guard([&] {
    auto& out = output(out_bytes, "out_bytes");
    const Context& context = unwrap(ctx);
    const auto group = layer_group(context);
    out = make(context, *group).workspace_bytes();
  });
}

}  // namespace nxd
