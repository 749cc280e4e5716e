#pragma once

#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// The dtype in which vector kernels take an array: none of them knows f16.
nxd_dtype_t kernel_dtype(nxd_dtype_t dtype);

// An array that is read as consecutive elements of one dtype: where it lies if it can be, else from
// a copy.
class DenseInput {
 public:
  DenseInput(const std::optional<Array>& array, Scratch& scratch);
  DenseInput(const std::optional<Array>& array, nxd_dtype_t dtype, Scratch& scratch);
  // Makes the copy, if there is one; null when there is no array.
  const void* read(const Scratch& scratch) const;

 private:
  std::optional<Array> array_;
  nxd_dtype_t dtype_;
  bool copies_;
  size_t block_ = 0;
};

// An array that is written as consecutive elements of one dtype: where it lies if it can be, else
// by way of a block. Without an array there is a block
// all the same, for kernels that write all of their results.
class DenseOutput {
 public:
  DenseOutput(const std::optional<Array>& array, nxd_dtype_t dtype, const Array::Shape& shape,
              Scratch& scratch);
  void* data(const Scratch& scratch) const;
  // Moves what was written to the array.
  void finish(const Scratch& scratch) const;

 private:
  std::optional<Array> array_;
  Array::Shape shape_;
  nxd_dtype_t dtype_;
  bool direct_;
  size_t block_ = 0;
};

}  // namespace nxd
