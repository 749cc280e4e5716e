#include "engine/device/meta_kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/index_add_meta_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "engine/device/silent_warnings.h"
#include "engine/operator_library.h"

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

at::Tensor& without_nan(const at::Tensor& a, c10::optional<double>, c10::optional<double>,
                        c10::optional<double>, at::Tensor& out) {
  return of_one(a, out);
}

#if TORCH_VERSION_MAJOR < 2
// libtorch 1.13 looks at the first rows of both here, even where there are none to be added, and
// takes no source without dimensions for the one element that it is.
bool adds_nothing(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                  const at::Tensor& source) {
  if (self.dim() == 0 || index.dim() != 1 || index.numel() != 0) return false;
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()))] = 0;
  if (source.scalar_type() != self.scalar_type() || source.numel() != 0) return false;
  check_argument(source.sizes() == at::IntArrayRef(sizes), "index_add: source: expected shape ",
                 at::IntArrayRef(sizes), ", got ", source.sizes());
  return true;
}

at::Tensor as_rows(const at::Tensor& self, const at::Tensor& source) {
  return self.dim() == 1 && source.dim() == 0 ? source.view({1}) : source;
}

at::Tensor index_add(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                     const at::Tensor& source, const at::Scalar& alpha) {
  if (adds_nothing(self, dim, index, source)) return at::empty_like(self);
  return at::meta::index_add(self, dim, index, as_rows(self, source), alpha);
}

at::Tensor& index_add_in_place(at::Tensor& self, int64_t dim, const at::Tensor& index,
                               const at::Tensor& source, const at::Scalar& alpha) {
  if (adds_nothing(self, dim, index, source)) return self;
  return at::meta::index_add_(self, dim, index, as_rows(self, source), alpha);
}
#endif

}  // namespace

void add_meta_kernels() {
  static OperatorLibrary kernels;
  torch::Library& library = kernels.open(c10::DispatchKey::Meta);
  const auto lacks = [](const char* name) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, "out"});
    return op && !op->hasKernelForDispatchKey(c10::DispatchKey::Meta);
  };
  if (lacks("aten::abs")) library.impl("abs.out", TORCH_FN(of_one));
  if (lacks("aten::nan_to_num")) library.impl("nan_to_num.out", TORCH_FN(without_nan));
  if (lacks("aten::logical_and")) library.impl("logical_and.out", TORCH_FN(of_two));
  if (lacks("aten::logical_or")) library.impl("logical_or.out", TORCH_FN(of_two));
  if (lacks("aten::logical_xor")) library.impl("logical_xor.out", TORCH_FN(of_two));
  if (lacks("aten::logical_not")) library.impl("logical_not.out", TORCH_FN(of_one));
#if TORCH_VERSION_MAJOR < 2
  const SilentWarnings silent;
  library.impl("index_add", TORCH_FN(index_add));
  library.impl("index_add_", TORCH_FN(index_add_in_place));
#endif
}

}  // namespace nxd
