#pragma once

#include "core/agree/proposal.h"
#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/matrix_product.h"

namespace nxd {

enum class LinearKind { kColumn, kRow };

struct LinearOptions {
  bool gather_output = false;     // columns only
  bool input_is_parallel = true;  // rows only
  bool sequence_parallel = false;
  int64_t sequence_dim = 0;
  bool transposed_weight = false;
  bool accumulate_grads = false;
  CallerWorkspace workspace{};
};

// y is the gradient of y in a backward pass. Gradients that are not wanted are absent.
struct LinearArrays {
  Array x, weight, y;
  std::optional<Array> bias{}, grad_x{}, grad_weight{}, grad_bias{};
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
             const LinearOptions& options);

  int ranks() const { return group_.size(); }
  bool is_alone() const { return group_.size() == 1; }
  int last_dim() const { return arrays_.y.dims() - 1; }
  int sequence_dim() const { return static_cast<int>(options_.sequence_dim); }
  // Sizes of this rank's weight.
  int64_t in_features() const { return arrays_.weight.size(options_.transposed_weight ? 0 : 1); }
  int64_t out_features() const { return arrays_.weight.size(options_.transposed_weight ? 1 : 0); }
  // True if ranks have parts of x or y along the sequence.
  bool splits_sequence() const { return options_.sequence_parallel && !is_alone(); }
  // The weight as [in, out], or its transpose: of the layer, not of the memory.
  Operand in_by_out(const Operand& weight) const {
    return options_.transposed_weight ? weight : weight.t();
  }
  Operand out_by_in(const Operand& weight) const { return in_by_out(weight).t(); }
  // The gradient of the weight, as a product of the gradient of y [rows, out] and x [rows, in].
  Product weight_product(const Operand& dy, const Operand& x, int64_t rows) const;
  // A shape of as many rows as another array's, with other features.
  static Array::Shape with_last(const Array& array, int64_t features);
  static int64_t rows_of(const Array::Shape& shape);

  const ProcessGroup& group_;
  LinearArrays arrays_;
  LinearOptions options_;
  Scratch scratch_;

 private:
  const char* name_of_y() const { return backward_ ? "grad_y" : "y"; }
  void check_dtypes() const;
  void check_options() const;
  void check_shapes();
  void place_sequence(Array::Shape& expected);
  void check_memory() const;

  LinearKind kind_;
  bool backward_;
};

}  // namespace nxd
