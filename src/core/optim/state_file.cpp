#include "core/optim/state_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/printable.h"
#include "core/base/suggestions.h"
#include "core/checkpoint/collective_write.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/share_write.h"
#include "core/comm/take_for_call.h"
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
  Block block(bytes);
  std::memset(block.get(), 0, bytes);
  return block;
}

std::vector<ParameterInfo> infos_of(const ParameterSource& source) {
  std::vector<ParameterInfo> infos;
  for (size_t i = 0; i < source.size(); ++i) infos.push_back(source.info(i));
  return infos;
}

std::vector<std::string> stored_names(const std::vector<ParameterInfo>& parameters) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : parameters) names.push_back(info.name);
  return names;
}

bool has_masters(const UpdateRule& rule) { return rule.bf16_update() == NXD_BF16_UPDATE_MASTER; }

// The states of a parameter that has been updated, by name.
std::vector<std::string> stored_states(const ParameterInfo& info, std::vector<std::string> states,
                                       bool has_masters) {
  if (info.dtype == NXD_DTYPE_BF16 && has_masters) states.push_back(kMaster);
  return states;
}

// Any rank that holds elements of a parameter says how often it was updated.
std::vector<int64_t> count_updates(const StateView& view) {
  std::vector<int64_t> updates(view.parameters.size(), 0);
  for (const Span& span : view.spans()) {
    updates[span.parameter] = std::max(updates[span.parameter], span.updates);
  }
  for (ProcessGroup* group : {view.groups.data.get(), view.groups.tensor.get()}) {
    if (!group || group->size() == 1) continue;
    group->run(Call::all_reduce(updates.data(), updates.data(), updates.size(), NXD_DTYPE_I64,
                                NXD_REDUCE_MAX));
  }
  return updates;
}

std::map<std::string, std::string> metadata_of(const StateView& view,
                                               const std::vector<int64_t>& counts) {
  std::map<std::string, std::string> metadata{
      {"format", kStateFormat}, {"kind", view.kind}, {"updates", std::to_string(view.updates)}};
  view.settings.write(metadata, stored_names(view.parameters));
  for (size_t i = 0; i < counts.size(); ++i) {
    metadata["updates." + view.parameters[i].name] = std::to_string(counts[i]);
  }
  return metadata;
}

// This rank's shard of a state, put together from the parts of the data group.
Block local_state(const StateView& view, size_t parameter, size_t index) {
  const ParameterInfo& info = view.parameters[parameter];
  const size_t element = element_size(info);
  ProcessGroup* const data = view.sharded ? view.groups.data.get() : nullptr;
  Block local;
  take_for_call(data, "all_reduce", [&] { local = zeros(info.count(), element); });
  for (const size_t place : view.spans_of[parameter]) {
    const Span& span = view.spans()[place];
    if (span.updates == 0) continue;
    const Block& block = index < view.states.size() ? span.states[index] : span.master;
    std::memcpy(static_cast<char*>(local.get()) + static_cast<size_t>(span.begin) * element,
                block.get(), static_cast<size_t>(span.count) * element);
  }
  if (data && data->size() > 1) {
    // As integers, zeros add to nothing: as floats they would make +0 of a -0.
    const nxd_dtype_t bits = element == dtype_size(NXD_DTYPE_I64) ? NXD_DTYPE_I64 : NXD_DTYPE_I32;
    data->run(Call::all_reduce(local.get(), local.get(), static_cast<size_t>(info.count()), bits,
                               NXD_REDUCE_SUM));
  }
  return local;
}

// A state of the parameter, of its whole or of this rank's shard, whose shape in C order that is.
void put_in_c_order(const ParameterInfo& info, const ShardSpec::Shape& shape, Block& state) {
  if (info.order.is_c()) return;
  const nxd_dtype_t dtype = OptimizerState::state_dtype(info);
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  Block sorted = zeros(count, dtype_size(dtype));
  info.order.copy_to_c(dtype, shape, state.get(), sorted.get());
  state = std::move(sorted);
}

// The elements that a span has of a stored state. In another order than C's it is no span of the
// file's elements: the shard is read and sorted.
Block read_block(const SafetensorsReader& reader, const std::string& name,
                 const ParameterInfo& info, const Span& span) {
  const nxd_dtype_t dtype = OptimizerState::state_dtype(info);
  const size_t element = element_size(info);
  Block block = OptimizerState::make_block(span, info);
  if (span.count == 0) return block;
  if (info.order.is_c()) {
    reader.read_span(name, info.shard, span.begin, span.count, block.get(), dtype);
    return block;
  }
  const Block shard = zeros(info.count(), element), sorted = zeros(info.count(), element);
  reader.read_slice(name, info.stored(), shard.get(), dtype);
  info.order.copy_from_c(dtype, info.stored().local_shape(), shard.get(), sorted.get());
  std::memcpy(block.get(),
              static_cast<const char*>(sorted.get()) + static_cast<size_t>(span.begin) * element,
              static_cast<size_t>(span.count) * element);
  return block;
}

// Shares of this rank for a snapshot's files, and what they need in memory of its own.
class StateShares {
 public:
  StateShares(const StateView& view, const std::vector<int64_t>& counts)
      : view_(view), counts_(counts) {
    if (!view.is_written()) return;
    attempt([&] {
      for (const Span& span : view.spans()) add_span(span);
    });
    for (size_t i = 0; i < view.parameters.size(); ++i) add_sorted(i);
  }
  const std::vector<TensorShare>& list() const { return list_; }
  // Ranks go on after a failure, so that they meet in every collective.
  const Outcome& outcome() const { return outcome_; }

 private:
  void attempt(const std::function<void()>& work) {
    Outcome outcome = Outcome::of(view_.groups.world_rank, work);
    if (outcome_.good()) outcome_ = std::move(outcome);
  }
  void add_span(const Span& span) {
    const ParameterInfo& info = view_.parameters[span.parameter];
    if (counts_[span.parameter] == 0 || !info.order.is_c()) return;
    const std::vector<std::string> names = stored_states(info, view_.states, view_.has_masters);
    for (size_t s = 0; s < names.size(); ++s) {
      const Block* block = s < view_.states.size() ? &span.states[s] : &span.master;
      // A span that has had no update yet, where others of its parameter have: the ranks of
      // nxd_optimizer_update are not always all.
      if (span.updates == 0) block = &own_.emplace_back(zeros(span.count, element_size(info)));
      add(info, names[s], span.begin, span.count, *block);
    }
  }
  // In another order than C's a data-parallel rank's span is scattered over the file's elements:
  // the group puts the shard together, in the order of the parameters.
  void add_sorted(size_t parameter) {
    const ParameterInfo& info = view_.parameters[parameter];
    if (counts_[parameter] == 0 || info.order.is_c()) return;
    const std::vector<std::string> names = stored_states(info, view_.states, view_.has_masters);
    for (size_t s = 0; s < names.size(); ++s) {
      attempt([&] {
        Block& shard = own_.emplace_back(local_state(view_, parameter, s));
        put_in_c_order(info, info.stored().local_shape(), shard);
        add(info, names[s], 0, info.count(), shard);
      });
    }
  }
  void add(const ParameterInfo& info, const std::string& state, int64_t begin, int64_t count,
           const Block& block) {
    const nxd_dtype_t dtype = OptimizerState::state_dtype(info);
    list_.push_back({{info.name + "." + state, dtype, info.stored().shape()},
                     info.stored(),
                     begin,
                     count,
                     block.get()});
  }

  const StateView& view_;
  const std::vector<int64_t>& counts_;
  std::vector<TensorShare> list_;
  std::deque<Block> own_;
  Outcome outcome_;
};

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
  const std::vector<std::string> own = stored_names(infos_of(source));
  std::vector<std::string> stored;
  const std::string prefix = "updates.";
  for (const auto& [key, value] : reader.metadata()) {
    if (key.rfind(prefix, 0) == 0) stored.push_back(key.substr(prefix.size()));
  }
  const std::set<std::string> known(stored.begin(), stored.end());
  for (const std::string& name : own) {
    check_argument(known.count(name) == 1, path, ": no state of parameter ", name,
                   Suggestions(name, stored));
  }
  const std::optional<std::vector<std::string>> of_model = source.names_of_model();
  if (!of_model) return;
  const std::set<std::string> expected(of_model->begin(), of_model->end());
  for (const std::string& name : stored) {
    check_argument(expected.count(name) != 0, path, ": the state of ", printable(name),
                   " belongs to no parameter", Suggestions(name, *of_model));
  }
}

}  // namespace

StateView::StateView(const ParameterSource& source, const OptimizerState& own,
                     const UpdateRule& rule, const OptimizerSettings& of_groups, int64_t of_updates,
                     bool is_sharded)
    : parameters(infos_of(source)),
      groups(source.groups()),
      state(&own),
      spans_of(parameters.size()),
      kind(rule.kind()),
      states(rule.states()),
      has_masters(nxd::has_masters(rule)),
      settings(of_groups),
      updates(of_updates),
      sharded(is_sharded) {
  for (size_t s = 0; s < spans().size(); ++s) spans_of[spans()[s].parameter].push_back(s);
}

std::vector<CheckpointFile> write_state_shares(const std::string& path, const StateView& view) {
  const std::vector<int64_t> counts = count_updates(view);
  const StateShares shares(view, counts);
  const OptimizerGroups& groups = view.groups;
  agree({groups.tensor.get(), groups.data.get(), groups.pipeline.get()},
        Proposal(groups.world_rank).attempt([&] { shares.outcome().rethrow(); }));
  return write_shares(
      path, {groups.tensor.get(), groups.data.get(), groups.pipeline.get(), groups.world_rank},
      shares.list(), metadata_of(view, counts));
}

void save_state(const char* path, const StateView& view, const std::function<void()>& prepare) {
  const OptimizerGroups& groups = view.groups;
  Proposal proposal(groups.world_rank);
  if (!path) proposal.reject(NXD_ERROR_INVALID_ARGUMENT, "path: expected a file name, got NULL");
  agree(groups.all(), proposal.attempt(prepare));
  const bool first_copy = !groups.data || groups.data->rank() == 0;
  std::vector<StageTensor> tensors;
  const std::vector<int64_t> counts = count_updates(view);
  Block full;  // of the tensor under way
  for (size_t i = 0; i < view.parameters.size(); ++i) {
    const ParameterInfo& info = view.parameters[i];
    if (counts[i] == 0) continue;
    const std::vector<std::string> names = stored_states(info, view.states, view.has_masters);
    const nxd_dtype_t dtype = OptimizerState::state_dtype(info);
    for (size_t s = 0; s < names.size(); ++s) {
      const auto gather = [&, i, s, dtype]() -> const void* {
        if (!view.is_written()) return nullptr;
        const ShardSpec& shard = view.parameters[i].shard;
        // A rank without its shard, too, has peers that come to the gathering.
        ProcessGroup* const gathers =
            first_copy && shard.dim() >= 0 ? groups.tensor.get() : nullptr;
        Block local;
        take_for_call(gathers, "all_gather", [&] {
          local = local_state(view, i, s);
          if (first_copy) full = zeros(shard.global_size(), dtype_size(dtype));
        });
        if (!first_copy) return nullptr;
        gather_shards(groups.tensor.get(), shard, dtype, local.get(), full.get());
        put_in_c_order(view.parameters[i], view.parameters[i].stored().shape(), full);
        return full.get();
      };
      tensors.push_back({{info.name + "." + names[s], dtype, info.stored().shape()}, gather});
    }
  }
  write_collective(
      path, {groups.tensor.get(), groups.pipeline.get(), groups.data.get(), groups.world_rank},
      tensors, metadata_of(view, counts));
}

int64_t load_state(const std::string& path, ParameterSource& source, OptimizerState& state,
                   const UpdateRule& rule, OptimizerSettings& settings) {
  const SafetensorsReader reader(path);
  check_kind(reader, path, rule);
  check_names(reader, path, source);
  const int64_t updates = parse(reader, path, "updates");
  OptimizerSettings saved = settings;
  saved.read(reader.metadata(), path, stored_names(infos_of(source)), rule);
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
    const std::vector<std::string> names = stored_states(info, rule.states(), has_masters(rule));
    for (size_t s = 0; s < names.size(); ++s) {
      const std::string name = info.name + "." + names[s];
      // Saved without masters: the next update makes one from the value.
      if (names[s] == kMaster && !reader.contains(name)) continue;
      check_argument(reader.contains(name), path, ": no tensor \"", printable(name),
                     "\": expected the states that this ", rule.kind(),
                     " keeps, got those of one with other options, such as momentum 0");
      Block block = read_block(reader, name, info, span);
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
  settings = std::move(saved);
  return updates;
}

}  // namespace nxd
