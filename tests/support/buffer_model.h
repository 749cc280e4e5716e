// A caller's own parameters and gradients for tests of optimizers over buffers, and ranks for them.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "nxd.h"
#include "support/handles.h"
#include "support/ranks.h"

namespace nxd_test {

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;
using Optimizer = std::unique_ptr<nxd_optimizer_t, Destroyer<nxd_optimizer_destroy>>;

// Values in (-1, 1), the same everywhere.
inline double wave(int64_t i, int phase) {
  const double t = static_cast<double>(i + 1) * 0.6180339887498949 + phase * 0.37;
  return 2 * (t - std::floor(t)) - 1;
}

// One array of numbers of a dtype, as DLPack shows it: in C order, or with the first dimension
// innermost.
class Array {
 public:
  Array(std::vector<int64_t> shape, nxd_dtype_t dtype, bool first_innermost = false)
      : shape_(std::move(shape)), strides_(shape_.size()), dtype_(dtype) {
    count_ = 1;
    for (const int64_t size : shape_) count_ *= size;
    const size_t size = dtype == NXD_DTYPE_F64 ? 8 : dtype == NXD_DTYPE_F32 ? 4 : 2;
    bytes_.resize(static_cast<size_t>(count_) * size);
    const auto code = static_cast<uint8_t>(dtype == NXD_DTYPE_BF16 ? kDLBfloat : kDLFloat);
    tensor_ = {bytes_.data(),
               {kDLCPU, 0},
               static_cast<int32_t>(shape_.size()),
               {code, static_cast<uint8_t>(8 * size), 1},
               shape_.data(),
               first_innermost ? strides_.data() : nullptr,
               0};
    const size_t dims = shape_.size();
    int64_t stride = 1;
    for (size_t k = 0; k < dims; ++k) {
      const size_t d = first_innermost ? (k == 0 ? 0 : dims - k) : dims - 1 - k;
      strides_[d] = stride;
      stride *= shape_[d];
    }
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  int64_t count() const { return count_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  DLTensor* tensor() { return &tensor_; }
  void* data() { return bytes_.data(); }
  const std::vector<char>& bytes() const { return bytes_; }

  // The index is that of C order.
  double get(int64_t index) const {
    const int64_t i = place(index);
    const char* at = bytes_.data();
    if (dtype_ == NXD_DTYPE_F64) return load<double>(at, i);
    if (dtype_ == NXD_DTYPE_F32) return static_cast<double>(load<float>(at, i));
    return static_cast<double>(nxd::bf16_to_f32(load<uint16_t>(at, i)));
  }
  void set(int64_t index, double value) {
    const int64_t i = place(index);
    char* at = bytes_.data();
    if (dtype_ == NXD_DTYPE_F64) return store(at, i, value);
    if (dtype_ == NXD_DTYPE_F32) return store(at, i, static_cast<float>(value));
    store(at, i, nxd::f32_to_bf16(static_cast<float>(value)));
  }

 private:
  int64_t place(int64_t index) const {
    int64_t place = 0;
    for (size_t d = shape_.size(); d-- > 0;) {
      place += index % shape_[d] * strides_[d];
      index /= shape_[d];
    }
    return place;
  }
  template <class T>
  static T load(const char* at, int64_t i) {
    T value;
    std::memcpy(&value, at + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  static void store(char* at, int64_t i, T value) {
    std::memcpy(at + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  std::vector<int64_t> shape_, strides_;
  nxd_dtype_t dtype_;
  int64_t count_ = 0;
  std::vector<char> bytes_;
  DLTensor tensor_{};
};

using Shapes = std::vector<std::vector<int64_t>>;

// Sizes that divide by nothing, one that is empty, and one that fills a small bucket alone.
inline Shapes ragged_shapes() { return {{7, 5}, {3}, {0, 4}, {129, 33}, {1}, {17, 2, 3}}; }

struct BufferModel {
  BufferModel(const Shapes& shapes, nxd_dtype_t dtype, nxd_dtype_t grad_dtype,
              bool first_innermost = false) {
    for (size_t k = 0; k < shapes.size(); ++k) {
      params.push_back(std::make_unique<Array>(shapes[k], dtype, first_innermost));
      grads.push_back(std::make_unique<Array>(shapes[k], grad_dtype, first_innermost));
      for (int64_t i = 0; i < params[k]->count(); ++i) {
        params[k]->set(i, wave(i, static_cast<int>(k)));
      }
    }
  }

  // The loss is sum((p - t)^2) / 2 over the samples first ... last - 1, whose targets t are waves.
  void set_gradients(int first, int last) {
    for (size_t k = 0; k < params.size(); ++k) {
      for (int64_t i = 0; i < params[k]->count(); ++i) {
        double sum = 0;
        for (int sample = first; sample < last; ++sample) {
          sum += params[k]->get(i) - 0.3 * wave(3 * i + 7 * sample, sample + static_cast<int>(k));
        }
        grads[k]->set(i, sum);
      }
    }
  }
  std::vector<double> values() const {
    std::vector<double> out;
    for (const auto& array : params) {
      for (int64_t i = 0; i < array->count(); ++i) out.push_back(array->get(i));
    }
    return out;
  }
  std::vector<char> bytes() const {
    std::vector<char> out;
    for (const auto& array : params) {
      out.insert(out.end(), array->bytes().begin(), array->bytes().end());
    }
    return out;
  }
  int64_t count() const { return static_cast<int64_t>(values().size()); }

  nxd_status_t create_ddp(nxd_context_t* ctx, const nxd_ddp_options_t& options, Ddp& out) {
    std::vector<DLTensor*> p, g;
    for (const auto& array : params) p.push_back(array->tensor());
    for (const auto& array : grads) g.push_back(array->tensor());
    nxd_ddp_t* ddp = nullptr;
    const nxd_status_t status =
        nxd_ddp_create_buffers(ctx, nullptr, nullptr, p.data(), g.data(), p.size(), &options, &ddp);
    out.reset(ddp);
    return status;
  }

  std::vector<std::unique_ptr<Array>> params, grads;
};

// Steps of AdamW with clipping, from a saved state or to one.
struct AdamWSteps {
  double max_norm = 0.5, norm_type = 2;
  int steps = 3;
  std::string load, save;  // "": none
  nxd_bf16_update_t bf16_update = NXD_BF16_UPDATE_MASTER;

  // Gives the norms; set_gradients() is called before each step.
  template <class Function>
  std::vector<double> run(const Ddp& ddp, Function set_gradients) const {
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.learning_rate = 0.01;
    options.bf16_update = bf16_update;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), &options, &made));
    const Optimizer optimizer(made);
    if (!load.empty()) NXD_TEST_OK(nxd_optimizer_load(made, load.c_str()));
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    finish.max_norm = max_norm;
    finish.norm_type = norm_type;
    std::vector<double> norms;
    for (int i = 0; i < steps; ++i) {
      set_gradients();
      nxd_step_report_t report = {};
      report.struct_size = sizeof report;
      NXD_TEST_OK(nxd_optimizer_step(made, &finish, &report));
      norms.push_back(report.norm);
    }
    if (!save.empty()) NXD_TEST_OK(nxd_optimizer_save(made, save.c_str()));
    return norms;
  }
};

// Runs fn(ctx, rank, size) on ranks as threads, and gives what each returned.
template <class Result, class Function>
std::vector<Result> on_ranks(int size, Function fn, int64_t timeout_ms = 60000) {
  struct Shared {
    Function* fn;
    std::vector<Result> results;
  } shared{&fn, std::vector<Result>(static_cast<size_t>(size))};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  options.seed = 11;
  nxd_test_run_ranks_with(
      &options, size, 0,
      [](nxd_context_t* ctx, int rank, int world, void* user_data) {
        auto* state = static_cast<Shared*>(user_data);
        state->results[static_cast<size_t>(rank)] = (*state->fn)(ctx, rank, world);
      },
      &shared);
  return shared.results;
}

}  // namespace nxd_test
