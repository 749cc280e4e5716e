#include "core/checkpoint/file_metadata.h"

#include "core/base/error.h"
#include "core/base/printable.h"

namespace nxd {

void add_metadata(FileMetadata& all, const std::string& key, const std::string& value) {
  const auto [place, is_new] = all.emplace(key, value);
  check_argument(is_new || place->second == value, "metadata ", printable(key),
                 ": expected the same on all ranks that share the file, got ",
                 printable(place->second), " and ", printable(value));
}

}  // namespace nxd
