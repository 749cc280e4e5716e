#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace nxd {

// UNSUPPORTED for a buffer that no module can have.
void check_buffer(const std::string& path, const at::Tensor& value);
// True for one tensor under two names.
bool is_same_memory(const at::Tensor& a, const at::Tensor& b);

// A tensor of a TorchScript module that is no parameter: a buffer, or another attribute.
struct ScriptTensor {
  torch::jit::Module script;
  std::string name, path;  // of the attribute, and from the root
  at::Tensor value;
};

// Copies on the CPU in the places of tensors, for a scope. Where tensors share memory, their copies
// do. UNSUPPORTED for tensors of several dtypes that have elements in common.
class ScriptTensorCopies {
 public:
  explicit ScriptTensorCopies(std::vector<ScriptTensor> tensors);
  ~ScriptTensorCopies();
  ScriptTensorCopies(const ScriptTensorCopies&) = delete;
  ScriptTensorCopies& operator=(const ScriptTensorCopies&) = delete;

 private:
  std::vector<ScriptTensor> found_;  // in their places before
};

}  // namespace nxd
