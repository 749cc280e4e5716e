#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <optional>
#include <string>
#include <vector>

namespace nxd {

// Tensors of a result of TorchScript code, which may be one, or tuples, lists and dictionaries of
// them: these give their values in the order in which they were put in. Each has the path that
// leads to it.
class TorchscriptOutputs {
 public:
  // type: as the code declares it, of which named tuples have the names of their fields; null where
  // it declares none. UNSUPPORTED for a result of anything else.
  TorchscriptOutputs(const c10::IValue& result, const c10::TypePtr& type,
                     const std::string& class_name);

  // None is no output, unless the result is made of tuples and as many are wanted as it has places.
  void leave_none_out(size_t wanted);

  std::vector<at::Tensor> tensors;
  std::vector<std::string> paths;

 private:
  void add(const c10::IValue& value, const c10::TypePtr& type, const std::string& path);
  void add_tuple(const c10::ivalue::Tuple& tuple, const c10::TupleTypePtr& type,
                 const std::string& path);

  const std::string& class_name_;
  const std::optional<size_t> places_;
};

}  // namespace nxd
