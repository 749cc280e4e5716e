#pragma once

#include <utility>

#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// A digest of a shape, for ranks to compare.
uint32_t digest_of(const Array::Shape& shape);

// Checks that layers share; INVALID_ARGUMENT names the array.
void check_shape(const Array& array, const std::string& name, const Array::Shape& expected);
// as: whose dtype is expected, such as "x".
void check_same_dtype(const Array& array, const std::string& name, nxd_dtype_t dtype,
                      const char* as);
void check_float(const Array& array, const std::string& name);
// A parameter's gradient may have the dtype of the layer, or F32 for 16-bit floats.
void check_grad_dtype(const std::optional<Array>& array, const std::string& name, nxd_dtype_t dtype,
                      const char* as);
// The dtype as ranks compare it, where all of them want the gradient or none does.
inline nxd_dtype_t grad_dtype(const std::optional<Array>& grad) {
  return grad ? grad->dtype : NXD_DTYPE_F32;
}
// The dimension of an array that ranks have parts of, which is not the last.
int checked_sequence_dim(int64_t dim, const Array& array, const char* name);

// All arrays of a call: no output may be where something else is.
class CallMemory {
 public:
  void add_input(const Array& array, std::string name) {
    inputs_.push_back({&array, std::move(name)});
  }
  void add_input(const std::optional<Array>& array, std::string name);
  void add_output(const Array& array, std::string name) {
    outputs_.push_back({&array, std::move(name)});
  }
  void add_output(const std::optional<Array>& array, std::string name);
  void check(const CallerWorkspace& workspace);

 private:
  struct NamedArray {
    const Array* array;
    std::string name;
  };
  std::vector<NamedArray> inputs_, outputs_;
};

}  // namespace nxd
