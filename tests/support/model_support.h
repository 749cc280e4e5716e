// Support for tests of models: owned handles, recorded models, and a training run on a layout.
#pragma once

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "nxd.h"
#include "support/handles.h"
#include "support/paths.h"
#include "support/ranks.h"

namespace nxd_test {

using Tensor = std::unique_ptr<nxd_tensor_t, Destroyer<nxd_tensor_destroy>>;
using Module = std::unique_ptr<nxd_module_t, Destroyer<nxd_module_destroy>>;
using Optimizer = std::unique_ptr<nxd_optimizer_t, Destroyer<nxd_optimizer_destroy>>;
using Report = std::unique_ptr<nxd_load_report_t, Destroyer<nxd_load_report_destroy>>;

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline Tensor make_i64(const std::vector<int64_t>& data, std::vector<int64_t> shape) {
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(int64_t), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_I64, &out));
  return Tensor(out);
}

// Values of a tensor of f32 or f64; bf16 is widened.
inline std::vector<double> values(nxd_tensor_t* tensor) {
  int64_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  if (!tensor || !NXD_TEST_OK(nxd_tensor_get_element_count(tensor, &count)) ||
      !NXD_TEST_OK(nxd_tensor_get_dtype(tensor, &dtype))) {
    return {};
  }
  const auto n = static_cast<size_t>(count);
  std::vector<double> out(n);
  if (dtype == NXD_DTYPE_F64) {
    NXD_TEST_OK(nxd_tensor_copy_to_host(tensor, out.data(), n * sizeof(double)));
  } else if (dtype == NXD_DTYPE_F32) {
    std::vector<float> narrow(n);
    NXD_TEST_OK(nxd_tensor_copy_to_host(tensor, narrow.data(), n * sizeof(float)));
    out.assign(narrow.begin(), narrow.end());
  } else {
    std::vector<uint16_t> bits(n);
    NXD_TEST_OK(nxd_tensor_copy_to_host(tensor, bits.data(), n * sizeof(uint16_t)));
    for (size_t i = 0; i < n; ++i) {
      const uint32_t wide = static_cast<uint32_t>(bits[i]) << 16U;
      float value;
      std::memcpy(&value, &wide, sizeof value);
      out[i] = static_cast<double>(value);
    }
  }
  return out;
}

inline double item(nxd_tensor_t* tensor) {
  double out = NAN;
  if (tensor) NXD_TEST_OK(nxd_tensor_get_item(tensor, &out));
  return out;
}

inline double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Calls visit(parameter, name) for each parameter of a tree.
inline void for_each_parameter(nxd_module_t* model,
                               const std::function<void(nxd_parameter_t*, std::string)>& visit) {
  size_t count = 0;
  NXD_TEST_OK(nxd_module_get_parameter_count(model, &count));
  for (size_t i = 0; i < count; ++i) {
    nxd_parameter_t* parameter = nullptr;
    const char* name = nullptr;
    if (NXD_TEST_OK(nxd_module_get_parameter(model, i, &parameter, &name))) visit(parameter, name);
  }
}

using Named = std::map<std::string, std::vector<double>>;

inline Named whole_parameters(nxd_module_t* model) {
  Named out;
  for_each_parameter(model, [&](nxd_parameter_t* parameter, const std::string& name) {
    nxd_tensor_t* whole = nullptr;
    NXD_TEST_OK(nxd_parameter_gather_full(parameter, &whole));
    out[name] = values(Tensor(whole).get());
  });
  return out;
}

inline Named whole_gradients(nxd_module_t* model) {
  Named out;
  for_each_parameter(model, [&](nxd_parameter_t* parameter, const std::string& name) {
    nxd_tensor_t* whole = nullptr;
    NXD_TEST_OK(nxd_parameter_gather_full_grad(parameter, &whole));
    out[name] = values(Tensor(whole).get());
  });
  return out;
}

// A recorded model: its directory, batch and expected values.
struct ModelOracle {
  explicit ModelOracle(const std::string& name) : directory(oracles() + "/" + name) {}

  std::string directory;
  nlohmann::json expected = nlohmann::json::parse(read_file(directory + "/expected.json"));
  // The same training in f64.
  nlohmann::json exact = nlohmann::json::parse(read_file(directory + "/fp64.json"));
  std::string config = read_file(directory + "/config.json");
  std::vector<int64_t> ids = flat("input_ids");
  std::vector<int64_t> labels = flat("labels");
  std::vector<int64_t> shape{2, 32};
  int64_t vocabulary = nlohmann::json::parse(config)["vocab_size"];

  std::vector<int64_t> flat(const char* name) const {
    std::vector<int64_t> out;
    for (const auto& row : expected["batch"][name]) {
      for (const auto& value : row) out.push_back(value.get<int64_t>());
    }
    return out;
  }

  // The forward's inputs that were recorded, in their order.
  std::vector<Tensor> inputs() const {
    std::vector<Tensor> out;
    for (const auto& values : {ids, labels}) out.push_back(make_i64(values, shape));
    for (const char* name : {"attention_mask", "token_type_ids"}) {
      if (expected["batch"].contains(name)) out.push_back(make_i64(flat(name), shape));
    }
    if (expected["batch"].contains("next_sentence_label")) {
      out.push_back(make_i64(expected["batch"]["next_sentence_label"], {shape[0]}));
    }
    return out;
  }
};

inline std::vector<nxd_tensor_t*> handles(const std::vector<Tensor>& tensors) {
  std::vector<nxd_tensor_t*> out;
  for (const Tensor& tensor : tensors) out.push_back(tensor.get());
  return out;
}

struct LlamaOracle : ModelOracle {
  LlamaOracle() : ModelOracle("llama_tiny") {}
};

struct Layout {
  int tp = 1;
  bool sequence_parallel = false;
  nxd_dtype_t dtype = NXD_DTYPE_F32;
  bool plain = false;
  nxd_device_t device = NXD_DEVICE_CPU;

  std::string name() const {
    const char* type = dtype == NXD_DTYPE_F64 ? "f64" : dtype == NXD_DTYPE_BF16 ? "bf16" : "f32";
    return "tp " + std::to_string(tp) + (sequence_parallel ? " sp " : " ") + type +
           (plain ? " plain" : "") + (device == NXD_DEVICE_XLA ? " recorded" : "");
  }
  nxd_model_options_t model_options() const {
    nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
    options.dtype = dtype;
    options.sequence_parallel = sequence_parallel;
    options.device = device;
    return options;
  }
};

// The device of a model's parameters.
inline nxd_device_t device_of(nxd_module_t* model) {
  nxd_parameter_t* first = nullptr;
  nxd_tensor_t* tensor = nullptr;
  nxd_device_t device = NXD_DEVICE_CPU;
  NXD_TEST_OK(nxd_module_get_parameter(model, 0, &first, nullptr));
  NXD_TEST_OK(nxd_parameter_get_tensor(first, &tensor));
  NXD_TEST_OK(nxd_tensor_get_device(tensor, &device));
  return device;
}

inline std::vector<Tensor> moved(const std::vector<Tensor>& tensors, nxd_device_t device) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : tensors) {
    nxd_tensor_t* there = nullptr;
    if (tensor) NXD_TEST_OK(nxd_tensor_to_device(tensor.get(), device, &there));
    out.emplace_back(there);
  }
  return out;
}

// Loss of one forward and backward pass; gradients are left in the model, unfinished.
inline Tensor backward_loss(nxd_module_t* model, const ModelOracle& oracle) {
  const std::vector<Tensor> inputs = moved(oracle.inputs(), device_of(model));
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_module_zero_grad(model));
  if (!NXD_TEST_OK(nxd_module_forward(model, handles(inputs).data(), inputs.size(), &out, 1)))
    return {};
  Tensor loss(out);
  NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
  return loss;
}

inline double run_backward(nxd_module_t* model, const ModelOracle& oracle) {
  return item(backward_loss(model, oracle).get());
}

inline Optimizer make_adamw(nxd_module_t* model) {
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 1e-3;
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.eps = 1e-8;
  options.weight_decay = 0.1;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(model, &options, &out));
  return Optimizer(out);
}

// Results of a training run.
struct Run {
  Named initial;               // whole parameters before the first step
  Named gradients;             // of the first step, finished
  std::vector<double> losses;  // before each update, and after the last
  std::vector<double> norms;
  Named final;
};

// Trains on the oracle's batch. Collective over the context's tensor-parallel group.
inline Run train(nxd_module_t* model, const ModelOracle& oracle, int steps) {
  Run run;
  run.initial = whole_parameters(model);
  const Optimizer optimizer = make_adamw(model);
  for (int step = 0; step <= steps; ++step) {
    run.losses.push_back(run_backward(model, oracle));
    double total = 0;
    NXD_TEST_OK(nxd_finish_grads(model, nullptr, &total));
    run.norms.push_back(total);
    if (step == 0) run.gradients = whole_gradients(model);
    if (step < steps) NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
  }
  run.final = whole_parameters(model);
  return run;
}

// Reports a difference beyond tol * max(1, |want|).
inline void check_loss(const char* what, double got, double want, double tol) {
  if (std::fabs(got - want) <= tol * std::max(1.0, std::fabs(want))) return;
  nxd_test_fail(__FILE__, __LINE__, "%s: expected %.15g, got %.15g", what, want, got);
}

// Reports a difference beyond tol * max|want| + floor in any element.
inline void check_values(const std::string& what, const std::vector<double>& got,
                         const std::vector<double>& want, double tol, double floor = 0) {
  if (got.size() != want.size()) {
    nxd_test_fail(__FILE__, __LINE__, "%s: expected %zu values, got %zu", what.c_str(), want.size(),
                  got.size());
    return;
  }
  double largest = 0, worst = 0;
  size_t at = 0;
  for (const double x : want) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(got[i] - want[i]);
    if (difference > worst || std::isnan(difference)) {
      worst = difference;
      at = i;
    }
  }
  if (worst <= tol * largest + floor) return;
  nxd_test_fail(__FILE__, __LINE__, "%s[%zu]: expected %.9g, got %.9g (largest %.3g, tolerance %g)",
                what.c_str(), at, want[at], got[at], largest, tol);
}

inline void check_named(const std::string& what, const Named& got, const Named& want, double tol,
                        double floor = 0) {
  if (got.size() != want.size()) {
    nxd_test_fail(__FILE__, __LINE__, "%s: expected %zu parameters, got %zu", what.c_str(),
                  want.size(), got.size());
  }
  for (const auto& [name, expected] : want) {
    const auto it = got.find(name);
    if (it == got.end()) {
      nxd_test_fail(__FILE__, __LINE__, "%s: no %s", what.c_str(), name.c_str());
    } else {
      check_values(what + ": " + name, it->second, expected, tol, floor);
    }
  }
}

// Runs fn on ranks as threads of one tensor-parallel group, and gives what each rank returned.
template <class Result, class Function>
std::vector<Result> on_ranks(const Layout& layout, uint64_t seed, Function fn) {
  struct Shared {
    Function* fn;
    std::vector<Result> results;
  } shared{&fn, std::vector<Result>(static_cast<size_t>(layout.tp))};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = seed;
  options.plain_kernels = layout.plain;
  nxd_test_run_ranks_with(
      &options, layout.tp, layout.tp,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        auto* state = static_cast<Shared*>(user_data);
        state->results[static_cast<size_t>(rank)] = (*state->fn)(ctx);
      },
      &shared);
  return shared.results;
}

inline Module create_model(nxd_context_t* ctx, const std::string& config, const Layout& layout) {
  const nxd_model_options_t options = layout.model_options();
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &options, &out));
  return Module(out);
}

inline Module load_model(nxd_context_t* ctx, const std::string& directory, const Layout& layout) {
  const nxd_model_options_t options = layout.model_options();
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_model_from_pretrained(ctx, directory.c_str(), &options, &out));
  return Module(out);
}

}  // namespace nxd_test
