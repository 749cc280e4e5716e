#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "core/comm/process_group.h"

namespace nxd {

// The ranks that write one file together: those of a model's shards and stages. A group that is
// null has one rank.
struct WriterGroups {
  ProcessGroup* tensor = nullptr;
  ProcessGroup* pipeline = nullptr;
  // The first data-parallel copy writes; all copies may have to take part in gathering.
  ProcessGroup* data = nullptr;
  int world_rank = 0;  // this rank's
};

// A tensor that ranks of this one's stage have.
struct StageTensor {
  TensorEntry entry;
  // Puts the whole together, called on all ranks of the stage at the same point, and gives where it
  // lies until the next call; where it need not lie on this rank, null. Called for every tensor,
  // also after one for which it failed: a rank that fails leaves no peer in a collective of it.
  std::function<const void*()> gather;
};

// Writes what the stages have as one safetensors file, tensor by tensor: no rank holds more than
// one full tensor. A tensor of several stages comes from the first of them, and so does metadata.
// Collective over all groups; the outcome is the same on all ranks. INVALID_ARGUMENT, before
// anything is gathered, when stages have different tensors of one name.
void write_collective(const std::string& path, const WriterGroups& writers,
                      const std::vector<StageTensor>& tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace nxd
