#include "core/pjrt/pjrt_executable.h"

#include <utility>

namespace nxd {

using pjrt_abi::make_args;
using pjrt_abi::Slot;

PjrtExecutable::PjrtExecutable(std::shared_ptr<PjrtPlugin> plugin, const CustomCallPort* port,
                               pjrt_abi::LoadedExecutable* handle)
    : plugin_(std::move(plugin)), port_(port), handle_(handle) {
  pjrt_abi::Executable* counted = nullptr;
  try {
    counted = program();
    auto args = make_args<pjrt_abi::SizeArgs>();
    args.object = counted;
    plugin_->call(Slot::kExecutableNumOutputs, &args, "number of outputs");
    output_count_ = args.value;
  } catch (...) {
    plugin_->release(Slot::kExecutableDestroy, counted);
    plugin_->release(Slot::kLoadedExecutableDestroy, handle_);
    throw;
  }
  plugin_->release(Slot::kExecutableDestroy, counted);
}

PjrtExecutable::~PjrtExecutable() { plugin_->release(Slot::kLoadedExecutableDestroy, handle_); }

pjrt_abi::Executable* PjrtExecutable::program() const {
  auto args = make_args<pjrt_abi::PointerArgs>();
  args.object = handle_;
  plugin_->call(Slot::kLoadedExecutableGetExecutable, &args, "program");
  return static_cast<pjrt_abi::Executable*>(args.value);
}

std::shared_ptr<PjrtExecution> PjrtExecutable::execute(const std::vector<PjrtBuffer*>& inputs,
                                                       void* rank_data) {
  return execute_on_devices({inputs}, rank_data);
}

std::shared_ptr<PjrtExecution> PjrtExecutable::execute_on_devices(
    const std::vector<std::vector<PjrtBuffer*>>& inputs, void* rank_data) {
  auto execution = std::make_shared<PjrtExecution>(plugin_, port_, rank_data);
  execution->start(handle_, output_count_, inputs);
  return execution;
}

std::string PjrtExecutable::serialize() const {
  auto args = make_args<pjrt_abi::SerializeArgs>();
  pjrt_abi::Executable* serialized = program();
  args.executable = serialized;
  std::string bytes;
  try {
    plugin_->call(Slot::kExecutableSerialize, &args, "serialize");
    bytes.assign(args.bytes, args.byte_count);
  } catch (...) {
    if (args.backing) args.delete_backing(args.backing);
    plugin_->release(Slot::kExecutableDestroy, serialized);
    throw;
  }
  if (args.backing) args.delete_backing(args.backing);
  plugin_->release(Slot::kExecutableDestroy, serialized);
  return bytes;
}

}  // namespace nxd
