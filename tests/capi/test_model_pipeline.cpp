// Pipelines of a model of callbacks with all that is awkward to cut: a skip connection over several
// stages, weights tied between the first and the last, an integer value that crosses stages,
// several outputs, and a stage without parameters. And what else a pipeline of modules offers:
// evaluation, other batches, values that come late, graphs, rejections.
#include <set>

#include "capi/callback_model.h"
#include "capi/pipeline_support.h"

using namespace nxd_test;

namespace {

constexpr int64_t kVocabulary = 24, kFeatures = 8, kSequence = 5;
constexpr int kBlocks = 6;

// Inputs ids and labels [batch, sequence]; outputs the loss and the last hidden values.
nxd_status_t awkward_forward(nxd_context_t* ctx, nxd_module_t* self, const Handles& inputs,
                             nxd_tensor_t** outputs, size_t n_outputs) {
  Tensor negated, embedded, x;
  NXD_TEST_TRY(call_op("neg", nullptr, {inputs[1]}, negated));
  NXD_TEST_TRY(call_child(self, "embed", {inputs[0]}, embedded));
  for (int i = 0; i < kBlocks; ++i) {
    const Handles in{i == 0 ? embedded.get() : x.get()};
    Tensor y;
    NXD_TEST_TRY(call_child(self, ("layers." + std::to_string(i)).c_str(), in, y));
    x = std::move(y);
    if (i == kBlocks / 2) {
      NXD_TEST_TRY(call_child(self, "squash", {x.get()}, y));
      x = std::move(y);
    }
  }
  Tensor skipped, hidden, labels;
  NXD_TEST_TRY(call_op("add", "Tensor", {x.get(), embedded.get()}, skipped));
  NXD_TEST_TRY(call_child(self, "norm", {skipped.get()}, hidden));
  NXD_TEST_TRY(call_op("neg", nullptr, {negated.get()}, labels));
  nxd_parameter_t* weight = nullptr;
  nxd_tensor_t* value = nullptr;
  NXD_TEST_TRY(nxd_module_find_parameter(self, "embed.weight", &weight));
  NXD_TEST_TRY(nxd_parameter_get_tensor(weight, &value));
  nxd_tensor_t* loss = nullptr;
  NXD_TEST_TRY(
      nxd_linear_cross_entropy(ctx, hidden.get(), value, labels.get(), -1, nullptr, &loss));
  outputs[0] = loss;
  if (n_outputs > 1) outputs[1] = hidden.release();
  return NXD_OK;
}

Module awkward_model(nxd_context_t* ctx) {
  Module root =
      callback_module(ctx, "Awkward",
                      [ctx](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs,
                            size_t n) { return awkward_forward(ctx, self, inputs, outputs, n); });
  add_child(root, "embed", embedding(ctx, kVocabulary, kFeatures));
  const Module layers = callback_module(ctx, "ModuleList");
  for (int i = 0; i < kBlocks; ++i) {
    add_child(layers, std::to_string(i).c_str(), residual_block(ctx, kFeatures, 16));
  }
  add_child(root, "layers", layers);
  const Module squash = callback_module(
      ctx, "Squash", [](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor y;
        NXD_TEST_TRY(call_op("tanh", nullptr, {inputs[0]}, y));
        outputs[0] = y.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(root, "squash", squash);
  add_child(root, "norm", layer_norm(ctx, kFeatures));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 5));
  return root;
}

std::vector<Tensor> awkward_batch(int step, int dp_rank, int dp, int64_t batch = 12) {
  const int64_t own = batch / dp;
  std::vector<int64_t> ids, labels;
  for (int64_t row = dp_rank * own; row < (dp_rank + 1) * own; ++row) {
    for (int64_t t = 0; t < kSequence; ++t) {
      ids.push_back((row * 7 + t * 3 + step) % kVocabulary);
      labels.push_back((row + 2 * t) % kVocabulary);
    }
  }
  std::vector<Tensor> out;
  out.push_back(make_i64(ids, {own, kSequence}));
  out.push_back(make_i64(labels, {own, kSequence}));
  return out;
}

PipelineTask awkward_task() {
  PipelineTask task;
  task.make = awkward_model;
  task.batch = [](int step, int dp_rank, int dp) { return awkward_batch(step, dp_rank, dp); };
  task.options.num_microbatches = 3;
  task.options.num_outputs = 2;
  task.average = true;
  task.recomputed = {"Block"};
  task.learning_rate = 0.3;
  return task;
}

// Cuts that leave the activation without parameters a stage of its own.
const char* const kCuts2[] = {"layers.2"};
const char* const kCuts4[] = {"layers.1", "layers.3", "squash"};
const char* const kCuts8[] = {"embed",    "layers.0", "layers.1", "layers.2",
                              "layers.3", "squash",   "layers.4"};

void set_cuts(nxd_pp_options_t& options, int stages) {
  options.pipeline_cuts = stages == 2 ? kCuts2 : stages == 4 ? kCuts4 : kCuts8;
  options.num_cuts = static_cast<size_t>(stages - 1);
  if (stages == 1) options.pipeline_cuts = nullptr;
}

void awkward_cuts(void**) {
  PipelineTask task = awkward_task();
  for (const auto& [tp, dp] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}}) {
    set_cuts(task.options, 1);
    const PipelineRun want = train_pipeline({tp, 1, dp}, task);
    assert_true(want.losses.back() < want.losses.front());
    for (const int pp : {2, 4}) {
      for (const auto& [chunks, schedule] :
           {std::pair{1, NXD_PP_SCHEDULE_1F1B}, std::pair{1, NXD_PP_SCHEDULE_ZERO_BUBBLE},
            std::pair{2, NXD_PP_SCHEDULE_GPIPE}}) {
        for (const bool recompute : {false, true}) {
          set_cuts(task.options, pp * chunks);
          const PipelineLayout layout{tp, pp, dp, chunks, schedule, recompute};
          check_equal(layout, train_pipeline(layout, task), want);
        }
      }
    }
  }
}

// A library's own chain of children: a table, products, a norm, and a loss of the caller's.
Module chain_model(nxd_context_t* ctx) {
  nxd_module_t *first = nullptr, *second = nullptr, *made = nullptr;
  NXD_TEST_OK(nxd_layer_create_linear(ctx, kFeatures, 6, nullptr, &first));
  NXD_TEST_OK(nxd_layer_create_linear(ctx, 6, 4, nullptr, &second));
  const Module table = embedding(ctx, kVocabulary, kFeatures), in(first), out(second),
               norm = layer_norm(ctx, 6);
  const Module loss = callback_module(
      ctx, "Loss", [](nxd_module_t*, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor squared, mean;
        NXD_TEST_TRY(call_op("mul", "Tensor", {inputs[0], inputs[0]}, squared));
        NXD_TEST_TRY(call_op("mean", nullptr, {squared.get()}, mean));
        outputs[0] = mean.release();
        return nxd_status_t{NXD_OK};
      });
  nxd_module_t* const children[] = {table.get(), in.get(), norm.get(), out.get(), loss.get()};
  NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 5, &made));
  NXD_TEST_OK(nxd_module_initialize(made, 5));
  return Module(made);
}

void sequential_cuts(void**) {
  PipelineTask task;
  task.make = chain_model;
  task.batch = [](int step, int dp_rank, int dp) {
    std::vector<Tensor> batch = awkward_batch(step, dp_rank, dp);
    batch.pop_back();  // the loss has no labels
    return batch;
  };
  task.options.num_microbatches = 3;
  const PipelineRun want = train_pipeline({1, 1, 1}, task);
  assert_true(want.losses.back() < want.losses.front());
  const char* const cuts[] = {"0", "1", "2"};
  for (const int pp : {2, 4}) {
    task.options.pipeline_cuts = pp == 2 ? cuts + 1 : cuts;
    task.options.num_cuts = static_cast<size_t>(pp - 1);
    const PipelineLayout layout{1, pp, 1};
    check_equal(layout, train_pipeline(layout, task), want);
  }
}

// Which weight gradients cannot be put off is said: those of norms and biases here.
void unsplit_parameters(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    const Module model = awkward_model(ctx);
    const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 3;
    options.schedule = NXD_PP_SCHEDULE_ZERO_BUBBLE;
    set_cuts(options, 2);
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
    size_t count = 0;
    NXD_TEST_OK(nxd_pp_get_unsplit_count(pp.get(), &count));
    NXD_TEST_CHECK(count > 0);
    bool norm = false, product = false;
    for (size_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      NXD_TEST_OK(nxd_pp_get_unsplit_name(pp.get(), i, &name));
      const std::string text = name;
      norm = norm || text.find("ln.weight") != std::string::npos;
      product = product || text.find(".a.weight") != std::string::npos;
    }
    NXD_TEST_CHECK(norm);
    NXD_TEST_CHECK(!product);
  });
}

// Evaluation gives what the undivided model gives, also with chunks and another batch.
void evaluation(void**) {
  on_pipeline_ranks({1, 2, 1, 2}, [](nxd_context_t* ctx, int) {
    const Module whole = awkward_model(ctx);
    const Module model = awkward_model(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    options.virtual_size = 2;
    options.num_outputs = 2;
    options.broadcast_and_average_loss = 1;
    set_cuts(options, 4);
    const Pipeline pp = make_pipeline(model.get(), awkward_batch(0, 0, 1), options);
    if (!pp) return;
    for (const int64_t size : {12, 4, 8}) {
      const std::vector<Tensor> batch = awkward_batch(3, 0, 1, size);
      nxd_tensor_t* want[2] = {nullptr, nullptr};
      NXD_TEST_OK(nxd_module_forward(whole.get(), handles(batch).data(), 2, want, 2));
      const Tensor want_loss(want[0]), want_hidden(want[1]);
      double loss = 0;
      nxd_tensor_t* got[2] = {nullptr, nullptr};
      NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(batch).data(), 2, &loss, got, 2));
      const Tensor losses(got[0]), hidden(got[1]);
      check_loss("evaluation", loss, item(want_loss.get()), 1e-6);
      int32_t has_loss = 0;
      NXD_TEST_OK(nxd_pp_has_loss(pp.get(), &has_loss));
      NXD_TEST_CHECK((losses != nullptr) == (has_loss == 1));
      if (!losses) continue;
      NXD_TEST_CHECK(values(losses.get()).size() == 2);
      check_values("hidden", values(hidden.get()), values(want_hidden.get()), 1e-5);
    }
    double trained = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(awkward_batch(1, 0, 1)).data(), 2, &trained));
    NXD_TEST_CHECK(trained > 0);
  });
}

// A model on the meta device gets the same weights, and only its own stage's.
void late_values(void**) {
  const auto config = read_file(oracles() + "/llama_tiny/config.json");
  std::vector<double> losses[2];
  for (const bool meta : {false, true}) {
    on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
      nxd_model_options_t model_options = NXD_MODEL_OPTIONS_INIT;
      model_options.device = meta ? NXD_DEVICE_META : NXD_DEVICE_CPU;
      nxd_module_t* made = nullptr;
      if (!NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &model_options, &made))) return;
      const Module model(made);
      nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
      options.num_microbatches = 3;
      options.broadcast_and_average_loss = 1;
      const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
      const Pipeline pp = make_pipeline(model.get(), batch, options);
      if (!pp) return;
      double loss = 0;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
      if (rank == 0) losses[meta ? 1 : 0].push_back(loss);
    });
  }
  assert_int_equal(losses[0].size(), 1);
  assert_true(losses[0] == losses[1]);
}

// Inputs by name, in any order, are those by position; one rank's wrong name is an error on all.
void named_inputs(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = awkward_model(ctx);
    const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
    const char* const known[] = {"ids", "labels"};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 3;
    options.num_outputs = 2;
    options.broadcast_and_average_loss = 1;
    options.input_names = known;
    options.num_input_names = 2;
    set_cuts(options, 2);
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    const char* const names[] = {"labels", "ids"};
    nxd_tensor_t* const inputs[] = {batch[1].get(), batch[0].get()};
    double by_position = 0, by_name = 1, loss = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &by_position));
    NXD_TEST_OK(nxd_pp_run_train_named(pp.get(), names, inputs, 2, &by_name));
    NXD_TEST_CHECK(by_position == by_name);
    nxd_tensor_t *out[2] = {nullptr, nullptr}, *want[2] = {nullptr, nullptr};
    NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(batch).data(), 2, &by_position, want, 2));
    NXD_TEST_OK(nxd_pp_run_eval_named(pp.get(), names, inputs, 2, &by_name, out, 2));
    const Tensor loss_a(want[0]), a(want[1]), loss_b(out[0]), b(out[1]);
    NXD_TEST_CHECK(by_position == by_name && values(a.get()) == values(b.get()));

    const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT;
    const char* const near[] = {rank == 0 ? "label" : "labels", "ids"};
    NXD_TEST_REFUSED(nxd_pp_run_train_named(pp.get(), near, inputs, 2, &loss), argument,
                     "no input \"label\"");
    const char* const twice[] = {"ids", rank == 1 ? "ids" : "labels"};
    nxd_tensor_t* const ordered[] = {batch[0].get(), batch[1].get()};
    NXD_TEST_REFUSED(nxd_pp_run_eval_named(pp.get(), twice, ordered, 2, &loss, nullptr, 0),
                     argument, "\"ids\" twice");
    // Arrays that are none on one rank, too.
    const auto on = [&](int bad, auto* array) { return rank == bad ? nullptr : array; };
    NXD_TEST_REFUSED(nxd_pp_run_train_named(pp.get(), on(1, names), inputs, 2, &loss), argument,
                     "names");
    const char* const none[] = {"ids", on(0, "labels")};
    NXD_TEST_REFUSED(nxd_pp_run_train_named(pp.get(), none, ordered, 2, &loss), argument,
                     "names[1]");
    NXD_TEST_REFUSED(nxd_pp_run_train_named(pp.get(), names, on(0, inputs), 2, &loss), argument,
                     "inputs");
    NXD_TEST_REFUSED(nxd_pp_run_eval_named(pp.get(), names, inputs, 2, &loss, on(1, out), 2),
                     argument, "outputs");
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), on(1, ordered), 2, &loss), argument, "inputs");
    NXD_TEST_REFUSED(nxd_pp_run_eval(pp.get(), ordered, 2, &loss, on(0, out), 2), argument,
                     "outputs");
    NXD_TEST_REFUSED(nxd_pp_run_train_named(nullptr, names, inputs, 2, &loss), argument, "pp");
    // Nothing of that harms the next run.
    NXD_TEST_OK(nxd_pp_run_eval_named(pp.get(), names, inputs, 2, &by_name, nullptr, 0));
    NXD_TEST_CHECK(by_position == by_name);
  });
}

nxd_status_t half(nxd_parameter_t*, const char* name, nxd_tensor_t* tensor, void* user_data) {
  static_cast<std::multiset<std::string>*>(user_data)->insert(name);
  int64_t count = 0;
  NXD_TEST_TRY(nxd_tensor_get_element_count(tensor, &count));
  const std::vector<float> data(static_cast<size_t>(count), 0.5F);
  return nxd_tensor_copy_from_host(tensor, data.data(), data.size() * sizeof(float));
}

nxd_status_t fail_init(nxd_parameter_t*, const char*, nxd_tensor_t*, void*) {
  return NXD_ERROR_USER;
}

void own_initialiser(void**) {
  const auto config = read_file(oracles() + "/llama_tiny/config.json");
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    nxd_model_options_t model_options = NXD_MODEL_OPTIONS_INIT;
    model_options.device = NXD_DEVICE_META;
    nxd_module_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &model_options, &made))) return;
    const Module model(made);
    const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    nxd_pp_t* refused = nullptr;
    // One rank's failure is a failure of all.
    options.param_init = rank == 0 ? fail_init : nullptr;
    const nxd_status_t status =
        nxd_pp_create(model.get(), handles(batch).data(), 2, &options, &refused);
    NXD_TEST_CHECK(status == NXD_ERROR_USER);
    NXD_TEST_CHECK(refused == nullptr);
  });
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    nxd_model_options_t model_options = NXD_MODEL_OPTIONS_INIT;
    model_options.device = NXD_DEVICE_META;
    nxd_module_t* made = nullptr;
    if (!NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), &model_options, &made))) return;
    const Module model(made);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    std::multiset<std::string> named, own;
    options.param_init = half;
    options.param_init_data = &named;
    const Pipeline pp = make_pipeline(model.get(), awkward_batch(0, 0, 1), options);
    if (!pp) return;
    nxd_module_t* local = local_module(pp.get());
    for (const auto& [name, data] : whole_parameters(local)) {
      own.insert(name);
      for (const double x : data) NXD_TEST_CHECK(x == 0.5);
    }
    NXD_TEST_CHECK(named == own);
  });
}

// A stage that fails ends the run everywhere, also for those that wait to sum what they share; the
// next run is as if nothing had been.
void failing_stage(void**) {
  on_pipeline_ranks({1, 4, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = awkward_model(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 3;
    options.broadcast_and_average_loss = 1;
    set_cuts(options, 4);
    const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    double first = 0, again = 0, none = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &first));
    // Labels that are no ids: the loss rejects them in the last stage alone.
    std::vector<Tensor> wrong = awkward_batch(0, 0, 1);
    wrong[1] = make_i64(std::vector<int64_t>(12 * kSequence, kVocabulary + 5), {12, kSequence});
    const nxd_status_t status = nxd_pp_run_train(pp.get(), handles(wrong).data(), 2, &none);
    NXD_TEST_CHECK(status == NXD_ERROR_INVALID_ARGUMENT);
    if (rank == 3)
      NXD_TEST_CHECK(std::string(nxd_last_error()).find("stage 3") != std::string::npos);
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &again));
    NXD_TEST_CHECK(first == again);
    // Parameters whose values are gone.
    if (rank == 0) NXD_TEST_OK(nxd_move_model_to_device(local_module(pp.get()), NXD_DEVICE_META));
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &none),
                     NXD_ERROR_INVALID_STATE, "is on the meta device");
  });
}

nxd_status_t blocks_are_leaves(nxd_module_t* module, const char* path, int32_t* is_leaf,
                               void* user_data) {
  const char* class_name = nullptr;
  NXD_TEST_TRY(nxd_module_get_class_name(module, &class_name));
  if (std::string(class_name) != "Block") return NXD_OK;
  static_cast<std::vector<std::string>*>(user_data)->push_back(path);
  *is_leaf = 1;
  return NXD_OK;
}

nxd_status_t no_answer(nxd_module_t*, const char*, int32_t*, void*) { return NXD_ERROR_USER; }

// A rule of the caller's decides what is a leaf; a name that the model does not have is no input.
void own_tracing_rule(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int) {
    const Module model = awkward_model(ctx);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    set_cuts(options, 2);
    const char* entered = nullptr;
    {
      const Pipeline pp = make_pipeline(awkward_model(ctx).get(), awkward_batch(0, 0, 1), options);
      NXD_TEST_OK(nxd_pp_get_graph_text(pp.get(), &entered));
      NXD_TEST_CHECK(std::string(entered).find("layers.0.ln") != std::string::npos);
    }
    nxd_pp_t* refused = nullptr;
    options.leaf_rule = no_answer;
    NXD_TEST_REFUSED(
        nxd_pp_create(model.get(), handles(awkward_batch(0, 0, 1)).data(), 2, &options, &refused),
        NXD_ERROR_USER, "leaf_rule");
    std::vector<std::string> asked;
    options.leaf_rule = blocks_are_leaves;
    options.leaf_rule_data = &asked;
    const Pipeline pp = make_pipeline(model.get(), awkward_batch(0, 0, 1), options);
    if (!pp) return;
    NXD_TEST_CHECK(asked.size() == kBlocks && asked[1] == "layers.1");
    NXD_TEST_OK(nxd_pp_get_graph_text(pp.get(), &entered));
    NXD_TEST_CHECK(std::string(entered).find("layers.0.ln") == std::string::npos);
    double loss = 0;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(awkward_batch(0, 0, 1)).data(), 2, &loss));
    nxd_module_t* made = nullptr;
    const auto config = read_file(oracles() + "/llama_tiny/config.json");
    if (!NXD_TEST_OK(nxd_model_create(ctx, config.c_str(), nullptr, &made))) return;
    const Module llama(made);
    const char* const names[] = {"input_ids", "label"};
    nxd_pp_options_t named = NXD_PP_OPTIONS_INIT;
    named.input_names = names;
    named.num_input_names = 2;
    NXD_TEST_REFUSED(
        nxd_pp_create(llama.get(), handles(awkward_batch(0, 0, 1)).data(), 2, &named, &refused),
        NXD_ERROR_INVALID_ARGUMENT, "no input \"label\"; near names: labels");
  });
}

// Rejections, alike on all ranks, say what was expected.
void refusals(void**) {
  on_pipeline_ranks({1, 2, 1}, [](nxd_context_t* ctx, int rank) {
    const Module model = awkward_model(ctx);
    const std::vector<Tensor> batch = awkward_batch(0, 0, 1);
    const auto refuse = [&](nxd_pp_options_t options, const char* part) {
      nxd_pp_t* pp = nullptr;
      NXD_TEST_REFUSED(nxd_pp_create(model.get(), handles(batch).data(), 2, &options, &pp),
                       NXD_ERROR_INVALID_ARGUMENT, part);
      NXD_TEST_CHECK(pp == nullptr);
    };
    nxd_pp_options_t good = NXD_PP_OPTIONS_INIT;
    set_cuts(good, 2);
    nxd_pp_options_t bad = good;
    bad.num_microbatches = 5;
    refuse(bad, "divides by the 5 microbatches");
    bad = good;
    bad.pipeline_cuts = nullptr;
    bad.num_cuts = 0;
    refuse(bad, "transformer_layer_class");
    const char* const typo[] = {"layers.22"};
    bad = good;
    bad.pipeline_cuts = typo;
    refuse(bad, "near names: layers.2");
    bad = good;
    bad.num_cuts = 0;
    bad.transformer_layer_class = "Blocks";
    refuse(bad, "Block");
    bad = good;
    bad.partition = NXD_PP_PARTITION_EVEN;
    refuse(bad, "together");
    bad = good;
    bad.broadcast_and_average_loss = 1;
    bad.return_mb_loss = 1;
    refuse(bad, "broadcast_and_average_loss");
    bad = good;
    bad.virtual_size = 2;
    bad.schedule = NXD_PP_SCHEDULE_INTERLEAVED;
    bad.num_microbatches = 3;
    refuse(bad, "3");
    bad = good;
    bad.loss_output = 3;
    refuse(bad, "loss_output");
    // One rank alone is wrong: the other hears of it.
    bad = good;
    if (rank == 1) bad.schedule = 77;
    refuse(bad, rank == 1 ? "schedule" : "rank 1");
    bad = good;
    if (rank == 1) bad.num_microbatches = 2;
    refuse(bad, "microbatches");
    // The model is whole still.
    const Pipeline pp = make_pipeline(model.get(), batch, good);
    if (!pp) return;
    double loss = 0;
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss),
                     NXD_ERROR_INVALID_ARGUMENT, "num_inputs: expected 2, got 1");
    const std::vector<Tensor> other = awkward_batch(0, 0, 1, rank == 0 ? 4 : 8);
    NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), handles(other).data(), 2, &loss),
                     NXD_ERROR_INVALID_ARGUMENT, "input_0");
    NXD_TEST_REFUSED(nxd_pp_run(pp.get(), 1, &loss), NXD_ERROR_INVALID_STATE, "nxd_pp_run_train");
    size_t count = 0;
    NXD_TEST_REFUSED(nxd_pp_get_losses(pp.get(), nullptr, 0, &count), NXD_ERROR_INVALID_STATE,
                     "return_mb_loss");
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(awkward_cuts),     cmocka_unit_test(unsplit_parameters),
      cmocka_unit_test(evaluation),       cmocka_unit_test(named_inputs),
      cmocka_unit_test(sequential_cuts),  cmocka_unit_test(late_values),
      cmocka_unit_test(own_initialiser),  cmocka_unit_test(failing_stage),
      cmocka_unit_test(own_tracing_rule), cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
