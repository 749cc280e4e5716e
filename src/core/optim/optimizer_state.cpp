#include "core/optim/optimizer_state.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"

namespace nxd {
namespace {

// Appends a stretch, or makes it one more row of the last.
void append(std::vector<OptimizerState::Stretch>& stretches, OptimizerState::Stretch next) {
  if (!stretches.empty()) {
    OptimizerState::Stretch& last = stretches.back();
    const int64_t rows = last.count / last.cols;
    const auto stride = static_cast<int64_t>(next.first - last.first) / rows;
    const bool regular = next.cols == last.cols && next.first > last.first &&
                         static_cast<int64_t>(next.first - last.first) == stride * rows &&
                         stride >= last.cols && (rows == 1 || stride == last.row_stride);
    if (regular) {
      last.row_stride = stride;
      last.count += next.count;
      return;
    }
  }
  stretches.push_back(next);
}

}  // namespace

OptimizerState::OptimizerState(const ParameterSource& source) {
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.info(i).count() == 0) continue;
    Run run;
    run.parameter = i;
    run.count = source.info(i).count();
    runs_.push_back(std::move(run));
  }
}

OptimizerState::OptimizerState(const ParameterSource& source, const BucketPlan& plan, int rank) {
  static_cast<void>(source);
  for (size_t bucket = 0; bucket < plan.buckets().size(); ++bucket) {
    for (const BucketPlan::Segment& segment : plan.part(bucket, rank)) {
      Run run;
      run.parameter = segment.parameter;
      run.begin = segment.parameter_offset;
      run.count = segment.count;
      run.bucket = static_cast<int>(bucket);
      run.bucket_offset = segment.bucket_offset;
      runs_.push_back(std::move(run));
    }
  }
}

nxd_dtype_t OptimizerState::state_dtype(const ParameterInfo& info) {
  return info.dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
}

OptimizerState::Block OptimizerState::make_block(const Run& run, const ParameterInfo& info) {
  const size_t bytes = static_cast<size_t>(run.count) * dtype_size(state_dtype(info));
  Block block(kernels::pool_allocate(bytes));
  std::memset(block.get(), 0, bytes);
  return block;
}

void OptimizerState::make_states(Run& run, const ParameterInfo& info, size_t count) {
  while (run.states.size() < count) run.states.push_back(make_block(run, info));
}

const std::vector<OptimizerState::Stretch>& OptimizerState::stretches(Run& run,
                                                                      const ParameterInfo& info) {
  if (!run.stretches.empty()) return run.stretches;
  info.shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    const int64_t first = std::max(local, run.begin);
    const int64_t last = std::min(local + count, run.begin + run.count);
    if (first >= last) return;
    const int64_t n = last - first;
    append(run.stretches,
           {first - run.begin, n, static_cast<uint64_t>(global + (first - local)), n, n});
  });
  return run.stretches;
}

uint64_t OptimizerState::bytes(const ParameterSource& source) const {
  uint64_t sum = 0;
  for (const Run& run : runs_) {
    const uint64_t each =
        static_cast<uint64_t>(run.count) * dtype_size(state_dtype(source.info(run.parameter)));
    sum += each * (run.states.size() + (run.master ? 1 : 0));
  }
  return sum;
}

}  // namespace nxd
