#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The dtype that products of matrices take on this thread, NXD_DTYPE_INVALID while automatic casts
// are off. INVALID_ARGUMENT for a dtype that is neither BF16 nor INVALID.
nxd_dtype_t autocast_dtype() noexcept;
void set_autocast(nxd_dtype_t dtype);

// Off for a scope: a backward pass follows the dtypes of its forward on any thread.
class AutocastPause {
 public:
  AutocastPause() noexcept;
  ~AutocastPause();
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  nxd_dtype_t paused_;
};

// The dtype that automatic casts give an operator's arguments.
enum class CastPolicy {
  kNone,    // as they are
  kLower,   // autocast_dtype()
  kFloat,   // F32
  kWidest,  // F32 where one is, or where BF16 and F16 meet; else as they are
};

// PyTorch has lists for each kind of device. Tensors of the recorded device have those of
// PyTorch/XLA, all others those for accelerators.
enum class CastLists { kAccelerators, kXla };

// The lists of a call's arguments. Tensors without values stand for others in a trace: the
// innermost scope says which lists these have.
CastLists lists_of(const std::vector<c10::IValue>& arguments);

class TracedCastLists {
 public:
  explicit TracedCastLists(CastLists lists) noexcept;
  ~TracedCastLists();
  TracedCastLists(const TracedCastLists&) = delete;
  TracedCastLists& operator=(const TracedCastLists&) = delete;

 private:
  const CastLists outer_;
};

// The policy of an operator by its name, with or without "aten::".
CastPolicy cast_policy(std::string_view operator_name, CastLists lists);

// Casts the tensors of a call, and those in lists, where their dtype is F32, BF16 or F16, as the
// policy and this thread's setting say. Autograd records the casts.
void cast_arguments(CastPolicy policy, std::vector<c10::IValue>& arguments);

// For layers: a tensor that may be undefined, in the dtype of products of matrices or in F32. The
// same tensor while automatic casts are off, and where its dtype is none of the above.
at::Tensor cast_lower(const at::Tensor& x);
at::Tensor cast_float(const at::Tensor& x);

// True if a layer whose parameters have the one dtype takes inputs of the other.
bool takes_input(at::ScalarType parameters, at::ScalarType input) noexcept;

}  // namespace nxd
