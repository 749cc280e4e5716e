#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace nxd {

class Module;

// A tensor of a module that is no parameter, such as a running mean: no gradient reaches it, and
// every rank has the whole.
struct Buffer {
  at::Tensor value;
  bool is_saved = true;  // with the parameters
};

struct NamedBuffer {
  std::string name;  // path from the root
  std::shared_ptr<Buffer> buffer;
};

// A module that may have buffers is this beside a Module: a caller's own, that of a TorchScript
// file, or the part of one that a stage of a pipeline has.
class BufferHolder {
 public:
  virtual ~BufferHolder() = default;
  const std::vector<NamedBuffer>& own_buffers() const { return buffers_; }
  bool has_buffer(const std::string& name) const;
  void keep_buffer(const std::string& name, std::shared_ptr<Buffer> buffer) {
    buffers_.push_back({name, std::move(buffer)});
  }

 private:
  std::vector<NamedBuffer> buffers_;  // by their names in the module
};

// Adds a buffer, whose value the module shares with the caller. INVALID_ARGUMENT where the module
// cannot have one, for a name that is taken, and for a dtype that files cannot have.
void add_buffer(Module& module, const std::string& name, const at::Tensor& value, bool is_saved);
// All of the tree, in the order of modules.
std::vector<NamedBuffer> named_buffers(const Module& root);
// By path; INVALID_ARGUMENT with near names when there is none.
std::shared_ptr<Buffer> find_buffer(const Module& root, const std::string& path);

}  // namespace nxd
