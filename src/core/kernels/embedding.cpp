#include "core/kernels/embedding.h"

#include <array>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/element.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {
namespace {

// A dense matrix, as rows.
class DenseRows {
 public:
  DenseRows(nxd_dtype_t dtype, int64_t rows, int64_t cols, const void* data)
      : dtype_(dtype), shape_{rows, cols}, strides_{cols, 1}, data_(data) {}
  StridedRows rows() const { return {dtype_, 2, shape_.data(), strides_.data(), data_}; }

 private:
  nxd_dtype_t dtype_;
  std::array<int64_t, 2> shape_, strides_;
  const void* data_;
};

template <class T>
void look_up(const StridedRows& table, const Ids& ids, const StridedRows& out) {
  const RowExtent from = extent_of(table), to = extent_of(out);
  const auto row_bytes = static_cast<size_t>(from.cols) * sizeof(T);
  parallel_ranges(ids.count, from.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* y = row_at<T>(out, i);
      const int64_t row = ids.ids[i] - ids.first;
      const bool held = row >= 0 && row < from.rows;
      const T* x = held ? row_at<const T>(table, row) : nullptr;
      if (to.stride == 1 && !held) {
        std::memset(y, 0, row_bytes);
      } else if (to.stride == 1 && from.stride == 1) {
        std::memcpy(y, x, row_bytes);
      } else {
        for (int64_t j = 0; j < from.cols; ++j) y[j * to.stride] = held ? x[j * from.stride] : T{};
      }
    }
  });
}

template <class From, class To>
void add_row(const From* x, int64_t dx, To* y, int64_t dy, int64_t cols) {
  for (int64_t j = 0; j < cols; ++j) y[j * dy] += static_cast<To>(value_of(x[j * dx]));
}

// Each thread owns a range of the table and looks at all ids, so no row has two writers.
template <class From, class To>
void add_rows_by_id(const StridedRows& dout, const Ids& ids, const StridedRows& dtable) {
  const RowExtent from = extent_of(dout), to = extent_of(dtable);
  const bool dense = from.stride == 1 && to.stride == 1;
  const bool vector = dense && (dout.dtype == NXD_DTYPE_F32 || dout.dtype == NXD_DTYPE_BF16);
  const int64_t work = ids.count * to.cols / (to.rows > 0 ? to.rows : 1) + 1;
  parallel_ranges(to.rows, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < ids.count; ++i) {
      const int64_t row = ids.ids[i] - ids.first;
      if (row < begin || row >= end || ids.ids[i] == ids.ignored) continue;
      const From* x = row_at<const From>(dout, i);
      To* y = row_at<To>(dtable, row);
      if (vector) {
        scale_add(dout.dtype, dtable.dtype, to.cols, x, 1.0, y);
      } else if (dense) {
        add_row(x, 1, y, 1, to.cols);  // a loop that can be vectorised
      } else {
        add_row(x, from.stride, y, to.stride, to.cols);
      }
    }
  });
}

[[noreturn]] void fail_for_dtype(nxd_dtype_t dtype) {
  fail(NXD_ERROR_INVALID_ARGUMENT, "embedding: expected dtype f32, f64, bf16 or f16, got ",
       dtype_name(dtype));
}

}  // namespace

void embedding_forward(const StridedRows& table, const Ids& ids, const StridedRows& out) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  if (extent_of(table).cols == 0) return;
  switch (table.dtype) {
    case NXD_DTYPE_BF16:
    case NXD_DTYPE_F16: return look_up<uint16_t>(table, ids, out);
    case NXD_DTYPE_F32: return look_up<uint32_t>(table, ids, out);
    case NXD_DTYPE_F64: return look_up<uint64_t>(table, ids, out);
    default: fail_for_dtype(table.dtype);
  }
}

void embedding_backward(const StridedRows& dout, const Ids& ids, const StridedRows& dtable) {
  const PhaseScope phase(NXD_PHASE_ELEMENTWISE);
  if (extent_of(dtable).cols == 0) return;
  switch (dout.dtype) {
    case NXD_DTYPE_F32: return add_rows_by_id<float, float>(dout, ids, dtable);
    case NXD_DTYPE_BF16: return add_rows_by_id<Bf16, float>(dout, ids, dtable);
    case NXD_DTYPE_F16: return add_rows_by_id<Half16, float>(dout, ids, dtable);
    case NXD_DTYPE_F64: return add_rows_by_id<double, double>(dout, ids, dtable);
    default: fail_for_dtype(dout.dtype);
  }
}

void embedding_forward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                       int64_t first, int64_t table_rows, const void* table, void* out) {
  const DenseRows from(dtype, table_rows, cols, table), to(dtype, count, cols, out);
  embedding_forward(from.rows(), {ids, count, first}, to.rows());
}

void embedding_backward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                        int64_t first, int64_t table_rows, const void* dout, void* dtable) {
  const nxd_dtype_t sums = dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
  const DenseRows from(dtype, count, cols, dout), to(sums, table_rows, cols, dtable);
  embedding_backward(from.rows(), {ids, count, first}, to.rows());
}

}  // namespace nxd::kernels
