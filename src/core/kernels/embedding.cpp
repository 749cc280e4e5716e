#include "core/kernels/embedding.h"

#include <cstring>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {

void embedding_forward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                       int64_t first, int64_t table_rows, const void* table, void* out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16,
                 "embedding: expected dtype f32, f64 or bf16, got ", dtype_name(dtype));
  const size_t row_bytes = static_cast<size_t>(cols) * dtype_size(dtype);
  parallel_ranges(count, cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* to = static_cast<char*>(out) + static_cast<size_t>(i) * row_bytes;
      const int64_t row = ids[i] - first;
      if (row < 0 || row >= table_rows) {
        std::memset(to, 0, row_bytes);
      } else {
        std::memcpy(to, static_cast<const char*>(table) + static_cast<size_t>(row) * row_bytes,
                    row_bytes);
      }
    }
  });
}

void embedding_backward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                        int64_t first, int64_t table_rows, const void* dout, void* dtable) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_F64 || dtype == NXD_DTYPE_BF16,
                 "embedding: expected dtype f32, f64 or bf16, got ", dtype_name(dtype));
  // Each thread owns a range of the table and looks at all ids, so no row has two writers.
  const int64_t work = count * cols / (table_rows > 0 ? table_rows : 1) + 1;
  parallel_ranges(table_rows, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = ids[i] - first;
      if (row < begin || row >= end) continue;
      const char* from =
          static_cast<const char*>(dout) + static_cast<size_t>(i * cols) * dtype_size(dtype);
      if (dtype != NXD_DTYPE_F64) {
        scale_add(dtype, NXD_DTYPE_F32, cols, from, 1.0, static_cast<float*>(dtable) + row * cols);
        continue;
      }
      const auto* x = reinterpret_cast<const double*>(from);
      double* y = static_cast<double*>(dtable) + row * cols;
      for (int64_t j = 0; j < cols; ++j) y[j] += x[j];
    }
  });
}

}  // namespace nxd::kernels
