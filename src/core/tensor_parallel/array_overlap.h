#pragma once

#include "core/tensor_parallel/array.h"

namespace nxd {

// True if two elements of an array have one place. An answer that would take too long is true.
bool overlaps_itself(const Array& array);

// True if two arrays share a byte; an answer that would take too long is true. Arrays that lie
// between each other's elements, such as columns of one larger array, share none.
bool overlap(const Array& a, const Array& b);

// True if two arrays are the same elements in the same places, whatever strides they give
// dimensions of one element, where these mean nothing.
bool is_same_array(const Array& a, const Array& b);

}  // namespace nxd
