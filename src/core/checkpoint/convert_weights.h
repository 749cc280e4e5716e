#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace nxd {

struct WeightConversion {
  std::optional<nxd_dtype_t> dtype;  // of all floats; none: as they are stored
  uint64_t max_shard_bytes = 0;      // of the tensors of one file; 0: all are in one
  std::string config;                // path of a config.json in place of the source's own; "": none
};

// Bytes that are done, and all of them.
using ConversionProgress = std::function<void(uint64_t done, uint64_t total)>;

// Copies the tensors of `from` (see SafetensorsReader) to `to`, which is a .safetensors file other
// than those that are read, or a directory that is not there yet. A directory becomes one of
// Hugging Face's: config.json and the tokenizer's files come along. It appears at once, when all of
// it is on the disk.
//
// Holds 4 MiB of values at a time, whatever the tensors' sizes are, beside the names and shapes of
// all tensors. INVALID_ARGUMENT also for a finite value that the new type has none for; IO;
// CORRUPT; UNSUPPORTED (a stored type that is not computed with).
void convert_weights(const std::string& from, const std::string& to,
                     const WeightConversion& conversion, const ConversionProgress& progress);

// A config.json that says which type its weights are of says another one; without a change where it
// says none.
std::string config_of_dtype(const std::string& config, nxd_dtype_t dtype, const std::string& where);

}  // namespace nxd
