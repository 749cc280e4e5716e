#pragma once

#include <cstddef>

namespace nxd::kernels {

// Copies between memory of this rank and memory that other ranks work on. The spans must not
// overlap. A thread that sees a later store of this thread sees the copied bytes.

// By vector loads and stores: the string instruction that memcpy takes is no faster here, and far
// slower with some processors.
void copy_shared(void* to, const void* from, size_t bytes);

// The same past the caches: stores do not wait for lines that other cores hold.
void stream_to_shared(void* to, const void* from, size_t bytes);

}  // namespace nxd::kernels
