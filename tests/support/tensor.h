// Tensors for tests, over nxd.h alone: values that free themselves, operators by name, comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nxd.h"
#include "support/ranks.h"

namespace nxd_test {

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(nxd_tensor_t* handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Tensor(const Tensor& other) {
    if (other.handle_) NXD_TEST_OK(nxd_tensor_retain(other.handle_, &handle_));
  }
  Tensor& operator=(const Tensor& other) {
    Tensor copy(other);
    std::swap(handle_, copy.handle_);
    return *this;
  }
  ~Tensor() { nxd_tensor_destroy(handle_); }

  nxd_tensor_t* get() const { return handle_; }
  nxd_tensor_t** out() { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

  std::vector<int64_t> shape() const {
    size_t ndim = 0;
    NXD_TEST_OK(nxd_tensor_get_shape(handle_, nullptr, 0, &ndim));
    std::vector<int64_t> sizes(ndim);
    if (ndim) NXD_TEST_OK(nxd_tensor_get_shape(handle_, sizes.data(), ndim, &ndim));
    return sizes;
  }
  nxd_dtype_t dtype() const {
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    NXD_TEST_OK(nxd_tensor_get_dtype(handle_, &dtype));
    return dtype;
  }
  int64_t count() const {
    int64_t count = 0;
    NXD_TEST_OK(nxd_tensor_get_element_count(handle_, &count));
    return count;
  }
  double item() const {
    double value = NAN;
    NXD_TEST_OK(nxd_tensor_get_item(handle_, &value));
    return value;
  }
  Tensor grad() const {
    Tensor g;
    NXD_TEST_OK(nxd_tensor_share_grad(handle_, g.out()));
    return g;
  }

 private:
  nxd_tensor_t* handle_ = nullptr;
};

// An operator call: op("narrow", {{"self", x}, {"dim", 0}, ...}).
struct Argument {
  std::string name;
  std::function<nxd_status_t(nxd_op_t*, const char*)> set;

  Argument(std::string n, const Tensor& t)
      : name(std::move(n)), set([handle = t.get()](nxd_op_t* op, const char* arg) {
          return nxd_op_set_tensor(op, arg, handle);
        }) {}
  Argument(std::string n, int64_t v)
      : name(std::move(n)),
        set([v](nxd_op_t* op, const char* arg) { return nxd_op_set_int(op, arg, v); }) {}
  Argument(std::string n, int v) : Argument(std::move(n), static_cast<int64_t>(v)) {}
  Argument(std::string n, double v)
      : name(std::move(n)),
        set([v](nxd_op_t* op, const char* arg) { return nxd_op_set_double(op, arg, v); }) {}
  Argument(std::string n, bool v)
      : name(std::move(n)),
        set([v](nxd_op_t* op, const char* arg) { return nxd_op_set_bool(op, arg, v); }) {}
  Argument(std::string n, const char* v)
      : name(std::move(n)),
        set([v](nxd_op_t* op, const char* arg) { return nxd_op_set_string(op, arg, v); }) {}
  Argument(std::string n, std::vector<int64_t> v)
      : name(std::move(n)), set([v](nxd_op_t* op, const char* arg) {
          return nxd_op_set_ints(op, arg, v.data(), v.size());
        }) {}
};

inline Tensor op(const char* name, const char* overload, const std::vector<Argument>& arguments) {
  nxd_op_t* call = nullptr;
  Tensor result;
  if (!NXD_TEST_OK(nxd_op_create(name, overload, &call))) return result;
  for (const Argument& argument : arguments) {
    NXD_TEST_OK(argument.set(call, argument.name.c_str()));
  }
  if (NXD_TEST_OK(nxd_op_run(call))) NXD_TEST_OK(nxd_op_share_tensor(call, 0, result.out()));
  nxd_op_destroy(call);
  return result;
}

inline Tensor op(const char* name, const std::vector<Argument>& arguments) {
  return op(name, nullptr, arguments);
}

inline Tensor to(const Tensor& x, nxd_dtype_t dtype) {
  if (x.dtype() == dtype) return x;
  nxd_op_t* call = nullptr;
  Tensor result;
  if (!NXD_TEST_OK(nxd_op_create("to", "dtype", &call))) return result;
  NXD_TEST_OK(nxd_op_set_tensor(call, "self", x.get()));
  NXD_TEST_OK(nxd_op_set_dtype(call, "dtype", dtype));
  if (NXD_TEST_OK(nxd_op_run(call))) NXD_TEST_OK(nxd_op_share_tensor(call, 0, result.out()));
  nxd_op_destroy(call);
  return result;
}

// Its own memory, outside of the graph, as a leaf that requires a gradient or not.
inline Tensor leaf(const Tensor& x, nxd_dtype_t dtype, bool requires_grad) {
  Tensor detached;
  NXD_TEST_OK(nxd_tensor_detach(x.get(), detached.out()));
  Tensor result = op("clone", {{"self", to(detached, dtype)}});
  NXD_TEST_OK(nxd_tensor_set_requires_grad(result.get(), requires_grad));
  return result;
}

inline Tensor from_doubles(const std::vector<double>& values, const std::vector<int64_t>& shape,
                           nxd_dtype_t dtype = NXD_DTYPE_F64) {
  Tensor t;
  NXD_TEST_OK(nxd_tensor_from_data(values.data(), values.size() * sizeof(double), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F64, t.out()));
  return to(t, dtype);
}

inline Tensor from_ints(const std::vector<int64_t>& values, const std::vector<int64_t>& shape) {
  Tensor t;
  NXD_TEST_OK(nxd_tensor_from_data(values.data(), values.size() * sizeof(int64_t), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_I64, t.out()));
  return t;
}

// On the meta device: a shape and a dtype.
inline Tensor without_values(const std::vector<int64_t>& shape, nxd_dtype_t dtype) {
  Tensor t;
  NXD_TEST_OK(nxd_tensor_create(shape.data(), static_cast<int32_t>(shape.size()), dtype,
                                NXD_DEVICE_META, t.out()));
  return t;
}

// The same values on every rank: a low-discrepancy sequence in (-1, 1).
inline Tensor wave(const std::vector<int64_t>& shape, nxd_dtype_t dtype, int phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double t = static_cast<double>(i + 1) * 0.6180339887498949 + phase * 0.37;
    values[i] = 2 * (t - std::floor(t)) - 1;
  }
  return from_doubles(values, shape, dtype);
}

inline std::vector<double> values(const Tensor& t) {
  Tensor detached;
  NXD_TEST_OK(nxd_tensor_detach(t.get(), detached.out()));
  const Tensor wide = to(detached, NXD_DTYPE_F64);
  std::vector<double> result(static_cast<size_t>(t.count()));
  NXD_TEST_OK(nxd_tensor_copy_to_host(wide.get(), result.data(), result.size() * sizeof(double)));
  return result;
}

// The rank-th of size parts along dim; the tensor itself for dim -1.
inline Tensor part(const Tensor& x, int dim, int rank, int size) {
  if (dim < 0 || !x) return x;
  const int64_t length = x.shape()[static_cast<size_t>(dim)] / size;
  return op("narrow", {{"self", x}, {"dim", dim}, {"start", rank * length}, {"length", length}});
}

inline double max_abs(const std::vector<double>& v) {
  double most = 0;
  for (const double x : v) most = std::isnan(x) ? x : std::fmax(most, std::fabs(x));
  return most;
}

inline double max_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> va = values(a), vb = values(b);
  if (va.size() != vb.size()) return INFINITY;  // one was not computed
  double most = 0;
  for (size_t i = 0; i < va.size(); ++i) {
    const double d = std::fabs(va[i] - vb[i]);
    most = std::isnan(d) ? INFINITY : std::fmax(most, d);
  }
  return most;
}

// max|a - b| <= tolerance * max|b|, and a floor for tensors that are all zero.
inline bool close(const char* file, int line, const std::string& what, const Tensor& a,
                  const Tensor& b, double tolerance) {
  if (!a || !b) {
    nxd_test_fail(file, line, "%s: a tensor is missing", what.c_str());
    return false;
  }
  const double difference = max_difference(a, b), scale = max_abs(values(b));
  if (difference <= tolerance * scale || difference == 0) return true;
  nxd_test_fail(file, line, "%s: max difference %g, allowed %g x %g", what.c_str(), difference,
                tolerance, scale);
  return false;
}
#define NXD_TEST_CLOSE(what, a, b, tolerance) \
  nxd_test::close(__FILE__, __LINE__, (what), (a), (b), (tolerance))

class Module {
 public:
  Module() = default;
  explicit Module(nxd_module_t* handle) : handle_(handle) {}
  Module(Module&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Module& operator=(Module&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Module() { nxd_module_destroy(handle_); }

  nxd_module_t* get() const { return handle_; }
  nxd_module_t** out() { return &handle_; }

  Tensor operator()(const std::vector<Tensor>& inputs) const {
    std::vector<nxd_tensor_t*> in;
    for (const Tensor& t : inputs) in.push_back(t.get());
    Tensor y;
    NXD_TEST_OK(nxd_module_forward(handle_, in.data(), in.size(), y.out(), 1));
    return y;
  }

  std::vector<std::pair<std::string, nxd_parameter_t*>> parameters() const {
    size_t count = 0;
    NXD_TEST_OK(nxd_module_get_parameter_count(handle_, &count));
    std::vector<std::pair<std::string, nxd_parameter_t*>> result;
    for (size_t i = 0; i < count; ++i) {
      nxd_parameter_t* parameter = nullptr;
      const char* name = nullptr;
      NXD_TEST_OK(nxd_module_get_parameter(handle_, i, &parameter, &name));
      result.emplace_back(name, parameter);
    }
    return result;
  }

 private:
  nxd_module_t* handle_ = nullptr;
};

inline Tensor whole(nxd_parameter_t* parameter) {
  Tensor t;
  NXD_TEST_OK(nxd_parameter_gather_full(parameter, t.out()));
  return t;
}

inline Tensor whole_grad(nxd_parameter_t* parameter) {
  Tensor t;
  NXD_TEST_OK(nxd_parameter_gather_full_grad(parameter, t.out()));
  return t;
}

inline void backward(const Tensor& y, const Tensor& grad = {}) {
  nxd_tensor_t* output = y.get();
  nxd_tensor_t* g = grad.get();
  NXD_TEST_OK(nxd_backward(&output, &g, 1, 0));
}

}  // namespace nxd_test
