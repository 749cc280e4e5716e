#include "core/tensor_parallel/group_calls.h"

#include "core/world/trained_axes.h"

namespace nxd {
namespace {

// Bytes that are exchanged sooner than another thread wakes up.
constexpr size_t kNotWorthAThread = size_t{64} << 10;

}  // namespace

GroupCalls::~GroupCalls() {
  if (work_) work_->release();
}

// A collective that fails has failed on all ranks, or the group is of no more use.
void GroupCalls::made(const std::function<void()>& call) {
  const int left = left_ - 1;
  left_ = 0;
  call();
  left_ = left;
}

void GroupCalls::run(const Call& call) {
  made([&] { group_.run(call); });
}

void GroupCalls::start(const Call& call) {
  if (call.bytes() <= kNotWorthAThread) return run(call);
  made([&] { work_ = group_.start(call); });
}

void GroupCalls::wait() {
  if (!work_) return;
  const int left = left_;
  left_ = 0;
  work_->wait(-1);
  left_ = left;
  work_.reset();
}

void GroupCalls::give_up() noexcept {
  if (left_ <= 0) return;
  left_ = 0;
  try {
    const Error why = Error::current();
    group_.reject(Call::named(operation_), why.what());
  } catch (...) {
    // This rank has an error of its own to report.
  }
}

std::shared_ptr<ProcessGroup> layer_group(const Context& context) {
  context.check_usable();
  const auto layout = context.parallel();
  check_trained_axes(*layout, "layers");
  return layout->group(NXD_AXIS_TENSOR);
}

}  // namespace nxd
