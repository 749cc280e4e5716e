#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// The operator of that name and overload. "aten::" may be left out of the name, and the overload
// where there is only one or one without a name. INVALID_ARGUMENT says what there is instead.
c10::OperatorHandle find_operator(std::string_view name, std::string_view overload);

// One call of an operator through libtorch's dispatcher. Arguments are checked against the schema
// as they are set: the dispatcher itself takes them at their word.
class OpCall {
 public:
  OpCall(std::string_view name, std::string_view overload);

  const char* schema();

  void set_tensor(std::string_view name, const at::Tensor* tensor);  // nullptr: None
  void set_tensors(std::string_view name, const std::vector<const at::Tensor*>& tensors);
  void set_int(std::string_view name, int64_t value);
  void set_double(std::string_view name, double value);
  void set_bool(std::string_view name, bool value);
  void set_string(std::string_view name, const char* value);
  void set_dtype(std::string_view name, at::ScalarType value);
  void set_ints(std::string_view name, const std::vector<int64_t>& values);
  void set_doubles(std::string_view name, const std::vector<double>& values);
  // Sets the leading arguments.
  void set_leading(const std::vector<const at::Tensor*>& tensors);

  void run();
  // Runs and gives the first count results, which must be tensors.
  std::vector<at::Tensor> run_for(size_t count);

  size_t result_count() const;
  // Undefined: the operator leaves it out, as an output_mask may ask.
  const at::Tensor& tensor_result(size_t index) const;
  double number_result(size_t index) const;

 private:
  size_t index_of(std::string_view name) const;
  void put_tensor(size_t index, const at::Tensor* tensor);
  void check_result_count(size_t count) const;
  [[noreturn]] void reject(size_t index, const char* given) const;
  const c10::IValue& result(size_t index) const;

  c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  std::vector<c10::optional<c10::IValue>> values_;  // one per argument; unset: the default
  std::vector<c10::IValue> results_;
  bool has_run_ = false;
  std::string schema_text_;
};

}  // namespace nxd
