#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace nxd {

// A file of the compile cache.
struct CacheEntry {
  std::string key;               // all that the content depends on
  nxd_status_t status = NXD_OK;  // else compiling failed so
  std::string content;           // machine code; of a failure, its message
};

std::string write_cache_entry(const CacheEntry& entry);
// None unless every byte is as it was written.
std::optional<CacheEntry> read_cache_entry(std::string_view bytes);

}  // namespace nxd
