#pragma once

#include <cstdint>

#include "nxd.h"

// Elementwise kernels. dtype is F32 or BF16; arithmetic is f32, results are rounded once. Unless
// stated otherwise an output may be one of the inputs (the same pointer), but may not overlap one
// otherwise. No result depends on the number of threads. NaN and infinities come out as the
// formula gives them. exp is good to 2e-7 relative, for results in bf16 to 7e-5 with a quotient;
// results below the smallest normal are 0.
namespace nxd::kernels {

// A matrix whose rows lie ld elements apart.
struct Rows {
  const void* data;
  int64_t ld;
};
struct MutableRows {
  void* data;
  int64_t ld;
};

// out = silu(gate) * up.
void swiglu_forward(nxd_dtype_t dtype, int64_t n, const void* gate, const void* up, void* out);
void swiglu_backward(nxd_dtype_t dtype, int64_t n, const void* gate, const void* up,
                     const void* dout, void* dgate, void* dup);

// The same on [rows, cols] matrices, so that gate and up may be the halves of one [rows, 2 cols]
// tensor, and dgate and dup the halves of another or of the same.
void swiglu_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up,
                    MutableRows out);
void swiglu_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, Rows gate, Rows up, Rows dout,
                     MutableRows dgate, MutableRows dup);

// kGeluErf: x Phi(x). kGeluTanh: its approximation by tanh. kSilu: x sigmoid(x).
enum class Activation { kGeluErf, kGeluTanh, kSilu, kRelu };
void activation_forward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                        void* y);
void activation_backward(Activation activation, nxd_dtype_t dtype, int64_t n, const void* x,
                         const void* dy, void* dx);

// Rotary position embedding, Hugging Face's rotate_half: element i of the first rotary_dim/2 pairs
// with element i + rotary_dim/2; the elements from rotary_dim on are copied. Tensors are
// [batch, seq, heads, head_dim] with element strides and head_dim contiguous; in and out may have
// different strides, or be the same tensor with the same strides.
struct RopeArgs {
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even, at most head_dim
  const void* in = nullptr;
  int64_t in_batch_stride = 0;
  int64_t in_seq_stride = 0;
  int64_t in_head_stride = 0;
  void* out = nullptr;
  int64_t out_batch_stride = 0;
  int64_t out_seq_stride = 0;
  int64_t out_head_stride = 0;
  const float* cos = nullptr;  // [seq, rotary_dim / 2]
  const float* sin = nullptr;  // [seq, rotary_dim / 2]
  bool inverse = false;        // rotates back: the transpose, for the backward pass
};
void rope(const RopeArgs& args);

// out = value, converted; F32 <-> BF16, or a copy. out may not be in unless the dtypes are equal.
void cast(nxd_dtype_t in_dtype, const void* in, nxd_dtype_t out_dtype, void* out, int64_t n);
void cast_rows(nxd_dtype_t in_dtype, Rows in, nxd_dtype_t out_dtype, MutableRows out, int64_t rows,
               int64_t cols);

// out = a + b.
void add(nxd_dtype_t dtype, int64_t n, const void* a, const void* b, void* out);
// out = x * factor.
void scale(nxd_dtype_t dtype, int64_t n, const void* x, double factor, void* out);
// y = y + x * factor, with x of its own dtype: gradients of BF16 layers summed into F32 buffers.
void scale_add(nxd_dtype_t x_dtype, nxd_dtype_t y_dtype, int64_t n, const void* x, double factor,
               void* y);

}  // namespace nxd::kernels
