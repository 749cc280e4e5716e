// nxd/data_parallel.h: data parallelism over buffers, samplers.
#include "capi/handles.h"
#include "capi/optimizer_handles.h"
#include "capi/optimizer_options.h"
#include "capi/shard_options.h"
#include "core/base/last_error.h"
#include "core/data/epoch_sampler.h"
#include "core/optim/buffer_data_parallel.h"

using namespace nxd;

namespace {

DataParallel& reducer(nxd_ddp_t* ddp) { return *unwrap(ddp).value; }

}  // namespace

nxd_status_t nxd_ddp_options_init(nxd_ddp_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kDdpDefaults, "options"); });
}

nxd_status_t nxd_ddp_create_buffers(nxd_context_t* ctx, nxd_group_t* group,
                                    const char* const* names, DLTensor* const* params,
                                    DLTensor* const* grads, size_t num_params,
                                    const nxd_ddp_options_t* options, nxd_ddp_t** out_ddp) {
  return guard([&] {
    clear_each(out_ddp);
    Context& context = unwrap(ctx);
    if (group) static_cast<void>(unwrap(group));
    const ResolvedDdpOptions known(options, out_ddp, context.rank());
    auto handle = std::make_unique<nxd_ddp>();
    handle->value = std::make_shared<BufferDataParallel>(
        context.shared_from_this(), group ? group->value : nullptr, names, params, grads,
        num_params, known.value, known.outcome);
    *out_ddp = handle.release();
  });
}

nxd_status_t nxd_ddp_set_placements(nxd_ddp_t* ddp, const nxd_placement_t* placements,
                                    const int32_t* dims, const int32_t* tied, size_t num_params) {
  return guard([&] { reducer(ddp).set_placements(placements, dims, tied, num_params); });
}

nxd_status_t nxd_ddp_set_shards(nxd_ddp_t* ddp, const nxd_shard_options_t* const* shards,
                                const int32_t* partial_grads, const int32_t* tied,
                                size_t num_params) {
  return guard([&] {
    DataParallel& self = reducer(ddp);
    std::vector<ShardOptions> known;
    const Outcome resolved = Outcome::of(self.source()->groups().world_rank, [&] {
      const size_t n = self.source()->size();
      check_argument(num_params == n, "num_params: expected ", n, ", got ", num_params);
      check_argument(shards || n == 0, "shards: expected an array of ", n, ", got NULL");
      for (size_t i = 0; i < n; ++i) {
        known.push_back(resolve(shards[i], text("shards[", i, "]").c_str()));
      }
    });
    self.set_shards(known, resolved, partial_grads, tied, num_params);
  });
}

nxd_status_t nxd_ddp_rebind(nxd_ddp_t* ddp, size_t index, DLTensor* param, DLTensor* grad) {
  return guard([&] { reducer(ddp).rebind(index, param, grad); });
}

nxd_status_t nxd_ddp_get_count(nxd_ddp_t* ddp, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = reducer(ddp).source()->size();
  });
}

nxd_status_t nxd_ddp_get_name(nxd_ddp_t* ddp, size_t index, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    const ParameterSource& source = *reducer(ddp).source();
    check_argument(index < source.size(), "index: expected less than ", source.size(),
                   " parameters, got ", index);
    out = source.info(index).name.c_str();
  });
}

nxd_status_t nxd_ddp_mark_ready(nxd_ddp_t* ddp, size_t index) {
  return guard([&] { reducer(ddp).mark_ready(index); });
}

nxd_status_t nxd_ddp_mark_unused(nxd_ddp_t* ddp, size_t index) {
  return guard([&] { reducer(ddp).mark_unused(index); });
}

nxd_status_t nxd_ddp_set_sync(nxd_ddp_t* ddp, int32_t sync) {
  return guard([&] {
    DataParallel& self = reducer(ddp);
    flag(sync, "sync");
    self.set_sync(sync == 1);
  });
}

nxd_status_t nxd_ddp_get_buffer_bytes(nxd_ddp_t* ddp, uint64_t* out_bytes) {
  return guard([&] {
    auto& out = output(out_bytes, "out_bytes");
    out = reducer(ddp).buffer_bytes();
  });
}

nxd_status_t nxd_ddp_mark_reloaded(nxd_ddp_t* ddp) {
  return guard([&] { reducer(ddp).mark_reloaded(); });
}

void nxd_ddp_destroy(nxd_ddp_t* ddp) {
  const Uncancelled whole_call;
  delete ddp;
}

nxd_status_t nxd_finish_options_init(nxd_finish_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kFinishDefaults, "options"); });
}

nxd_status_t nxd_ddp_finish(nxd_ddp_t* ddp, const nxd_finish_options_t* options, double* out_norm) {
  return guard([&] {
    if (out_norm) *out_norm = 0;
    DataParallel& self = reducer(ddp);
    const double norm = finish(self, read_finish(options));
    if (out_norm) *out_norm = norm;
  });
}

nxd_status_t nxd_sample_epoch(int64_t num_samples, int32_t ranks, int32_t rank, int64_t epoch,
                              uint64_t seed, int32_t shuffle, int32_t drop_last,
                              int64_t* out_indices, size_t cap, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    const EpochSampler sampler(
        {num_samples, ranks, epoch, seed, flag(shuffle, "shuffle"), flag(drop_last, "drop_last")});
    sampler.check_rank(rank);
    const auto count = static_cast<size_t>(sampler.count());
    if (cap > 0) {
      check_argument(out_indices, "out_indices: expected room for ", cap, ", got NULL");
      out = count;
      check_argument(cap >= count, "cap: expected at least ", count, ", got ", cap);
      for (size_t i = 0; i < count; ++i) {
        out_indices[i] = sampler.sample(rank, static_cast<int64_t>(i));
      }
    }
    out = count;
  });
}
