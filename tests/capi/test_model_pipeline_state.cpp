// State around the runs of a pipeline of modules: modes, the number of the microbatch, frozen and
// unused parameters, values that stages share, a last task that fails on one rank, and files.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/temp_dir.h"

using namespace nxd_test;

namespace {

constexpr int64_t kFeatures = 8, kRows = 4;

Module linear(nxd_context_t* ctx) {
  nxd_module_t* made = nullptr;
  NXD_TEST_OK(nxd_layer_create_linear(ctx, kFeatures, kFeatures, nullptr, &made));
  return Module(made);
}

// Scales by a buffer, k.
Module scale(nxd_context_t* ctx, float factor) {
  Module module = callback_module(
      ctx, "Scale", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        nxd_tensor_t* k = nullptr;
        NXD_TEST_TRY(nxd_module_share_buffer(self, "k", &k));
        const Tensor owned(k);
        Tensor y;
        NXD_TEST_TRY(call_op("mul", "Tensor", {inputs[0], k}, y));
        outputs[0] = y.release();
        return nxd_status_t{NXD_OK};
      });
  nxd_tensor_t* k = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(&factor, sizeof factor, nullptr, 0, NXD_DTYPE_F32, &k));
  NXD_TEST_OK(nxd_module_add_buffer(module.get(), "k", Tensor(k).get(), 1));
  return module;
}

// Two products of one weight, each with a buffer, and a dropout in front of the second; a parameter
// that nothing uses. The loss is the mean.
Module model(nxd_context_t* ctx) {
  static const char* const kCalls[] = {"a", "p", "drop", "b", "q"};
  Module root = callback_module(
      ctx, "Root", [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor x;
        for (const char* name : kCalls) {
          Tensor y;
          NXD_TEST_TRY(call_child(self, name, {x ? x.get() : inputs[0]}, y));
          x = std::move(y);
        }
        Tensor squares, loss;
        NXD_TEST_TRY(call_op("mul", "Tensor", {x.get(), x.get()}, squares));
        NXD_TEST_TRY(call_op("mean", "", {squares.get()}, loss));
        outputs[0] = loss.release();
        return nxd_status_t{NXD_OK};
      });
  nxd_module_t* dropout = nullptr;
  NXD_TEST_OK(nxd_layer_create_dropout(ctx, 0.5, "drop", -1, &dropout));
  add_child(root, "a", linear(ctx));
  add_child(root, "p", scale(ctx, 2));
  add_child(root, "drop", Module(dropout));
  add_child(root, "b", linear(ctx));
  add_child(root, "q", scale(ctx, 3));
  const int64_t shape[] = {3};
  NXD_TEST_OK(nxd_module_add_parameter(root.get(), "spare", shape, 1, nullptr, nullptr));
  NXD_TEST_OK(nxd_module_tie(root.get(), "a.weight", "b.weight"));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 5));
  return root;
}

std::vector<Tensor> batch() {
  std::vector<float> data;
  for (int64_t i = 0; i < kRows * kFeatures; ++i) {
    data.push_back(static_cast<float>(std::sin(0.4 * static_cast<double>(i))));
  }
  const int64_t shape[] = {kRows, kFeatures};
  nxd_tensor_t* x = nullptr;
  NXD_TEST_OK(
      nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape, 2, NXD_DTYPE_F32, &x));
  std::vector<Tensor> out;
  out.emplace_back(x);
  return out;
}

nxd_pp_options_t two_stages(bool shares_loss = true) {
  static const char* const cuts[] = {"p"};
  return two_stage_options(cuts, 2, shares_loss);
}

Pipeline cut(nxd_module_t* root, bool shares_loss = true) {
  return make_pipeline(root, batch(), two_stages(shares_loss));
}

// The first run of a step.
nxd_status_t run(nxd_context_t* ctx, nxd_pp_t* pp, double* loss, bool trains = true) {
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  const std::vector<Tensor> given = batch();
  return trains ? nxd_pp_run_train(pp, handles(given).data(), 1, loss)
                : nxd_pp_run_eval(pp, handles(given).data(), 1, loss, nullptr, 0);
}

Tensor narrowed(nxd_tensor_t* x, int64_t start, int64_t length) {
  nxd_op_t* op = nullptr;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_create("narrow", "", &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "self", x));
  NXD_TEST_OK(nxd_op_set_int(op, "dim", 0));
  NXD_TEST_OK(nxd_op_set_int(op, "start", start));
  NXD_TEST_OK(nxd_op_set_int(op, "length", length));
  if (NXD_TEST_OK(nxd_op_run(op))) NXD_TEST_OK(nxd_op_share_tensor(op, 0, &out));
  nxd_op_destroy(op);
  return Tensor(out);
}

double loss_of(nxd_context_t* ctx, nxd_pp_t* pp, bool trains = true) {
  double loss = NAN;
  NXD_TEST_OK(run(ctx, pp, &loss, trains));
  return loss;
}

nxd_parameter_t* find(nxd_module_t* root, const char* name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(root, name, &parameter));
  return parameter;
}

// The mean over the microbatches of what the model in one piece gives.
double loss_in_one_piece(nxd_context_t* ctx, nxd_module_t* root) {
  double sum = 0;
  for (const int64_t microbatch : {0, 1}) {
    std::vector<Tensor> given = batch();
    given[0] = narrowed(given[0].get(), 2 * microbatch, 2);
    nxd_tensor_t* loss = nullptr;
    NXD_TEST_OK(nxd_context_set_step(ctx, 0, microbatch));
    NXD_TEST_OK(nxd_module_forward(root, handles(given).data(), 1, &loss, 1));
    sum += item(Tensor(loss).get());
  }
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  return sum / 2;
}

// An evaluation gives each module its own mode back; each microbatch drops bits of its own.
void modes_come_back(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    const Module root = model(ctx);
    const double in_one_piece = loss_in_one_piece(ctx, root.get());
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    nxd_module_t* dropout = nullptr;
    NXD_TEST_OK(nxd_module_find_module(root.get(), "drop", &dropout));
    const double dropped = loss_of(ctx, pp.get());
    NXD_TEST_CHECK(std::fabs(dropped - in_one_piece) < 1e-6);
    NXD_TEST_OK(nxd_module_set_training(dropout, 0));
    const double whole = loss_of(ctx, pp.get());
    NXD_TEST_CHECK(whole != dropped && std::fabs(loss_of(ctx, pp.get(), false) - whole) < 1e-6);
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == whole);
    NXD_TEST_OK(nxd_module_set_training(dropout, 1));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == dropped);
  });
}

// No rank runs, or traces anew, in a mode that others are not in.
void ranks_in_other_modes(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    const double before = loss_of(ctx, pp.get());
    for (nxd_module_t* part : {root.get(), local_module(pp.get())}) {
      if (rank == 1) NXD_TEST_OK(nxd_module_set_training(part, 0));
      NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr), NXD_ERROR_INVALID_ARGUMENT, "the model's mode");
      if (rank == 1) NXD_TEST_OK(nxd_module_set_training(part, 1));
      NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    }
    if (rank == 1) NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, nullptr));
    NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr), NXD_ERROR_INVALID_ARGUMENT, "automatic casts");
    if (rank == 1) NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_INVALID, nullptr));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    // On all ranks: other dtypes cross the cut.
    NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, nullptr));
    const double cast = loss_of(ctx, pp.get());
    NXD_TEST_CHECK(cast != before && std::fabs(cast - before) < 0.02 * before);
    NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_INVALID, nullptr));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
  });
}

// A parameter without uses has one rank; one of two stages has its first stage's value on both; and
// every stage takes a file of the whole, with the buffers of all.
void one_owner(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/whole.safetensors";
  Joined joined;
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    if (rank == 1) set_whole(root.get(), "a.weight", std::vector<double>(64, 0.25), {8, 8});
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    nxd_module_t* local = local_module(pp.get());
    joined.add("values", whole_parameters(local));
    nxd_parameter_t* spare = nullptr;
    const nxd_status_t found = nxd_module_find_parameter(local, "spare", &spare);
    NXD_TEST_CHECK(found == (rank == 0 ? NXD_OK : NXD_ERROR_INVALID_ARGUMENT));
    NXD_TEST_OK(nxd_module_save_safetensors(local, path.c_str()));
    NXD_TEST_OK(nxd_module_load_safetensors(local, path.c_str(), 1, nullptr));
  });
  assert_true(joined.all().count("spare") == 1 && joined.all().at("a.weight")[0] != 0.25);
}

using Names = std::vector<const char*>;

void set_trainable(nxd_module_t* root, const Names& names, bool trainable) {
  for (const char* name : names) {
    NXD_TEST_OK(nxd_parameter_set_trainable(find(root, name), trainable ? 1 : 0));
  }
}

// Gradients of a run of a pipeline in one piece.
Named gradients_in_one_piece() {
  Named gradients;
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module root = model(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    const Pipeline pp = make_pipeline(root.get(), batch(), options);
    if (!pp) return;
    loss_of(ctx, pp.get());
    gradients = whole_gradients(root.get());
  });
  return gradients;
}

void check_gradients(const Joined& got, const Named& want) {
  assert_false(want.empty() || want.at("a.bias").empty());
  check_named("gradients", got.all(), want, 1e-6, 1e-8);
}

// The first stage has no gradients to hand back when the model is traced.
void thawed_after_the_cut(void**) {
  Joined gradients;
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module root = model(ctx);
    set_trainable(root.get(), {"a.weight", "a.bias"}, false);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    set_trainable(root.get(), {"a.weight", "a.bias"}, true);
    loss_of(ctx, pp.get());
    gradients.add("gradients", whole_gradients(local_module(pp.get())));
  });
  check_gradients(gradients, gradients_in_one_piece());
}

// Every rank freezes, and thaws, parameters of its own stage alone.
void frozen_where_it_is(void**) {
  Joined gradients;
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    nxd_module_t* local = local_module(pp.get());
    const double before = loss_of(ctx, pp.get()), evaluated = loss_of(ctx, pp.get(), false);
    const Names frozen = rank == 0 ? Names{"a.weight", "a.bias"} : Names{"a.weight"};
    set_trainable(local, frozen, false);
    NXD_TEST_OK(nxd_module_zero_grad(local));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    NXD_TEST_CHECK(loss_of(ctx, pp.get(), false) == evaluated);
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    const Named partial = whole_gradients(local);
    NXD_TEST_CHECK(partial.at("a.weight").empty());
    NXD_TEST_CHECK(rank == 0 ? partial.at("a.bias").empty() : !partial.at("b.bias").empty());
    set_trainable(local, frozen, true);
    NXD_TEST_OK(nxd_module_zero_grad(local));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    gradients.add("gradients", whole_gradients(local));
  });
  check_gradients(gradients, gradients_in_one_piece());
}

// No rank waits for a gradient that another, which has the parameter too, does not make.
void frozen_on_one_of_two_ranks(void**) {
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    const Names tied = rank == 0 ? Names{"a.weight"} : Names{};
    set_trainable(root.get(), tied, false);
    const nxd_pp_options_t options = two_stages();
    const std::vector<Tensor> given = batch();
    nxd_pp_t* made = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(root.get(), handles(given).data(), 1, &options, &made),
                     NXD_ERROR_INVALID_ARGUMENT, "a.weight");
    NXD_TEST_CHECK(made == nullptr);
    set_trainable(root.get(), tied, true);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    const double before = loss_of(ctx, pp.get());
    set_trainable(local_module(pp.get()), tied, false);
    for (const bool trains : {true, false}) {
      NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr, trains), NXD_ERROR_INVALID_ARGUMENT, "a.weight");
    }
    set_trainable(local_module(pp.get()), tied, true);
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
  });
}

// Fails in the pass after next, if it is to.
struct Hook {
  bool fails = false;
  int calls = 0;
};

nxd_status_t refuse(nxd_parameter_t*, void* user_data) {
  Hook& hook = *static_cast<Hook*>(user_data);
  if (!hook.fails || ++hook.calls < 2) return NXD_OK;
  nxd_set_last_error(NXD_ERROR_USER, "no more");
  return NXD_ERROR_USER;
}

// The first stage's last backward task, for whose results no other stage waits: a weight of both
// stages ends the other's run, too, which would wait for its gradient. For a frozen one no rank
// waits, and it gets none.
void last_task_fails(void**) {
  for (const bool frozen : {false, true}) {
    on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
      const Module root = model(ctx);
      nxd_parameter_t* tied = find(root.get(), "a.weight");
      if (frozen) NXD_TEST_OK(nxd_parameter_set_trainable(tied, 0));
      const Pipeline pp = cut(root.get(), false);
      if (!pp) return;
      const double before = loss_of(ctx, pp.get());
      Hook hook{true, 0};
      if (rank == 0) {
        NXD_TEST_OK(
            nxd_parameter_set_grad_hook(find(root.get(), "a.bias"), refuse, &hook, nullptr));
      }
      if (rank == 0) {
        NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr), NXD_ERROR_USER, "no more");
      } else if (frozen) {
        NXD_TEST_OK(run(ctx, pp.get(), nullptr));
      } else {
        NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr), NXD_ERROR_INVALID_ARGUMENT, "no more");
      }
      hook.fails = false;
      NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
      nxd_tensor_t *value = nullptr, *grad = nullptr;
      NXD_TEST_OK(nxd_parameter_get_tensor(tied, &value));
      NXD_TEST_OK(nxd_tensor_share_grad(value, &grad));
      NXD_TEST_CHECK((Tensor(grad) == nullptr) == frozen);
    });
  }
}

nxd_status_t count_call(nxd_parameter_t* parameter, void* user_data) {
  nxd_tensor_t *value = nullptr, *grad = nullptr;
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &value));
  NXD_TEST_OK(nxd_tensor_share_grad(value, &grad));
  if (Tensor(grad)) ++static_cast<Hook*>(user_data)->calls;
  return NXD_OK;
}

// Once for a run, when the stages' sums are there.
void hook_of_a_shared_weight(void**) {
  for (const int stages : {1, 2}) {
    on_pipeline_ranks({1, stages, 1}, [&](nxd_context_t* ctx, int) {
      const Module root = model(ctx);
      nxd_pp_options_t options = two_stages();
      options.num_cuts = static_cast<size_t>(stages - 1);
      const Pipeline pp = make_pipeline(root.get(), batch(), options);
      if (!pp) return;
      Hook hook;
      nxd_parameter_t* tied = find(root.get(), "a.weight");
      NXD_TEST_OK(nxd_parameter_set_grad_hook(tied, count_call, &hook, nullptr));
      for (const int runs : {1, 2}) {
        const double before = loss_of(ctx, pp.get());
        NXD_TEST_CHECK(hook.calls == runs);
        NXD_TEST_CHECK(loss_of(ctx, pp.get(), false) != before && hook.calls == runs);
      }
      NXD_TEST_OK(nxd_parameter_set_grad_hook(tied, nullptr, nullptr, nullptr));
    });
  }
}

nxd_status_t refuse_at_once(nxd_parameter_t*, void* user_data) {
  if (!*static_cast<bool*>(user_data)) return NXD_OK;
  nxd_set_last_error(NXD_ERROR_USER, "no more");
  return NXD_ERROR_USER;
}

// The end of a run that fails on one rank leaves its context where it was. No further run drops by
// two numbers.
void ranks_at_other_microbatches(void**) {
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    const double before = loss_of(ctx, pp.get());
    bool fails = rank == 0;
    NXD_TEST_OK(
        nxd_parameter_set_grad_hook(find(root.get(), "a.weight"), refuse_at_once, &fails, nullptr));
    if (rank == 0) {
      NXD_TEST_REFUSED(run(ctx, pp.get(), nullptr), NXD_ERROR_USER, "no more");
    } else {
      NXD_TEST_OK(run(ctx, pp.get(), nullptr));
    }
    fails = false;
    const std::vector<Tensor> given = batch();
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(given).data(), 1, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT,
                     "the context's microbatch: expected the same on all ranks, got 0 on rank 0 "
                     "and 2 on rank 1");
    NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(given).data(), 1, nullptr, nullptr, 0));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    NXD_TEST_OK(
        nxd_parameter_set_grad_hook(find(root.get(), "a.weight"), nullptr, nullptr, nullptr));
  });
}

// Copies whose dropouts are in two modes are told so before the step, though no pipeline has both.
void copies_in_other_modes(void**) {
  on_pipeline_ranks({1, 2, 2}, [&](nxd_context_t* ctx, int) {
    const Module root = model(ctx);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    nxd_module_t* local = local_module(pp.get());
    const bool is_other = axis_rank(ctx, NXD_AXIS_DATA) == 1;
    NXD_TEST_OK(nxd_module_set_training(root.get(), is_other ? 0 : 1));
    NXD_TEST_OK(run(ctx, pp.get(), nullptr));
    NXD_TEST_REFUSED(nxd_finish_grads(local, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "mode of the last forward");
    NXD_TEST_OK(nxd_module_set_training(root.get(), 1));
    NXD_TEST_OK(nxd_module_zero_grad(local));
    NXD_TEST_OK(run(ctx, pp.get(), nullptr));
    NXD_TEST_OK(run(ctx, pp.get(), nullptr, false));
    NXD_TEST_OK(nxd_finish_grads(local, nullptr, nullptr));
  });
}

// The files of a model and of its optimizer after a step, on stages behind these modules.
std::pair<std::string, std::string> files_of(const PipelineLayout& layout,
                                             const std::vector<const char*>& cuts) {
  const TempDir directory;
  const std::string parameters = directory.path() + "/model", state = directory.path() + "/state";
  on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
    const Module root = model(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    options.virtual_size = layout.chunks;
    options.pipeline_cuts = cuts.data();
    options.num_cuts = cuts.size();
    const Pipeline pp = make_pipeline(root.get(), batch(), options);
    if (!pp) return;
    nxd_optimizer_t* out = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw(local_module(pp.get()), nullptr, &out));
    const Optimizer optimizer(out);
    loss_of(ctx, pp.get());
    NXD_TEST_OK(nxd_optimizer_step(out, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_save_safetensors(local_module(pp.get()), parameters.c_str()));
    NXD_TEST_OK(nxd_optimizer_save(out, state.c_str()));
  });
  return {read_file(parameters), read_file(state)};
}

// Byte for byte the same, though a rank has stages that do not follow one another, and buffers.
void files_alike(void**) {
  const auto want = files_of({}, {});
  assert_true(!want.first.empty() && !want.second.empty());
  for (const int ranks : {1, 2}) {
    assert_true(files_of({.pp = ranks, .chunks = 4 / ranks}, {"a", "p", "drop"}) == want);
  }
  assert_true(files_of({.pp = 2}, {"p"}) == want);
}

nxd_device_t device_of(nxd_parameter_t* parameter) {
  nxd_tensor_t* tensor = nullptr;
  nxd_device_t device = NXD_DEVICE_CPU;
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  NXD_TEST_OK(nxd_tensor_get_device(tensor, &device));
  return device;
}

// Loads and moves of the whole model give no values to parameters that other ranks train: a file of
// the whole would have them in the place of the trained ones.
void given_up_parameters(void**) {
  const TempDir directory;
  const std::string stages = directory.path() + "/stages", whole = directory.path() + "/whole";
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module root = model(ctx);
    const Pipeline pp = cut(root.get());
    if (!pp) return;
    nxd_module_t* local = local_module(pp.get());
    const double before = loss_of(ctx, pp.get());
    NXD_TEST_OK(nxd_module_save_safetensors(local, stages.c_str()));
    const char* const own = rank == 0 ? "a.bias" : "b.bias";
    nxd_parameter_t* const given_up = find(root.get(), rank == 0 ? "b.bias" : "a.bias");
    set_whole(root.get(), own, std::vector<double>(8, 0.5), {8});
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) != before);
    // Each rank reads what it has.
    NXD_TEST_OK(nxd_module_load_safetensors(root.get(), stages.c_str(), 1, nullptr));
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
    NXD_TEST_CHECK(device_of(given_up) == NXD_DEVICE_META);
    NXD_TEST_OK(nxd_move_model_to_device(root.get(), NXD_DEVICE_CPU));
    NXD_TEST_CHECK(device_of(given_up) == NXD_DEVICE_META);
    NXD_TEST_REFUSED(nxd_module_save_safetensors(root.get(), whole.c_str()),
                     NXD_ERROR_INVALID_ARGUMENT, "nxd_pp_get_local_module");
    NXD_TEST_CHECK(loss_of(ctx, pp.get()) == before);
  });
  assert_true(read_file(whole).empty() && !read_file(stages).empty());
}

// An optimizer's parameters are those that were trained when it was made: groups and files have no
// others, on the rank that has the parameter and so knows.
void names_of_frozen_parameters(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  for (const bool thawed : {true, false}) {
    on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
      const Module root = model(ctx);
      if (thawed) set_trainable(root.get(), {"a.bias"}, false);
      const Pipeline pp = cut(root.get());
      if (!pp) return;
      nxd_module_t* local = local_module(pp.get());
      if (rank == 0) set_trainable(local, {"a.bias"}, thawed);
      nxd_optimizer_t* made = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_adamw(local, nullptr, &made));
      const Optimizer adamw(made);
      const char* const pattern = "a.b*";
      if (thawed) {
        loss_of(ctx, pp.get());
        NXD_TEST_OK(nxd_optimizer_step(made, nullptr, nullptr));
        NXD_TEST_OK(nxd_optimizer_save(made, path.c_str()));
        NXD_TEST_OK(nxd_optimizer_load(made, path.c_str()));
        NXD_TEST_OK(nxd_optimizer_add_group(made, &pattern, 1, nullptr));
      } else if (rank == 0) {
        NXD_TEST_REFUSED(nxd_optimizer_load(made, path.c_str()), NXD_ERROR_INVALID_ARGUMENT,
                         "belongs to no parameter");
        NXD_TEST_REFUSED(nxd_optimizer_add_group(made, &pattern, 1, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "matches none");
      }
    });
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(modes_come_back),
                              cmocka_unit_test(ranks_in_other_modes),
                              cmocka_unit_test(one_owner),
                              cmocka_unit_test(thawed_after_the_cut),
                              cmocka_unit_test(frozen_where_it_is),
                              cmocka_unit_test(frozen_on_one_of_two_ranks),
                              cmocka_unit_test(last_task_fails),
                              cmocka_unit_test(hook_of_a_shared_weight),
                              cmocka_unit_test(files_alike),
                              cmocka_unit_test(ranks_at_other_microbatches),
                              cmocka_unit_test(copies_in_other_modes),
                              cmocka_unit_test(given_up_parameters),
                              cmocka_unit_test(names_of_frozen_parameters)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
