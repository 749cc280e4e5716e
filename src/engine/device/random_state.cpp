// Two operators draw, forward, and are drawn again, in one graph or in two:
//   state  = nxd::random_state()
//   a      = dropout(x)
//   b      = dropout(a)
//   now    = nxd::exchange_random_state(state)    the generator is where it was before a
//   a, b   once more, with the same bits
//   nxd::exchange_random_state(now)               what comes later draws as if a, b were drawn once
#include "engine/device/random_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "engine/device/recorder.h"

namespace nxd {
namespace {

thread_local RandomStateScope* random_scope_of_thread = nullptr;

// All states have one size, which is that of the results' shapes.
at::Tensor state_now() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

at::Tensor exchanged(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state.contiguous());
  return before;
}

RecordedCall call_with_a_state(const char* name) {
  static const int64_t size = state_now().numel();
  RecordedCall call{name};
  call.is_effect = true;
  call.is_alone = true;
  call.results = {at::empty({size}, at::TensorOptions(at::kMeta).dtype(at::kByte))};
  return call;
}

at::Tensor recorded_random_state() {
  RecordedCall call = call_with_a_state("nxd::random_state");
  call.function = [](const std::vector<at::Tensor>&) { return std::vector{state_now()}; };
  return record_call(std::move(call), {})[0];
}

}  // namespace

RandomStateScope::RandomStateScope() : outer_(std::exchange(random_scope_of_thread, this)) {}

RandomStateScope::~RandomStateScope() { random_scope_of_thread = outer_; }

void random_bits_follow() {
  at::Tensor state;
  for (RandomStateScope* scope = random_scope_of_thread; scope; scope = scope->outer_) {
    if (scope->state_.defined()) continue;
    if (!state.defined()) state = recorded_random_state();
    scope->state_ = state;
  }
}

at::Tensor exchange_random_state(const at::Tensor& state) {
  RecordedCall call = call_with_a_state("nxd::exchange_random_state");
  call.function = [](const std::vector<at::Tensor>& in) { return std::vector{exchanged(in[0])}; };
  return record_call(std::move(call), {state})[0];
}

}  // namespace nxd
