#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/module/buffers.h"

namespace nxd {

// A buffer as it was found: whether it was written to since, and a copy of what it held then.
class BufferWatch {
 public:
  // Watches of one buffer that hold the same share their copy, if they are alive together.
  explicit BufferWatch(std::shared_ptr<Buffer> buffer);

  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  const at::Tensor& tensor() const { return tensor_; }  // that it was
  const at::Tensor& copy() const { return *copy_; }
  // False if it has another tensor now, or was written to. Throws without memory to compare.
  bool is_as_found() const;

 private:
  std::shared_ptr<Buffer> buffer_;
  at::Tensor tensor_;
  std::shared_ptr<const at::Tensor> copy_;
  uint32_t version_;
  // On the recorded device: the value, and the data of one that is no result of a node.
  uint64_t id_ = 0;
  at::Tensor data_{};
};

// Copies with the values that were found in the places of buffers, for a scope: what runs reads
// what was there, and writes to these. Buffers that share memory have copies that share it.
class CopiesOfBuffers {
 public:
  explicit CopiesOfBuffers(const std::vector<BufferWatch>& found);
  ~CopiesOfBuffers();
  CopiesOfBuffers(const CopiesOfBuffers&) = delete;
  CopiesOfBuffers& operator=(const CopiesOfBuffers&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<Buffer>, at::Tensor>> kept_;
};

}  // namespace nxd
