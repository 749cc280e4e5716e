// A model that nxd_pp_create has cut keeps the shapes, dtypes and ties of its parameters: calls
// that would change them are refused on all ranks, before anything has changed.
#include <filesystem>

#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kState = NXD_ERROR_INVALID_STATE;
constexpr int64_t kFeatures = 12, kBatch = 4;

Module layer_pair(nxd_context_t* ctx) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  nxd_module_t *column = nullptr, *row = nullptr, *pair = nullptr;
  NXD_TEST_OK(
      nxd_layer_create_column_parallel_linear(ctx, kFeatures, kFeatures, &options, &column));
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, kFeatures, kFeatures, &options, &row));
  const Module first(column), second(row);
  nxd_module_t* const children[] = {column, row};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, &pair));
  return Module(pair);
}

// fails: its forward does, while that is set.
Module two_pairs(nxd_context_t* ctx, const bool* fails = nullptr) {
  Module root = callback_module(ctx, "Root",
                                [fails](nxd_module_t* self, const Handles& inputs,
                                        nxd_tensor_t** outputs, size_t) -> nxd_status_t {
                                  if (fails && *fails) {
                                    nxd_set_last_error(NXD_ERROR_USER, "no more");
                                    return NXD_ERROR_USER;
                                  }
                                  Tensor x, y, loss;
                                  NXD_TEST_TRY(call_child(self, "a", inputs, x));
                                  NXD_TEST_TRY(call_child(self, "b", {x.get()}, y));
                                  NXD_TEST_TRY(call_op("mean", "", {y.get()}, loss));
                                  outputs[0] = loss.release();
                                  return NXD_OK;
                                });
  add_child(root, "a", layer_pair(ctx));
  add_child(root, "b", layer_pair(ctx));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 5));
  return root;
}

std::vector<Tensor> batch_of_rows(const std::vector<int64_t>& shape = {kBatch, kFeatures}) {
  std::vector<float> data;
  for (int64_t i = 0; i < kBatch * kFeatures; ++i) {
    data.push_back(static_cast<float>(std::sin(0.4 * static_cast<double>(i))));
  }
  nxd_tensor_t* x = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F32, &x));
  std::vector<Tensor> batch;
  batch.emplace_back(x);
  return batch;
}

Pipeline cut(nxd_module_t* model) {
  return make_two_stages(model, batch_of_rows(), "a", 2, /*shares_loss=*/true);
}

double train(nxd_pp_t* pp) {
  const std::vector<Tensor> batch = batch_of_rows();
  double loss = NAN;
  NXD_TEST_OK(nxd_pp_run_train(pp, handles(batch).data(), 1, &loss));
  return loss;
}

// root: the model, or a part of it that a caller may take for one.
void check_padding_is_refused(nxd_module_t* root) {
  NXD_TEST_REFUSED(nxd_pad_model(root, 2, 3, nullptr, 0, nullptr, nullptr), kState,
                   "is of a model that nxd_pp_create has cut");
}

void shapes_stay(void**) {
  on_pipeline_ranks({2, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = two_pairs(ctx);
    const Pipeline pp = cut(model.get());
    if (!pp) return;
    const double before = train(pp.get());
    nxd_module_t* part = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), rank < 2 ? "a" : "b", &part));
    for (nxd_module_t* root : {model.get(), local_module(pp.get()), part}) {
      check_padding_is_refused(root);
    }
    for (nxd_module_t* root : {model.get(), local_module(pp.get())}) {
      NXD_TEST_REFUSED(nxd_module_cast(root, NXD_DTYPE_F64), kState, "nxd_module_cast: parameter");
      NXD_TEST_OK(nxd_module_cast(root, NXD_DTYPE_F32));
    }
    NXD_TEST_REFUSED(nxd_module_tie(model.get(), "a.0.weight", "b.0.weight"), kState,
                     "nxd_module_tie: parameter a.0.weight");
    NXD_TEST_CHECK(train(pp.get()) == before);
  });
}

nxd_status_t call_inner(nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs) {
  Tensor loss;
  NXD_TEST_TRY(call_child(self, "inner", inputs, loss));
  outputs[0] = loss.release();
  return NXD_OK;
}

// The part keeps the whole model, and switches its mode: one below the other has no end.
void parts_below_their_model(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    Module model =
        callback_module(ctx, "Outer",
                        [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs,
                           size_t) -> nxd_status_t { return call_inner(self, inputs, outputs); });
    add_child(model, "inner", two_pairs(ctx));
    const Pipeline pp =
        make_two_stages(model.get(), batch_of_rows(), "inner.a", 2, /*shares_loss=*/true);
    if (!pp) return;
    nxd_module_t *local = local_module(pp.get()), *inner = nullptr, *part = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), "inner", &inner));
    NXD_TEST_OK(nxd_module_find_module(local, "inner", &part));
    NXD_TEST_CHECK(part != inner);
    for (nxd_module_t* below : {local, part}) {
      NXD_TEST_REFUSED(nxd_module_add_child(inner, "part", below), NXD_ERROR_INVALID_ARGUMENT,
                       "its own descendant");
    }
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Above", nullptr, nullptr, nullptr, &made));
    const Module above(made);
    NXD_TEST_OK(nxd_module_add_child(above.get(), "part", local));
    NXD_TEST_OK(nxd_module_set_training(above.get(), 0));
    NXD_TEST_OK(nxd_module_set_training(model.get(), 1));
    NXD_TEST_CHECK(std::isfinite(train(pp.get())));
  });
}

// Both ranks of a group fail where the model of one is cut.
void ranks_that_differ(void**) {
  on_pipeline_ranks({2, 1, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = two_pairs(ctx), other = two_pairs(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    const Pipeline pp = make_pipeline(model.get(), batch_of_rows(), options);
    check_padding_is_refused((rank == 0 ? model : other).get());
    NXD_TEST_OK(nxd_pad_model(other.get(), 2, 3, nullptr, 0, nullptr, nullptr));
  });
}

Module operator_module(nxd_context_t* ctx, const char* name) {
  return callback_module(
      ctx, "Operator",
      [name](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) -> nxd_status_t {
        Tensor y;
        NXD_TEST_TRY(call_op(name, "", inputs, y));
        outputs[0] = y.release();
        return NXD_OK;
      });
}

// A stage hands on no complex values. Ranks of other stages hear so too.
void complex_values(void**) {
  on_pipeline_ranks({1, 3, 1}, [](nxd_context_t* ctx, int) {
    const Module root =
        callback_module(ctx, "Root",
                        [](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs,
                           size_t) -> nxd_status_t {
                          Tensor x, spectrum, size, loss;
                          NXD_TEST_TRY(call_child(self, "pair", inputs, x));
                          NXD_TEST_TRY(call_child(self, "spectrum", {x.get()}, spectrum));
                          NXD_TEST_TRY(call_child(self, "size", {spectrum.get()}, size));
                          NXD_TEST_TRY(call_op("mean", "", {size.get()}, loss));
                          outputs[0] = loss.release();
                          return NXD_OK;
                        });
    add_child(root, "pair", layer_pair(ctx));
    add_child(root, "spectrum", operator_module(ctx, "fft_rfft"));
    add_child(root, "size", operator_module(ctx, "abs"));
    NXD_TEST_OK(nxd_module_initialize(root.get(), 5));
    static const char* const cuts[] = {"pair", "spectrum"};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    options.pipeline_cuts = cuts;
    options.num_cuts = 2;
    const std::vector<Tensor> batch = batch_of_rows();
    nxd_pp_t* pp = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(root.get(), handles(batch).data(), 1, &options, &pp),
                     NXD_ERROR_UNSUPPORTED, "cuts: stage 1 hands on the value");
  });
}

// Batches of as many elements in other shapes: no rank traces anew, or begins its run, alone.
void batches_that_differ(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = two_pairs(ctx);
    const Pipeline pp = cut(model.get());
    if (!pp) return;
    const double before = train(pp.get());
    const std::vector<Tensor> batch =
        rank == 0 ? batch_of_rows() : batch_of_rows({kBatch / 2, 2, kFeatures});
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT, "the shape or dtype of input_0");
    NXD_TEST_CHECK(train(pp.get()) == before);
  });
}

std::vector<Tensor> many_rows(int64_t count) {
  const std::vector<float> data(static_cast<size_t>(count * kFeatures), 0.5F);
  const int64_t shape[] = {count, kFeatures};
  nxd_tensor_t* x = nullptr;
  NXD_TEST_OK(
      nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape, 2, NXD_DTYPE_F32, &x));
  std::vector<Tensor> batch;
  batch.emplace_back(x);
  return batch;
}

// A trace that one rank's callback ends leaves the others' stages fit for the shapes of before.
void traces_that_fail(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    bool fails = false;
    const Module model = two_pairs(ctx, &fails);
    const Pipeline pp = cut(model.get());
    if (!pp) return;
    const double before = train(pp.get());
    const std::vector<Tensor> batch = many_rows(1024);
    for (const int failing : {0, 1}) {
      fails = rank == failing;
      double loss = NAN;
      NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss), NXD_ERROR_USER,
                       "no more");
      fails = false;
      NXD_TEST_CHECK(train(pp.get()) == before);
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
      NXD_TEST_CHECK(std::isfinite(loss));
      NXD_TEST_CHECK(train(pp.get()) == before);
    }
  });
}

// Stages have optimizers of their own, whose settings a file has once.
void settings_that_differ(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module model = two_pairs(ctx);
    const Pipeline pp = cut(model.get());
    if (!pp) return;
    nxd_optimizer_t* optimizer = nullptr;
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = rank == 0 ? 0.5 : 0.25;
    NXD_TEST_OK(nxd_optimizer_create_sgd(local_module(pp.get()), &sgd, &optimizer));
    train(pp.get());
    NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
    NXD_TEST_REFUSED(nxd_optimizer_save(optimizer, path.c_str()), NXD_ERROR_INVALID_ARGUMENT,
                     "expected the same on all ranks that share the file");
    NXD_TEST_CHECK(!std::filesystem::exists(path));
    NXD_TEST_OK(nxd_optimizer_set_learning_rate(optimizer, 0.125));
    NXD_TEST_OK(nxd_optimizer_save(optimizer, path.c_str()));
    nxd_optimizer_destroy(optimizer);
  });
}

// Options and examples that differ between stages, each of which fits the other's by its shapes: no
// run of theirs would compute the model, or end.
void options_that_differ(void**) {
  using Change = void (*)(nxd_pp_options_t & options, std::vector<nxd_tensor_t*> & inputs);
  static const char* const cuts[] = {"model.layers.0", "model.layers.1"};
  const std::pair<const char*, Change> changes[] = {
      {"the cuts", [](auto& options, auto&) { options.pipeline_cuts = &cuts[1]; }},
      {"the inputs", [](auto&, auto& inputs) { inputs[1] = nullptr; }},
      {"num_inputs", [](auto&, auto& inputs) { inputs.push_back(nullptr); }},
      {"the loss: over", [](auto& options, auto&) { options.loss = NXD_PP_LOSS_MICROBATCHES; }},
      {"ignore_index", [](auto& options, auto&) { options.has_ignore_index = 1; }},
      {"labels_shifted", [](auto& options, auto&) { options.labels_shifted = 1; }},
      {"num_outputs", [](auto& options, auto&) { options.num_outputs = 2; }}};
  nlohmann::json config = nlohmann::json::parse(LlamaOracle().config);
  config["num_hidden_layers"] = 3;
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module model = create_model(ctx, config.dump(), Layout{});
    const Tensor ids = make_i64({1, 2, 3, 4}, {2, 2});
    const Named before = whole_parameters(model.get());
    for (const auto& [part, change] : changes) {
      nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
      options.pipeline_cuts = cuts;
      options.num_cuts = 1;
      std::vector<nxd_tensor_t*> inputs{ids.get(), ids.get()};
      if (rank == 1) change(options, inputs);
      nxd_pp_t* pp = nullptr;
      NXD_TEST_REFUSED(nxd_pp_create(model.get(), inputs.data(), inputs.size(), &options, &pp),
                       NXD_ERROR_INVALID_ARGUMENT, part);
      NXD_TEST_CHECK(pp == nullptr && whole_parameters(model.get()) == before);
    }
  });
}

// The order that is right: padded, then cut, the model has the loss of one that has no padding.
void padded_before(void**) {
  on_pipeline_ranks({2, 2, 1}, [](nxd_context_t* ctx, int) {
    const Module plain = two_pairs(ctx), padded = two_pairs(ctx);
    NXD_TEST_OK(nxd_pad_model(padded.get(), 2, 3, nullptr, 0, nullptr, nullptr));
    const Pipeline a = cut(plain.get()), b = cut(padded.get());
    if (a && b) check_loss("padded", train(b.get()), train(a.get()), 1e-6);
  });
}

// A call that one rank rejects, for a ddp has what it would give up, leaves the model whole on all
// of them.
void rejected_cuts(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    const Module model = two_pairs(ctx);
    const std::vector<Tensor> batch = batch_of_rows();
    const Named before = whole_parameters(model.get());
    nxd_module_t* second = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), "b", &second));
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create(second, nullptr, &ddp));
    static const char* const cuts[] = {"a"};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.pipeline_cuts = cuts;
    options.num_cuts = 1;
    nxd_pp_t* pp = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(model.get(), handles(batch).data(), 1, &options, &pp), kState,
                     "a ddp has");
    nxd_ddp_destroy(ddp);
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F64));
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(shapes_stay),          cmocka_unit_test(parts_below_their_model),
      cmocka_unit_test(ranks_that_differ),    cmocka_unit_test(complex_values),
      cmocka_unit_test(batches_that_differ),  cmocka_unit_test(traces_that_fail),
      cmocka_unit_test(padded_before),        cmocka_unit_test(rejected_cuts),
      cmocka_unit_test(settings_that_differ), cmocka_unit_test(options_that_differ)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
