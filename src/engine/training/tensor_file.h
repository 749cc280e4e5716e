#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/agree/outcome.h"
#include "core/checkpoint/safetensors.h"
#include "core/world/context.h"

// Files of a caller's tensors and texts, by name.
namespace nxd {

struct TensorFileContent {
  std::vector<std::pair<std::string, at::Tensor>> tensors{};
  std::map<std::string, std::string> texts{};
};

struct SaveOptions {
  bool master_only = true;   // else every rank writes, at a path of its own
  bool each_host = false;    // the first rank of each host does, else that of the world
  bool all_at_once = false;  // all tensors are in the host's memory before the first is written
};

// Writes the file where this rank is one that does; returns once all ranks have theirs. given: all
// ranks fail with one whose arguments are none. Collective over the world.
void save_tensors(const Context& context, const std::string& path, const TensorFileContent& content,
                  const SaveOptions& options, const Outcome& given);

// A file of these, or any other safetensors, whose tensors are read one by one.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);

  const std::vector<std::string>& names() const { return names_; }  // in alphabetical order
  // By key, in alphabetical order.
  const std::vector<std::pair<std::string, std::string>>& texts() const { return texts_; }
  at::Tensor read(const std::string& name, nxd_device_t device) const;

 private:
  SafetensorsReader reader_;
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, std::string>> texts_;
};

}  // namespace nxd
