#include "core/kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernels/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nxd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Both return how much is left to copy at the end.

size_t CopyVectors(uint8_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t n = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * n <= bytes; at += 4 * n) {
    const auto v0 = hn::LoadU(d, from + at);
    const auto v1 = hn::LoadU(d, from + at + n);
    const auto v2 = hn::LoadU(d, from + at + 2 * n);
    const auto v3 = hn::LoadU(d, from + at + 3 * n);
    hn::StoreU(v0, d, to + at);
    hn::StoreU(v1, d, to + at + n);
    hn::StoreU(v2, d, to + at + 2 * n);
    hn::StoreU(v3, d, to + at + 3 * n);
  }
  return bytes - at;
}

// to is aligned to a cache line.
size_t StreamVectors(uint8_t* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t n = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * n <= bytes; at += 4 * n) {
    for (size_t i = 0; i < 4 * n; i += n) hn::Stream(hn::LoadU(d, from + at + i), d, to + at + i);
  }
  hwy::FlushStream();
  return bytes - at;
}

}  // namespace nxd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nxd::kernels {
namespace {

HWY_EXPORT(CopyVectors);
HWY_EXPORT(StreamVectors);

constexpr size_t kLine = 64;

// Less than a few vectors, which memcpy takes by vectors as well.
void copy_rest(uint8_t* to, const uint8_t* from, size_t bytes, size_t left) {
  if (left > 0) std::memcpy(to + (bytes - left), from + (bytes - left), left);
}

}  // namespace

void stream_to_shared(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(target, source, head);
  target += head;
  source += head;
  bytes -= head;
  copy_rest(target, source, bytes, HWY_DYNAMIC_DISPATCH(StreamVectors)(target, source, bytes));
}

void copy_shared(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  copy_rest(target, source, bytes, HWY_DYNAMIC_DISPATCH(CopyVectors)(target, source, bytes));
}

}  // namespace nxd::kernels
#endif
