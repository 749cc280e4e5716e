#include "engine/ops/part_at.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/device/recorder.h"

namespace nxd {
namespace {

// in[1] is the part's number.
at::Tensor part_of(const at::Tensor& whole, const at::Tensor& number, int64_t dim, int64_t size) {
  return whole.narrow(dim, number.item<int64_t>() * size, size);
}

// A node that takes x and a number, and gives a tensor that has another size along dim.
DeviceValuePtr record_part(const char* name, const DeviceValuePtr& x, int64_t dim, int64_t number,
                           int64_t size, ReplayFunction function) {
  std::vector<int64_t> sizes = x->meta.sizes().vec();
  sizes[static_cast<size_t>(dim)] = size;
  RecordedCall call{name};
  call.attributes = text("dim ", dim);
  call.results = {at::empty(sizes, x->meta.options())};
  call.function = std::move(function);
  return record_values(std::move(call),
                       {x, Recording::current()->known(at::full({}, number, at::kLong))})[0];
}

}  // namespace

DeviceValuePtr record_part_at(const DeviceValuePtr& x, int64_t dim, int64_t number, int64_t size) {
  return record_part("nxd::part_at", x, dim, number, size,
                     [dim, size](const std::vector<at::Tensor>& in) {
                       const at::Tensor part = part_of(in[0], in[1], dim, size);
                       return std::vector<at::Tensor>{part.clone(at::MemoryFormat::Contiguous)};
                     });
}

DeviceValuePtr record_placed_part(const DeviceValuePtr& part, int64_t dim, int64_t number,
                                  int64_t extent) {
  return record_part("nxd::placed_part", part, dim, number, extent,
                     [dim, extent](const std::vector<at::Tensor>& in) {
                       std::vector<int64_t> sizes = in[0].sizes().vec();
                       sizes[static_cast<size_t>(dim)] = extent;
                       at::Tensor whole = at::zeros(sizes, in[0].options());
                       part_of(whole, in[1], dim, in[0].size(dim)).copy_(in[0]);
                       return std::vector<at::Tensor>{whole};
                     });
}

at::Tensor filled_behind(const at::Tensor& x, int64_t first, double value) {
  const at::Tensor places = at::arange(x.size(-1), x.options().dtype(at::kLong));
  return x.masked_fill(places.ge(first), value);
}

}  // namespace nxd
