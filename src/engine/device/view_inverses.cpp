#include "engine/device/view_inverses.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>
#include <torch/version.h>

#include <vector>

#include "engine/device/silent_warnings.h"
#include "engine/operator_library.h"
#include "engine/torch_compat.h"

namespace nxd {
namespace {

namespace functional = at::functionalization::impl;
using at::FunctionalTensorWrapper;
using at::functionalization::ViewMeta;
using Format = c10::optional<at::MemoryFormat>;

// The view is the first output of its operator in libtorch 1.13; no size of it is symbolic in
// libtorch 2.
constexpr bool kFirstAndFixed = false;

// The base, once an expanded view was written: of each element's copies the first that has changed.
at::Tensor unexpanded(const at::Tensor& base, const at::Tensor& written) {
  if (written.numel() == 0) return base;
  const at::Tensor before = at::expand_copy(base, written.sizes());
  at::Tensor out = written;
  at::Tensor changed = out.ne(before);
  // A NaN differs from itself.
  if (out.is_floating_point()) {
    changed = changed.logical_and(out.eq(out).logical_or(before.eq(before)));
  }
  const int64_t leading = out.dim() - base.dim();
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (out.size(d) == 1 || (d >= leading && base.size(d - leading) == out.size(d))) continue;
    const at::Tensor place = changed.to(at::kInt).argmax(d, /*keepdim=*/true);
    out = out.gather(d, place);
    changed = changed.gather(d, place);
  }
  for (int64_t d = 0; d < leading; ++d) out = at::select_copy(out, 0, 0);
  return out;
}

// The base, once its windows were written. The j-th elements of all windows are a slice of it.
at::Tensor unwindowed(const at::Tensor& base, const at::Tensor& written, int64_t dim, int64_t size,
                      int64_t step) {
  if (written.numel() == 0) return base;
  if (base.dim() == 0) return at::select_copy(written, 0, 0);
  const int64_t last = (written.size(dim) - 1) * step;
  at::Tensor out = base;
  for (int64_t j = 0; j < size; ++j) {
    out = at::slice_scatter(out, at::select_copy(written, -1, j), dim, j, j + last + 1, step);
  }
  return out;
}

// A view of a wrapped tensor: forward makes it of the base, reverse the base of it.
template <class Forward, class Reverse>
at::Tensor view_of(const at::Tensor& self, const Forward& forward, const Reverse& reverse) {
  functional::sync(self);
  const FunctionalTensorWrapper* base = functional::unsafeGetFunctionalWrapper(self);
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  const at::Tensor viewed = forward(base->value());
  return at::detail::make_tensor<FunctionalTensorWrapper>(
      viewed, base,
      ViewMeta([forward](const at::Tensor& whole, int64_t) { return forward(whole); },
               [reverse](const at::Tensor& whole, const at::Tensor& written, int64_t) {
                 return reverse(whole, written);
               },
               kFirstAndFixed));
}

at::Tensor expand(const at::Tensor& self, c10::SymIntArrayRef size, bool implicit) {
  const std::vector<int64_t> sizes = compat::sizes_of(size);
  const bool as_view = functional::getFunctionalizationReapplyViewsTLS();
  const auto forward = [sizes, implicit, as_view](const at::Tensor& base) {
    return as_view ? base.expand(sizes, implicit) : at::expand_copy(base, sizes, implicit);
  };
  if (functional::isFunctionalTensor(self)) return view_of(self, forward, unexpanded);
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  return self.expand(sizes, implicit);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const bool as_view = functional::getFunctionalizationReapplyViewsTLS();
  const auto forward = [dimension, size, step, as_view](const at::Tensor& base) {
    return as_view ? base.unfold(dimension, size, step)
                   : at::unfold_copy(base, dimension, size, step);
  };
  const int64_t dim = dimension < 0 ? dimension + self.dim() : dimension;
  const auto reverse = [dim, size, step](const at::Tensor& base, const at::Tensor& written) {
    return unwindowed(base, written, dim, size, step);
  };
  if (functional::isFunctionalTensor(self)) return view_of(self, forward, reverse);
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  return self.unfold(dimension, size, step);
}

#if TORCH_VERSION_MAJOR < 2
// libtorch 1.13 takes each stride for the product of the sizes one dimension too far to the left,
// so that all but squares would have other elements.
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, Format format) {
  const std::vector<int64_t> sizes = compat::sizes_of(size);
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  if (!functional::isFunctionalTensor(self)) return self.resize_(sizes, format);
  functional::sync(self);
  FunctionalTensorWrapper* const wrapper = functional::unsafeGetFunctionalWrapper(self);
  const int64_t elements = c10::multiply_integers(sizes);
  if (elements > wrapper->value().numel()) {
    wrapper->maybe_replace_storage(at::resize(wrapper->value(), sizes, format));
    return self;
  }
  const c10::DimVector strides = c10::contiguous_strides(sizes);
  const bool as_view = functional::getFunctionalizationReapplyViewsTLS();
  wrapper->mutate_view_meta(ViewMeta(
      [sizes, strides, as_view](const at::Tensor& base, int64_t) {
        return as_view ? base.as_strided(sizes, strides)
                       : at::as_strided_copy(base, sizes, strides);
      },
      [sizes, strides](const at::Tensor& base, const at::Tensor& written, int64_t) {
        return at::as_strided_scatter(base, written, sizes, strides);
      },
      kFirstAndFixed));
  return self;
}
#endif

}  // namespace

void mend_view_inverses() {
  static OperatorLibrary inverses;
  const SilentWarnings silent;
  torch::Library& library = inverses.open(c10::DispatchKey::Functionalize);
  library.impl("expand", TORCH_FN(expand));
  library.impl("unfold", TORCH_FN(unfold));
#if TORCH_VERSION_MAJOR < 2
  library.impl("resize_", TORCH_FN(resize));
#endif
}

}  // namespace nxd
