#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "core/base/fork_guard.h"

namespace nxd {

// A place in an object for what a layer above keeps with it, and the object does not know: the
// boundary's handles. It is made by the first who asks, and lives as long as the object.
class Attachment {
 public:
  // One type for each class of objects.
  template <class T, class Owner>
  T& get(Owner& owner) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!value_) value_ = std::make_shared<T>(owner);
    return *static_cast<T*>(value_.get());
  }

  // Gives what was made away, null where nobody has asked: it may outlive the object then.
  std::shared_ptr<void> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(value_, nullptr);
  }

  // The process that made the object.
  const ForkGuard& fork_guard() const { return fork_guard_; }

 private:
  ForkGuard fork_guard_;
  std::mutex mutex_;
  std::shared_ptr<void> value_;
};

}  // namespace nxd
