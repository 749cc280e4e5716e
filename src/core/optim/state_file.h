#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_manifest.h"
#include "core/optim/optimizer_settings.h"
#include "core/optim/optimizer_state.h"
#include "core/optim/update_rule.h"

namespace nxd {

// Optimizer states as safetensors files that know no layout; see nxd_optimizer_save.

// A state as it is written: this rank's part of it, the ranks that have the others, and what the
// file says beside it.
struct StateView {
  // sharded: each rank of the data group has some of every parameter.
  StateView(const ParameterSource& source, const OptimizerState& state, const UpdateRule& rule,
            const OptimizerSettings& settings, int64_t updates, bool sharded);

  const std::vector<OptimizerState::Span>& spans() const { return state->spans(); }
  // This rank's part goes into the file: one of several that hold the same writes it.
  bool is_written() const { return sharded || !groups.data || groups.data->rank() == 0; }

  std::vector<ParameterInfo> parameters;
  OptimizerGroups groups;
  const OptimizerState* state;
  std::vector<std::vector<size_t>> spans_of;  // each parameter, by their places in spans()
  std::string kind;
  std::vector<std::string> states;  // of every parameter
  bool has_masters;                 // beside them, for those of BF16
  OptimizerSettings settings;
  int64_t updates;
  bool sharded;
};

// Collective over the source's groups; the outcome is the same on all ranks. The first rank of all
// groups writes. path may be null, which is rejected together with the peers; so is a rank whose
// `prepare` fails, which is called before the state is read.
void save_state(const char* path, const StateView& view, const std::function<void()>& prepare);
// Each rank's share of the same in a file of its own, once the ranks have agreed; see
// write_shares().
std::vector<CheckpointFile> write_state_shares(const std::string& path, const StateView& view);

// Reads what this rank's spans need, and gives the number of updates. State and settings are
// changed once all has been read.
int64_t load_state(const std::string& path, ParameterSource& source, OptimizerState& state,
                   const UpdateRule& rule, OptimizerSettings& settings);

}  // namespace nxd
