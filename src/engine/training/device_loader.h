#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// Where the batches of a device loader come from. The loader's thread alone calls it, but for what
// says otherwise.
class BatchSource {
 public:
  using Tensors = std::vector<at::Tensor>;
  BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;
  virtual ~BatchSource() = default;

  // Tensors of a batch.
  virtual size_t width() const = 0;
  // The next batch, on the CPU; none when there are no more. A failure leaves the position.
  virtual std::optional<Tensors> read() = 0;
  // Behind the last batch that was read.
  virtual int64_t position() const = 0;
  // The program has taken the batches up to a position. On the thread that takes them.
  virtual void set_taken(int64_t /*position*/) {}
  // UNSUPPORTED where it cannot go elsewhere.
  virtual void set_position(int64_t position) = 0;
};

// Batches that a thread reads and moves to a device, ahead of the steps that take them; see
// nxd_device_loader_create. The recorded device knows the values of tensors that another thread has
// moved there, so that taking one executes nothing.
class DeviceLoader {
 public:
  struct Options {
    nxd_device_t device = NXD_DEVICE_CPU;
    int batches_per_execution = 1;
    int prefetch = 2;
  };
  // INVALID_ARGUMENT and UNSUPPORTED for options out of range. Nothing has been read from a source
  // then.
  DeviceLoader(std::unique_ptr<BatchSource> source, const Options& options);
  // The source stands behind the last batch that was taken, if it can.
  ~DeviceLoader();
  DeviceLoader(const DeviceLoader&) = delete;
  DeviceLoader& operator=(const DeviceLoader&) = delete;

  size_t width() const { return width_; }
  // The next batch, none at the end. Marks the step before it.
  std::optional<BatchSource::Tensors> next();
  int64_t position() const { return position_; }
  void set_position(int64_t position);

 private:
  struct Batch {
    std::optional<BatchSource::Tensors> tensors{};
    int64_t position = 0;  // of the source, behind it
    std::optional<Error> failure{};

    bool is_last() const { return !tensors; }
  };

  Batch read() noexcept;
  Batch take();
  void run();
  void seek() noexcept;
  bool may_read() const {
    return !pauses_ && ready_.size() < static_cast<size_t>(options_.prefetch);
  }

  const Options options_;
  const std::unique_ptr<BatchSource> source_;
  const size_t width_;
  int64_t position_;
  int taken_ = 0;  // batches since the step was marked
  // The thread's: a batch that was read, and whose move to the device has not succeeded yet.
  std::optional<BatchSource::Tensors> unmoved_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  bool pauses_ = false;  // after a failure or the end: nothing is read behind it
  bool has_ended_ = false;
  std::optional<int64_t> seek_;  // a position that the thread is to go to
  std::optional<Error> seek_failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace nxd
