#pragma once

#include <map>
#include <string>

namespace nxd {

// The texts beside the tensors of a file, by key.
using FileMetadata = std::map<std::string, std::string>;

// Adds what one of several ranks brings. A file has one text of a key: others that it does not have
// would be lost, such as the learning rate of another stage.
void add_metadata(FileMetadata& all, const std::string& key, const std::string& value);

}  // namespace nxd
