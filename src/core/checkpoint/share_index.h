#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/layout/shard_spec.h"

namespace nxd {

// Tells how the tensors of a model are made of ranks' shares, which are safetensors files beside
// the index. A tensor has shards, which are index ranges of one dimension, and a shard has parts,
// which are consecutive elements of it.
struct ShareIndex {
  struct Part {
    size_t file;  // index of files
    int64_t begin, count;
  };
  struct Shard {
    std::vector<ShardSpec::Range> ranges;  // none without a dimension
    std::vector<Part> parts;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    int dim = -1;  // -1: the one shard is the tensor
    std::vector<Shard> shards;

    ShardSpec spec(const Shard& shard) const;
  };

  std::map<std::string, std::string> metadata;
  std::vector<std::string> files;
  std::map<std::string, Tensor> tensors;
};

// Behind the name that the file of whole tensors would have.
inline constexpr std::string_view kShareIndexEnding = ".shares.json";

// Bytes of an index, which may be larger than a header for thousands of ranks.
inline constexpr uint64_t kShareIndexLimit = uint64_t{1} << 30;

// INVALID_ARGUMENT beyond the limit.
std::string share_index_text(const ShareIndex& index);
// CORRUPT, with where and the field or tensor, for what is none: parts cover each shard once, and
// shards the tensor. UNSUPPORTED for one of a later version.
ShareIndex parse_share_index(std::string_view text, const std::string& where);

}  // namespace nxd
