#include "core/kernels/strided_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/dtype.h"
#include "core/kernels/element.h"
#include "core/kernels/parallel.h"

namespace nxd::kernels {
namespace {

// Columns that a range of sum_rows takes at a time.
constexpr int64_t kColumns = 256;

template <class From, class To, class Move>
void each_row(const StridedRows& from, const StridedRows& to, const Move& move) {
  const RowExtent in = extent_of(from), out = extent_of(to);
  if (in.cols == 0) return;
  parallel_ranges(in.rows, in.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      move(row_at<From>(from, row), in.stride, row_at<To>(to, row), out.stride, in.cols);
    }
  });
}

template <class T>
void copy_rows(const StridedRows& from, const StridedRows& to) {
  each_row<T, T>(from, to, [](const T* x, int64_t dx, T* y, int64_t dy, int64_t n) {
    if (x == y) return;
    if (dx == 1 && dy == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * dy] = x[i * dx];
    }
  });
}

template <class From, class To>
void add_to_row(const From* x, int64_t dx, To* y, int64_t dy, int64_t n, const To* bias,
                bool accumulate) {
  for (int64_t i = 0; i < n; ++i) {
    auto sum = value_of(x[i * dx]);
    if (bias) sum += value_of(bias[i]);
    if (accumulate) sum += value_of(y[i * dy]);
    y[i * dy] = round_to<To>(sum);
  }
}

template <class From, class To>
void add_rows(const StridedRows& from, const StridedRows& to, const void* bias, bool accumulate) {
  const To* added = static_cast<const To*>(bias);
  each_row<From, To>(from, to, [&](const From* x, int64_t dx, To* y, int64_t dy, int64_t n) {
    if (dx == 1 && dy == 1) {
      add_to_row(x, 1, y, 1, n, added, accumulate);  // a loop that can be vectorised
    } else {
      add_to_row(x, dx, y, dy, n, added, accumulate);
    }
  });
}

template <class T>
void scale_each_kept(const StridedRows& from, const StridedRows& keep, double factor,
                     const StridedRows& to) {
  const RowExtent in = extent_of(from), kept = extent_of(keep), out = extent_of(to);
  const auto scale = static_cast<decltype(value_of(T{}))>(factor);  // not rounded to 16 bits
  parallel_ranges(in.rows, in.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = row_at<const T>(from, row);
      const uint8_t* bits = row_at<const uint8_t>(keep, row);
      T* y = row_at<T>(to, row);
      for (int64_t i = 0; i < in.cols; ++i) {
        const auto by = bits[i * kept.stride] ? scale : 0;
        y[i * out.stride] = round_to<T>(value_of(x[i * in.stride]) * by);
      }
    }
  });
}

template <class T>
void zero_each(const StridedRows& to) {
  each_row<T, T>(to, to, [](const T*, int64_t, T* y, int64_t dy, int64_t n) {
    if (dy == 1) {
      std::memset(y, 0, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * dy] = 0;
    }
  });
}

void copy_any(const StridedRows& from, const StridedRows& to) {
  switch (dtype_size(from.dtype)) {
    case 1: return copy_rows<uint8_t>(from, to);
    case 2: return copy_rows<uint16_t>(from, to);
    case 4: return copy_rows<uint32_t>(from, to);
    default: return copy_rows<uint64_t>(from, to);
  }
}

[[noreturn]] void fail_for(const char* kernel, nxd_dtype_t from, nxd_dtype_t to) {
  fail(NXD_ERROR_INTERNAL, kernel, ": no conversion of ", dtype_name(from), " to ", dtype_name(to));
}

// Calls body with a value of each dtype's element type.
template <class Body>
void with_dtypes_of(const char* kernel, nxd_dtype_t from, nxd_dtype_t to, const Body& body) {
  const auto is = [&](nxd_dtype_t a, nxd_dtype_t b) { return from == a && to == b; };
  if (is(NXD_DTYPE_F32, NXD_DTYPE_F32)) return body(float{}, float{});
  if (is(NXD_DTYPE_F64, NXD_DTYPE_F64)) return body(double{}, double{});
  if (is(NXD_DTYPE_BF16, NXD_DTYPE_BF16)) return body(Bf16{}, Bf16{});
  if (is(NXD_DTYPE_F16, NXD_DTYPE_F16)) return body(Half16{}, Half16{});
  if (is(NXD_DTYPE_F32, NXD_DTYPE_BF16)) return body(float{}, Bf16{});
  if (is(NXD_DTYPE_F32, NXD_DTYPE_F16)) return body(float{}, Half16{});
  if (is(NXD_DTYPE_BF16, NXD_DTYPE_F32)) return body(Bf16{}, float{});
  if (is(NXD_DTYPE_F16, NXD_DTYPE_F32)) return body(Half16{}, float{});
  fail_for(kernel, from, to);
}

template <class In, class Out>
void sum_columns(const StridedRows& in, const StridedRows& out, bool accumulate, int64_t begin,
                 int64_t end) {
  const RowExtent all = extent_of(in), result = extent_of(out);
  std::array<double, kColumns> sums{};
  const int64_t n = end - begin;
  for (int64_t row = 0; row < all.rows; ++row) {
    const In* x = row_at<const In>(in, row) + begin * all.stride;
    for (int64_t j = 0; j < n; ++j) {
      sums[static_cast<size_t>(j)] += static_cast<double>(value_of(x[j * all.stride]));
    }
  }
  Out* y = row_at<Out>(out, 0);
  for (int64_t j = 0; j < n; ++j) {
    double sum = sums[static_cast<size_t>(j)];
    Out& at = y[(begin + j) * result.stride];
    if (accumulate) sum += static_cast<double>(value_of(at));
    at = round_to<Out>(sum);
  }
}

}  // namespace

RowExtent extent_of(const StridedRows& array) {
  RowExtent extent;
  for (int d = 0; d + 1 < array.dims; ++d) extent.rows *= array.shape[d];
  if (array.dims == 0) return extent;
  extent.cols = array.shape[array.dims - 1];
  extent.stride = extent.cols == 1 ? 1 : array.strides[array.dims - 1];
  return extent;
}

int64_t row_place(const StridedRows& array, int64_t row) {
  int64_t place = 0;
  for (int d = array.dims - 2; d >= 0; --d) {
    place += row % array.shape[d] * array.strides[d];
    row /= array.shape[d];
  }
  return place;
}

void move_rows(const StridedRows& from, const StridedRows& to, const void* bias, bool accumulate) {
  if (from.dtype == to.dtype && !bias && !accumulate) return copy_any(from, to);
  with_dtypes_of("move_rows", from.dtype, to.dtype, [&](auto x, auto y) {
    add_rows<decltype(x), decltype(y)>(from, to, bias, accumulate);
  });
}

void scale_kept(const StridedRows& from, const StridedRows& keep, double factor,
                const StridedRows& to) {
  with_dtypes_of("scale_kept", from.dtype, to.dtype, [&](auto x, auto y) {
    if constexpr (std::is_same_v<decltype(x), decltype(y)>) {
      scale_each_kept<decltype(x)>(from, keep, factor, to);
    } else {
      fail_for("scale_kept", from.dtype, to.dtype);
    }
  });
}

void zero_rows(const StridedRows& to) {
  switch (dtype_size(to.dtype)) {
    case 1: return zero_each<uint8_t>(to);
    case 2: return zero_each<uint16_t>(to);
    case 4: return zero_each<uint32_t>(to);
    default: return zero_each<uint64_t>(to);
  }
}

void sum_rows(const StridedRows& in, const StridedRows& out, bool accumulate) {
  const RowExtent all = extent_of(in);
  with_dtypes_of("sum_rows", in.dtype, out.dtype, [&](auto x, auto y) {
    const int64_t blocks = (all.cols + kColumns - 1) / kColumns;
    parallel_ranges(blocks, kColumns * all.rows, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kColumns;
        sum_columns<decltype(x), decltype(y)>(in, out, accumulate, first,
                                              std::min(first + kColumns, all.cols));
      }
    });
  });
}

}  // namespace nxd::kernels
