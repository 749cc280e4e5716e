#include "engine/device/replay_scope.h"

#include <utility>

namespace nxd {
namespace {

thread_local const ReplayScope* innermost_replay = nullptr;

}  // namespace

ReplayScope::ReplayScope(const Recording& recording)
    : recording_(recording), outer_(std::exchange(innermost_replay, this)) {}

ReplayScope::~ReplayScope() { innermost_replay = outer_; }

const ReplayScope* ReplayScope::innermost() { return innermost_replay; }

bool ReplayScope::has(const Recording& recording) {
  for (const ReplayScope* scope = innermost_replay; scope; scope = scope->outer_) {
    if (&scope->recording_ == &recording) return true;
  }
  return false;
}

ReplayScope::Call::Call(const ReplayScope* of) : outer_(std::exchange(innermost_replay, of)) {}

ReplayScope::Call::~Call() { innermost_replay = outer_; }

}  // namespace nxd
