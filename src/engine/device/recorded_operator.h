#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nxd {

// Facts that the recorder needs of an operator, or of a function of the library's own. Lives as
// long as the process.
struct RecordedOperator {
  std::string name;  // such as "aten::add.Tensor"
  uint64_t hash = 0;
  // The operator that replays it; none for a function of the library's own. An operator that
  // copies a view is replayed by the view.
  std::optional<c10::OperatorHandle> replay{};
  bool is_view = false;
  bool keeps_order = false;  // of a view: its elements are its base's, in the same order
  // Runs in program order even where its results are dropped: other ranks wait for a collective,
  // and random bits are drawn in the order of the calls.
  bool is_effect = false;
  bool is_alone = false;  // an effect of the library's own that no other rank takes part in
  // Reads its inputs' memory by strides of its own, or has callers that count on dense memory.
  bool needs_dense_inputs = false;
  // Gives what lies in its inputs' memory, in another shape or as another dtype.
  bool reinterprets_memory = false;
  // Its strides are those of the memory behind its first input, which a view may begin elsewhere
  // in.
  bool strides_over_memory = false;
  std::vector<bool> is_scalar{};  // of each argument: whether its value is an input of the graph
  std::vector<c10::IValue> defaults{};  // of each argument; None where it has none
  std::string why_not_recorded{};       // empty: it can be

  // True if a scalar argument has the value that the schema gives it: then it is no input of the
  // graph.
  bool is_default(size_t argument, const c10::IValue& value) const;
};

const RecordedOperator& recorded_operator(const c10::OperatorHandle& op);
// A function of the library's own by its name, a constant of the program.
const RecordedOperator& recorded_function(const char* name, bool is_effect, bool is_alone = false);

// The operator's name with its overload, as in "aten::add.Tensor".
std::string qualified_name(const c10::OperatorHandle& op);

}  // namespace nxd
