// A layer against its unsharded form, written with ATen's operators on the whole weights: forward,
// input gradient and weight gradients at TP 1, 2 and 4, in f64, f32 and bf16, through the fused
// kernels and through plain ATen.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>

#include "support/tensor.h"

namespace nxd_test {

using Weights = std::map<std::string, Tensor>;

struct Case {
  std::string name;
  std::vector<int64_t> input;
  std::function<nxd_status_t(nxd_context_t*, nxd_dtype_t, nxd_module_t**)> create;
  std::function<Tensor(const Weights&, const Tensor&)> reference;
  int input_part = -1;     // dimension of the input that ranks split
  int output_part = -1;    // and of the output
  int64_t vocabulary = 0;  // the input is ids below this
};

inline double tolerance(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_F64 ? 1e-9 : 1e-5; }

struct Result {
  Tensor y, dx;
  Weights dw;
};

inline Tensor input_of(const Case& c, nxd_dtype_t dtype) {
  if (c.vocabulary == 0) return wave(c.input, dtype, 1);
  int64_t count = 1;
  for (const int64_t size : c.input) count *= size;
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i * 7 + 3) % c.vocabulary;
  }
  return from_ints(ids, c.input);
}

inline Result run_reference(const Case& c, const Weights& whole_weights, const Tensor& x,
                            const Tensor& g, nxd_dtype_t dtype) {
  Weights leaves;
  for (const auto& [name, w] : whole_weights) leaves[name] = leaf(w, dtype, true);
  const Tensor in = c.vocabulary ? x : leaf(x, dtype, true);
  Result r;
  r.y = c.reference(leaves, in);
  backward(r.y, to(g, dtype));
  if (!c.vocabulary) r.dx = in.grad();
  for (const auto& [name, w] : leaves) r.dw[name] = w.grad();
  return r;
}

// Our own 16-bit errors of the unsharded layer, by case and tensor: check_layer starts at TP 1.
class UnshardedErrors {
 public:
  void record(const std::string& key, double error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_[key] = error;
  }
  double of(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = errors_.find(key);
    return it == errors_.end() ? 0 : it->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> errors_;
};
inline UnshardedErrors unsharded_errors;

// The error against f64 of a sharded layer is at most twice that of the unsharded one in the same
// 16-bit dtype, ours or ATen's, whichever is larger. That of our unsharded layer is at most twice
// that of ATen's composite, but for the parameters of attention: the gradient of a key bias is a
// sum of terms that nearly cancel, and ours takes softmax's row sum from the rounded output (as Dao
// et al. 2022 do), where the composite sums the unrounded products it keeps. Ranks of a split
// sequence, and those that share a key head, sum a gradient from parts that each has rounded by
// 2^-9 of its size.
inline void check_16_bit(const Case& c, const std::string& what, int size, const Tensor& ours,
                         const Tensor& reference, const Tensor& exact) {
  const std::string key = c.name + " " + what;
  const double error = max_difference(ours, exact);
  const bool attention = c.name.find("attention") == 0;
  const bool parameter = what.find("gradient of ") == 0;
  const double factor = size == 1 && attention && parameter ? 4 : 2;
  double unsharded = max_difference(reference, exact);
  if (size == 1) {
    unsharded_errors.record(key, error);
  } else {
    unsharded = std::max(unsharded, unsharded_errors.of(key));
  }
  double allowed = factor * unsharded;
  if (size > 1 && parameter && (c.input_part >= 0 || attention)) {
    allowed = std::max(allowed, (size + 1) * max_abs(values(exact)) / 512);
  }
  if (error <= allowed) return;
  nxd_test_fail(__FILE__, __LINE__, "%s tp %d: error %g against f64, allowed %g", key.c_str(), size,
                error, allowed);
}

inline void check_case(const Case& c, nxd_context_t* ctx, int rank, int size, nxd_dtype_t dtype) {
  Module layer;
  if (!NXD_TEST_OK(c.create(ctx, dtype, layer.out()))) return;
  NXD_TEST_OK(nxd_module_initialize(layer.get(), 7));
  Weights weights;
  for (const auto& [name, p] : layer.parameters()) {
    // Biases and norm weights start as constants; nothing is to be trivial.
    const Tensor w = whole(p);
    const Tensor moved =
        op("add", "Tensor", {{"self", w}, {"other", wave(w.shape(), dtype, 5)}, {"alpha", 0.25}});
    NXD_TEST_OK(nxd_parameter_set_full(p, moved.get()));
    weights[name] = moved;
  }
  const Tensor x = input_of(c, dtype);
  // The shape of the output tells that of the gradient; its values do not matter here.
  const Tensor probe = c.reference(
      [&] {
        Weights plain;
        for (const auto& [name, w] : weights) plain[name] = leaf(w, NXD_DTYPE_F64, false);
        return plain;
      }(),
      c.vocabulary ? x : leaf(x, NXD_DTYPE_F64, false));
  const Tensor g = wave(probe.shape(), dtype, 2);

  const Tensor x_part = part(x, c.input_part, rank, size);
  const Tensor in = c.vocabulary ? x_part : leaf(x_part, dtype, true);
  const Tensor y = layer({in});
  if (!y) return;
  backward(y, part(g, c.output_part, rank, size));
  NXD_TEST_OK(nxd_finish_grads(layer.get(), nullptr, nullptr));

  const std::string label =
      c.name + " tp " + std::to_string(size) + " dtype " + std::to_string(dtype);
  const Result exact = run_reference(c, weights, x, g, NXD_DTYPE_F64);
  const bool narrow = dtype == NXD_DTYPE_BF16;
  const Result reference = narrow ? run_reference(c, weights, x, g, dtype) : Result{};
  const auto check = [&](const std::string& what, const Tensor& ours, const Tensor& wide,
                         const Tensor& same) {
    if (narrow) {
      check_16_bit(c, what, size, ours, same, wide);
    } else {
      NXD_TEST_CLOSE(label + " " + what, ours, wide, tolerance(dtype));
    }
  };
  const auto mine = [&](const Tensor& t, int dim) { return t ? part(t, dim, rank, size) : t; };
  check("output", y, mine(exact.y, c.output_part), mine(reference.y, c.output_part));
  if (!c.vocabulary) {
    check("input gradient", in.grad(), mine(exact.dx, c.input_part),
          mine(reference.dx, c.input_part));
  }
  for (const auto& [name, p] : layer.parameters()) {
    const Tensor dw = whole_grad(p);
    const auto same = reference.dw.find(name);
    check("gradient of " + name, dw, exact.dw.at(name),
          same == reference.dw.end() ? Tensor() : same->second);
  }
}

inline void run_case(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const Case& c = *static_cast<const Case*>(user_data);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    check_case(c, ctx, rank, size, dtype);
  }
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, 1));
  check_case(c, ctx, rank, size, NXD_DTYPE_F32);
}

inline void check_layer(const Case& c) {
  for (const int size : {1, 2, 4}) {
    nxd_test_run_ranks(size, size, run_case, const_cast<Case*>(&c));
  }
}

inline Tensor linear(const Tensor& x, const Weights& w, const std::string& path) {
  const auto bias = w.find(path + "bias");
  return op("linear", {{"input", x},
                       {"weight", w.at(path + "weight")},
                       {"bias", bias == w.end() ? Tensor() : bias->second}});
}

// Rotates the two halves of the leading rotary_dim features of each head, 0 for all, by angles of
// the position; x [batch, sequence, heads, d].
inline Tensor rotated(const Tensor& x, int sequence_dim, int64_t rotary_dim = 0) {
  const std::vector<int64_t> shape = x.shape();
  const int64_t sequence = shape[static_cast<size_t>(sequence_dim)];
  const int64_t half = (rotary_dim > 0 ? rotary_dim : shape[3]) / 2;
  std::vector<double> c, s;
  for (int64_t p = 0; p < sequence; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(2 * half));
      c.push_back(std::cos(angle));
      s.push_back(std::sin(angle));
    }
  }
  std::vector<int64_t> table{1, 1, 1, half};
  table[static_cast<size_t>(sequence_dim)] = sequence;
  const Tensor cosines = from_doubles(c, table, x.dtype()),
               sines = from_doubles(s, table, x.dtype());
  const Tensor a = op("narrow", {{"self", x}, {"dim", 3}, {"start", 0}, {"length", half}});
  const Tensor b = op("narrow", {{"self", x}, {"dim", 3}, {"start", half}, {"length", half}});
  const auto mul = [](const Tensor& l, const Tensor& r) {
    return op("mul", "Tensor", {{"self", l}, {"other", r}});
  };
  const Tensor first = op("sub", "Tensor", {{"self", mul(a, cosines)}, {"other", mul(b, sines)}});
  const Tensor second = op("add", "Tensor", {{"self", mul(b, cosines)}, {"other", mul(a, sines)}});
  nxd_op_t* cat = nullptr;
  Tensor y;
  const Tensor rest =
      op("narrow", {{"self", x}, {"dim", 3}, {"start", 2 * half}, {"length", shape[3] - 2 * half}});
  nxd_tensor_t* parts[3] = {first.get(), second.get(), rest.get()};
  NXD_TEST_OK(nxd_op_create("cat", "", &cat));
  NXD_TEST_OK(nxd_op_set_tensors(cat, "tensors", parts, 3));
  NXD_TEST_OK(nxd_op_set_int(cat, "dim", 3));
  NXD_TEST_OK(nxd_op_run(cat));
  NXD_TEST_OK(nxd_op_share_tensor(cat, 0, y.out()));
  nxd_op_destroy(cat);
  return y;
}

}  // namespace nxd_test
