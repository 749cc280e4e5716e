#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/process_group.h"

namespace nxd {

// Elements of a tensor that this rank has: count of its shard's from begin on, in local order.
struct TensorShare {
  TensorEntry entry;  // of the whole tensor
  ShardSpec shard;
  int64_t begin, count;
  const void* data;
};

// The ranks that write shares together. A group that is null has one rank.
struct ShareGroups {
  ProcessGroup* tensor = nullptr;
  ProcessGroup* data = nullptr;
  ProcessGroup* pipeline = nullptr;
  int world_rank = 0;  // this rank's
};

// Every rank writes a safetensors file of what it has, without padding, and the first one an index
// beside path (see ShareIndex). Equal shares are written by the first rank that has them, a tensor
// of several stages by the first stage. Where one rank writes whole tensors and no other writes
// anything, it writes the one file at path instead.
//
// Nothing is gathered but names and places. Collective over all groups; the outcome is the same on
// all ranks. INVALID_ARGUMENT, before anything is written, when ranks have different tensors of one
// name; CORRUPT when no rank has some of a tensor's elements. Gives the files of values that this
// rank wrote.
std::vector<CheckpointFile> write_shares(const std::string& path, const ShareGroups& groups,
                                         const std::vector<TensorShare>& shares,
                                         const std::map<std::string, std::string>& metadata);

// True if write_shares may give a file this name, for a path that ends with name: that of the file
// itself, of an index, or of a rank's share, among however many.
bool is_name_of_shares(const std::string& file, const std::string& name);

}  // namespace nxd
