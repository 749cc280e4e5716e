#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/pjrt/compile_cache.h"
#include "core/pjrt/custom_call.h"
#include "core/pjrt/pjrt_buffer.h"
#include "core/pjrt/pjrt_executable.h"
#include "core/pjrt/pjrt_options.h"
#include "core/pjrt/pjrt_target.h"

namespace nxd {

// A plug-in at work, on its first device unless another is named. Threads may use it at the same
// time. A process that was forked after a client was made cannot use it, and is told so.
class PjrtClient {
 public:
  // One for each path and pair of numbers of a process, which stays to its end: programs may be
  // kept that long, and the plug-in's threads end with the process. CPUs are as many devices as
  // asked for; another plug-in has its own number. UNSUPPORTED when it has fewer. Clients whose
  // last numbers differ have threads of their own, so that their programs may wait for one another.
  static std::shared_ptr<PjrtClient> load(const std::string& plugin_path, int devices = 1,
                                          int number = 0);

  // The text of a module in StableHLO. It is looked up in the compile cache of the environment, and
  // kept there; processes that want the same program wait for the one that compiles it. Flags that
  // the plug-in does not know are left out with a line in the log, since names come and go with
  // versions of XLA.
  std::shared_ptr<PjrtExecutable> compile(std::string_view stablehlo,
                                          const PjrtOptions& options = {});
  std::shared_ptr<PjrtExecutable> compile(std::string_view stablehlo, const PjrtOptions& options,
                                          const CompileCache& cache);
  // Takes bytes that PjrtExecutable::serialize gave.
  std::shared_ptr<PjrtExecutable> deserialize(std::string_view bytes);
  // INVALID_ARGUMENT for a dtype or shape that is none, NULL with elements, and memory that is to
  // be shared and not aligned to kPjrtAlignment. Memory of a device is always a copy.
  PjrtBuffer import_host(void* data, const PjrtType& type, HostMemory memory,
                         std::shared_ptr<void> owner = nullptr, size_t device = 0);

  // Such as "cpu", and all of it in a line: platform, its version, the interface's and the path.
  const std::string& platform() const { return platform_; }
  std::string description() const;
  bool has_custom_calls() const { return port_ != nullptr; }
  // How programs for it are to be written.
  const PjrtTarget& target() const { return target_; }
  const PjrtPlugin& plugin() const { return *plugin_; }
  // Programs that the plug-in has compiled, and those that came out of the cache.
  uint64_t compiled() const { return compiled_; }
  uint64_t loaded() const { return loaded_; }

 private:
  PjrtClient(std::shared_ptr<PjrtPlugin> plugin, int devices);
  void open(int devices);
  void create(std::optional<int> cpu_devices);
  void sort_devices();
  std::shared_ptr<PjrtExecutable> compile_anew(std::string_view stablehlo,
                                               std::map<std::string, std::string> flags,
                                               int replicas);
  std::shared_ptr<PjrtExecutable> find(const CompileCache& cache, const std::string& key);
  std::map<std::string, std::string> flags_of(const PjrtOptions& options) const;
  std::string key_of(std::string_view stablehlo, const PjrtOptions& options,
                     const CompileCache& cache);
  // Found once: an update may put another file in the place of the one that was loaded.
  std::string plugin_digest(const CompileCache& cache);

  std::shared_ptr<PjrtPlugin> plugin_;
  pjrt_abi::Client* handle_ = nullptr;
  std::vector<pjrt_abi::Device*> devices_;
  std::string platform_, platform_version_;
  PjrtTarget target_;
  std::shared_ptr<CustomCallPort> port_;
  std::atomic<uint64_t> compiled_ = 0, loaded_ = 0;
  std::mutex digest_mutex_;
  std::string plugin_digest_;  // "" before the first program that is looked up in a cache
};

}  // namespace nxd
