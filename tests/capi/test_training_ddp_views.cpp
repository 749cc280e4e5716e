// Effects of data parallelism on a module's tensors, and when: gradients are views into buckets
// that stay where they are, with stage 1 parameters too; and buckets are reduced before gradients
// are finished, unless overlap is off.
#include <algorithm>
#include <chrono>
#include <thread>

#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int64_t kSizes[] = {3, 50, 7};

// The parameters of a container, and a loss whose gradients are rank + 1 + index everywhere.
struct Holder {
  explicit Holder(nxd_context_t* ctx, nxd_dtype_t dtype = NXD_DTYPE_F32) {
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &made));
    module.reset(made);
    for (int i = 0; i < 3; ++i) {
      nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
      options.dtype = dtype;
      options.init = NXD_INIT_CONSTANT;
      options.init_a = i;
      nxd_parameter_t* parameter = nullptr;
      nxd_tensor_t* tensor = nullptr;
      NXD_TEST_OK(nxd_module_add_parameter(module.get(), ("p" + std::to_string(i)).c_str(),
                                           &kSizes[i], 1, &options, &parameter));
      NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
      tensors.push_back(tensor);
    }
  }

  void backward(int rank) const {
    std::vector<nxd_tensor_t*> sums, grads;
    std::vector<Tensor> owned;
    for (int i = 0; i < 3; ++i) {
      nxd_tensor_t *sum = nullptr, *grad = nullptr;
      const auto factor = static_cast<float>(rank + 1 + i);
      NXD_TEST_OK(nxd_op_call("sum", "", &tensors[static_cast<size_t>(i)], 1, &sum, 1));
      NXD_TEST_OK(nxd_tensor_from_data(&factor, sizeof factor, nullptr, 0, NXD_DTYPE_F32, &grad));
      sums.push_back(sum);
      grads.push_back(grad);
      owned.emplace_back(sum);
      owned.emplace_back(grad);
    }
    NXD_TEST_OK(nxd_backward(sums.data(), grads.data(), 3, 0));
  }

  Tensor grad(size_t i) const {
    nxd_tensor_t* grad = nullptr;
    NXD_TEST_OK(nxd_tensor_share_grad(tensors[i], &grad));
    return Tensor(grad);
  }

  Module module;
  std::vector<nxd_tensor_t*> tensors;  // borrowed
};

const float* data_of(nxd_tensor_t* tensor) {
  void* data = nullptr;
  if (tensor) NXD_TEST_OK(nxd_tensor_get_data(tensor, &data));
  return static_cast<const float*>(data);
}

using Ddp = std::unique_ptr<nxd_ddp_t, Destroyer<nxd_ddp_destroy>>;

Ddp make_ddp(const Holder& model, int stage, int64_t bucket_bytes, bool no_overlap) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = bucket_bytes;
  options.zero_stage = stage;
  options.overlap = no_overlap ? NXD_TOGGLE_OFF : NXD_TOGGLE_DEFAULT;
  nxd_ddp_t* out = nullptr;
  NXD_TEST_OK(nxd_ddp_create(model.module.get(), &options, &out));
  return Ddp(out);
}

// All in one block of memory of their size, but for padding.
void check_one_block(std::vector<const float*> at) {
  std::sort(at.begin(), at.end());
  NXD_TEST_CHECK(at.front() != nullptr && at.back() - at.front() < 60 + 3 * 16);
}

void views(nxd_context_t* ctx, int rank, int, void*) {
  for (const int stage : {0, 1}) {
    const Holder model(ctx);
    const Ddp ddp = make_ddp(model, stage, 1 << 20, false);
    nxd_optimizer_t* made = nullptr;
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.5;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made));
    const Optimizer optimizer(made);
    std::vector<const float*> first;
    for (int step = 0; step < 3; ++step) {
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      model.backward(rank);
      std::vector<const float*> at;
      for (size_t i = 0; i < 3; ++i) at.push_back(data_of(model.grad(i).get()));
      check_one_block(at);
      if (step == 0) first = at;
      NXD_TEST_CHECK(at == first);
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
      for (int i = 0; i < 3; ++i) {
        // Gradients of two ranks: 1 + i and 2 + i.
        const float want =
            static_cast<float>(i) - 0.5F * static_cast<float>((step + 1) * (3 + 2 * i));
        const std::vector<double> v = values(model.tensors[static_cast<size_t>(i)]);
        NXD_TEST_CHECK(std::all_of(v.begin(), v.end(), [&](double x) { return x == want; }));
        if (stage == 0) {
          // The reduced gradient is seen where the backward pass left its part.
          NXD_TEST_CHECK(first[static_cast<size_t>(i)][0] == static_cast<float>(3 + 2 * i));
        }
      }
    }
    std::vector<const float*> parameters;
    for (nxd_tensor_t* tensor : model.tensors) parameters.push_back(data_of(tensor));
    if (stage == 1) check_one_block(parameters);
  }
}

void gradients_are_views(void**) { nxd_test_run_ranks(2, 1, views, nullptr); }

// Reductions that groups have been asked for so far.
int reductions(nxd_context_t* ctx) {
  std::string record(1 << 20, '\0');
  size_t needed = 0;
  NXD_TEST_OK(nxd_context_get_flight_record(ctx, record.data(), record.size(), &needed));
  record.resize(needed);
  int count = 0;
  for (const char* name : {"\"all_reduce\"", "\"reduce_scatter\""}) {
    for (size_t at = record.find(name); at != std::string::npos; at = record.find(name, at + 1)) {
      ++count;
    }
  }
  return count;
}

void overlap(nxd_context_t* ctx, int rank, int, void*) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  for (const bool no_overlap : {true, false}) {
    const Holder model(ctx);
    const Ddp ddp = make_ddp(model, 0, 64, no_overlap);
    const int before = reductions(ctx);
    model.backward(rank);
    // With overlap they come by themselves, some time after.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!no_overlap && reductions(ctx) == before && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_CHECK(no_overlap ? reductions(ctx) == before : reductions(ctx) > before);
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    NXD_TEST_CHECK(reductions(ctx) > before);
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double> v = values(model.grad(i).get());
      const double want = 3 + 2 * static_cast<double>(i);
      NXD_TEST_CHECK(std::all_of(v.begin(), v.end(), [&](double x) { return x == want; }));
    }
  }
}

// The tensor of a BF16 parameter has the gradient that the ddp keeps in F32: it is read there, and
// goes when another, or none, takes its place.
void f32_gradients(nxd_context_t* ctx, int, int, void*) {
  const Holder model(ctx, NXD_DTYPE_BF16);
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.fp32_grads = 1;
  nxd_ddp_t* made = nullptr;
  NXD_TEST_OK(nxd_ddp_create(model.module.get(), &options, &made));
  const Ddp ddp(made);
  const auto step = [&](bool runs_backward) {
    for (nxd_tensor_t* tensor : model.tensors) {
      if (!runs_backward) continue;
      nxd_tensor_t* sum = nullptr;
      NXD_TEST_OK(nxd_op_call("sum", "", &tensor, 1, &sum, 1));
      NXD_TEST_OK(nxd_backward(&sum, nullptr, 1, 0));
      nxd_tensor_destroy(sum);
    }
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
  };
  const auto check = [&](int line, double expected) {
    const Tensor grad = model.grad(0);
    if (!grad) return nxd_test_fail(__FILE__, line, "no gradient");
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    NXD_TEST_OK(nxd_tensor_get_dtype(grad.get(), &dtype));
    const double got = values(grad.get())[0];
    if (dtype != NXD_DTYPE_F32 || got != expected) {
      nxd_test_fail(__FILE__, line, "expected %g of F32, got %g of dtype %d", expected, got, dtype);
    }
  };
  NXD_TEST_CHECK(!model.grad(0));
  step(true);
  check(__LINE__, 2);
  for (nxd_tensor_t* tensor : model.tensors) NXD_TEST_OK(nxd_tensor_set_grad(tensor, nullptr));
  NXD_TEST_CHECK(!model.grad(0));
  step(true);
  check(__LINE__, 2);
  nxd_tensor_t* other = nullptr;
  NXD_TEST_OK(nxd_tensor_create(&kSizes[0], 1, NXD_DTYPE_BF16, NXD_DEVICE_CPU, &other));
  NXD_TEST_OK(nxd_tensor_set_grad(model.tensors[0], other));
  nxd_tensor_destroy(other);
  step(false);
  check(__LINE__, 0);
  // So do handles that were retained, as a binding's are.
  nxd_tensor_t *retained = nullptr, *again = nullptr, *grad = nullptr;
  NXD_TEST_OK(nxd_tensor_retain(model.tensors[0], &retained));
  NXD_TEST_OK(nxd_tensor_retain(retained, &again));
  const Tensor first(retained), second(again);
  NXD_TEST_OK(nxd_tensor_set_grad(second.get(), nullptr));
  NXD_TEST_CHECK(!model.grad(0));
  step(true);
  NXD_TEST_OK(nxd_tensor_share_grad(second.get(), &grad));
  const Tensor shared(grad);
  NXD_TEST_CHECK(shared && values(shared.get())[0] == 2);
  NXD_TEST_OK(nxd_tensor_set_grad(first.get(), nullptr));
  NXD_TEST_CHECK(!model.grad(0));
}

// A gradient that is left of a parameter that was frozen since is no part of a step; another rank's
// is, while that rank trains it, and of that step alone.
void check_frozen(nxd_context_t* ctx, int rank, const nxd_ddp_options_t& options) {
  const Holder model(ctx, NXD_DTYPE_BF16);
  nxd_ddp_t* made = nullptr;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_ddp_create(model.module.get(), &options, &made));
  const Ddp ddp(made);
  nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
  sgd.learning_rate = 0.5;
  NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(made, &sgd, &out));
  const Optimizer optimizer(out);
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(model.module.get(), "p1", &parameter));
  const std::vector<double> before = values(model.tensors[1]);
  // The elements of p0 and p2 have a gradient, those of p1 another.
  const auto step = [&](int line, double others, double own) {
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(out, nullptr, &report));
    const double want = std::sqrt(10 * others * others + 50 * own * own);
    if (std::fabs(report.norm - want) > 1e-5 * want) {
      nxd_test_fail(__FILE__, line, "norm %g, expected %g", report.norm, want);
    }
  };
  const auto backward = [&] {
    for (nxd_tensor_t* tensor : model.tensors) {
      nxd_tensor_t* sum = nullptr;
      int32_t trained = 0;
      NXD_TEST_OK(nxd_op_call("sum", "", &tensor, 1, &sum, 1));
      NXD_TEST_OK(nxd_tensor_get_requires_grad(sum, &trained));
      if (trained) NXD_TEST_OK(nxd_backward(&sum, nullptr, 1, 0));
      nxd_tensor_destroy(sum);
    }
  };
  backward();
  NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 0));
  step(__LINE__, 2, 0);
  NXD_TEST_CHECK(values(model.tensors[1]) == before);
  NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
  if (rank == 0) NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 1));
  backward();
  step(__LINE__, 2, 1);
  const std::vector<double> trained = values(model.tensors[1]);
  NXD_TEST_CHECK(trained != before);
  if (options.zero_stage == 1) return;  // whose ranks have sums of their own parts alone now
  if (rank == 0) NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 0));
  step(__LINE__, 4, 0);
  NXD_TEST_CHECK(values(model.tensors[1]) == trained);
}

void frozen(nxd_context_t* ctx, int rank, int, void*) {
  for (const int32_t fp32_grads : {0, 1}) {
    for (const int32_t zero_stage : {0, 1}) {
      // Its gradient is under way when it is frozen, unless overlap is off.
      for (const nxd_toggle_t overlap : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
        nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
        options.fp32_grads = fp32_grads;
        options.zero_stage = zero_stage;
        options.overlap = overlap;
        check_frozen(ctx, rank, options);
      }
    }
  }
}

// A hook sees what its own pass adds, in the parameter's dtype, also where the sum is in F32.
void hook(nxd_context_t* ctx, int, int, void*) {
  const Holder model(ctx, NXD_DTYPE_BF16);
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(model.module.get(), "p0", &parameter));
  double seen = 0;
  NXD_TEST_OK(nxd_parameter_set_grad_hook(
      parameter,
      [](nxd_parameter_t* own, void* user_data) -> nxd_status_t {
        nxd_tensor_t *tensor = nullptr, *grad = nullptr;
        NXD_TEST_OK(nxd_parameter_get_tensor(own, &tensor));
        NXD_TEST_OK(nxd_tensor_share_grad(tensor, &grad));
        *static_cast<double*>(user_data) = values(Tensor(grad).get())[0];
        return NXD_OK;
      },
      &seen, nullptr));
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.fp32_grads = 1;
  nxd_ddp_t* made = nullptr;
  NXD_TEST_OK(nxd_ddp_create(model.module.get(), &options, &made));
  const Ddp ddp(made);
  for (const bool sync : {false, false, true}) {
    NXD_TEST_OK(nxd_ddp_set_sync(made, sync));
    nxd_tensor_t *tensor = model.tensors[0], *sum = nullptr;
    NXD_TEST_OK(nxd_op_call("sum", "", &tensor, 1, &sum, 1));
    seen = 0;
    NXD_TEST_OK(nxd_backward(&sum, nullptr, 1, 0));
    nxd_tensor_destroy(sum);
    NXD_TEST_CHECK(seen == 1);
  }
  NXD_TEST_OK(nxd_ddp_finish(made, nullptr, nullptr));
  NXD_TEST_CHECK(values(model.grad(0).get())[0] == 6);
}

// Without overlap nothing is reduced before the end of a step: passes add up until then.
void passes(nxd_context_t* ctx, int, int, void*) {
  for (const int32_t fp32_grads : {0, 1}) {
    const Holder model(ctx, fp32_grads ? NXD_DTYPE_BF16 : NXD_DTYPE_F32);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.fp32_grads = fp32_grads;
    options.overlap = NXD_TOGGLE_OFF;
    nxd_ddp_t* made = nullptr;
    NXD_TEST_OK(nxd_ddp_create(model.module.get(), &options, &made));
    const Ddp ddp(made);
    const auto check_grads = [&](double want) {
      for (size_t i = 0; i < 3; ++i) NXD_TEST_CHECK(values(model.grad(i).get())[0] == want);
    };
    const auto pass = [&] {
      for (nxd_tensor_t* tensor : model.tensors) {
        nxd_tensor_t* sum = nullptr;
        NXD_TEST_OK(nxd_op_call("sum", "", &tensor, 1, &sum, 1));
        NXD_TEST_OK(nxd_backward(&sum, nullptr, 1, 0));
        nxd_tensor_destroy(sum);
      }
    };
    for (const int further : {0, 1}) {
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      for (int i = 0; i < 3; ++i) pass();
      check_grads(3);
      // Rejected, gone on with and finished.
      nxd_finish_options_t bad = NXD_FINISH_OPTIONS_INIT;
      bad.max_norm = -1;
      NXD_TEST_REFUSED(nxd_ddp_finish(made, &bad, nullptr), NXD_ERROR_INVALID_ARGUMENT, "max_norm");
      for (int i = 0; i < further; ++i) pass();
      NXD_TEST_OK(nxd_ddp_finish(made, nullptr, nullptr));
      check_grads(2 * (3 + further));
    }
  }
}

void passes_add_up(void**) { nxd_test_run_ranks(2, 1, passes, nullptr); }

void hooks_of_a_pass(void**) { nxd_test_run_ranks(2, 1, hook, nullptr); }

void frozen_in_between(void**) { nxd_test_run_ranks(2, 1, frozen, nullptr); }

void gradients_in_f32(void**) { nxd_test_run_ranks(2, 1, f32_gradients, nullptr); }

void reductions_overlap(void**) { nxd_test_run_ranks(2, 1, overlap, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_views), cmocka_unit_test(reductions_overlap),
      cmocka_unit_test(gradients_in_f32),    cmocka_unit_test(frozen_in_between),
      cmocka_unit_test(hooks_of_a_pass),     cmocka_unit_test(passes_add_up),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
