#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/pjrt/pjrt_target.h"

namespace nxd {

using HloSizes = std::vector<int64_t>;
// Replicas by their numbers.
using HloGroups = std::vector<HloSizes>;

// A tensor of a StableHLO function: how the text names it, and its type.
struct HloValue {
  std::string name{};
  at::ScalarType dtype = at::kFloat;
  HloSizes sizes{};

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  int64_t size(int64_t d) const { return sizes[static_cast<size_t>(d)]; }
};

// The dtype that stands for another in programs for a plug-in. UNSUPPORTED where StableHLO has no
// such dtype.
at::ScalarType dtype_on_device(const PjrtTarget& target, at::ScalarType dtype);
// "tensor<2x3xf32>". UNSUPPORTED as above.
std::string hlo_type(at::ScalarType dtype, const HloSizes& sizes);
// "array<i64: 1, 2>"
std::string hlo_array(const HloSizes& numbers);
// As part of a string in double quotes.
std::string hlo_escaped(std::string_view text);
// The dtype in which ATen computes on the CPU: f32 for floats of 16 bits, else the same.
at::ScalarType wide_dtype(at::ScalarType dtype);
// 0, 1, ..., n - 1
HloSizes all_dims(int64_t n);

// Writes the body of a StableHLO function, in the generic form that every version of MLIR reads.
// Operands have the types that the operation wants: nothing is converted in silence. A value keeps
// the dtype that ATen gives it, also where the plug-in's device has another in its place, which the
// text then names: a value of f64 may have the precision of f32.
class HloBuilder {
 public:
  HloBuilder() = default;
  explicit HloBuilder(const PjrtTarget& target) : target_(target) {}

  const PjrtTarget& target() const { return target_; }
  // As the text names it.
  std::string type(at::ScalarType dtype, const HloSizes& sizes) const {
    return hlo_type(dtype_on_device(target_, dtype), sizes);
  }
  HloValue add(std::string_view operation, const std::vector<HloValue>& operands,
               at::ScalarType dtype, HloSizes sizes, const std::string& attributes = "",
               const std::string& region = "");

  HloValue constant(double value, at::ScalarType dtype, const HloSizes& sizes = {});
  HloValue constant(int64_t value, at::ScalarType dtype, const HloSizes& sizes = {});
  HloValue filled_like(const HloValue& x, double value) {
    return constant(value, x.dtype, x.sizes);
  }
  HloValue lowest(at::ScalarType dtype);
  HloValue highest(at::ScalarType dtype);
  HloValue iota(at::ScalarType dtype, const HloSizes& sizes, int64_t dim);

  HloValue convert(const HloValue& x, at::ScalarType dtype);
  // The same bits as values of a dtype of the same size.
  HloValue bits_as(const HloValue& x, at::ScalarType dtype);
  HloValue unary(std::string_view operation, const HloValue& x);
  HloValue binary(std::string_view operation, const HloValue& a, const HloValue& b);
  HloValue plus(const HloValue& a, const HloValue& b) { return binary("add", a, b); }
  HloValue minus(const HloValue& a, const HloValue& b) { return binary("subtract", a, b); }
  HloValue times(const HloValue& a, const HloValue& b) { return binary("multiply", a, b); }
  HloValue over(const HloValue& a, const HloValue& b) { return binary("divide", a, b); }
  HloValue plus(const HloValue& a, double b) { return plus(a, filled_like(a, b)); }
  HloValue times(const HloValue& a, double b) { return times(a, filled_like(a, b)); }
  // EQ, NE, LT, LE, GT or GE
  HloValue compare(std::string_view direction, const HloValue& a, const HloValue& b);
  HloValue select(const HloValue& condition, const HloValue& a, const HloValue& b);

  HloValue reshape(const HloValue& x, const HloSizes& sizes);
  HloValue transpose(const HloValue& x, const HloSizes& permutation);
  // x's dimensions become those of the result that dims names.
  HloValue broadcast_in_dim(const HloValue& x, const HloSizes& dims, const HloSizes& sizes);
  // As ATen does: x's dimensions are the last ones, and those of size 1 are repeated.
  HloValue broadcast(const HloValue& x, const HloSizes& sizes);
  HloValue slice(const HloValue& x, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
  // So many indices of one dimension from begin on, a number without dimensions.
  HloValue window(const HloValue& x, int64_t dim, const HloValue& begin, int64_t size);
  // One part of a stack along dimension 0; index is a number without dimensions.
  HloValue part_at(const HloValue& x, const HloValue& index);
  // Zeros before and after along one dimension, and between its elements.
  HloValue pad(const HloValue& x, int64_t dim, int64_t low, int64_t high, int64_t between);
  HloValue concatenate(const std::vector<HloValue>& parts, int64_t dim);
  // x with part in place of what begins at an index of one dimension, a number without dimensions.
  HloValue overwritten(const HloValue& x, const HloValue& part, int64_t dim, const HloValue& begin);

  // One value for all of dims: "add", "maximum", "minimum", "multiply", "and" or "or". With keep
  // these dimensions stay, with size 1.
  HloValue reduce(std::string_view operation, const HloValue& initial, const HloValue& x,
                  HloSizes dims, bool keep);
  HloValue sum(const HloValue& x, const HloSizes& dims, bool keep);
  HloValue maximum_of(const HloValue& x, const HloSizes& dims, bool keep);

  // The product over the contracted dimensions, in f32 where operands have 16 bits.
  HloValue dot(const HloValue& a, const HloValue& b, int64_t batch_dims, int64_t contracted_of_a,
               int64_t contracted_of_b);
  // An index that is out of range is one of the nearest, and a sum there adds nothing; so are those
  // of scatters, on plug-ins that fail at such.
  //
  // Each index along dim of x gives a slice, whose place in the result is that of the index.
  HloValue gather_slices(const HloValue& x, int64_t dim, const HloValue& index);
  // One element of x for each vector of indices, which are the last dimension.
  HloValue gather_elements(const HloValue& x, const HloValue& indices);
  // x with updates put in, by "add" or by "" in place of what was there. Indices as for
  // gather_elements; or one for each slice along dimension 0 of x.
  HloValue scatter_elements(std::string_view operation, const HloValue& x, const HloValue& indices,
                            const HloValue& updates);
  HloValue scatter_rows(std::string_view operation, const HloValue& x, const HloValue& index,
                        const HloValue& updates);

  // Replicas of a program exchange tensors, each within the group that has it. Groups have one
  // size, in rank order.
  HloValue all_reduce(std::string_view operation, const HloValue& x, const HloGroups& groups);
  HloValue all_gather(const HloValue& x, int64_t dim, const HloGroups& groups);
  HloValue reduce_scatter(std::string_view operation, const HloValue& x, int64_t dim,
                          const HloGroups& groups);
  // The values themselves, none of which is there before all are.
  std::vector<HloValue> together(const std::vector<HloValue>& values);
  // The number of the replica that runs the program.
  HloValue replica();

  // A function of the host's. One that is ordered runs after those before it, and always.
  std::vector<HloValue> host_call(std::string_view target, const std::string& config,
                                  const std::vector<HloValue>& operands,
                                  const std::vector<HloValue>& result_types, bool is_ordered);

  const std::string& body() const { return body_; }
  size_t size() const { return statements_; }

 private:
  std::string next_name() { return "%" + std::to_string(statements_++); }
  std::string types_of(const std::vector<HloValue>& values) const;
  std::string combining(std::string_view operation, at::ScalarType dtype) const;
  // Indices that name something in a dimension of this size, and for coordinates, which are the
  // last dimension, in dimensions of these sizes.
  struct Inside {
    HloValue index{};
    HloValue was{};  // whether it was inside before
  };
  Inside inside(const HloValue& index, const HloValue& last);
  HloValue last_of_each(const HloSizes& sizes, const HloValue& coordinates);
  HloValue literal(const std::string& text, at::ScalarType dtype, const HloSizes& sizes);

  const PjrtTarget target_{};
  std::string body_{};
  size_t statements_ = 0;
  std::string token_{};  // of the last ordered call
};

}  // namespace nxd
