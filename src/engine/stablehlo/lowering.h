#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/device/recorded_graph.h"
#include "engine/stablehlo/hlo_builder.h"

namespace nxd {

struct Lowering;

// Where a number of the host's goes in: a leaf without dimensions, or a scalar argument of a node.
class HloScalars {
 public:
  struct Source {
    int leaf = -1;
    int node = -1;
    int argument = -1;
  };

  virtual ~HloScalars() = default;
  // The number, of no dimensions, in f64 or i64.
  virtual HloValue scalar(const Source& source, const c10::IValue& kind) = 0;
};

// A node on its way into the text: its arguments as values of the function, and a place for its
// results. Arguments are numbered as in the operator's schema.
class NodeLowering {
 public:
  NodeLowering(HloBuilder& builder, HloScalars& scalars, const RecordedGraph& graph, size_t index,
               std::vector<HloValue> inputs, const Lowering& how);

  HloBuilder& hlo;
  const RecordedNode& node;
  const std::string operation;  // see Lowering

  bool has(int argument) const { return find(argument, InputPlace::kNoList) >= 0; }
  const HloValue& tensor(int argument) const;
  // In the dtype, with the sizes of the first result.
  HloValue operand(int argument, at::ScalarType dtype) const;
  // In the dtype in which ATen computes.
  HloValue wide(int argument) const;
  std::vector<HloValue> list(int argument) const;
  bool has_element(int argument, int element) const { return find(argument, element) >= 0; }
  const HloValue& element(int argument, int element) const;
  // Shape, dtype and whether it is a number that a program wrote, on the meta device.
  const at::Tensor& meta(int argument) const;

  // Words of a function of the library's own: is one there, and the number behind it.
  bool has_attribute(std::string_view word) const {
    return node.call->attributes.find(word) != std::string::npos;
  }
  int64_t attribute(std::string_view word) const;

  bool is_none(int argument) const { return argument_at(argument).isNone(); }
  int64_t integer(int argument) const { return argument_at(argument).toInt(); }
  int64_t integer_or(int argument, int64_t absent) const {
    return is_none(argument) ? absent : integer(argument);
  }
  HloSizes integers(int argument) const { return argument_at(argument).toIntVector(); }
  double number(int argument) const { return argument_at(argument).toDouble(); }
  bool flag(int argument) const { return argument_at(argument).toBool(); }
  const c10::IValue& argument_at(int argument) const {
    return node.call->arguments.at(static_cast<size_t>(argument));
  }
  // A scalar argument, of no dimensions.
  HloValue scalar(int argument, at::ScalarType dtype) const;
  // The same with the sizes of the first result.
  HloValue scalar_operand(int argument, at::ScalarType dtype) const;
  // True if the argument is the one that the schema has: this is part of a graph's hash.
  bool is_default(int argument) const;

  at::ScalarType dtype(int result = 0) const { return meta_result(result).scalar_type(); }
  HloSizes sizes(int result = 0) const { return meta_result(result).sizes().vec(); }
  bool wants(int result) const {
    return node.call->results.at(static_cast<size_t>(result)).defined();
  }
  // A result, which is converted to its dtype.
  void give(const HloValue& value, int result = 0);
  // This form of the operator has no lowering.
  void leave_to_host() { is_left_ = true; }

  bool is_left_to_host() const { return is_left_; }
  const std::vector<HloValue>& results() const { return results_; }

 private:
  // Which input it is, or -1.
  int find(int argument, int element) const;
  const HloValue& value_of(int input, int argument) const;
  const at::Tensor& meta_result(int result) const {
    return node.call->results.at(static_cast<size_t>(result));
  }

  HloScalars& scalars_;
  const int index_;
  const std::vector<HloValue> inputs_;
  std::vector<HloValue> results_;
  bool is_left_ = false;
};

// How an operator becomes StableHLO.
struct Lowering {
  std::string_view name;  // with its overload: "aten::add.Tensor"
  void (*lower)(NodeLowering&);
  // An operation of StableHLO, or whatever else operators that share a function differ in.
  std::string_view operation{};
};

using Lowerings = std::vector<Lowering>;

// A family of operators each.
const Lowerings& elementwise_lowerings();
const Lowerings& activation_lowerings();
const Lowerings& gate_lowerings();
const Lowerings& creation_lowerings();
const Lowerings& reduction_lowerings();
const Lowerings& shape_lowerings();
const Lowerings& product_lowerings();
const Lowerings& convolution_lowerings();
const Lowerings& indexing_lowerings();
const Lowerings& normalization_lowerings();
const Lowerings& update_lowerings();
const Lowerings& random_lowerings();

// Null for an operator that none of them has.
const Lowering* find_lowering(std::string_view name);

inline int64_t positive_dim(int64_t dim, int64_t dims) { return dim < 0 ? dim + dims : dim; }
// The dimensions that an argument names; all where it names none.
HloSizes named_dims(const NodeLowering& n, int argument, int64_t dims);

}  // namespace nxd
