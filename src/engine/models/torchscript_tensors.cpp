#include "engine/models/torchscript_tensors.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "engine/module/buffers.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {

void check_buffer(const std::string& path, const at::Tensor& value) {
  const at::ScalarType type = value.scalar_type();
  if (value.layout() == at::kStrided && !at::isComplexType(type) && !at::isQIntType(type)) return;
  fail(NXD_ERROR_UNSUPPORTED, "buffer ", path, ": expected dense real numbers or booleans, ",
       "the file has ", dtype_text(type), " of layout ", value.layout());
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

ScriptTensorCopies::ScriptTensorCopies(std::vector<ScriptTensor> tensors)
    : found_(std::move(tensors)) {
  std::vector<NamedBuffer> copies;
  for (const ScriptTensor& each : found_) {
    copies.push_back({each.path, std::make_shared<Buffer>(Buffer{each.value})});
  }
  check_views(copies, true);
  replace_values(copies, [](const at::Tensor& value) { return value.to(at::kCPU).clone(); });
  for (size_t i = 0; i < found_.size(); ++i) {
    ScriptTensor& each = found_[i];
    each.value = each.script.attr(each.name).toTensor();
    each.script.setattr(each.name, copies[i].buffer->value);
  }
}

// A module of two names is there twice.
ScriptTensorCopies::~ScriptTensorCopies() {
  for (auto each = found_.rbegin(); each != found_.rend(); ++each) {
    each->script.setattr(each->name, each->value);
  }
}

}  // namespace nxd
