#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/pjrt/pjrt_execution.h"

namespace nxd {

// A compiled program. Threads may run it at the same time.
class PjrtExecutable {
 public:
  PjrtExecutable(std::shared_ptr<PjrtPlugin> plugin, const CustomCallPort* port,
                 pjrt_abi::LoadedExecutable* handle);
  ~PjrtExecutable();
  PjrtExecutable(const PjrtExecutable&) = delete;
  PjrtExecutable& operator=(const PjrtExecutable&) = delete;

  // Starts the program and may return before it has ended. The inputs may be destroyed at once.
  // rank_data goes to the custom calls of the program, and outlives the execution.
  std::shared_ptr<PjrtExecution> execute(const std::vector<PjrtBuffer*>& inputs, void* rank_data);
  // The same on several devices of this process at once, with the inputs of each: a program of
  // several replicas waits in its collectives for all of them.
  std::shared_ptr<PjrtExecution> execute_on_devices(
      const std::vector<std::vector<PjrtBuffer*>>& inputs, void* rank_data);
  size_t num_outputs() const { return output_count_; }
  // True if it came out of the compile cache.
  bool was_loaded() const { return was_loaded_; }
  void mark_loaded() { was_loaded_ = true; }
  // Machine code, for PjrtClient::deserialize of the same plug-in on such a processor. It has no
  // checksum: the plug-in loads changed code as it is.
  std::string serialize() const;

 private:
  pjrt_abi::Executable* program() const;

  std::shared_ptr<PjrtPlugin> plugin_;
  const CustomCallPort* port_;
  pjrt_abi::LoadedExecutable* handle_;
  size_t output_count_ = 0;
  bool was_loaded_ = false;
};

}  // namespace nxd
