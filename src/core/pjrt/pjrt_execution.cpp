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
                          const std::vector<PjrtBuffer*>& inputs) {
  std::vector<pjrt_abi::Buffer*> arguments, results(output_count);
  for (const PjrtBuffer* input : inputs) {
    check_argument(input && input->handle(), "inputs: expected a buffer, got none");
    arguments.push_back(input->handle());
    if (input->owner()) owners_.push_back(input->owner());
    if (input->scope()) scope_->add_source(input->scope());
  }
  outputs_.reserve(output_count);
  auto options = make_args<pjrt_abi::ExecuteOptions>();
  options.context = context_;
  auto args = make_args<pjrt_abi::ExecuteArgs>();
  pjrt_abi::Buffer* const* argument_list = arguments.data();
  pjrt_abi::Buffer** result_list = results.data();
  args.executable = executable;
  args.options = &options;
  args.inputs = &argument_list;
  args.device_count = 1;
  args.input_count = arguments.size();
  args.outputs = &result_list;
  args.done = &done_;
  try {
    plugin_->call(Slot::kExecute, &args, "execute");
  } catch (const Error& error) {
    throw scope_->error().value_or(error);
  }
  for (pjrt_abi::Buffer* result : results) outputs_.emplace_back(plugin_, result, nullptr, scope_);
}

void PjrtExecution::finish() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  pjrt_abi::Event* event = std::exchange(done_, nullptr);
  if (!event || plugin_->is_foreign()) return;
  try {
    plugin_->await(event, "execute");
  } catch (const Error& error) {
    error_ = scope_->error().value_or(error);
  } catch (...) {
    error_ = Error::plain(NXD_ERROR_OUT_OF_MEMORY, "no memory for the error of an execution");
  }
  owners_.clear();
  scope_->end();
}

void PjrtExecution::wait() {
  finish();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) throw *error_;
}

}  // namespace nxd
