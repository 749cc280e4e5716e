// Arrays for tests of layers over buffers: whole ones as plain numbers, to compute with, and a
// rank's parts of them in memory of any layout, as DLPack shows it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "nxd.h"
#include "support/ranks.h"

namespace nxd_test {

using Sizes = std::vector<int64_t>;

inline int64_t count_of(const Sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Numbers in C order.
struct Numbers {
  Sizes shape;
  std::vector<double> values;

  explicit Numbers(Sizes sizes) : shape(std::move(sizes)) {
    values.resize(static_cast<size_t>(count_of(shape)));
  }
  // Multiples of 1/16 in (-1, 1), which every dtype holds; any numbers when fine.
  static Numbers pattern(Sizes sizes, int phase, bool fine = false) {
    Numbers numbers(std::move(sizes));
    for (size_t i = 0; i < numbers.values.size(); ++i) {
      const auto k = static_cast<int>((i * 7 + i / 5 * 3 + static_cast<size_t>(phase) * 11) % 31);
      const double t = static_cast<double>(i + 1) * 0.6180339887498949 + phase * 0.37;
      numbers.values[i] = fine ? 2 * (t - std::floor(t)) - 1 : (k - 15) / 16.0;
    }
    return numbers;
  }
  double& at(int64_t i) { return values[static_cast<size_t>(i)]; }
  double at(int64_t i) const { return values[static_cast<size_t>(i)]; }
  int64_t size(int dim) const { return shape[static_cast<size_t>(dim)]; }
  int64_t rows() const {
    return shape.empty() ? 1 : count_of(shape) / std::max<int64_t>(last(), 1);
  }
  int64_t last() const { return shape.back(); }

  // The rank-th of so many equal parts of a dimension.
  Numbers part(int dim, int rank, int ranks) const {
    const auto d = static_cast<size_t>(dim);
    Sizes sizes = shape;
    sizes[d] /= ranks;
    Numbers result(sizes);
    int64_t inner = 1, outer = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i < d) outer *= shape[i];
      if (i > d) inner *= shape[i];
    }
    const int64_t run = sizes[d] * inner;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < run; ++i) {
        result.at(o * run + i) = at((o * ranks + rank) * run + i);
      }
    }
    return result;
  }
  Numbers transposed() const {
    Numbers result({shape[1], shape[0]});
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) result.at(j * shape[0] + i) = at(i * shape[1] + j);
    }
    return result;
  }
  Numbers plus(const Numbers& other) const {
    Numbers sum = *this;
    for (size_t i = 0; i < values.size(); ++i) sum.values[i] += other.values[i];
    return sum;
  }
};

// How an array lies in memory.
enum class Layout {
  kDense,
  kGaps,       // rows, and groups of rows, apart from one another
  kStepped,    // every third element
  kColumns,    // the last dimension outermost
  kBackwards,  // the first dimension from its end
  kFirstLast   // the first dimension innermost
};
constexpr Layout kLayouts[] = {Layout::kDense,   Layout::kGaps,      Layout::kStepped,
                               Layout::kColumns, Layout::kBackwards, Layout::kFirstLast};

inline DLDataType dl_dtype(nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F64: return {kDLFloat, 64, 1};
    case NXD_DTYPE_BF16: return {kDLBfloat, 16, 1};
    case NXD_DTYPE_F16: return {kDLFloat, 16, 1};
    case NXD_DTYPE_I64: return {kDLInt, 64, 1};
    case NXD_DTYPE_I32: return {kDLInt, 32, 1};
    default: return {kDLFloat, 32, 1};
  }
}

// Memory of a rank's for one array. Bytes between its elements are never written.
class Buffer {
 public:
  // arena: of the context; else ordinary memory.
  Buffer(const Sizes& shape, nxd_dtype_t dtype, Layout layout = Layout::kDense,
         nxd_context_t* arena = nullptr)
      : dtype_(dtype), shape_(shape), strides_(shape.size()), arena_(arena) {
    element_ = dl_dtype(dtype).bits / 8U;
    const int64_t last = place(layout);
    bytes_ = static_cast<size_t>(last + 3) * element_;
    if (arena_) {
      void* memory = nullptr;
      NXD_TEST_OK(nxd_arena_alloc(arena_, bytes_, &memory));
      data_ = static_cast<char*>(memory);
    } else {
      own_.resize(bytes_);
      data_ = own_.data();
    }
    std::memset(data_, 0x5c, bytes_);
    tensor_ = {
        data_,         {kDLCPU, 0},     static_cast<int32_t>(shape_.size()),     dl_dtype(dtype),
        shape_.data(), strides_.data(), static_cast<uint64_t>(first_) * element_};
  }
  Buffer(const Numbers& numbers, nxd_dtype_t dtype, Layout layout = Layout::kDense,
         nxd_context_t* arena = nullptr)
      : Buffer(numbers.shape, dtype, layout, arena) {
    for (int64_t i = 0; i < count_of(shape_); ++i) set(i, numbers.at(i));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (arena_) nxd_arena_free(arena_, data_);
  }

  DLTensor* tensor() { return &tensor_; }
  std::vector<char> bytes() const { return {data_, data_ + bytes_}; }

  double get(int64_t i) const {
    const char* at = address(i);
    switch (dtype_) {
      case NXD_DTYPE_F64: return load<double>(at);
      case NXD_DTYPE_I64: return static_cast<double>(load<int64_t>(at));
      case NXD_DTYPE_I32: return static_cast<double>(load<int32_t>(at));
      case NXD_DTYPE_BF16: return nxd::bf16_to_f32(load<uint16_t>(at));
      case NXD_DTYPE_F16: return nxd::f16_to_f32(load<uint16_t>(at));
      default: return load<float>(at);
    }
  }
  void set(int64_t i, double value) {
    char* at = address(i);
    const auto narrow = static_cast<float>(value);
    switch (dtype_) {
      case NXD_DTYPE_F64: return store(at, value);
      case NXD_DTYPE_I64: return store(at, static_cast<int64_t>(value));
      case NXD_DTYPE_I32: return store(at, static_cast<int32_t>(value));
      case NXD_DTYPE_BF16: return store(at, nxd::f32_to_bf16(narrow));
      case NXD_DTYPE_F16: return store(at, nxd::f32_to_f16(narrow));
      default: return store(at, narrow);
    }
  }

  // Reports an element that differs from the expected one, relative to the sum of its summands'
  // sizes, about so large, and a place between elements that was written.
  bool equals(const Numbers& expected, double size, const std::string& what) {
    if (shape_ != expected.shape) {
      nxd_test_fail(__FILE__, __LINE__, "%s: the test has another shape", what.c_str());
      return false;
    }
    const double tolerance = size * (dtype_ == NXD_DTYPE_F64    ? 1e-15
                                     : dtype_ == NXD_DTYPE_F32  ? 5e-7
                                     : dtype_ == NXD_DTYPE_BF16 ? 0.0
                                                                : 0.0);
    const double rounding = dtype_ == NXD_DTYPE_BF16  ? 1.0 / 128
                            : dtype_ == NXD_DTYPE_F16 ? 1.0 / 1024
                                                      : 0;
    std::vector<char> gaps(bytes_, 1);
    for (int64_t i = 0; i < count_of(shape_); ++i) {
      const double error = std::fabs(get(i) - expected.at(i));
      const double allowed =
          tolerance + rounding * std::fabs(expected.at(i)) + (rounding > 0 ? 1e-4 : 0);
      if (!(error <= allowed)) {
        nxd_test_fail(__FILE__, __LINE__, "%s: element %lld is %.17g, expected %.17g", what.c_str(),
                      static_cast<long long>(i), get(i), expected.at(i));
        return false;
      }
      std::memset(gaps.data() + (address(i) - data_), 0, element_);
    }
    for (size_t k = 0; k < bytes_; ++k) {
      if (gaps[k] && data_[k] != 0x5c) {
        nxd_test_fail(__FILE__, __LINE__, "%s: byte %zu between elements was written", what.c_str(),
                      k);
        return false;
      }
    }
    return true;
  }

 private:
  template <class T>
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  template <class T>
  static void store(char* at, T value) {
    std::memcpy(at, &value, sizeof value);
  }
  char* address(int64_t i) const {
    int64_t offset = first_;
    for (size_t d = shape_.size(); d-- > 0;) {
      offset += i % shape_[d] * strides_[d];
      i /= shape_[d];
    }
    return data_ + offset * static_cast<int64_t>(element_);
  }
  // Sets strides and the first element's place, and gives the place behind the last one.
  int64_t place(Layout layout) {
    const int dims = static_cast<int>(shape_.size());
    std::vector<int> order(shape_.size());  // from the innermost on
    for (int d = 0; d < dims; ++d) order[static_cast<size_t>(d)] = dims - 1 - d;
    if (layout == Layout::kColumns && dims > 0)
      std::rotate(order.begin(), order.begin() + 1, order.end());
    if (layout == Layout::kFirstLast && dims > 0)
      std::rotate(order.begin(), order.end() - 1, order.end());
    int64_t stride = layout == Layout::kStepped ? 3 : 1;
    for (const int d : order) {
      const auto at = static_cast<size_t>(d);
      strides_[at] = stride;
      stride *= std::max<int64_t>(shape_[at], 1);
      if (layout == Layout::kGaps) stride += 2;
    }
    if (layout == Layout::kBackwards && dims > 0 && shape_[0] > 0) {
      first_ = (shape_[0] - 1) * strides_[0];
      strides_[0] = -strides_[0];
    }
    return stride;
  }

  nxd_dtype_t dtype_;
  Sizes shape_, strides_;
  nxd_context_t* arena_;
  int64_t first_ = 0;
  size_t element_ = 0, bytes_ = 0;
  std::vector<char> own_;
  char* data_ = nullptr;
  DLTensor tensor_{};
};

// A workspace of exactly the size that was asked for, at an odd address, and bytes behind it.
class Workspace {
 public:
  void* take(size_t bytes) {
    memory_.assign(bytes + 17, 0x3b);
    return memory_.data() + 1;
  }
  bool is_intact() const {
    for (size_t i = memory_.size() - 16; i < memory_.size(); ++i) {
      if (memory_[i] != 0x3b) return false;
    }
    return memory_[0] == 0x3b;
  }

 private:
  std::vector<char> memory_;
};

// x [..., in] by weight [out, in], transposed: [..., out].
Numbers linear(const Numbers& x, const Numbers& weight, const Numbers* bias);

// Its gradients.
struct LinearGrads {
  Numbers x, weight, bias;
};
LinearGrads linear_grads(const Numbers& x, const Numbers& weight, const Numbers& dy);

}  // namespace nxd_test
