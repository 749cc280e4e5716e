#include "engine/module/buffers.h"

#include <algorithm>

#include "core/base/dtype.h"
#include "core/base/suggestions.h"
#include "engine/module/module.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

void collect_buffers(const Module& module, const std::string& path, std::vector<NamedBuffer>& out) {
  if (const auto* holder = dynamic_cast<const BufferHolder*>(&module)) {
    for (const NamedBuffer& own : holder->own_buffers()) {
      out.push_back({join_path(path, own.name), own.buffer});
    }
  }
  for (const auto& [name, child] : module.children())
    collect_buffers(*child, join_path(path, name), out);
}

template <class T>
bool is_taken(const Module::Named<T>& entries, const std::string& name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

bool BufferHolder::has_buffer(const std::string& name) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const NamedBuffer& own) { return own.name == name; });
}

void add_buffer(Module& module, const std::string& name, const at::Tensor& value, bool is_saved) {
  auto* holder = dynamic_cast<BufferHolder*>(&module);
  check_argument(holder != nullptr, "module: expected one of nxd_module_create, as a built-in ",
                 module.class_name(), " has no buffers");
  check_argument(!name.empty() && name.find('.') == std::string::npos,
                 "name: expected a name that is not empty and has no dot, got \"", name, "\"");
  check_argument(!holder->has_buffer(name) && !is_taken(module.children(), name) &&
                     !is_taken(module.parameters(), name),
                 module.class_name(), ": the name \"", name, "\" is taken already");
  check_argument(value.defined() && value.layout() == at::kStrided && !value.is_meta(),
                 "tensor: expected one with values, of any strides");
  check_argument(!value.requires_grad(), "tensor: expected one without a gradient");
  to_nxd_dtype(value.scalar_type());
  holder->keep_buffer(name, std::make_shared<Buffer>(Buffer{value, is_saved}));
}

std::vector<NamedBuffer> named_buffers(const Module& root) {
  std::vector<NamedBuffer> out;
  collect_buffers(root, "", out);
  return out;
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.has_storage() && b.has_storage() && a.numel() > 0 && a.is_alias_of(b));
}

void replace_values(const std::vector<NamedBuffer>& buffers,
                    const std::function<at::Tensor(const at::Tensor& value)>& replacement) {
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced;
  for (const NamedBuffer& entry : buffers) {
    at::Tensor& value = entry.buffer->value;
    const auto known = std::find_if(replaced.begin(), replaced.end(), [&](const auto& each) {
      const at::Tensor& other = each.first;
      return share_memory(other, value) && other.sizes() == value.sizes() &&
             other.strides() == value.strides() && other.scalar_type() == value.scalar_type() &&
             other.storage_offset() == value.storage_offset();
    });
    const at::Tensor made = known != replaced.end() ? known->second : replacement(value);
    if (!made.defined()) continue;
    if (known == replaced.end()) replaced.emplace_back(value, made);
    value = made;
  }
}

std::shared_ptr<Buffer> find_buffer(const Module& root, const std::string& path) {
  std::vector<std::string> known;
  for (const NamedBuffer& entry : named_buffers(root)) {
    if (entry.name == path) return entry.buffer;
    known.push_back(entry.name);
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "name: ", root.class_name(), " has no buffer \"", path, "\"",
       suggestions(path, known));
}

}  // namespace nxd
