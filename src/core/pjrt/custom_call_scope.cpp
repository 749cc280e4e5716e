#include "core/pjrt/custom_call_scope.h"

#include <utility>

namespace nxd {

void CustomCallScope::keep(const Error& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!error_) error_ = error;
}

void CustomCallScope::add_source(std::shared_ptr<const CustomCallScope> source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sources_.push_back(std::move(source));
}

void CustomCallScope::end() {
  if (const auto inherited = error()) keep(*inherited);
  const std::lock_guard<std::mutex> lock(mutex_);
  sources_.clear();
}

std::optional<Error> CustomCallScope::error() const {
  // Sources are older executions, so locks are taken in one order.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) return error_;
  for (const auto& source : sources_) {
    if (auto inherited = source->error()) return inherited;
  }
  return std::nullopt;
}

}  // namespace nxd
