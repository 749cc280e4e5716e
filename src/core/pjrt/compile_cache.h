#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/pjrt/cache_entry.h"

namespace nxd {

struct CompileCacheOptions {
  std::string directory;      // "": nothing is kept
  bool retry_failed = false;  // failures that are kept count as absent
  uint64_t max_bytes = uint64_t{4} << 30;
  // The words of NEURON_CC_FLAGS that are for the compiler, not for the cache.
  std::string compiler_flags;

  // NEURON_CC_FLAGS, NEURON_COMPILE_CACHE_URL and NXD_COMPILE_CACHE_MB; by default a directory of
  // the user's cache. A place that this library cannot write to is none, with a warning.
  static CompileCacheOptions from_environment();
};

// Compiled programs in a directory that processes share, a file for each. Files appear at once and
// complete. A damaged file, and one that belongs to another user but root, is as good as none: its
// machine code would run here. The cache never fails a program that could be compiled: what it
// cannot do is a warning.
class CompileCache {
 public:
  explicit CompileCache(CompileCacheOptions options);

  bool is_on() const { return !options_.directory.empty(); }
  const CompileCacheOptions& options() const { return options_; }
  // Marks the entry as used.
  std::optional<CacheEntry> read(const std::string& key) const;
  // The least recently used files leave when there are too many bytes.
  void write(const CacheEntry& entry) const noexcept;
  void remove(const std::string& key) const noexcept;
  // Digest of a large file, which is remembered as long as its size and times stay.
  std::string digest_of_file(const std::string& path) const;

  // The holder compiles the program of the key, and others of all processes wait. The lock ends
  // with its process. Null after the bound of a collective, and where there can be no lock.
  class Lock;
  std::shared_ptr<Lock> lock(const std::string& key) const;

 private:
  std::string path_of(const std::string& key, const char* ending) const;
  void evict(const std::string& newest) const;

  CompileCacheOptions options_;
};

}  // namespace nxd
