#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nxd {

class Module;

// A tensor of a module that is no parameter, such as a running mean: no gradient reaches it, and
// every rank has the whole.
struct Buffer {
  at::Tensor value;
  bool is_saved = true;  // with the parameters
  // A copy of the value, which calls under way keep: see BufferWatch.
  std::weak_ptr<const at::Tensor> copy{};
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
// True if a write to the one is a write to the other: they lie in one piece of memory.
bool share_memory(const at::Tensor& a, const at::Tensor& b);
// True if they have elements of it in common, on the CPU.
bool share_elements(const at::Tensor& a, const at::Tensor& b);
// Gives the buffers other values, such as ones of another dtype: those that shared a tensor, or
// were views of one that have elements in common, still do. An undefined result leaves the value as
// it is.
void replace_values(const std::vector<NamedBuffer>& buffers,
                    const std::function<at::Tensor(const at::Tensor& value)>& replacement);
// UNSUPPORTED where some are such views, but of several dtypes, or for a device that has no views.
void check_views(const std::vector<NamedBuffer>& buffers, bool has_views);
// By path; INVALID_ARGUMENT with near names when there is none.
std::shared_ptr<Buffer> find_buffer(const Module& root, const std::string& path);

}  // namespace nxd
