// Data parallelism over modules: NxD Core's recorded training, gradients that are reduced as
// backward passes complete them, and everything that may come between: microbatches, parameters
// that are used several times or not at all, hooks, F32 gradients, forgotten gradients, other ends.
#include "capi/ddp_support.h"
#include "support/npy.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

// --- Against NxD Core --------------------------------------------------------------------------

struct OracleCase {
  int32_t zero_stage;
  int64_t bucket_bytes;
  const char* directory;
  const char* final;  // name of the parameters after the last step
  double scale;       // of the loss
  double beta2;
  std::vector<double> norms;
};

const std::vector<double> kZeroNorms = {3.853909730911255,  2.877434015274048,  2.086073637008667,
                                        1.4472355842590332, 0.9652550220489502, 0.7337482571601868};

// y = W2 gelu(W1 x + b1) + b2, loss mean(y^2) times a factor, on two ranks with data of their own;
// five or six steps of AdamW, gradients averaged and clipped to 1.
void nxd_core_run(nxd_context_t* ctx, int rank, int, void* user_data) {
  const auto& c = *static_cast<const OracleCase*>(user_data);
  const auto read = [&](const std::string& name) {
    return read_npy<double>(oracles() + std::string("/nxd/") + c.directory + "/" + name + ".rank" +
                            std::to_string(rank) + ".npy");
  };
  std::vector<std::vector<int64_t>> shapes;
  for (int i = 0; i < 4; ++i) shapes.push_back(read("init" + std::to_string(i)).shape);
  const Holder model(ctx, shapes, NXD_DTYPE_F32);
  for (size_t i = 0; i < 4 && rank == 0; ++i) {  // the other rank gets them
    const auto init = read("init" + std::to_string(i));
    NXD_TEST_OK(nxd_parameter_set_full(model.parameters[i],
                                       make(init.values, init.shape, NXD_DTYPE_F32).get()));
  }
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.reduce = NXD_REDUCE_AVG;
  options.zero_stage = c.zero_stage;
  options.bucket_bytes = c.bucket_bytes;
  const Ddp ddp = model.ddp(options);
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 0.01;
  adamw.weight_decay = 0.1;
  adamw.beta2 = c.beta2;
  nxd_optimizer_t* handle = nullptr;
  if (!NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), &adamw, &handle))) return;
  const Optimizer optimizer(handle);
  nxd_finish_options_t clip = NXD_FINISH_OPTIONS_INIT;
  clip.max_norm = 1;
  const auto input = read("x");
  const Tensor x = make(input.values, input.shape, NXD_DTYPE_F32);
  const Tensor factor = make({c.scale}, {}, NXD_DTYPE_F32);
  for (size_t step = 0; step < (c.norms.empty() ? 5 : c.norms.size()); ++step) {
    NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
    const auto& w = model.tensors;
    const Tensor inner = op("gelu", "", {op("linear", "", {x.get(), w[0], w[1]}).get()});
    const Tensor y = op("linear", "", {inner.get(), w[2], w[3]});
    const Tensor mean = op("mean", "", {op("mul", "Tensor", {y.get(), y.get()}).get()});
    NXD_TEST_OK(backward(op("mul", "Tensor", {mean.get(), factor.get()})));
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(handle, &clip, &report));
    if (!c.norms.empty()) {
      NXD_TEST_CHECK(std::fabs(report.norm - c.norms[step]) <= 1e-6 * c.norms[step]);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    const std::string name = c.final + std::to_string(i);
    check_values(name, values(model.tensors[i]), read(name).values, 1e-6);
  }
}

void against_nxd_core(void**) {
  for (const int32_t stage : {0, 1}) {
    for (const int64_t bytes : {300, 1 << 20}) {
      const OracleCase trainer{stage, bytes, "trainer_dp2_zero0", "p", 1, 0.999, {}};
      const OracleCase zero{stage, bytes, "zero1_dp2", "final", 20, 0.95, kZeroNorms};
      on_copies(2, nxd_core_run, &trainer);
      on_copies(2, nxd_core_run, &zero);
    }
  }
}

// --- What is reduced when ----------------------------------------------------------------------

struct Variant {
  nxd_dtype_t dtype;
  int32_t fp32_grads, no_overlap;

  nxd_ddp_options_t options() const {
    nxd_ddp_options_t out = NXD_DDP_OPTIONS_INIT;
    out.fp32_grads = fp32_grads;
    out.overlap = no_overlap ? NXD_TOGGLE_OFF : NXD_TOGGLE_DEFAULT;
    return out;
  }
};

const Variant kVariants[] = {{NXD_DTYPE_F32, 0, 0},
                             {NXD_DTYPE_F64, 0, 1},
                             {NXD_DTYPE_BF16, 0, 0},
                             {NXD_DTYPE_BF16, 1, 0},
                             {NXD_DTYPE_BF16, 1, 1}};

void on_variants(int copies, nxd_test_rank_fn fn) {
  for (const Variant& variant : kVariants) on_copies(copies, fn, &variant);
}

// Sums over ranks, microbatches and uses; steps follow one another.
void sums(void**) {
  on_variants(3, [](nxd_context_t* ctx, int rank, int, void* user_data) {
    const auto& variant = *static_cast<const Variant*>(user_data);
    const Holder model(ctx, {{5}, {40, 2}, {0, 3}, {7}}, variant.dtype);
    const Ddp ddp = model.ddp(variant.options());
    for (int step = 0; step < 3; ++step) {
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 0));
      NXD_TEST_OK(backward(model.loss({1.0 + rank, 2, 1, 0})));
      NXD_TEST_CHECK(model.grad(0) == 1.0 + rank);
      NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 1));
      // The first parameter twice in one graph.
      const Tensor loss =
          op("add", "Tensor", {model.loss({4, 8, 1, 16}).get(), model.loss({32.0 + step}).get()});
      NXD_TEST_OK(backward(loss));
      finish(ddp);
      NXD_TEST_CHECK(model.grad(0) == 1 + 2 + 3 + 3 * (4 + 32 + step));
      NXD_TEST_CHECK(model.grad(1) == 3 * (2 + 8));
      NXD_TEST_CHECK(model.grad(3) == 3 * 16);
    }
  });
}

// Used on one rank, used on none, frozen, tied.
void parameters_left_out(void**) {
  on_variants(2, [](nxd_context_t* ctx, int rank, int, void* user_data) {
    const auto& variant = *static_cast<const Variant*>(user_data);
    Holder model(ctx, {{5}, {6}, {7}, {8}, {5}}, variant.dtype);
    NXD_TEST_OK(nxd_parameter_set_trainable(model.parameters[3], 0));
    NXD_TEST_OK(nxd_module_tie(model.module.get(), "p0", "p4"));
    const Ddp ddp = model.ddp(variant.options());
    size_t count = 0;
    NXD_TEST_OK(nxd_ddp_get_count(ddp.get(), &count));
    NXD_TEST_CHECK(count == 3);
    for (int step = 0; step < 2; ++step) {
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      NXD_TEST_OK(backward(model.loss({1, rank == 0 ? 8.0 : 0.0, 0})));
      finish(ddp);
      NXD_TEST_CHECK(model.grad(0) == 2 && model.grad(1) == 8);
      NXD_TEST_CHECK(!model.has_grad(2) && !model.has_grad(3));
    }
    // Frozen since: it takes no part on this rank, and none at all once it does so on both.
    NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
    if (rank == 1) NXD_TEST_OK(nxd_parameter_set_trainable(model.parameters[1], 0));
    NXD_TEST_OK(backward(model.loss({1, 4})));
    finish(ddp);
    NXD_TEST_CHECK(model.grad(1) == 4);
    NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
    NXD_TEST_OK(nxd_parameter_set_trainable(model.parameters[1], 0));
    NXD_TEST_OK(backward(model.loss({1, 4})));
    finish(ddp);
    NXD_TEST_CHECK(model.grad(0) == 2 && !model.has_grad(1));
  });
}

// A layer that adds to the gradient by itself still has it reduced.
void layers_that_add_themselves(void**) {
  on_copies(2, [](nxd_context_t* ctx, int rank, int, void*) {
    nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
    nxd_module_t* handle = nullptr;
    if (!NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 24, 40, &options, &handle)))
      return;
    const Module linear(handle);
    const auto pass = [&](int sample) {
      std::vector<double> data;
      for (int i = 0; i < 6 * 24; ++i) data.push_back(std::sin(i + 100.0 * sample));
      const Tensor x = make(data, {6, 24}, NXD_DTYPE_F32);
      nxd_tensor_t *in = x.get(), *out = nullptr;
      NXD_TEST_OK(nxd_module_forward(handle, &in, 1, &out, 1));
      const Tensor y(out);
      NXD_TEST_OK(backward(op("sum", "", {op("mul", "Tensor", {out, out}).get()})));
    };
    for (int sample = 0; sample < 4; ++sample) pass(sample);
    const Named want = whole_gradients(handle);
    NXD_TEST_OK(nxd_module_zero_grad(handle));
    nxd_ddp_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_ddp_create(handle, nullptr, &made))) return;
    const Ddp ddp(made);
    for (int step = 0; step < 2; ++step) {
      NXD_TEST_OK(nxd_module_zero_grad(handle));
      NXD_TEST_OK(nxd_ddp_set_sync(made, 0));
      pass(2 * rank);
      NXD_TEST_OK(nxd_ddp_set_sync(made, 1));
      pass(2 * rank + 1);
      finish(ddp);
      check_named("gradient", whole_gradients(handle), want, 1e-5);
    }
  });
}

// F32 keeps what BF16 would lose when microbatches add up.
void f32_gradients(void**) {
  on_copies(2, [](nxd_context_t* ctx, int, int, void*) {
    for (const int32_t fp32 : {0, 1}) {
      const Holder model(ctx, {{5}, {300}}, NXD_DTYPE_BF16);
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.fp32_grads = fp32;
      const Ddp ddp = model.ddp(options);
      NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 0));
      NXD_TEST_OK(backward(model.loss({256, 256})));
      NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 1));
      NXD_TEST_OK(backward(model.loss({1, 1})));
      double norm = 0;
      NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, &norm));
      NXD_TEST_CHECK(model.grad(1) == (fp32 ? 514 : 512));
      NXD_TEST_CHECK(std::fabs(norm - model.grad(1) * std::sqrt(305)) < 1e-6 * norm);
      nxd_dtype_t dtype = NXD_DTYPE_INVALID;
      NXD_TEST_OK(nxd_tensor_get_dtype(model.grad_tensor(0).get(), &dtype));
      NXD_TEST_CHECK(dtype == (fp32 ? NXD_DTYPE_F32 : NXD_DTYPE_BF16));
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      NXD_TEST_CHECK(!model.has_grad(0));
    }
  });
}

// --- Hooks and orders of calls -----------------------------------------------------------------

struct Seen {
  int calls = 0;
  double grad = 0;
};

// A caller's hook sees this rank's gradient, before it is reduced, and does not keep it from being.
void callers_hooks(void**) {
  on_copies(2, [](nxd_context_t* ctx, int rank, int, void*) {
    const Holder model(ctx, {{5}}, NXD_DTYPE_F64);
    Seen seen;
    const auto hook = [](nxd_parameter_t* parameter, void* user_data) -> nxd_status_t {
      auto& s = *static_cast<Seen*>(user_data);
      nxd_tensor_t *tensor = nullptr, *grad = nullptr;
      NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
      NXD_TEST_OK(nxd_tensor_share_grad(tensor, &grad));
      s.grad = values(Tensor(grad).get())[0];
      ++s.calls;
      return NXD_OK;
    };
    NXD_TEST_OK(nxd_parameter_set_grad_hook(model.parameters[0], hook, &seen, nullptr));
    const Ddp ddp = model.ddp();
    NXD_TEST_OK(backward(model.loss({3.0 + rank})));
    NXD_TEST_CHECK(seen.calls == 1 && seen.grad == 3.0 + rank);
    finish(ddp);
    NXD_TEST_CHECK(model.grad(0) == 7);
    NXD_TEST_OK(nxd_parameter_set_grad_hook(model.parameters[0], nullptr, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
    NXD_TEST_OK(backward(model.loss({1})));
    finish(ddp);
    NXD_TEST_CHECK(seen.calls == 1 && model.grad(0) == 2);
  });
}

void second_passes(void**) {
  on_variants(2, [](nxd_context_t* ctx, int, int, void* user_data) {
    const auto& variant = *static_cast<const Variant*>(user_data);
    const Holder model(ctx, {{5}, {70}}, variant.dtype);
    const Ddp ddp = model.ddp(variant.options());
    NXD_TEST_OK(backward(model.loss({1, 1})));
    const nxd_status_t second = backward(model.loss({1, 1}));
    NXD_TEST_CHECK(variant.no_overlap ? second == NXD_OK : second == NXD_ERROR_INVALID_STATE);
    // Forgotten gradients are those of another step, whether or not the one before had an end.
    for (int step = 0; step < 3; ++step) {
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      NXD_TEST_OK(backward(model.loss({2, 4})));
    }
    finish(ddp);
    NXD_TEST_CHECK(model.grad(0) == 4 && model.grad(1) == 8);
  });
}

// A gradient that the caller has set, in front of the backward pass or in place of it.
void gradients_from_elsewhere(void**) {
  on_copies(2, [](nxd_context_t* ctx, int rank, int, void*) {
    const Holder model(ctx, {{3}, {4}}, NXD_DTYPE_F32);
    const Ddp ddp = model.ddp();
    NXD_TEST_OK(nxd_tensor_set_grad(model.tensors[0], make({1, 1, 1}, {3}, NXD_DTYPE_F32).get()));
    NXD_TEST_OK(
        nxd_tensor_set_grad(model.tensors[1], make({5, 5, 5, 5}, {4}, NXD_DTYPE_F32).get()));
    NXD_TEST_OK(backward(model.loss({2.0 + rank})));
    finish(ddp);
    NXD_TEST_CHECK(model.grad(0) == 2 + 2 + 3 && model.grad(1) == 10);
  });
}

// --- Beginning and end -------------------------------------------------------------------------

void first_values_are_sent(void**) {
  for (const int32_t stage : {0, 1}) {
    on_copies(
        3,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          const Holder model(ctx, {{3}, {100}}, NXD_DTYPE_F64);
          for (size_t i = 0; i < 2; ++i) {
            const int64_t n = i == 0 ? 3 : 100;
            const std::vector<double> own(static_cast<size_t>(n), 10.0 + rank);
            NXD_TEST_OK(
                nxd_parameter_set_full(model.parameters[i], make(own, {n}, NXD_DTYPE_F64).get()));
          }
          nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
          options.zero_stage = *static_cast<const int32_t*>(user_data);
          {
            const Ddp ddp = model.ddp(options);
            NXD_TEST_CHECK(values(model.tensors[1])[99] == 10);
          }
          NXD_TEST_CHECK(values(model.tensors[1])[99] == 10 && values(model.tensors[0])[0] == 10);
        },
        &stage);
  }
}

// While a ddp has the model no other call finishes its gradients; later the model is as before.
void one_at_a_time(void**) {
  on_variants(2, [](nxd_context_t* ctx, int, int, void* user_data) {
    const auto& variant = *static_cast<const Variant*>(user_data);
    const Holder model(ctx, {{3}, {100}}, variant.dtype);
    nxd_ddp_options_t options = variant.options();
    for (const int32_t stage : {0, 1}) {
      options.zero_stage = stage;
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      const std::vector<double> before = values(model.tensors[1]);
      Ddp ddp = model.ddp(options);
      NXD_TEST_OK(backward(model.loss({1, 2})));
      NXD_TEST_REFUSED(nxd_finish_grads(model.module.get(), nullptr, nullptr),
                       NXD_ERROR_INVALID_STATE, "nxd_ddp_finish");
      nxd_ddp_t* second = nullptr;
      NXD_TEST_REFUSED(nxd_ddp_create(model.module.get(), nullptr, &second),
                       NXD_ERROR_INVALID_STATE, "another ddp has it");
      NXD_TEST_REFUSED(nxd_ddp_mark_ready(ddp.get(), 0), NXD_ERROR_INVALID_STATE, "buffers");
      NXD_TEST_REFUSED(nxd_ddp_mark_unused(ddp.get(), 0), NXD_ERROR_INVALID_STATE, "buffers");
      NXD_TEST_REFUSED(nxd_ddp_rebind(ddp.get(), 0, nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                       "buffers");
      if (stage == 0) finish(ddp);
      ddp.reset();
      NXD_TEST_CHECK(values(model.tensors[1]) == before);
      nxd_tensor_t* grad = nullptr;
      NXD_TEST_OK(nxd_tensor_share_grad(model.tensors[1], &grad));
      nxd_dtype_t dtype = NXD_DTYPE_INVALID;
      NXD_TEST_OK(nxd_tensor_get_dtype(grad, &dtype));
      NXD_TEST_CHECK(dtype == variant.dtype);
      if (stage == 0) NXD_TEST_CHECK(values(grad)[0] == 4);
      nxd_tensor_destroy(grad);
      NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
      NXD_TEST_OK(backward(model.loss({1, 2})));
      NXD_TEST_CHECK(model.grad(1) == 2);
      NXD_TEST_OK(nxd_finish_grads(model.module.get(), nullptr, nullptr));
      NXD_TEST_CHECK(model.grad(1) == 4);
    }
  });
}

// Whatever goes first: tensors, ddp, optimizer and module keep alive what they use.
void any_order_of_ends(void**) {
  for (int order = 0; order < 6; ++order) {
    on_copies(
        2,
        [](nxd_context_t* ctx, int, int, void* user_data) {
          const int which = *static_cast<const int*>(user_data);
          Holder model(ctx, {{3}, {100}}, NXD_DTYPE_F32);
          nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
          options.zero_stage = which % 2;
          Ddp ddp = model.ddp(options);
          nxd_optimizer_t* handle = nullptr;
          if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), nullptr, &handle))) return;
          Optimizer optimizer(handle);
          NXD_TEST_OK(backward(model.loss({1, 2})));
          nxd_tensor_t *grad = nullptr, *alias = nullptr;
          NXD_TEST_OK(nxd_tensor_share_grad(model.tensors[1], &grad));
          NXD_TEST_OK(nxd_tensor_detach(model.tensors[1], &alias));
          if (which % 3 == 0) ddp.reset();
          if (which % 3 == 1) model.module.reset();
          NXD_TEST_OK(nxd_optimizer_step(handle, nullptr, nullptr));
          if (which % 3 == 2) optimizer.reset();
          ddp.reset();
          optimizer.reset();
          model.module.reset();
          NXD_TEST_CHECK(values(grad).size() == 100 && values(alias).size() == 100);
          nxd_tensor_destroy(grad);
          nxd_tensor_destroy(alias);
        },
        &order);
  }
}

void buffers_are_counted(void**) {
  on_copies(2, [](nxd_context_t* ctx, int, int, void*) {
    const Holder model(ctx, {{1000}, {24}}, NXD_DTYPE_F32);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.bucket_bytes = 1 << 20;
    const Ddp ddp = model.ddp(options);
    uint64_t bytes = 0;
    NXD_TEST_OK(nxd_ddp_get_buffer_bytes(ddp.get(), &bytes));
    NXD_TEST_CHECK(bytes == 4096);
  });
}

// Parameters move into buckets, from which their values are gathered: the blocks that they leave go
// back to the system.
void moved_parameters_leave_nothing(void**) {
  on_copies(2, [](nxd_context_t* ctx, int, int, void*) {
    constexpr uint64_t kParameters = 24, kElements = 1 << 20;
    const Holder model(ctx, std::vector<std::vector<int64_t>>(kParameters, {kElements}),
                       NXD_DTYPE_F32);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = 1;
    const Ddp ddp = model.ddp(options);
    nxd_group_t* world = nullptr;
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    NXD_TEST_OK(nxd_barrier(world));
    nxd_memory_stats_t memory = {};
    memory.struct_size = sizeof memory;
    NXD_TEST_OK(nxd_memory_get_stats(&memory));
    NXD_TEST_CHECK(memory.bytes_reserved - memory.bytes_in_use < kParameters * kElements * 4 / 2);
    NXD_TEST_OK(nxd_barrier(world));
  });
}

// --- Ranks that differ, and ranks that are lost ------------------------------------------------

void ranks_that_differ(void**) {
  on_copies(2, [](nxd_context_t* ctx, int rank, int, void*) {
    const Holder model(ctx, {{3}, {rank == 0 ? 4 : 5}}, NXD_DTYPE_F32);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_REFUSED(nxd_ddp_create(model.module.get(), &options, &ddp), NXD_ERROR_INVALID_ARGUMENT,
                     "elements of parameter 1 (p1)");
    options.fp32_grads = rank;
    NXD_TEST_REFUSED(nxd_ddp_create(model.module.get(), &options, &ddp), NXD_ERROR_INVALID_ARGUMENT,
                     "fp32_grads");
    // Nothing has been left behind.
    NXD_TEST_OK(backward(model.loss({1})));
    NXD_TEST_CHECK(model.grad(0) == 1);
  });
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_REFUSED(nxd_ddp_create(nullptr, nullptr, &ddp), NXD_ERROR_INVALID_ARGUMENT, "root");
}

void a_lost_rank(void**) {
  on_copies(
      2,
      [](nxd_context_t* ctx, int rank, int, void*) {
        const Holder model(ctx, {{3}, {100}, {50}}, NXD_DTYPE_F32);
        const Ddp ddp = model.ddp();
        NXD_TEST_OK(backward(model.loss({1, 2, 3})));
        finish(ddp);
        if (rank == 1) {
          nxd_context_abort(ctx);
          return;
        }
        for (int again = 0; again < 2; ++again) {
          NXD_TEST_OK(nxd_module_zero_grad(model.module.get()));
          nxd_status_t status = backward(model.loss({1, 2, 3}));
          if (status == NXD_OK) status = nxd_ddp_finish(ddp.get(), nullptr, nullptr);
          NXD_TEST_REFUSED(status, NXD_ERROR_PEER_LOST, "rank 1");
        }
      },
      nullptr, 5000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_nxd_core),
      cmocka_unit_test(sums),
      cmocka_unit_test(parameters_left_out),
      cmocka_unit_test(layers_that_add_themselves),
      cmocka_unit_test(f32_gradients),
      cmocka_unit_test(callers_hooks),
      cmocka_unit_test(second_passes),
      cmocka_unit_test(gradients_from_elsewhere),
      cmocka_unit_test(first_values_are_sent),
      cmocka_unit_test(one_at_a_time),
      cmocka_unit_test(any_order_of_ends),
      cmocka_unit_test(buffers_are_counted),
      cmocka_unit_test(moved_parameters_leave_nothing),
      cmocka_unit_test(ranks_that_differ),
      cmocka_unit_test(a_lost_rank),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
