#include "core/tensor_parallel/dense_array.h"

namespace nxd {

nxd_dtype_t kernel_dtype(nxd_dtype_t dtype) {
  return dtype == NXD_DTYPE_F16 ? NXD_DTYPE_F32 : dtype;
}

DenseInput::DenseInput(const std::optional<Array>& array, Scratch& scratch)
    : DenseInput(array, array ? array->dtype : NXD_DTYPE_F32, scratch) {}

DenseInput::DenseInput(const std::optional<Array>& array, nxd_dtype_t dtype, Scratch& scratch)
    : array_(array),
      dtype_(dtype),
      copies_(array && !(array->is_dense() && array->dtype == dtype)) {
  if (copies_) block_ = scratch.reserve(array_->count(), 1, dtype_, Scratch::Use::kOwn);
}

const void* DenseInput::read(const Scratch& scratch) const {
  if (!copies_) return array_ ? array_->data : nullptr;
  const Array copy = Array::dense(dtype_, array_->shape, scratch.at(block_));
  kernels::move_rows(array_->rows(), copy.rows());
  return copy.data;
}

DenseOutput::DenseOutput(const std::optional<Array>& array, nxd_dtype_t dtype,
                         const Array::Shape& shape, Scratch& scratch)
    : array_(array),
      shape_(shape),
      dtype_(dtype),
      direct_(array && array->is_dense() && array->dtype == dtype) {
  if (direct_) return;
  block_ =
      scratch.reserve(Array::dense(dtype, shape, nullptr).count(), 1, dtype, Scratch::Use::kOwn);
}

void* DenseOutput::data(const Scratch& scratch) const {
  return direct_ ? array_->data : scratch.at(block_);
}

void DenseOutput::finish(const Scratch& scratch) const {
  if (direct_ || !array_) return;
  const Array written = Array::dense(dtype_, shape_, scratch.at(block_));
  kernels::move_rows(written.rows(), array_->rows());
}

}  // namespace nxd
