#pragma once

#include <cstdint>

#include "nxd.h"

// Normalization of rows. Tensors are dense [rows, cols], weights and biases [cols], all of one
// dtype, F32 or BF16; arithmetic is f32, results are rounded once. Statistics and weight gradients
// are f32. No result depends on the number of threads.
namespace nxd::kernels {

// y = x * inv_rms * weight, inv_rms = 1 / sqrt(mean(x^2) + eps) per row. y may be x.
void rms_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                      const void* weight, double eps, void* y, float* inv_rms);

// sum = x + residual, y = rms_norm(sum), from the rounded sum. sum may be x or residual; y may be
// neither of these three.
void add_rms_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                          const void* residual, const void* weight, double eps, void* sum, void* y,
                          float* inv_rms);

// dx and dweight (f32 [cols]) are overwritten; dx may be dy but not x. residual_grad, when not
// null, is added to dx: the gradient that reaches the sum past the norm; dx may be residual_grad.
void rms_norm_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                       const void* weight, const float* inv_rms, const void* dy, void* dx,
                       float* dweight, const void* residual_grad = nullptr);

// y = (x - mean) * inv_std * weight + bias with the biased variance; bias may be null; y may be x.
void layer_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                        const void* weight, const void* bias, double eps, void* y, float* mean,
                        float* inv_std);

// sum = x + residual, y = layer_norm(sum), from the rounded sum. sum may be x or residual; y may be
// neither of these three.
void add_layer_norm_forward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                            const void* residual, const void* weight, const void* bias, double eps,
                            void* sum, void* y, float* mean, float* inv_std);

// dx, dweight and dbias (f32 [cols], dbias may be null) are overwritten; dx may be dy but not x.
// residual_grad as in rms_norm_backward.
void layer_norm_backward(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* x,
                         const void* weight, const float* mean, const float* inv_std,
                         const void* dy, void* dx, float* dweight, float* dbias,
                         const void* residual_grad = nullptr);

// The same in f64 throughout, by plain loops.
void rms_norm_forward(int64_t rows, int64_t cols, const double* x, const double* weight, double eps,
                      double* y, double* inv_rms);
void rms_norm_backward(int64_t rows, int64_t cols, const double* x, const double* weight,
                       const double* inv_rms, const double* dy, double* dx, double* dweight);
void layer_norm_forward(int64_t rows, int64_t cols, const double* x, const double* weight,
                        const double* bias, double eps, double* y, double* mean, double* inv_std);
void layer_norm_backward(int64_t rows, int64_t cols, const double* x, const double* weight,
                         const double* mean, const double* inv_std, const double* dy, double* dx,
                         double* dweight, double* dbias);

}  // namespace nxd::kernels
