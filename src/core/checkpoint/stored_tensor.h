#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/shard_spec.h"

namespace nxd {

// Consecutive elements of a tensor's shard, as one file has them.
struct StoredPart {
  size_t file;           // index among the reader's files
  uint64_t offset;       // of the first element, in bytes
  ShardSpec shard;       // without padding
  int64_t begin, count;  // of the shard's elements, in their local order
};

// A tensor of safetensors files (https://github.com/huggingface/safetensors): a JSON header, then
// the tensors' bytes, little-endian and row-major, without gaps.
struct StoredTensor {
  std::string dtype_text;  // as the file has it
  nxd_dtype_t dtype;       // INVALID for a type this library does not compute with
  uint64_t element_bytes;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // bytes within the file; with parts, 0 and the bytes of all elements
  size_t file;          // index among the reader's files
  // Where ranks have written shares of it; they cover all elements, some of them twice. None: the
  // tensor lies in one file.
  std::vector<StoredPart> parts;
};

// Elements that follow one another in a file and in what is read.
struct SliceRun {
  size_t file;
  uint64_t offset;  // bytes
  int64_t out;      // of the first element
  int64_t count;
};

// Where the files have elements begin to begin + count of a shard, in its local order; out counts
// from begin, and padding is left out. Pure.
std::vector<SliceRun> plan_slice(const StoredTensor& tensor, const ShardSpec& shard, int64_t begin,
                                 int64_t count);

}  // namespace nxd
