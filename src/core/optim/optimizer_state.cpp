#include "core/optim/optimizer_state.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype.h"

namespace nxd {
namespace {

// Appends a random span, or makes it one more row of the last, if no padding is between them.
void append(std::vector<OptimizerState::RandomSpan>& random_spans,
            OptimizerState::RandomSpan next) {
  if (!random_spans.empty()) {
    OptimizerState::RandomSpan& last = random_spans.back();
    const int64_t rows = last.count / last.cols;
    const auto stride = static_cast<int64_t>(next.first - last.first) / rows;
    const bool regular = next.begin == last.begin + last.count && next.cols == last.cols &&
                         next.first > last.first &&
                         static_cast<int64_t>(next.first - last.first) == stride * rows &&
                         stride >= last.cols && (rows == 1 || stride == last.row_stride);
    if (regular) {
      last.row_stride = stride;
      last.count += next.count;
      return;
    }
  }
  random_spans.push_back(next);
}

}  // namespace

OptimizerState::OptimizerState(const ParameterSource& source) {
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.info(i).count() == 0) continue;
    Span span;
    span.parameter = i;
    span.count = span.room = source.info(i).count();
    spans_.push_back(std::move(span));
  }
}

OptimizerState::OptimizerState(const ParameterSource& source, const BucketPlan& plan, int rank) {
  for (size_t bucket = 0; bucket < plan.buckets().size(); ++bucket) {
    std::vector<BucketPlan::Segment> segments = plan.part(bucket, rank);
    if (segments.empty() && plan.has_parts_alike()) {
      const size_t parameter = plan.buckets()[bucket].items[0].parameter;
      const int64_t end = source.info(parameter).count();
      segments.push_back({parameter, end, end, 0});
    }
    for (const BucketPlan::Segment& segment : segments) {
      Span span;
      span.parameter = segment.parameter;
      span.begin = segment.parameter_offset;
      span.count = segment.count;
      span.room = plan.has_parts_alike() ? plan.part_size(bucket) : segment.count;
      span.bucket = static_cast<int>(bucket);
      span.bucket_offset = segment.bucket_offset;
      spans_.push_back(std::move(span));
    }
  }
}

nxd_dtype_t OptimizerState::state_dtype(const ParameterInfo& info) {
  return info.dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
}

OptimizerState::Block OptimizerState::make_block(const Span& span, const ParameterInfo& info) {
  const size_t bytes = static_cast<size_t>(span.room) * dtype_size(state_dtype(info));
  Block block(bytes);
  std::memset(block.get(), 0, bytes);
  return block;
}

bool OptimizerState::is_shared() const {
  return std::any_of(spans_.begin(), spans_.end(), [](const Span& span) {
    return span.master.is_shared() || std::any_of(span.states.begin(), span.states.end(),
                                                  [](const Block& s) { return s.is_shared(); });
  });
}

void OptimizerState::make_own() {
  for (Span& span : spans_) {
    for (Block& state : span.states) state.make_own();
    span.master.make_own();
  }
}

void OptimizerState::make_states(Span& span, const ParameterInfo& info, size_t count) {
  while (span.states.size() < count) span.states.push_back(make_block(span, info));
}

const std::vector<OptimizerState::RandomSpan>& OptimizerState::random_spans(
    Span& span, const ParameterInfo& info) {
  if (!span.random_spans.empty()) return span.random_spans;
  info.shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    const int64_t first = std::max(local, span.begin);
    const int64_t last = std::min(local + count, span.begin + span.count);
    if (first >= last) return;
    const int64_t n = last - first;
    append(span.random_spans,
           {first - span.begin, n, static_cast<uint64_t>(global + (first - local)), n, n});
  });
  return span.random_spans;
}

uint64_t OptimizerState::bytes(const ParameterSource& source) const {
  uint64_t sum = 0;
  for (const Span& span : spans_) {
    const uint64_t each =
        static_cast<uint64_t>(span.room) * dtype_size(state_dtype(source.info(span.parameter)));
    sum += each * (span.states.size() + (span.master ? 1 : 0));
  }
  return sum;
}

}  // namespace nxd
