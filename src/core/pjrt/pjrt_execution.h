#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/pjrt/pjrt_buffer.h"

namespace nxd {

class CustomCallPort;

// A program that runs, or has run. It holds all that the program reads until it has ended.
class PjrtExecution {
 public:
  // The port is null where the plug-in has no custom calls.
  PjrtExecution(std::shared_ptr<PjrtPlugin> plugin, const CustomCallPort* port, void* rank_data);
  // Waits.
  ~PjrtExecution();
  PjrtExecution(const PjrtExecution&) = delete;
  PjrtExecution& operator=(const PjrtExecution&) = delete;

  // Results in the program's order, of one device of those that ran it. Another execution may take
  // them before this one has ended.
  std::vector<PjrtBuffer>& outputs(size_t device = 0) { return outputs_.at(device); }
  // Until the program has ended. Its error, which is the one that a custom call of it threw, if it
  // has thrown; each later call throws it again.
  void wait();

  // Inputs of each device.
  void start(pjrt_abi::LoadedExecutable* executable, size_t output_count,
             const std::vector<std::vector<PjrtBuffer*>>& inputs);

 private:
  void finish() noexcept;

  std::shared_ptr<PjrtPlugin> plugin_;
  std::shared_ptr<CustomCallScope> scope_;
  pjrt_abi::ExecuteContext* context_ = nullptr;
  std::vector<std::vector<PjrtBuffer>> outputs_;
  std::mutex mutex_;  // of what follows
  std::vector<pjrt_abi::Event*> done_;
  std::vector<std::shared_ptr<void>> owners_;
  std::optional<Error> error_;
};

}  // namespace nxd
