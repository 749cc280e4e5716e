#pragma once

#include <cstddef>
#include <cstdint>

namespace nxd::kernels {

// Both outputs become a + b, rounded to nearest even as reduce_to_all rounds, for as many of the
// first elements as the processor's own conversion to bf16 takes; gives that number, which may be
// 0. An output may be an input.
size_t sum_bf16_pair(const uint16_t* a, const uint16_t* b, uint16_t* out_0, uint16_t* out_1,
                     size_t count) noexcept;

}  // namespace nxd::kernels
