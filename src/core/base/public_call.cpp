#include "core/base/public_call.h"

#include <utility>

namespace nxd {
namespace {

thread_local const char* public_call_of_thread = nullptr;

}  // namespace

std::atomic<bool> PublicCall::are_known_{false};

const char* PublicCall::enter(const char* name) noexcept {
  return std::exchange(public_call_of_thread, name);
}

const char* current_public_call() noexcept { return public_call_of_thread; }

}  // namespace nxd
