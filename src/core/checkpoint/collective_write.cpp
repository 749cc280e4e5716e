#include "core/checkpoint/collective_write.h"

#include <algorithm>
#include <optional>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/exchange_record.h"
#include "core/checkpoint/file_metadata.h"

namespace nxd {
namespace {

constexpr int kWriteTag = 0, kReadyTag = 1;

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
  Handover(ProcessGroup* pipeline, int world_rank) : pipeline_(pipeline), world_rank_(world_rank) {}

  // The tensor's data on the first stage's rank; on others null, once they are sent. The outcome,
  // by which this rank has the data, becomes that of having room for them.
  const void* pass(const TensorEntry& entry, int stage, const void* data, Outcome& outcome) {
    const int own = rank_in(pipeline_);
    if (stage == 0 || elements_of(entry) == 0) return data;
    if (own == stage) send(entry, data);
    if (own == 0) outcome = Outcome::of(world_rank_, [&] { make_room(entry); });
    if (own != 0 || !receive(entry, stage, outcome.good())) return nullptr;
    return room_.data();
  }

 private:
  // Data go from a rank that has them to one that has room.
  void send(const TensorEntry& entry, const void* data) {
    int32_t has_data = data ? 1 : 0, has_room = 0;
    pipeline_->run(Call::send_to(&has_data, 1, NXD_DTYPE_I32, 0, kReadyTag));
    pipeline_->run(Call::receive_from(&has_room, 1, NXD_DTYPE_I32, 0, kReadyTag));
    if (!has_data || !has_room) return;
    pipeline_->run(Call::send_to(data, elements_of(entry), entry.dtype, 0, kWriteTag));
  }
  bool receive(const TensorEntry& entry, int stage, bool is_ready) {
    int32_t has_data = 0, has_room = is_ready ? 1 : 0;
    pipeline_->run(Call::receive_from(&has_data, 1, NXD_DTYPE_I32, stage, kReadyTag));
    pipeline_->run(Call::send_to(&has_room, 1, NXD_DTYPE_I32, stage, kReadyTag));
    if (!has_data || !has_room) return false;
    pipeline_->run(
        Call::receive_from(room_.data(), elements_of(entry), entry.dtype, stage, kWriteTag));
    return true;
  }
  void make_room(const TensorEntry& entry) {
    room_.resize(std::max(room_.size(), elements_of(entry) * dtype_size(entry.dtype)));
  }

  ProcessGroup* pipeline_;
  int world_rank_;
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

  Outcome outcome, gathered;  // of writing, on the rank that does; of having what is to be written
  const auto attempt = [&](const std::function<void()>& work) {
    if (writes && outcome.good() && gathered.good())
      outcome = Outcome::of(writers.world_rank, work);
  };
  std::optional<SafetensorsWriter> writer;
  attempt([&] { writer.emplace(path, contents.entries, contents.metadata); });
  Handover handover(writers.pipeline, writers.world_rank);
  for (const size_t index : SafetensorsWriter::order(contents.entries)) {
    const TensorEntry& entry = contents.entries[index];
    const int stage = contents.stages[index];
    const void* data = nullptr;
    // Peers gather and send their data also when no rank can write them any more.
    Outcome of_tensor = Outcome::of(writers.world_rank, [&] {
      if (stage == own_stage) data = own.at(entry.name)->gather();
    });
    if (passes_on) data = handover.pass(entry, stage, data, of_tensor);
    if (gathered.good()) gathered = std::move(of_tensor);
    attempt([&] {
      if (data || elements_of(entry) == 0) writer->write(data);
    });
  }
  agree({writers.pipeline, writers.tensor, writers.data},
        Proposal(writers.world_rank).attempt([&] { gathered.rethrow(); }));
  attempt([&] { writer->commit(); });
  if (passes_on && writers.pipeline) outcome.share(*writers.pipeline);
  if (first_copy && writers.tensor) outcome.share(*writers.tensor);
  if (writers.data) outcome.share(*writers.data);
  outcome.check(" could not write: ");
}

}  // namespace nxd
