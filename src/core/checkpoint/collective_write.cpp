#include "core/checkpoint/collective_write.h"

#include <algorithm>
#include <optional>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/exchange_record.h"
#include "core/checkpoint/file_metadata.h"

namespace nxd {
namespace {

constexpr int kWriteTag = 0;

int rank_in(const ProcessGroup* group) { return group ? group->rank() : 0; }

// Entries of the file, and the stage that each tensor comes from.
struct Contents {
  std::vector<TensorEntry> entries;
  std::vector<int> stages;
  std::map<std::string, std::string> metadata;
};

std::string encode(const std::vector<StageTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  RecordWriter out;
  out.number(static_cast<int64_t>(tensors.size()));
  for (const StageTensor& tensor : tensors) {
    out.string(tensor.entry.name);
    out.number(tensor.entry.dtype);
    out.number(static_cast<int64_t>(tensor.entry.shape.size()));
    for (const int64_t extent : tensor.entry.shape) out.number(extent);
  }
  for (const auto& [key, value] : metadata) {
    out.string(key);
    out.string(value);
  }
  return out.take();
}

TensorEntry read_entry(RecordReader& in) {
  TensorEntry entry;
  entry.name = in.string();
  entry.dtype = static_cast<nxd_dtype_t>(in.number());
  entry.shape.resize(in.count());
  for (int64_t& extent : entry.shape) extent = in.number();
  return entry;
}

Contents contents_of(ProcessGroup* pipeline, const std::vector<StageTensor>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  Contents contents;
  std::map<std::string, size_t> known;
  int stage = 0;
  for (const std::string& bytes : gather_texts(pipeline, encode(tensors, metadata), {})) {
    RecordReader in(bytes);
    for (size_t left = in.count(); left > 0; --left) {
      const TensorEntry entry = read_entry(in);
      const auto [it, added] = known.emplace(entry.name, contents.entries.size());
      if (added) {
        contents.entries.push_back(entry);
        contents.stages.push_back(stage);
        continue;
      }
      const TensorEntry& first = contents.entries[it->second];
      check_argument(first.dtype == entry.dtype && first.shape == entry.shape, "tensor ",
                     entry.name, ": ", dtype_name(first.dtype), " of shape ",
                     shape_text(first.shape), " in stage ", contents.stages[it->second],
                     " of the pipeline, ", dtype_name(entry.dtype), " of shape ",
                     shape_text(entry.shape), " in stage ", stage);
    }
    while (!in.done()) {
      const std::string key = in.string();
      add_metadata(contents.metadata, key, in.string());
    }
    ++stage;
  }
  return contents;
}

size_t elements_of(const TensorEntry& entry) {
  return static_cast<size_t>(ShardSpec::replicated(entry.shape).global_size());
}

// Hands tensors from the stages to the first one.
class Handover {
 public:
  explicit Handover(ProcessGroup* pipeline) : pipeline_(pipeline) {}

  // The tensor's data on the first stage's rank; on others null, once they are sent.
  const void* pass(const TensorEntry& entry, int stage, const void* data) {
    const int own = rank_in(pipeline_);
    if (stage == 0 || elements_of(entry) == 0) return data;
    if (own != 0 && own != stage) return nullptr;
    if (own == stage) {
      pipeline_->run(Call::send_to(data, elements_of(entry), entry.dtype, 0, kWriteTag));
      return nullptr;
    }
    room_.resize(std::max(room_.size(), elements_of(entry) * dtype_size(entry.dtype)));
    pipeline_->run(
        Call::receive_from(room_.data(), elements_of(entry), entry.dtype, stage, kWriteTag));
    return room_.data();
  }

 private:
  ProcessGroup* pipeline_;
  std::vector<char> room_;
};

}  // namespace

void write_collective(const std::string& path, const WriterGroups& writers,
                      const std::vector<StageTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const Contents contents = contents_of(writers.pipeline, tensors, metadata);
  const int own_stage = rank_in(writers.pipeline);
  const bool first_copy = rank_in(writers.data) == 0;
  const bool passes_on = first_copy && rank_in(writers.tensor) == 0;
  const bool writes = passes_on && own_stage == 0;
  std::map<std::string, const StageTensor*> own;
  for (const StageTensor& tensor : tensors) own[tensor.entry.name] = &tensor;

  Outcome outcome;
  const auto attempt = [&](const std::function<void()>& work) {
    if (writes && outcome.good()) outcome = Outcome::of(writers.world_rank, work);
  };
  std::optional<SafetensorsWriter> writer;
  attempt([&] { writer.emplace(path, contents.entries, contents.metadata); });
  Handover handover(writers.pipeline);
  for (const size_t index : SafetensorsWriter::order(contents.entries)) {
    const TensorEntry& entry = contents.entries[index];
    const int stage = contents.stages[index];
    const void* data = stage == own_stage ? own.at(entry.name)->gather() : nullptr;
    if (!passes_on) continue;
    data = handover.pass(entry, stage, data);
    // Peers send their data also when no rank can write them any more.
    attempt([&] { writer->write(data); });
  }
  attempt([&] { writer->commit(); });
  if (passes_on && writers.pipeline) outcome.share(*writers.pipeline);
  if (first_copy && writers.tensor) outcome.share(*writers.tensor);
  if (writers.data) outcome.share(*writers.data);
  outcome.check(" could not write: ");
}

}  // namespace nxd
