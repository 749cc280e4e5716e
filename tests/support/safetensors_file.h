#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"

namespace nxd_test {

struct TensorToStore {
  std::string name;
  nxd_dtype_t dtype;
  std::vector<int64_t> shape;
  const void* data;
};

// Writes a file at once.
inline void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<nxd::TensorEntry> entries;
  for (const TensorToStore& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  nxd::SafetensorsWriter writer(path, entries, metadata);
  for (const size_t index : nxd::SafetensorsWriter::order(entries)) {
    writer.write(tensors[index].data);
  }
  writer.commit();
}

}  // namespace nxd_test
