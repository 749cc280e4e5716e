#include "core/tensor_parallel/weight_shard.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/checkpoint/safetensors.h"
#include "core/tensor_parallel/array_checks.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {
namespace {

// A dense block that stands for an array of any strides: what is written to it goes to the array.
template <class Fill>
void fill_by_dense(const ProcessGroup& group, const Array& array, nxd_dtype_t dtype,
                   const Fill& fill) {
  check_output(array, "shard");
  Scratch scratch;
  const DenseOutput out(array, dtype, array.shape, scratch);
  scratch.allocate(group, {});
  fill(out.data(scratch));
  out.finish(scratch);
}

ShardSpec spec_of(const ProcessGroup& group, const Array& shard, const ShardOptions& options) {
  return shard_of(shard.shape, options, group.rank(), group.size());
}

uint32_t shape_digest(const ShardSpec::Shape& shape) {
  Hash hash;
  for (const int64_t size : shape) hash.add(static_cast<uint64_t>(size));
  return hash.folded();
}

void check_full(const Array& full, const Array& shard, const ShardSpec& spec) {
  check_same_dtype(full, "full", shard.dtype, "shard");
  check_shape(full, "full", spec.shape());
}

}  // namespace

void initialize_shard(const Context& context, const std::string& name, const WeightInit& init,
                      const ShardOptions& options, const Array& shard) {
  check_float(shard, "shard");
  check_argument(!name.empty(), "name: expected the name of a weight, got \"\"");
  check_argument(init.kind != NXD_INIT_DEFAULT, "init: expected a distribution, got DEFAULT");
  const auto group = layer_group(context);
  const ShardSpec spec = spec_of(*group, shard, options);
  const int64_t fan_in = spec.shape().empty()
                             ? 1
                             : std::accumulate(spec.shape().begin() + 1, spec.shape().end(),
                                               int64_t{1}, std::multiplies<>());
  const Initializer initializer = init.resolve({}, std::max<int64_t>(fan_in, 1));
  initializer.check_range("weight " + name, shard.dtype);
  const nxd_dtype_t drawn = partial_sum_dtype(shard.dtype);
  fill_by_dense(*group, shard, drawn, [&](void* out) {
    initializer.fill(RandomSite(context.seed(), name), spec, drawn, out);
  });
}

void set_full(const Context& context, const Array& full, const ShardOptions& options,
              const Array& shard) {
  const auto group = layer_group(context);
  const ShardSpec spec = spec_of(*group, shard, options);
  check_full(full, shard, spec);
  CallMemory memory;
  memory.add_input(full, "full");
  memory.add_output(shard, "shard");
  memory.check({});
  Scratch scratch;
  const DenseInput in(full, scratch);
  scratch.allocate(*group, {});
  const auto* from = static_cast<const char*>(in.read(scratch));
  const size_t element = dtype_size(shard.dtype);
  fill_by_dense(*group, shard, shard.dtype, [&](void* out) {
    auto* const to = static_cast<char*>(out);
    if (spec.has_padding()) std::memset(to, 0, static_cast<size_t>(shard.count()) * element);
    spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
      std::memcpy(to + static_cast<size_t>(local) * element,
                  from + static_cast<size_t>(global) * element,
                  static_cast<size_t>(count) * element);
    });
  });
}

void load_shard(const Context& context, const std::string& path, const std::string& name,
                const ShardOptions& options, const Array& shard) {
  const auto group = layer_group(context);
  const ShardSpec spec = spec_of(*group, shard, options);
  const SafetensorsReader reader(path);
  fill_by_dense(*group, shard, shard.dtype,
                [&](void* out) { reader.read_slice(name, spec, out, shard.dtype); });
}

ShardGather::ShardGather(const ProcessGroup& group, const Array& shard, const ShardOptions& options,
                         const Array& full)
    : group_(group),
      shard_(shard),
      full_(full),
      options_(options),
      parts_block_(
          scratch_.reserve(shard.count(), group.size(), shard.dtype, Scratch::Use::kExchanged)),
      out_(full, full.dtype, full.shape, scratch_) {
  check_full(full_, shard_, spec(group_.rank()));
  CallMemory memory;
  memory.add_input(shard_, "shard");
  memory.add_output(full_, "full");
  memory.check({});
}

ShardSpec ShardGather::spec(int rank) const {
  return shard_of(shard_.shape, options_, rank, group_.size());
}

void ShardGather::propose(Proposal& proposal, const ShardGather* plan) {
  const auto same = [&](const char* name, auto value) {
    proposal.same(name, plan ? static_cast<double>(value(*plan)) : 0);
  };
  using Plan = const ShardGather&;
  same("operation (16: gather of shards)", [](Plan) { return 16; });
  proposal.same_dtype("dtype", plan ? plan->shard_.dtype : NXD_DTYPE_F32);
  same("elements of the shard", [](Plan p) { return p.shard_.count(); });
  proposal.same_digest("shape of the shard", plan ? shape_digest(plan->shard_.shape) : 0);
  same("elements of the whole weight", [](Plan p) { return p.full_.count(); });
  same("dim (-1: none)",
       [](Plan p) { return p.options_.dim ? p.spec(p.group_.rank()).dim() : -1; });
  same("num_fused", [](Plan p) { return p.options_.num_fused; });
  same("num_heads", [](Plan p) { return p.options_.num_heads; });
}

// Ranks' parts are taken from the last one on, so that of equal ones the first rank's stays.
void ShardGather::run(GroupCalls& calls) const {
  const size_t element = dtype_size(shard_.dtype);
  const size_t bytes = static_cast<size_t>(shard_.count()) * element;
  char* const parts = scratch_.at(parts_block_);
  const Array own =
      Array::dense(shard_.dtype, shard_.shape, parts + static_cast<size_t>(group_.rank()) * bytes);
  kernels::move_rows(shard_.rows(), own.rows());
  if (group_.size() > 1) {
    calls.run(Call::all_gather(own.data, parts, static_cast<size_t>(shard_.count()), shard_.dtype));
  }
  auto* const to = static_cast<char*>(out_.data(scratch_));
  for (int rank = group_.size(); rank-- > 0;) {
    const char* const from = parts + static_cast<size_t>(rank) * bytes;
    spec(rank).for_each_run([&](int64_t global, int64_t local, int64_t count) {
      std::memcpy(to + static_cast<size_t>(global) * element,
                  from + static_cast<size_t>(local) * element,
                  static_cast<size_t>(count) * element);
    });
  }
  out_.finish(scratch_);
}

}  // namespace nxd
