#include "engine/device/meta_kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "core/base/error.h"

namespace nxd {
namespace {

at::Tensor& shaped(at::Tensor& out, at::IntArrayRef sizes, bool in_place) {
  if (out.sizes() == sizes) return out;
  check_argument(!in_place, "output with shape ", out.sizes(),
                 " doesn't match the broadcast shape ", sizes);
  out.resize_(sizes);
  return out;
}

at::Tensor& of_two(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return shaped(out, at::infer_size(a.sizes(), b.sizes()), a.is_same(out));
}

at::Tensor& of_one(const at::Tensor& a, at::Tensor& out) {
  return shaped(out, a.sizes(), a.is_same(out));
}

}  // namespace

// In static memory, where leak checkers see what it owns: it is never destroyed.
void add_meta_kernels() {
  alignas(torch::Library) static unsigned char place[sizeof(torch::Library)];
  auto* library = new (place)
      torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  const auto lacks = [](const char* name) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, "out"});
    return op && !op->hasKernelForDispatchKey(c10::DispatchKey::Meta);
  };
  if (lacks("aten::logical_and")) library->impl("logical_and.out", TORCH_FN(of_two));
  if (lacks("aten::logical_or")) library->impl("logical_or.out", TORCH_FN(of_two));
  if (lacks("aten::logical_xor")) library->impl("logical_xor.out", TORCH_FN(of_two));
  if (lacks("aten::logical_not")) library->impl("logical_not.out", TORCH_FN(of_one));
}

}  // namespace nxd
