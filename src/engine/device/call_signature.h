#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/graph_hash.h"
#include "engine/device/recorded_exchange.h"
#include "engine/device/recorded_operator.h"

namespace nxd {

// How many tensors an argument that is a list has.
struct ListArgument {
  enum class Kind { kNone, kTensors, kOptionalTensors };
  Kind kind = Kind::kNone;
  size_t size = 0;
};

// Where a call takes a tensor: as an argument, or as an element of one that is a list.
struct InputPlace {
  static constexpr int kNoList = -1;

  int argument = 0;
  int element = kNoList;
};

// A call without the tensors that it takes: calls of one signature differ in these alone. It does
// not change, and calls on several threads may share it.
struct CallSignature {
  const RecordedOperator* op = nullptr;
  std::vector<c10::IValue> arguments{};  // None where tensors were taken out
  std::vector<ListArgument> lists{};     // of each argument
  std::vector<InputPlace> places{};      // of each input
  std::vector<at::Tensor> results{};     // on the meta device; undefined where the call gives none
  // For each result of the operator: the tensors in it where it is a list, else -1.
  std::vector<int> result_lists{};
  // For each result: the input whose memory it is written to, or -1. Empty: no result is.
  std::vector<int> overwrites{};
  // For a function of the library's own: the part of it that is hashed.
  std::string attributes{};
  // A function that is these exchanges, one after the other, of each input on its own. Empty for
  // another function, also for one that exchanges in a way of its own.
  std::vector<RecordedExchange> exchanges{};
  // Tells graphs apart: all but the values of scalars is part of it.
  GraphHash::Value hash{};

  // Sets the hash, once all else is there.
  void seal();
};

// Parts of a hash.
void add_shape(GraphHash& hash, const at::Tensor& tensor);
// True if the value is part of it as a whole.
bool add_argument(GraphHash& hash, const c10::IValue& value);

// A number that a program wrote: it does not decide on a result's dtype as other tensors do.
inline bool is_wrapped_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Runs at replay on tensors that have values; gives as many results as were declared.
using ReplayFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// A call that has come before: its signature, and the function of a kernel.
struct KnownCall {
  std::shared_ptr<const CallSignature> signature{};
  std::shared_ptr<const ReplayFunction> function{};
};

// This thread's, by a hash of all that they follow from. Beyond a bound all are forgotten: shapes
// that never come back would fill the memory.
class KnownCalls {
 public:
  // Null if there is none yet. Holds until the next one is added.
  static const KnownCall* find(const GraphHash::Value& key);
  static void add(const GraphHash::Value& key, KnownCall call);
};

}  // namespace nxd
