#include "core/base/profiler.h"

#include <array>
#include <chrono>

namespace nxd {
namespace {

// A line of the cache each: threads that count other phases do not disturb one another.
struct alignas(64) Counter {
  std::atomic<int64_t> nanoseconds{0};
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> waiting{0};  // nanoseconds
};

std::array<Counter, profiler::kPhases> counters;
thread_local bool inside = false;
thread_local nxd_phase_t outermost = NXD_PHASE_INVALID;
thread_local bool waits = false;         // in the outermost phase
thread_local uint64_t phases_ended = 0;  // tells it from others of its kind

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Counter& counter(nxd_phase_t phase) { return counters[static_cast<size_t>(phase)]; }

}  // namespace

std::atomic<bool> profiler::running{false};

void profiler::start() noexcept {
  running.store(false, std::memory_order_relaxed);
  for (Counter& c : counters) {
    c.nanoseconds.store(0, std::memory_order_relaxed);
    c.operations.store(0, std::memory_order_relaxed);
    c.calls.store(0, std::memory_order_relaxed);
    c.waiting.store(0, std::memory_order_relaxed);
  }
  running.store(true, std::memory_order_relaxed);
}

void profiler::stop() noexcept { running.store(false, std::memory_order_relaxed); }

profiler::Total profiler::total(nxd_phase_t phase) noexcept {
  const Counter& c = counter(phase);
  return {1e-9 * static_cast<double>(c.nanoseconds.load(std::memory_order_relaxed)),
          static_cast<double>(c.operations.load(std::memory_order_relaxed)),
          c.calls.load(std::memory_order_relaxed),
          1e-9 * static_cast<double>(c.waiting.load(std::memory_order_relaxed))};
}

const char* profiler::name(nxd_phase_t phase) noexcept {
  switch (phase) {
    case NXD_PHASE_GEMM_FORWARD: return "GEMM forward";
    case NXD_PHASE_GEMM_INPUT_GRAD: return "GEMM dX";
    case NXD_PHASE_GEMM_WEIGHT_GRAD: return "GEMM dW";
    case NXD_PHASE_ATTENTION: return "attention";
    case NXD_PHASE_CROSS_ENTROPY: return "cross entropy";
    case NXD_PHASE_ELEMENTWISE: return "elementwise";
    case NXD_PHASE_OPTIMIZER: return "optimizer";
    case NXD_PHASE_COMMUNICATION: return "communication";
    default: return nullptr;
  }
}

void PhaseScope::begin(nxd_phase_t phase, double operations) noexcept {
  if (inside) return;
  inside = counts_ = true;
  phase_ = outermost = phase;
  operations_ = operations;
  start_ = now();
}

void PhaseScope::leave_out_this_thread() noexcept { inside = true; }

void PhaseScope::end() noexcept {
  Counter& c = counter(phase_);
  c.nanoseconds.fetch_add(now() - start_, std::memory_order_relaxed);
  c.operations.fetch_add(static_cast<uint64_t>(operations_), std::memory_order_relaxed);
  c.calls.fetch_add(1, std::memory_order_relaxed);
  inside = waits = false;
  outermost = NXD_PHASE_INVALID;
  ++phases_ended;
}

void WaitScope::begin() noexcept {
  if (outermost == NXD_PHASE_INVALID || waits) return;
  waits = true;
  phases_before_ = phases_ended;
  start_ = now();
}

void WaitScope::end() noexcept {
  if (phases_ended != phases_before_) return;
  waits = false;
  counter(outermost).waiting.fetch_add(now() - start_, std::memory_order_relaxed);
}

}  // namespace nxd
