#include "engine/functional/score_mask.h"

#include <ATen/ATen.h>

namespace nxd {
namespace {

constexpr double kHides = -1e9;

// Four dimensions, each of size 1 where all its entries are one in memory.
at::Tensor unexpanded(at::Tensor mask) {
  while (mask.dim() < 4) mask = mask.unsqueeze(0);
  for (int64_t d = 0; d < 4; ++d) {
    if (mask.size(d) > 1 && mask.stride(d) == 0) mask = mask.narrow(d, 0, 1);
  }
  return mask;
}

bool is_everywhere(const at::Tensor& x, const at::Tensor& part) {
  return x.equal(part.expand_as(x));
}

}  // namespace

std::optional<KernelMask> kernel_mask(const at::Tensor& mask, int64_t batch, int64_t queries,
                                      int64_t keys) {
  if (!mask.device().is_cpu() || mask.requires_grad() || mask.dim() > 4 || mask.numel() == 0) {
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor given = unexpanded(mask);
  const int64_t rows = given.size(2);
  if ((given.size(0) != 1 && given.size(0) != batch) || (rows != 1 && rows != queries) ||
      given.size(3) != keys) {
    return std::nullopt;
  }
  at::Tensor seen = given;
  if (given.scalar_type() != at::kBool) {
    seen = given.eq(0);
    const bool is_all_or_nothing = seen.logical_or(given.le(kHides)).all().item<bool>();
    if (!is_all_or_nothing || !seen.any(-1).all().item<bool>()) return std::nullopt;
  }
  const at::Tensor of_head = seen.narrow(1, 0, 1), last = of_head.narrow(2, rows - 1, 1);
  if (!is_everywhere(seen, of_head)) return std::nullopt;
  KernelMask out;
  if (!is_everywhere(of_head, last)) {
    const at::Tensor earlier = at::ones({rows, keys}, last.options()).tril(keys - rows);
    if (keys < rows || !of_head.equal(last.logical_and(earlier))) return std::nullopt;
    out.causal = true;
  }
  if (!last.all().item<bool>()) {
    out.key_mask = last.select(2, 0).select(1, 0).expand({batch, keys}).to(at::kByte).contiguous();
  }
  return out;
}

}  // namespace nxd
