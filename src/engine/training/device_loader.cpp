#include "engine/training/device_loader.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/base/callback_thread.h"
#include "core/base/start_thread.h"
#include "engine/device/step_closures.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/host_copy.h"

namespace nxd {
namespace {

constexpr int kMostWaiting = 1024;
constexpr int kMostBatchesOfStep = 1 << 20;

const DeviceLoader::Options& checked(const DeviceLoader::Options& o) {
  check_argument(o.batches_per_execution >= 1 && o.batches_per_execution <= kMostBatchesOfStep,
                 "batches_per_execution: expected 1 to ", kMostBatchesOfStep, ", got ",
                 o.batches_per_execution);
  check_argument(o.prefetch >= 1 && o.prefetch <= kMostWaiting, "prefetch: expected 1 to ",
                 kMostWaiting, " batches, got ", o.prefetch);
  if (to_device(o.device).is_meta()) {
    fail(NXD_ERROR_UNSUPPORTED, "device: NXD_DEVICE_META has no values to train on");
  }
  return o;
}

}  // namespace

DeviceLoader::DeviceLoader(std::unique_ptr<BatchSource> source, const Options& options)
    : options_(checked(options)),
      source_(std::move(source)),
      width_(source_->width()),
      position_(source_->position()) {
  thread_ = start_thread("that moves batches to a device", [this] { run(); });
}

DeviceLoader::~DeviceLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  try {
    if (source_->position() != position_) source_->set_position(position_);
  } catch (const std::exception&) {
    // A source that only goes forward.
  }
}

DeviceLoader::Batch DeviceLoader::read() noexcept {
  Batch out;
  try {
    const at::NoGradGuard no_grad;
    if (!unmoved_) unmoved_ = source_->read();
    std::optional<BatchSource::Tensors> tensors = unmoved_;
    if (tensors) {
      for (at::Tensor& tensor : *tensors) tensor = moved_to(tensor, options_.device);
    }
    out.position = source_->position();
    unmoved_.reset();
    out.tensors = std::move(tensors);
  } catch (...) {
    out.failure = Error::current();
  }
  return out;
}

void DeviceLoader::seek() noexcept {
  try {
    source_->set_position(*seek_);
    unmoved_.reset();
    ready_.clear();
    pauses_ = has_ended_ = false;
  } catch (...) {
    seek_failure_ = Error::current();
  }
  seek_.reset();
}

void DeviceLoader::run() {
  const InternalThread internal;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || seek_ || may_read(); });
    if (stop_) return;
    if (seek_) {
      seek();
    } else {
      lock.unlock();
      Batch batch = read();
      lock.lock();
      pauses_ = batch.is_last();
      ready_.push_back(std::move(batch));
    }
    changed_.notify_all();
  }
}

DeviceLoader::Batch DeviceLoader::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (has_ended_) return {};
  if (ready_.empty() && std::exchange(pauses_, false)) changed_.notify_all();
  changed_.wait(lock, [this] { return !ready_.empty(); });
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  has_ended_ = batch.is_last() && !batch.failure;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

std::optional<BatchSource::Tensors> DeviceLoader::next() {
  if (taken_ >= options_.batches_per_execution) {
    taken_ = 0;
    mark_step(/*wait=*/true);
  }
  Batch batch = take();
  if (batch.failure) throw Error(*batch.failure);
  if (batch.is_last()) {
    taken_ = 0;
    mark_step(/*wait=*/true);
    return std::nullopt;
  }
  ++taken_;
  position_ = batch.position;
  source_->set_taken(position_);
  return std::move(batch.tensors);
}

void DeviceLoader::set_position(int64_t position) {
  std::unique_lock<std::mutex> lock(mutex_);
  seek_ = position;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !seek_; });
  if (std::optional<Error> failure = std::exchange(seek_failure_, std::nullopt)) {
    throw Error(*failure);
  }
  position_ = position;
  source_->set_taken(position_);
}

}  // namespace nxd
