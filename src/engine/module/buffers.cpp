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

bool is_one_view(const at::Tensor& a, const at::Tensor& b) {
  return share_memory(a, b) && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.storage_offset() == b.storage_offset();
}

// Elements of a storage, or bytes of it.
struct Span {
  int64_t begin, end;
};

Span span_of(const at::Tensor& view, int64_t item = 1) {
  int64_t last = view.storage_offset();
  for (int64_t d = 0; d < view.dim(); ++d) last += (view.size(d) - 1) * view.stride(d);
  return {view.storage_offset() * item, (last + 1) * item};
}

at::Tensor view_within(const at::Tensor& memory, int64_t begin, const at::Tensor& like) {
  return memory.as_strided(like.sizes(), like.strides(), like.storage_offset() - begin);
}

// The same of two views that are not one.
bool share_part(const at::Tensor& a, const at::Tensor& b) {
  return !a.is_same(b) && !is_one_view(a, b) && share_elements(a, b);
}

// The buffers with whose views a buffer's has elements in common, directly or by way of others, and
// itself.
std::vector<NamedBuffer> views_with(const NamedBuffer& buffer,
                                    const std::vector<NamedBuffer>& buffers) {
  std::vector<NamedBuffer> found{buffer};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const NamedBuffer& other : buffers) {
      const bool known = std::any_of(found.begin(), found.end(), [&](const NamedBuffer& each) {
        return each.buffer == other.buffer;
      });
      if (!known && share_part(found[i].buffer->value, other.buffer->value)) found.push_back(other);
    }
  }
  return found;
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
  module.check_open(name);
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

bool share_elements(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu() || !share_memory(a, b)) return false;
  const Span of_a = span_of(a, a.element_size()), of_b = span_of(b, b.element_size());
  if (of_a.begin >= of_b.end || of_b.begin >= of_a.end) return false;
  if (a.scalar_type() != b.scalar_type()) return true;
  const Span first = span_of(a), second = span_of(b);
  const int64_t begin = std::min(first.begin, second.begin);
  const at::Tensor marks =
      at::zeros({std::max(first.end, second.end) - begin}, a.options().dtype(at::kBool));
  view_within(marks, begin, a).fill_(true);
  return view_within(marks, begin, b).any().item<bool>();
}

void check_views(const std::vector<NamedBuffer>& buffers, bool has_views) {
  for (const NamedBuffer& entry : buffers) {
    for (const NamedBuffer& view : views_with(entry, buffers)) {
      if (view.buffer == entry.buffer) continue;
      const bool alike = view.buffer->value.scalar_type() == entry.buffer->value.scalar_type();
      if (has_views && alike) continue;
      fail(NXD_ERROR_UNSUPPORTED, "buffers ", entry.name, " and ", view.name,
           " have elements in common", alike ? "" : ", in two dtypes",
           ", and would not have them any more; make them one buffer, or copies");
    }
  }
}

namespace {

using Replacement = std::function<at::Tensor(const at::Tensor& value)>;

// The memory that the views span is replaced as a whole, and viewed in the same places.
at::Tensor replaced_view(const at::Tensor& value, const std::vector<NamedBuffer>& views,
                         std::vector<std::pair<at::Tensor, at::Tensor>>& replaced,
                         const Replacement& replacement) {
  Span all = span_of(value);
  for (const NamedBuffer& view : views) {
    const Span own = span_of(view.buffer->value);
    all = {std::min(all.begin, own.begin), std::max(all.end, own.end)};
  }
  const at::Tensor memory = value.as_strided({all.end - all.begin}, {1}, all.begin);
  const at::Tensor made = replacement(memory);
  if (!made.defined()) return made;
  for (const NamedBuffer& view : views) {
    const at::Tensor& old = view.buffer->value;
    replaced.emplace_back(old, view_within(made, all.begin, old));
  }
  return replaced[replaced.size() - views.size()].second;
}

}  // namespace

// Values are changed once all replacements are there.
void replace_values(const std::vector<NamedBuffer>& buffers, const Replacement& replacement) {
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced;
  std::vector<std::pair<Buffer*, at::Tensor>> results;
  for (const NamedBuffer& entry : buffers) {
    const at::Tensor& value = entry.buffer->value;
    const auto known = std::find_if(replaced.begin(), replaced.end(), [&](const auto& each) {
      return is_one_view(each.first, value) || each.first.is_same(value);
    });
    if (known != replaced.end()) {
      results.emplace_back(entry.buffer.get(), known->second);
      continue;
    }
    const std::vector<NamedBuffer> views = views_with(entry, buffers);
    const at::Tensor made =
        views.size() > 1 ? replaced_view(value, views, replaced, replacement) : replacement(value);
    if (!made.defined()) continue;
    if (views.size() == 1) replaced.emplace_back(value, made);
    results.emplace_back(entry.buffer.get(), made);
  }
  for (auto& [buffer, made] : results) buffer->value = made;
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
