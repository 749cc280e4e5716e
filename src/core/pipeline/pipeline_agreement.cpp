#include "core/pipeline/pipeline_agreement.h"

#include <algorithm>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/exchange_record.h"
#include "core/base/hash.h"
#include "core/base/printable.h"
#include "core/layout/shard_spec.h"

namespace nxd {
namespace {

void write_values(RecordWriter& out, const std::vector<std::vector<PipelineValue>>& chunks) {
  out.number(static_cast<int64_t>(chunks.size()));
  for (const auto& values : chunks) {
    out.number(static_cast<int64_t>(values.size()));
    for (const PipelineValue& value : values) {
      out.string(value.name);
      out.number(static_cast<int64_t>(value.shape.size()));
      for (const int64_t extent : value.shape) out.number(extent);
      out.number(value.dtype);
      out.number(value.needs_grad ? 1 : 0);
    }
  }
}

PipelineValue read_value(RecordReader& in) {
  PipelineValue value;
  value.name = in.string();
  value.shape.resize(in.count());
  for (int64_t& extent : value.shape) extent = in.number();
  value.dtype = static_cast<nxd_dtype_t>(in.number());
  value.needs_grad = in.number() != 0;
  return value;
}

std::vector<std::vector<PipelineValue>> read_values(RecordReader& in) {
  std::vector<std::vector<PipelineValue>> chunks(in.count());
  for (auto& values : chunks) {
    for (size_t left = in.count(); left > 0; --left) values.push_back(read_value(in));
  }
  return chunks;
}

std::string encode(const PipelineSide& side) {
  RecordWriter out;
  for (const int size : {side.shape.ranks, side.shape.chunks, side.shape.microbatches}) {
    out.number(size);
  }
  out.string(side.schedule);
  out.number(static_cast<int64_t>(side.schedule_hash));
  out.number(side.shares_loss ? 1 : 0);
  write_values(out, side.inputs);
  write_values(out, side.outputs);
  return out.take();
}

PipelineSide decode(const std::string& bytes) {
  RecordReader in(bytes);
  PipelineSide side;
  for (int* size : {&side.shape.ranks, &side.shape.chunks, &side.shape.microbatches}) {
    *size = static_cast<int>(in.number());
  }
  side.schedule = in.string();
  side.schedule_hash = static_cast<uint64_t>(in.number());
  side.shares_loss = in.number() != 0;
  side.inputs = read_values(in);
  side.outputs = read_values(in);
  return side;
}

std::string describe(const PipelineShape& shape) {
  return text(shape.ranks, " ranks with ", shape.chunks,
              shape.chunks == 1 ? " chunk each, " : " chunks each, ", shape.microbatches,
              shape.microbatches == 1 ? " microbatch" : " microbatches");
}

std::string describe(const PipelineValue& value) {
  return text("\"", printable(value.name), "\", ", dtype_name(value.dtype), " ",
              shape_text(value.shape), value.needs_grad ? ", with" : ", without", " gradient");
}

// Names are for messages: stages may call the same value differently.
bool match(const PipelineValue& a, const PipelineValue& b) {
  return a.shape == b.shape && a.dtype == b.dtype && a.needs_grad == b.needs_grad;
}

std::string compare_boundary(const std::vector<PipelineValue>& gives,
                             const std::vector<PipelineValue>& takes, const std::string& giver,
                             const std::string& taker) {
  const size_t common = std::min(gives.size(), takes.size());
  for (size_t i = 0; i < common; ++i) {
    if (match(gives[i], takes[i])) continue;
    return text("value ", i, ": ", giver, " gives ", describe(gives[i]), "; ", taker, " takes ",
                describe(takes[i]));
  }
  if (gives.size() == takes.size()) return "";
  return text(giver, " gives ", gives.size(), gives.size() == 1 ? " value, " : " values, ", taker,
              " takes ", takes.size(),
              common < gives.size() ? text("; the first left over is ", describe(gives[common]))
                                    : text("; the first missing is ", describe(takes[common])));
}

std::string find_bad_ends(const PipelineSide& first, const PipelineSide& last) {
  if (!first.inputs.front().empty()) {
    return text("stage 0: expected no inputs, for nothing comes before it, got ",
                describe(first.inputs.front().front()));
  }
  if (last.outputs.back().empty()) return "";
  return text("the last stage: expected no outputs, for nothing comes after it, got ",
              describe(last.outputs.back().front()));
}

uint64_t hash_of(const Schedule& schedule) {
  Hash hash;
  const auto mix = [&hash](int value) { hash.add(uint64_t{static_cast<uint32_t>(value)}); };
  for (int rank = 0; rank < schedule.shape().ranks; ++rank) {
    mix(static_cast<int>(schedule.tasks(rank).size()));
    for (const PipelineTask& task : schedule.tasks(rank)) {
      mix(task.kind);
      mix(task.microbatch);
      mix(task.chunk);
    }
  }
  return hash.value();
}

}  // namespace

PipelineSide PipelineSide::of(const Schedule& schedule, const PipelineStages& stages,
                              bool shares_loss) {
  PipelineSide side;
  side.shares_loss = shares_loss;
  side.shape = schedule.shape();
  side.schedule = schedule.name();
  side.schedule_hash = hash_of(schedule);
  for (int chunk = 0; chunk < side.shape.chunks; ++chunk) {
    side.inputs.push_back(stages.inputs(chunk));
    side.outputs.push_back(stages.outputs(chunk));
  }
  return side;
}

std::string find_disagreement(const std::vector<PipelineSide>& sides,
                              const std::vector<int>& world_ranks) {
  const PipelineSide& first = sides.front();
  const int ranks = static_cast<int>(sides.size());
  for (int r = 0; r < ranks; ++r) {
    const PipelineSide& other = sides[static_cast<size_t>(r)];
    const auto differ = [&](const auto& a, const auto& b) {
      return text("ranks of the pipeline disagree: rank ", world_ranks[0], " has ", a, ", rank ",
                  world_ranks[static_cast<size_t>(r)], " has ", b);
    };
    if (!(other.shape == first.shape)) return differ(describe(first.shape), describe(other.shape));
    if (other.schedule_hash != first.schedule_hash) {
      return differ(text("the schedule ", first.schedule),
                    text("the schedule ", other.schedule, " of other tasks"));
    }
    if (other.shares_loss != first.shares_loss) {
      return differ(text("broadcast_and_average_loss ", first.shares_loss ? 1 : 0),
                    text(other.shares_loss ? 1 : 0));
    }
  }
  const PipelineShape& shape = first.shape;
  if (shape.ranks != ranks) {
    return text("the schedule is for ", describe(shape), ", but the pipeline has ", ranks);
  }
  const std::string ends = find_bad_ends(first, sides.back());
  if (!ends.empty()) return ends;
  for (int stage = 0; stage + 1 < shape.stages(); ++stage) {
    const auto chunk = [&](int s) { return static_cast<size_t>(shape.chunk_of(s)); };
    const auto rank = [&](int s) { return static_cast<size_t>(shape.rank_of(s)); };
    const auto name = [&](int s) {
      return text("stage ", s, " (rank ", world_ranks[rank(s)], ")");
    };
    const std::string reason = compare_boundary(sides[rank(stage)].outputs[chunk(stage)],
                                                sides[rank(stage + 1)].inputs[chunk(stage + 1)],
                                                name(stage), name(stage + 1));
    if (!reason.empty()) return text("stages do not fit together: ", reason);
  }
  return "";
}

void agree_on_pipeline(ProcessGroup& group, const PipelineSide& own, const Outcome& outcome) {
  std::vector<PipelineSide> sides;
  for (const std::string& side : gather_texts(&group, encode(own), outcome)) {
    sides.push_back(decode(side));
  }
  const std::string reason = find_disagreement(sides, group.ranks());
  check_argument(reason.empty(), reason);
}

}  // namespace nxd
