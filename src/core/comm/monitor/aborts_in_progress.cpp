#include "core/comm/monitor/aborts_in_progress.h"

#include <utility>

namespace nxd {

AbortsInProgress::Scope::Scope(std::shared_ptr<AbortsInProgress> aborts) noexcept
    : aborts_(std::move(aborts)) {
  std::lock_guard<std::mutex> lock(aborts_->mutex_);
  next_ = aborts_->first_;
  aborts_->first_ = this;
}

AbortsInProgress::Scope::~Scope() {
  std::lock_guard<std::mutex> lock(aborts_->mutex_);
  Scope** link = &aborts_->first_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  aborts_->ended_.notify_all();
}

bool AbortsInProgress::has_others() const noexcept {
  for (const Scope* scope = first_; scope; scope = scope->next_) {
    if (scope->thread_ != std::this_thread::get_id()) return true;
  }
  return false;
}

void AbortsInProgress::wait_for_others() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  while (has_others()) ended_.wait(lock);
}

}  // namespace nxd
