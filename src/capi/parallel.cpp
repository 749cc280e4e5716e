// nxd/parallel.h: layouts, and that of a context's world.
#include "capi/handles.h"
#include "capi/options.h"
#include "core/base/dtype.h"
#include "core/base/last_error.h"
#include "core/layout/rank_layout.h"

using namespace nxd;

namespace {

const nxd_parallel_options_t kParallelDefaults = NXD_PARALLEL_OPTIONS_INIT;

nxd_parallel_options_t read(const nxd_parallel_options_t* given) {
  return read_options(given, kParallelDefaults, "nxd_parallel_options_t");
}

ParallelOptions resolve(const nxd_parallel_options_t& given) {
  const auto or_one = [](int size) { return size != 0 ? size : 1; };
  check_argument(given.reduce_dtype == NXD_DTYPE_F32 || given.reduce_dtype == NXD_DTYPE_BF16,
                 "reduce_dtype: expected f32 or bf16, got ", dtype_name(given.reduce_dtype));
  return {.tensor = or_one(given.tensor_parallel_size),
          .pipeline = or_one(given.pipeline_parallel_size),
          .context = or_one(given.context_parallel_size),
          .expert = or_one(given.expert_parallel_size),
          .platform = given.platform,
          .lnc_size = or_one(given.lnc_size),
          .local_world_size = given.local_world_size,
          .reduce_dtype = given.reduce_dtype};
}

RankLayout layout_of(const nxd_parallel_options_t* options, int world_size) {
  return {resolve(read(options)), world_size};
}

}  // namespace

nxd_status_t nxd_parallel_options_init(nxd_parallel_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kParallelDefaults, "nxd_parallel_options_t"); });
}

nxd_status_t nxd_layout_get_group_count(const nxd_parallel_options_t* options, int32_t world_size,
                                        nxd_axis_t axis, int32_t* out_count) {
  if (out_count) *out_count = 0;
  return guard([&] {
    check_argument(out_count, "out_count: expected a pointer, got NULL");
    *out_count = layout_of(options, world_size).group_count(axis);
  });
}

nxd_status_t nxd_layout_get_group(const nxd_parallel_options_t* options, int32_t world_size,
                                  nxd_axis_t axis, int32_t index, int32_t* ranks, size_t cap,
                                  size_t* out_size) {
  if (out_size) *out_size = 0;
  return guard([&] {
    const RankLayout layout = layout_of(options, world_size);
    copy_ranks(layout.group(axis, index), ranks, cap, out_size);
  });
}

nxd_status_t nxd_layout_find_rank(const nxd_parallel_options_t* options, int32_t world_size,
                                  nxd_axis_t axis, int32_t rank, int32_t* out_group_index,
                                  int32_t* out_rank_in_group) {
  if (out_group_index) *out_group_index = 0;
  if (out_rank_in_group) *out_rank_in_group = 0;
  return guard([&] {
    check_argument(out_group_index, "out_group_index: expected a pointer, got NULL");
    check_argument(out_rank_in_group, "out_rank_in_group: expected a pointer, got NULL");
    const RankLayout layout = layout_of(options, world_size);
    const RankLayout::Place place = layout.find(axis, rank);
    *out_group_index = place.group_index;
    *out_rank_in_group = place.rank_in_group;
  });
}

nxd_status_t nxd_init_model_parallel(nxd_context_t* ctx, const nxd_parallel_options_t* options) {
  return guard([&] {
    Context& context = unwrap(ctx);
    ParallelOptions layout;
    const auto resolved = Outcome::of(context.rank(), [&] { layout = resolve(read(options)); });
    context.init_model_parallel(layout, resolved);
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
  return ctx && !ctx->fork_guard.is_foreign() && ctx->value->model_parallel_is_initialized() ? 1
                                                                                             : 0;
}

nxd_status_t nxd_parallel_get_size(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_size) {
  return guard([&] {
    auto& out = output(out_size, "out_size");
    out = unwrap(ctx).parallel()->size(axis);
  });
}

nxd_status_t nxd_parallel_get_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel()->rank(axis);
  });
}

nxd_status_t nxd_parallel_get_source_rank(nxd_context_t* ctx, nxd_axis_t axis, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel()->source_rank(axis);
  });
}

nxd_status_t nxd_parallel_get_group(nxd_context_t* ctx, nxd_axis_t axis, nxd_group_t** out_group) {
  return guard([&] {
    auto& out = output(out_group, "out_group");
    const auto group = unwrap(ctx).parallel()->group(axis);
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
    const auto parallel = unwrap(ctx).parallel();
    const RankLayout& layout = parallel->layout();
    const auto group = layout.group(axis, index);
    copy_ranks(group, ranks, cap, out_size);
    count = layout.group_count(axis);
  });
}

nxd_status_t nxd_parallel_get_pipeline_next_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel()->pipeline_neighbour(1);
  });
}

nxd_status_t nxd_parallel_get_pipeline_previous_rank(nxd_context_t* ctx, int32_t* out_rank) {
  return guard([&] {
    auto& out = output(out_rank, "out_rank");
    out = unwrap(ctx).parallel()->pipeline_neighbour(-1);
  });
}
