#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/snapshot.h"
#include "engine/module/module.h"

namespace nxd {

// Names and tensors that a load did not match.
struct LoadReport {
  std::vector<std::string> missing;     // parameters that the file lacks
  std::vector<std::string> unexpected;  // tensors that the model lacks
  std::vector<std::string> shape;       // tensors of another shape than the parameter's
  std::string details;                  // the first mismatches in words

  bool matches() const { return missing.empty() && unexpected.empty() && shape.empty(); }
  // INVALID_ARGUMENT with the details when something in the file or directory did not match.
  void check(const std::string& path) const;
};

// Reads parameters from safetensors, each rank its own shards only; those on the meta device get
// their values so. With strict, a report that does not match means that no parameter was changed;
// else whatever matches was read. A tied parameter is found under any of its names. The report of a
// local module is that of the whole model, and of a model that a pipeline has cut each rank reads
// the parameters that it has kept.
LoadReport load_safetensors(Module& root, const std::string& path, bool strict);

// Writes the whole parameters as one file, those of all stages of a pipeline, parameter by
// parameter, on the first rank of data-parallel copy 0. Collective over the tensor- and the
// pipeline-parallel group; the outcome is the same on all ranks of the copy. path may be NULL,
// which is rejected together with the peers.
void save_safetensors(Module& root, const char* path);
// The same of the values as they are now, for a checkpoint of the context's.
std::unique_ptr<Snapshot> snapshot_parameters(Module& root, Context& context);

}  // namespace nxd
