#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nxd {

// A module whose tensors have other names in some files, or that has more of them there. Names
// begin at the module, whatever tree it is a part of.
class StoredNames {
 public:
  StoredNames() = default;
  virtual ~StoredNames() = default;
  StoredNames(const StoredNames&) = delete;
  StoredNames& operator=(const StoredNames&) = delete;

  // Tensors that old files have beside the parameters, and that follow from the configuration.
  virtual std::vector<std::string> derived_tensors() const { return {}; }
  // Names of parameters, and those that files of other releases of transformers have in their
  // places.
  virtual std::vector<std::pair<std::string, std::string>> other_names() const { return {}; }
};

}  // namespace nxd
