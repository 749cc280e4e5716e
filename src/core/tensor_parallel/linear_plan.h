#pragma once

#include <string>
#include <vector>

#include "core/agree/proposal.h"
#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/matrix_product.h"
#include "core/tensor_parallel/stacked_parts.h"

namespace nxd {

enum class LinearKind { kColumn, kRow };

struct LinearCallOptions {
  bool gather_output = false;     // columns only
  bool input_is_parallel = true;  // rows only
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  bool transposed_weight = false;
  bool accumulate_grads = false;
  nxd_dtype_t reduce_dtype = NXD_DTYPE_F32;  // of bf16 partial sums: F32 or BF16
  bool exchanges = true;  // false: the layer is of this rank alone, whatever the group
  CallerWorkspace workspace{};
};

// A weight and the output that it makes of x, or, in a backward pass, that output's gradient.
// Gradients that are not wanted are absent.
struct LinearWeight {
  Array weight, y;
  std::optional<Array> bias{}, grad_weight{}, grad_bias{};
};

// Several weights of one x are for columns only.
struct LinearArrays {
  Array x;
  std::vector<LinearWeight> weights{};
  std::optional<Array> grad_x{};
  bool numbered = false;  // errors say which of the weights
};

// One call of a parallel linear layer on this rank: its arguments, found good, and its memory.
class LinearPlan {
 public:
  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const LinearPlan* plan);

 protected:
  // backward: y is read, and the gradients are outputs.
  LinearPlan(const ProcessGroup& group, LinearKind kind, bool backward, LinearArrays arrays,
             const LinearCallOptions& options);

  int ranks() const { return group_.size(); }
  bool is_alone() const { return group_.size() == 1 || !options_.exchanges; }
  nxd_dtype_t dtype() const { return arrays_.x.dtype; }
  // The dtype in which ranks exchange partial sums.
  nxd_dtype_t exchanged_dtype() const {
    return nxd::exchanged_dtype(dtype(), options_.reduce_dtype);
  }
  int last_dim() const { return arrays_.x.dims() - 1; }
  int sequence_dim() const { return static_cast<int>(options_.sequence_dim); }
  // Sizes of this rank's weights. All of them read the same features.
  int64_t in_features() const { return in_features(arrays_.weights.front()); }
  int64_t in_features(const LinearWeight& w) const {
    return w.weight.size(options_.transposed_weight ? 0 : 1);
  }
  int64_t out_features(const LinearWeight& w) const {
    return w.weight.size(options_.transposed_weight ? 1 : 0);
  }
  // True if ranks have parts of x or y along the sequence.
  bool splits_sequence() const { return options_.sequence_parallel && !is_alone(); }
  // The weight as [in, out], or its transpose: of the layer, not of the memory.
  Operand in_by_out(const Operand& weight) const {
    return options_.transposed_weight ? weight : weight.t();
  }
  Operand out_by_in(const Operand& weight) const { return in_by_out(weight).t(); }
  // The gradient of the weight, as a product of the gradient of y [rows, out] and x [rows, in].
  Product weight_product(const Operand& dy, const Operand& x, int64_t rows) const;
  // x's shape with other features.
  Array::Shape with_last(int64_t features) const;
  static int64_t rows_of(const Array::Shape& shape);

  const ProcessGroup& group_;
  LinearArrays arrays_;
  LinearCallOptions options_;
  Scratch scratch_;

 private:
  // Names an array of one weight: "bias", or "biases[1]".
  std::string name(const char* one, const char* several, size_t index) const;
  std::string name_of_y(size_t index) const;
  void check_dtypes() const;
  void check_options() const;
  void check_shapes();
  void check_weight(size_t index, Array::Shape expected) const;
  // Checks sequence_dim, and gives x's sizes with that of y there.
  Array::Shape placed_sequence();
  void check_memory() const;
  double of_weights(double (*value)(const LinearPlan&, const LinearWeight&)) const;

  LinearKind kind_;
  bool backward_;
};

}  // namespace nxd
