#include "core/tensor_parallel/array_checks.h"

#include "core/base/dtype.h"
#include "core/base/hash.h"

namespace nxd {

uint32_t digest_of(const Array::Shape& shape) {
  Hash hash;
  for (const int64_t size : shape) hash.add(static_cast<uint64_t>(size));
  return hash.folded();
}

void check_shape(const Array& array, const std::string& name, const Array::Shape& expected) {
  check_argument(array.shape == expected, name, ": expected the shape ", shape_text(expected),
                 ", got ", shape_text(array.shape));
}

void check_same_dtype(const Array& array, const std::string& name, nxd_dtype_t dtype,
                      const char* as) {
  check_argument(array.dtype == dtype, name, ": expected ", dtype_name(dtype), " as ", as, ", got ",
                 dtype_name(array.dtype));
}

void check_float(const Array& array, const std::string& name) {
  check_argument(dtype_is_float(array.dtype), name, ": expected f32, f64, bf16 or f16, got ",
                 dtype_name(array.dtype));
}

void check_grad_dtype(const std::optional<Array>& array, const std::string& name, nxd_dtype_t dtype,
                      const char* as) {
  if (!array) return;
  const bool wide = dtype_is_16_bit_float(dtype);
  check_argument(array->dtype == dtype || (wide && array->dtype == NXD_DTYPE_F32), name,
                 ": expected ", dtype_name(dtype), " as ", as, wide ? ", or f32" : "", ", got ",
                 dtype_name(array->dtype));
}

int checked_sequence_dim(int64_t given, const Array& array, const char* name) {
  const int dims = array.dims();
  const int64_t dim = given < 0 ? given + dims : given;
  check_argument(dim >= 0 && dim < dims - 1, "sequence_dim: expected a dimension before the last ",
                 "of ", name, ", which has ", dims, ", got ", given);
  return static_cast<int>(dim);
}

void CallMemory::add_input(const std::optional<Array>& array, std::string name) {
  if (array) add_input(*array, std::move(name));
}

void CallMemory::add_output(const std::optional<Array>& array, std::string name) {
  if (array) add_output(*array, std::move(name));
}

void CallMemory::check(const CallerWorkspace& workspace) {
  for (const NamedArray& output : outputs_) check_output(*output.array, output.name);
  Array memory;
  if (workspace.data) {
    memory = Array::dense(NXD_DTYPE_U8, {static_cast<int64_t>(workspace.bytes)}, workspace.data);
    add_output(memory, "workspace");
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const NamedArray& output = outputs_[i];
    for (const NamedArray& input : inputs_) {
      check_apart(*output.array, output.name, *input.array, input.name);
    }
    for (size_t j = 0; j < i; ++j) {
      check_apart(*output.array, output.name, *outputs_[j].array, outputs_[j].name);
    }
  }
}

}  // namespace nxd
