#include "core/pjrt/pjrt_execution.h"

#include <utility>

#include "core/pjrt/custom_call.h"

namespace nxd {

using pjrt_abi::make_args;
using pjrt_abi::Slot;

PjrtExecution::PjrtExecution(std::shared_ptr<PjrtPlugin> plugin, const CustomCallPort* port,
                             void* rank_data)
    : plugin_(std::move(plugin)), scope_(std::make_shared<CustomCallScope>(rank_data)) {
  // A custom call that asks for its scope in an execution without a context ends the process, so
  // each has one.
  if (port) context_ = port->make_context(*scope_);
}

PjrtExecution::~PjrtExecution() {
  finish();
  outputs_.clear();
  plugin_->release(Slot::kExecuteContextDestroy, context_);
}

void PjrtExecution::start(pjrt_abi::LoadedExecutable* executable, size_t output_count,
                          const std::vector<std::vector<PjrtBuffer*>>& inputs) {
  const size_t devices = inputs.size(), count = devices == 0 ? 0 : inputs.front().size();
  check_argument(devices > 0, "inputs: expected those of a device or more, got none");
  std::vector<std::vector<pjrt_abi::Buffer*>> arguments(devices);
  std::vector<std::vector<pjrt_abi::Buffer*>> results(devices,
                                                      std::vector<pjrt_abi::Buffer*>(output_count));
  std::vector<pjrt_abi::Buffer* const*> argument_lists;
  std::vector<pjrt_abi::Buffer**> result_lists;
  for (size_t device = 0; device < devices; ++device) {
    check_argument(inputs[device].size() == count, "inputs of device ", device, ": expected ",
                   count, " as device 0 has, got ", inputs[device].size());
    for (const PjrtBuffer* input : inputs[device]) {
      check_argument(input && input->handle(), "inputs: expected a buffer, got none");
      arguments[device].push_back(input->handle());
      if (input->owner()) owners_.push_back(input->owner());
      if (input->scope()) scope_->add_source(input->scope());
    }
    argument_lists.push_back(arguments[device].data());
    result_lists.push_back(results[device].data());
  }
  outputs_.resize(devices);
  for (auto& outputs : outputs_) outputs.reserve(output_count);
  std::vector<pjrt_abi::Event*> done(devices);
  done_.reserve(devices);
  auto options = make_args<pjrt_abi::ExecuteOptions>();
  options.context = context_;
  auto args = make_args<pjrt_abi::ExecuteArgs>();
  args.executable = executable;
  args.options = &options;
  args.inputs = argument_lists.data();
  args.device_count = devices;
  args.input_count = count;
  args.outputs = result_lists.data();
  args.done = done.data();
  try {
    plugin_->call(Slot::kExecute, &args, "execute");
  } catch (const Error& error) {
    throw scope_->error().value_or(error);
  }
  done_ = done;
  for (size_t device = 0; device < devices; ++device) {
    for (pjrt_abi::Buffer* result : results[device]) {
      outputs_[device].emplace_back(plugin_, result, nullptr, scope_);
    }
  }
}

void PjrtExecution::finish() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_.empty() || plugin_->is_foreign()) return;
  for (pjrt_abi::Event* event : done_) {
    try {
      plugin_->await(event, "execute");
    } catch (const Error& error) {
      if (!error_) error_ = scope_->error().value_or(error);
    } catch (...) {
      error_ = Error::plain(NXD_ERROR_OUT_OF_MEMORY, "no memory for the error of an execution");
    }
  }
  done_.clear();
  owners_.clear();
  scope_->end();
}

void PjrtExecution::wait() {
  finish();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) throw *error_;
}

}  // namespace nxd
