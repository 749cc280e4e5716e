#include "core/world/background.h"

#include <utility>

namespace nxd {

std::shared_ptr<Work> Background::start(const char* name, std::function<void()> task) {
  auto work = std::make_shared<Work>(shared_, "background", name);
  queues_.submit({}, {work, std::move(task), [] {}});
  return work;
}

void Background::wait(const char* operation) {
  queues_.wait_until_idle([this] { shared_->serve(); },
                          [&] { shared_->interrupt.check(operation); });
}

void Background::end() noexcept {
  try {
    queues_.wait_until_idle([this] { shared_->serve(); });
  } catch (...) {
  }
}

}  // namespace nxd
