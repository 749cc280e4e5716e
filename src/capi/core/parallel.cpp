// Section 3 of nxd.h: the layout of a context's world.
#include "capi/handles.h"
#include "core/base/last_error.h"

using namespace nxd;

nxd_status_t nxd_init_model_parallel(nxd_context_t* ctx, const nxd_parallel_options_t* options) {
  return guard([&] {
    Context& context = unwrap(ctx);
    context.init_model_parallel(read_parallel_options(options));
  });
}

nxd_status_t nxd_destroy_model_parallel(nxd_context_t* ctx) {
  return guard([&] {
    unwrap(ctx).destroy_model_parallel();
    for (nxd_axis_t axis = NXD_AXIS_TENSOR; axis <= NXD_AXIS_EXPERT_DATA; ++axis) {
      ctx->groups[axis].value.reset();
    }
  });
}

int32_t nxd_model_parallel_is_initialized(nxd_context_t* ctx) {
  return ctx && ctx->value->model_parallel_is_initialized() ? 1 : 0;
}

nxd_status_t nxd_parallel_get_size(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    out = unwrap(ctx).parallel().size(axis);
  });
}

nxd_status_t nxd_parallel_get_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel().rank(axis);
  });
}

nxd_status_t nxd_parallel_get_source_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel().source_rank(axis);
  });
}

nxd_status_t nxd_parallel_get_group(nxd_context_t* ctx, nxd_axis_t axis, nxd_group_t** out_group) {
  return guard([&] {
    auto& out = output(out_group, "out_group");
    const auto& group = unwrap(ctx).parallel().group(axis);
    out = borrow_group(ctx, axis, group);
  });
}

nxd_status_t nxd_parallel_get_group_list(nxd_context_t* ctx, nxd_axis_t axis, int32_t index,
                                         int32_t* ranks, size_t cap, size_t* out_size,
                                         int32_t* out_count) {
  return guard([&] {
    clear_each(out_size, out_count);
    output(out_size, "out_size");
    auto& count = output(out_count, "out_count");
    const RankLayout& layout = unwrap(ctx).parallel().layout();
    const auto group = layout.group(axis, index);
    copy_ranks(group, ranks, cap, out_size);
    count = layout.group_count(axis);
  });
}

nxd_status_t nxd_pipeline_get_next_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).pipeline_neighbour(1);
  });
}

nxd_status_t nxd_pipeline_get_previous_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).pipeline_neighbour(-1);
  });
}
