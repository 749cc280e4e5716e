#include "engine/module/call_path.h"

#include <utility>

#include "core/base/hash.h"

namespace nxd {
namespace {

thread_local CallPath path_of_thread;

}  // namespace

CallPath CallPath::current() noexcept { return path_of_thread; }

CallPath CallPath::of_child(uint64_t earlier) const {
  if (number_ == 0 && earlier == 0) return *this;
  return CallPath(Hash().add(number_).add(earlier).value());
}

CallPathScope::CallPathScope(CallPath path) noexcept
    : outer_(std::exchange(path_of_thread, path)) {}

CallPathScope::~CallPathScope() { path_of_thread = outer_; }

}  // namespace nxd
