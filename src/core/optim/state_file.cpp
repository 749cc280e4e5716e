#include "core/optim/state_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/printable.h"
#include "core/base/suggestions.h"
#include "core/checkpoint/collective_write.h"
#include "core/checkpoint/safetensors.h"
#include "core/layout/shard_gather.h"

namespace nxd {
namespace {

constexpr const char* kStateFormat = "nxd-optimizer";
constexpr const char* kMaster = "master";

using Block = OptimizerState::Block;
using Span = OptimizerState::Span;

size_t element_size(const ParameterInfo& info) {
  return dtype_size(OptimizerState::state_dtype(info));
}

Block zeros(int64_t count, size_t element) {
  const size_t bytes = static_cast<size_t>(count) * element;
  Block block(kernels::pool_allocate(bytes));
  std::memset(block.get(), 0, bytes);
  return block;
}

// The states of a parameter that has been updated, by name.
std::vector<std::string> stored_states(const ParameterInfo& info, const UpdateRule& rule) {
  std::vector<std::string> names = rule.states();
  if (info.dtype == NXD_DTYPE_BF16 && rule.bf16_update() == NXD_BF16_UPDATE_MASTER) {
    names.push_back(kMaster);
  }
  return names;
}

Block& block_of(Span& span, size_t index, const UpdateRule& rule) {
  return index < rule.states().size() ? span.states[index] : span.master;
}

// Any rank that holds elements of a parameter says how often it was updated.
std::vector<int64_t> count_updates(ParameterSource& source, const OptimizerState& state) {
  std::vector<int64_t> updates(source.size(), 0);
  for (const Span& span : state.spans()) {
    updates[span.parameter] = std::max(updates[span.parameter], span.updates);
  }
  for (ProcessGroup* group : {source.groups().data.get(), source.groups().tensor.get()}) {
    if (!group || group->size() == 1) continue;
    group->run(Call::all_reduce(updates.data(), updates.data(), updates.size(), NXD_DTYPE_I64,
                                NXD_REDUCE_MAX));
  }
  return updates;
}

// This rank's shard of a state, put together from the parts of the data group.
Block local_state(ParameterSource& source, OptimizerState& state, size_t parameter, size_t index,
                  const UpdateRule& rule, bool sharded) {
  const ParameterInfo& info = source.info(parameter);
  const size_t element = element_size(info);
  Block local = zeros(info.count(), element);
  for (Span& span : state.spans()) {
    if (span.parameter != parameter || span.updates == 0) continue;
    std::memcpy(static_cast<char*>(local.get()) + static_cast<size_t>(span.begin) * element,
                block_of(span, index, rule).get(), static_cast<size_t>(span.count) * element);
  }
  ProcessGroup* data = source.groups().data.get();
  if (sharded && data && data->size() > 1) {
    data->run(Call::all_reduce(local.get(), local.get(), static_cast<size_t>(info.count()),
                               OptimizerState::state_dtype(info), NXD_REDUCE_SUM));
  }
  return local;
}

void check_together(ParameterSource& source, const char* path, const std::string& why_partial) {
  Proposal proposal(source.groups().world_rank);
  if (!path) proposal.reject(NXD_ERROR_INVALID_ARGUMENT, "path: expected a file name, got NULL");
  agree(source.groups().all(), proposal.reject(NXD_ERROR_INVALID_STATE, why_partial));
}

int64_t parse(const SafetensorsReader& reader, const std::string& path, const std::string& key) {
  const auto found = reader.metadata().find(key);
  int64_t value = -1;
  if (found != reader.metadata().end()) {
    const std::string& digits = found->second;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) value = -1;
  }
  // So many that no run comes to the end of the numbers.
  constexpr int64_t kMost = int64_t{1} << 62;
  if (value < 0 || value > kMost) {
    fail(NXD_ERROR_CORRUPT, path, ": no count of ", key, " in the metadata");
  }
  return value;
}

void check_kind(const SafetensorsReader& reader, const std::string& path, const UpdateRule& rule) {
  const auto& metadata = reader.metadata();
  const auto format = metadata.find("format");
  check_argument(format != metadata.end() && format->second == kStateFormat, path,
                 ": it is no optimizer state of nxd_optimizer_save");
  const auto kind = metadata.find("kind");
  check_argument(kind != metadata.end() && kind->second == rule.kind(), path,
                 ": expected the state of ", rule.kind(), ", got that of ",
                 kind == metadata.end() ? "nothing" : kind->second);
}

void check_names(const SafetensorsReader& reader, const std::string& path,
                 const ParameterSource& source) {
  std::vector<std::string> stored, own;
  const std::string prefix = "updates.";
  for (const auto& [key, value] : reader.metadata()) {
    if (key.rfind(prefix, 0) == 0) stored.push_back(key.substr(prefix.size()));
  }
  for (size_t i = 0; i < source.size(); ++i) own.push_back(source.info(i).name);
  const std::set<std::string> known(stored.begin(), stored.end());
  for (const std::string& name : own) {
    check_argument(known.count(name) == 1, path, ": no state of parameter ", name,
                   suggestions(name, stored));
  }
  const std::optional<std::vector<std::string>> of_model = source.names_of_model();
  if (!of_model) return;
  const std::set<std::string> expected(of_model->begin(), of_model->end());
  for (const std::string& name : stored) {
    check_argument(expected.count(name) != 0, path, ": the state of ", printable(name),
                   " belongs to no parameter", suggestions(name, *of_model));
  }
}

}  // namespace

void save_state(const char* path, ParameterSource& source, OptimizerState& state,
                const UpdateRule& rule, int64_t updates, bool sharded,
                const std::string& why_partial) {
  check_together(source, path, why_partial);
  const OptimizerGroups& groups = source.groups();
  const bool first_copy = !groups.data || groups.data->rank() == 0;
  std::vector<StageTensor> tensors;
  std::map<std::string, std::string> metadata{
      {"format", kStateFormat}, {"kind", rule.kind()}, {"updates", std::to_string(updates)}};
  const std::vector<int64_t> counts = count_updates(source, state);
  Block full;  // of the tensor under way
  for (size_t i = 0; i < source.size(); ++i) {
    const ParameterInfo& info = source.info(i);
    metadata["updates." + info.name] = std::to_string(counts[i]);
    if (counts[i] == 0) continue;
    const std::vector<std::string> names = stored_states(info, rule);
    const nxd_dtype_t dtype = OptimizerState::state_dtype(info);
    for (size_t s = 0; s < names.size(); ++s) {
      const auto gather = [&, i, s, dtype]() -> const void* {
        const ShardSpec& shard = source.info(i).shard;
        const Block local = local_state(source, state, i, s, rule, sharded);
        if (!first_copy) return nullptr;
        full = zeros(shard.global_size(), dtype_size(dtype));
        gather_shards(groups.tensor.get(), shard, dtype, local.get(), full.get());
        return full.get();
      };
      tensors.push_back({{info.name + "." + names[s], dtype, info.shard.shape()}, gather});
    }
  }
  write_collective(
      path, {groups.tensor.get(), groups.pipeline.get(), groups.data.get(), groups.world_rank},
      tensors, metadata);
}

int64_t load_state(const std::string& path, ParameterSource& source, OptimizerState& state,
                   const UpdateRule& rule) {
  const SafetensorsReader reader(path);
  check_kind(reader, path, rule);
  check_names(reader, path, source);
  const int64_t updates = parse(reader, path, "updates");
  struct Read {
    int64_t updates = 0;
    std::vector<Block> states;
    Block master;
  };
  std::vector<Read> read(state.spans().size());
  for (size_t r = 0; r < read.size(); ++r) {
    const Span& span = state.spans()[r];
    const ParameterInfo& info = source.info(span.parameter);
    read[r].updates = parse(reader, path, "updates." + info.name);
    if (read[r].updates == 0) continue;
    const size_t element = element_size(info);
    const std::vector<std::string> names = stored_states(info, rule);
    for (size_t s = 0; s < names.size(); ++s) {
      const Block shard = zeros(info.count(), element);
      reader.read_slice(info.name + "." + names[s], info.shard, shard.get(),
                        OptimizerState::state_dtype(info));
      Block block = zeros(span.count, element);
      std::memcpy(block.get(),
                  static_cast<const char*>(shard.get()) + static_cast<size_t>(span.begin) * element,
                  static_cast<size_t>(span.count) * element);
      if (names[s] == kMaster) {
        read[r].master = std::move(block);
      } else {
        read[r].states.push_back(std::move(block));
      }
    }
  }
  for (size_t r = 0; r < read.size(); ++r) {
    Span& span = state.spans()[r];
    span.updates = read[r].updates;
    span.states = std::move(read[r].states);
    span.master = std::move(read[r].master);
  }
  return updates;
}

}  // namespace nxd
