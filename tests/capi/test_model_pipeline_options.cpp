// Options of pipelines of modules by value, against the undivided model on the whole batch: which
// output is the loss, which input the labels and which of them count; leaves, traces, local modules
// and schedules of the caller's; and built-in models with sequence parallelism, in bf16, under
// automatic casts, and a GPT-2, whose cuts change no bit.
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace nxd_test;

namespace {

constexpr int64_t kVocabulary = 24, kFeatures = 8, kSequence = 6, kBatch = 6, kIgnored = 7;
constexpr int kMicrobatches = 3;

Tensor tail(nxd_tensor_t* x, bool last_away) {
  int64_t shape[4] = {};
  size_t ndim = 0;
  NXD_TEST_OK(nxd_tensor_get_shape(x, shape, 4, &ndim));
  nxd_op_t* op = nullptr;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_create("narrow", "", &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "self", x));
  NXD_TEST_OK(nxd_op_set_int(op, "dim", 1));
  NXD_TEST_OK(nxd_op_set_int(op, "start", last_away ? 0 : 1));
  NXD_TEST_OK(nxd_op_set_int(op, "length", shape[1] - 1));
  if (NXD_TEST_OK(nxd_op_run(op))) NXD_TEST_OK(nxd_op_share_tensor(op, 0, &out));
  nxd_op_destroy(op);
  return Tensor(out);
}

// The losses of the tokens that count, by a mask, divided by their number, which may be 0.
nxd_status_t plain_mean(nxd_context_t* ctx, nxd_tensor_t* logits, nxd_tensor_t* labels,
                        nxd_tensor_t** out) {
  nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
  options.reduction = NXD_REDUCTION_NONE;
  nxd_tensor_t *each = nullptr, *mask = nullptr;
  NXD_TEST_TRY(nxd_parallel_cross_entropy(ctx, logits, labels, &options, &each));
  const Tensor losses(each);
  nxd_op_t* op = nullptr;
  NXD_TEST_TRY(nxd_op_create("ne", "Scalar", &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "self", labels));
  NXD_TEST_OK(nxd_op_set_int(op, "other", kIgnored));
  if (NXD_TEST_OK(nxd_op_run(op))) NXD_TEST_OK(nxd_op_share_tensor(op, 0, &mask));
  nxd_op_destroy(op);
  const Tensor counts(mask);
  Tensor counted, sum, count, mean;
  NXD_TEST_TRY(call_op("mul", "Tensor", {losses.get(), counts.get()}, counted));
  NXD_TEST_TRY(call_op("sum", nullptr, {counted.get()}, sum));
  NXD_TEST_TRY(call_op("sum", nullptr, {counts.get()}, count));
  NXD_TEST_TRY(call_op("div", "Tensor", {sum.get(), count.get()}, mean));
  *out = mean.release();
  return NXD_OK;
}

// Inputs ids and wanted ids; outputs the hidden values and the loss, in this order. The loss is the
// mean over tokens that are not kIgnored, by a division of the model's own if that is asked for;
// with shifts each token is predicted from those before it.
Module two_blocks(nxd_context_t* ctx, bool shifts, bool divides = false) {
  Module root = callback_module(
      ctx, "Model", [=](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor embedded, first, second, logits;
        NXD_TEST_TRY(call_child(self, "embed", {inputs[0]}, embedded));
        NXD_TEST_TRY(call_child(self, "layers.0", {embedded.get()}, first));
        NXD_TEST_TRY(call_child(self, "layers.1", {first.get()}, second));
        NXD_TEST_TRY(call_child(self, "head", {second.get()}, logits));
        nxd_cross_entropy_options_t options = NXD_CROSS_ENTROPY_OPTIONS_INIT;
        options.has_ignore_index = 1;
        options.ignore_index = kIgnored;
        const Tensor seen = shifts ? tail(logits.get(), true) : nullptr;
        const Tensor wanted = shifts ? tail(inputs[1], false) : nullptr;
        if (divides) {
          NXD_TEST_TRY(plain_mean(ctx, logits.get(), inputs[1], &outputs[1]));
          outputs[0] = second.release();
          return nxd_status_t{NXD_OK};
        }
        NXD_TEST_TRY(nxd_parallel_cross_entropy(ctx, shifts ? seen.get() : logits.get(),
                                                shifts ? wanted.get() : inputs[1], &options,
                                                &outputs[1]));
        outputs[0] = second.release();
        return nxd_status_t{NXD_OK};
      });
  add_child(root, "embed", embedding(ctx, kVocabulary, kFeatures));
  const Module layers = callback_module(ctx, "ModuleList");
  for (const char* name : {"0", "1"}) add_child(layers, name, residual_block(ctx, kFeatures, 16));
  add_child(root, "layers", layers);
  add_child(root, "head", column_linear(ctx, kFeatures, kVocabulary, false, false));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 5));
  return root;
}

// Rows of ever fewer labels that count, so that microbatches weigh unequally; the first label of
// some rows counts, unless the model shifts.
std::vector<Tensor> rows(int64_t first, int64_t count) {
  std::vector<int64_t> ids, labels;
  for (int64_t row = first; row < first + count; ++row) {
    for (int64_t t = 0; t < kSequence; ++t) {
      ids.push_back((row * 11 + t * t + 3) % kVocabulary);
      const bool counts = t >= row % 4 && t + row / 3 < kSequence;
      const int64_t label = (row + 5 * t) % kVocabulary;
      labels.push_back(counts && label != kIgnored ? label : kIgnored);
    }
  }
  std::vector<Tensor> out;
  out.push_back(make_i64(ids, {count, kSequence}));
  out.push_back(make_i64(labels, {count, kSequence}));
  return out;
}

const char* const kCut[] = {"layers.0"};

nxd_pp_options_t token_options(bool shifts) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  options.num_outputs = 2;
  options.loss_output = 1;
  options.loss = NXD_PP_LOSS_TOKENS;
  options.has_labels_input = options.labels_input = 1;
  options.has_ignore_index = 1;
  options.ignore_index = kIgnored;
  options.labels_shifted = shifts ? 0 : 1;
  options.broadcast_and_average_loss = 1;
  options.pipeline_cuts = kCut;
  options.num_cuts = 1;
  return options;
}

// Loss and gradients of the undivided model, and its hidden values, on the rows of all ranks.
struct Whole {
  double loss = NAN;
  std::vector<double> hidden;
  Named gradients;
};

Whole undivided(nxd_context_t* ctx, bool shifts, int64_t count) {
  const Module model = two_blocks(ctx, shifts);
  const std::vector<Tensor> batch = rows(0, count);
  nxd_tensor_t* outputs[2] = {nullptr, nullptr};
  NXD_TEST_OK(nxd_module_forward(model.get(), handles(batch).data(), 2, outputs, 2));
  const Tensor hidden(outputs[0]), loss(outputs[1]);
  NXD_TEST_OK(nxd_backward(&outputs[1], nullptr, 1, 0));
  return {item(loss.get()), values(hidden.get()), whole_gradients(model.get())};
}

void check_tokens(const PipelineLayout& layout, bool shifts) {
  on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
    const int dp_rank = axis_rank(ctx, NXD_AXIS_DATA);
    const Whole want = undivided(ctx, shifts, kBatch * layout.dp);
    const Module model = two_blocks(ctx, shifts);
    const std::vector<Tensor> batch = rows(dp_rank * kBatch, kBatch);
    nxd_pp_options_t options = token_options(shifts);
    if (layout.pp == 1) options.num_cuts = 0, options.pipeline_cuts = nullptr;
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    const std::string name = layout.name() + (shifts ? " shifts" : "");
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
    check_loss((name + ": loss").c_str(), loss, want.loss, 1e-6);
    nxd_module_t* local = local_module(pp.get());
    NXD_TEST_OK(nxd_finish_grads(local, nullptr, nullptr));
    const Named got = whole_gradients(local);
    NXD_TEST_CHECK(!got.empty());
    for (const auto& [parameter, gradient] : got) {
      check_values(name + ": gradient of " + parameter, gradient, want.gradients.at(parameter),
                   1e-5);
    }
    nxd_tensor_t* outputs[2] = {nullptr, nullptr};
    NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(batch).data(), 2, &loss, outputs, 2));
    const Tensor hidden(outputs[0]), losses(outputs[1]);
    check_loss((name + ": evaluated").c_str(), loss, want.loss, 1e-6);
    if (!hidden) return;
    const auto begin = want.hidden.begin() + dp_rank * kBatch * kSequence * kFeatures;
    check_values(name + ": hidden", values(hidden.get()),
                 {begin, begin + kBatch * kSequence * kFeatures}, 1e-5);
    NXD_TEST_CHECK(values(losses.get()).size() == kMicrobatches);
  });
}

void tokens_that_count(void**) {
  for (const bool shifts : {false, true}) {
    for (const PipelineLayout& layout : {PipelineLayout{1, 1, 1}, PipelineLayout{1, 2, 1},
                                         PipelineLayout{2, 2, 1}, PipelineLayout{1, 2, 2}}) {
      check_tokens(layout, shifts);
    }
  }
}

// Each microbatch counts alike, also one with few labels that count.
void mean_of_microbatches(void**) {
  constexpr int64_t kRows = kBatch / kMicrobatches;
  for (const PipelineLayout& layout :
       {PipelineLayout{1, 1, 1}, PipelineLayout{1, 2, 1}, PipelineLayout{1, 2, 2}}) {
    on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
      const Module whole = two_blocks(ctx, false);
      const double share = 1.0 / (kMicrobatches * layout.dp);
      double want = 0;
      for (int64_t first = 0; first < kBatch * layout.dp; first += kRows) {
        const std::vector<Tensor> microbatch = rows(first, kRows);
        nxd_tensor_t* outputs[2] = {nullptr, nullptr};
        NXD_TEST_OK(nxd_module_forward(whole.get(), handles(microbatch).data(), 2, outputs, 2));
        const Tensor hidden(outputs[0]), loss(outputs[1]);
        want += item(loss.get()) * share;
        NXD_TEST_OK(nxd_backward(&outputs[1], nullptr, 1, 0));
      }
      const Named gradients = whole_gradients(whole.get());
      const double by_tokens = undivided(ctx, false, kBatch * layout.dp).loss;
      NXD_TEST_CHECK(std::fabs(want - by_tokens) > 1e-4);
      const Module model = two_blocks(ctx, false);
      const std::vector<Tensor> batch = rows(axis_rank(ctx, NXD_AXIS_DATA) * kBatch, kBatch);
      nxd_pp_options_t options = token_options(false);
      options.loss = NXD_PP_LOSS_MICROBATCHES;
      if (layout.pp == 1) options.num_cuts = 0, options.pipeline_cuts = nullptr;
      const Pipeline pp = make_pipeline(model.get(), batch, options);
      if (!pp) return;
      double loss = NAN;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
      check_loss((layout.name() + ": loss").c_str(), loss, want, 1e-6);
      nxd_module_t* local = local_module(pp.get());
      nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
      finish.data_parallel_reduce = NXD_REDUCE_AVG;
      NXD_TEST_OK(nxd_finish_grads(local, &finish, nullptr));
      for (const auto& [parameter, gradient] : whole_gradients(local)) {
        std::vector<double> expected(gradients.at(parameter).begin(),
                                     gradients.at(parameter).end());
        for (double& value : expected) value *= share;
        check_values(layout.name() + ": gradient of " + parameter, gradient, expected, 1e-5);
      }
    });
  }
}

// A microbatch without tokens that count has no mean: the model's own is 0 / 0. It has no part in
// the loss, nor in gradients.
void microbatches_without_tokens(void**) {
  const auto batch_of = [] {
    std::vector<Tensor> batch = rows(0, kBatch);
    std::vector<int64_t> labels(kBatch * kSequence);
    NXD_TEST_OK(nxd_tensor_copy_to_host(batch[1].get(), labels.data(), labels.size() * 8));
    const auto kept = static_cast<ptrdiff_t>(labels.size()) * (kMicrobatches - 1) / kMicrobatches;
    std::fill(labels.begin() + kept, labels.end(), kIgnored);
    batch[1] = make_i64(labels, {kBatch, kSequence});
    return batch;
  };
  for (const PipelineLayout& layout : {PipelineLayout{1, 1, 1}, PipelineLayout{1, 2, 1}}) {
    on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int) {
      const std::vector<Tensor> batch = batch_of();
      const Module whole = two_blocks(ctx, false, true);
      nxd_tensor_t* outputs[2] = {nullptr, nullptr};
      NXD_TEST_OK(nxd_module_forward(whole.get(), handles(batch).data(), 2, outputs, 2));
      const Tensor hidden(outputs[0]), want(outputs[1]);
      NXD_TEST_OK(nxd_backward(&outputs[1], nullptr, 1, 0));
      const Named gradients = whole_gradients(whole.get());
      const Module model = two_blocks(ctx, false, true);
      nxd_pp_options_t options = token_options(false);
      if (layout.pp == 1) options.num_cuts = 0, options.pipeline_cuts = nullptr;
      const Pipeline pp = make_pipeline(model.get(), batch, options);
      if (!pp) return;
      double loss = NAN;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 2, &loss));
      check_loss((layout.name() + ": loss").c_str(), loss, item(want.get()), 1e-6);
      nxd_module_t* local = local_module(pp.get());
      NXD_TEST_OK(nxd_finish_grads(local, nullptr, nullptr));
      for (const auto& [parameter, gradient] : whole_gradients(local)) {
        check_values(layout.name() + ": gradient of " + parameter, gradient,
                     gradients.at(parameter), 1e-5);
      }
    });
  }
}

std::string graph_of(nxd_pp_t* pp) {
  const char* text = nullptr;
  NXD_TEST_OK(nxd_pp_get_graph_text(pp, &text));
  return text ? text : "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::vector<std::string> local_names(nxd_pp_t* pp) {
  size_t count = 99;
  NXD_TEST_OK(nxd_pp_get_local_module_count(pp, &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (NXD_TEST_OK(nxd_pp_get_local_module_name(pp, i, &name))) names.emplace_back(name);
  }
  const char* beyond = "set";
  NXD_TEST_REFUSED(nxd_pp_get_local_module_name(pp, count, &beyond), NXD_ERROR_INVALID_ARGUMENT,
                   std::to_string(count).c_str());
  NXD_TEST_CHECK(beyond == nullptr);
  return names;
}

// Leaves by class or by path: the others are entered. The graph is written as text and as DOT, by
// rank 0 alone.
void leaves_and_traces(void**) {
  const TempDir directory;
  const std::string text_file = directory.path() + "/graph.txt";
  const std::string dot_file = directory.path() + "/graph.dot";
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    nxd_pp_options_t options = token_options(false);
    const std::vector<Tensor> batch = rows(0, kBatch);
    const auto make = [&](const std::vector<const char*>& leaves, const char* path) {
      options.leaf_modules = leaves.data();
      options.num_leaf_modules = leaves.size();
      options.trace_file_path = path;
      const Module model = two_blocks(ctx, false);
      return make_pipeline(model.get(), batch, options);
    };
    const Pipeline by_class = make({"Block"}, text_file.c_str());
    const Pipeline by_path = make({"layers.1"}, dot_file.c_str());
    if (!by_class || !by_path) return;
    const std::string whole = graph_of(by_class.get()), mixed = graph_of(by_path.get());
    NXD_TEST_CHECK(!has(whole, "layers.0.ln") && !has(whole, "layers.1.ln"));
    NXD_TEST_CHECK(has(whole, "embed") && has(whole, "layers.0") && has(whole, "layers.1"));
    NXD_TEST_CHECK(has(mixed, "layers.0.ln") && !has(mixed, "layers.1.ln"));
    using Names = std::vector<std::string>;
    NXD_TEST_CHECK(local_names(by_class.get()) ==
                   (rank == 0 ? Names{"embed", "layers.0"} : Names{"layers.1", "head"}));
    NXD_TEST_CHECK(local_names(by_path.get()) ==
                   (rank == 0 ? Names{"embed", "layers.0.ln", "layers.0.a", "layers.0.b"}
                              : Names{"layers.1", "head"}));
    if (rank == 0) NXD_TEST_CHECK(read_file(text_file) == whole);
    if (rank == 0) {
      const std::string dot = read_file(dot_file);
      NXD_TEST_CHECK(dot.rfind("digraph", 0) == 0 && has(dot, "layers.0.ln") && has(dot, "->"));
      NXD_TEST_CHECK(dot.find_last_not_of(" \n") != std::string::npos &&
                     dot[dot.find_last_not_of(" \n")] == '}');
    }
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(by_class.get(), handles(batch).data(), 2, &loss));
    check_loss("leaves", loss, undivided(ctx, false, kBatch).loss, 1e-6);
  });
}

PipelineTask two_blocks_task() {
  PipelineTask task;
  task.make = [](nxd_context_t* ctx) { return two_blocks(ctx, false); };
  task.batch = [](int step, int dp_rank, int) { return rows(step + dp_rank * kBatch, kBatch); };
  task.options = token_options(false);
  return task;
}

// All forwards on the first rank, the second in turns: a schedule that no kind gives.
void callers_schedule(void**) {
  constexpr nxd_pp_task_kind_t kF = NXD_PP_TASK_FORWARD, kB = NXD_PP_TASK_BACKWARD;
  const std::vector<nxd_pp_task_t> tasks = {{kF, 0, 0}, {kF, 1, 0}, {kF, 2, 0}, {kB, 0, 0},
                                            {kB, 1, 0}, {kB, 2, 0}, {kF, 0, 0}, {kF, 1, 0},
                                            {kB, 0, 0}, {kB, 1, 0}, {kF, 2, 0}, {kB, 2, 0}};
  const size_t counts[] = {6, 6};
  nxd_pp_schedule_t* schedule = nullptr;
  assert_int_equal(
      nxd_pp_schedule_create_tasks(2, 1, kMicrobatches, tasks.data(), counts, &schedule), NXD_OK);
  PipelineTask task = two_blocks_task();
  const PipelineLayout two{1, 2, 1};
  const PipelineRun want = train_pipeline(two, task);
  assert_true(want.losses.back() != want.losses.front());
  task.options.custom_schedule = schedule;
  check_equal(two, train_pipeline(two, task), want);
  on_pipeline_ranks(two, [&](nxd_context_t* ctx, int rank) {
    const Module model = two_blocks(ctx, false);
    const Pipeline pp = make_pipeline(model.get(), rows(0, kBatch), task.options);
    if (!pp) return;
    nxd_pp_schedule_t* used = nullptr;
    nxd_pp_task_t got[6];
    size_t count = 0;
    NXD_TEST_OK(nxd_pp_get_schedule(pp.get(), &used));
    NXD_TEST_OK(nxd_pp_schedule_get_tasks(used, rank, got, 6, &count));
    NXD_TEST_CHECK(count == 6);
    NXD_TEST_CHECK(std::memcmp(got, tasks.data() + 6 * rank, sizeof got) == 0);
  });
  nxd_pp_schedule_destroy(schedule);
}

// ---- built-in models

struct Kind {
  const char* name;
  const char* directory;
  bool sequence_parallel;
  nxd_dtype_t dtype;
  bool autocast;
  double tolerance;      // against the undivided model: of sums in another order
  bool dropout = false;  // whose bits go by microbatch, which the undivided model has none of
};

constexpr Kind kKinds[] = {
    {"llama, sequence parallel", "llama_tiny", true, NXD_DTYPE_F32, false, 1e-6},
    {"llama, bf16", "llama_tiny", false, NXD_DTYPE_BF16, false, 2e-3},
    {"llama, automatic casts", "llama_tiny", false, NXD_DTYPE_F32, true, 2e-3},
    {"gpt2", "gpt2_tiny", false, NXD_DTYPE_F32, false, 1e-6},
    {"gpt-neox", "gpt_neox_tiny", false, NXD_DTYPE_F32, false, 1e-6},
    {"gpt-neox, bf16", "gpt_neox_tiny", false, NXD_DTYPE_BF16, false, 2e-3},
    {"gpt-neox, sequence parallel", "gpt_neox_tiny", true, NXD_DTYPE_F32, false, 1e-6},
    {"gpt2, sequence parallel, automatic casts", "gpt2_tiny", true, NXD_DTYPE_F32, true, 2e-3},
    {"gpt2, dropout", "gpt2_tiny", false, NXD_DTYPE_F32, false, 0, true},
    {"gpt-neox, sequence parallel, bf16, dropout", "gpt_neox_tiny", true, NXD_DTYPE_BF16, false, 0,
     true},
};

Module built_in(nxd_context_t* ctx, const Kind& kind) {
  // The setting is this rank's thread's, which ends with the run.
  if (kind.autocast) NXD_TEST_OK(nxd_set_autocast(NXD_DTYPE_BF16, nullptr));
  Layout layout;
  layout.sequence_parallel = kind.sequence_parallel;
  layout.dtype = kind.dtype;
  auto config = nlohmann::json::parse(
      read_file(oracles() + std::string("/") + kind.directory + "/config.json"));
  if (kind.dropout) {
    for (const char* name :
         {"embd_pdrop", "attn_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout"}) {
      if (config.contains(name)) config[name] = 0.1;
    }
  }
  return create_model(ctx, config.dump(), layout);
}

std::vector<Tensor> text_rows(int step, int dp_rank, int dp) {
  const int64_t own = 8 / dp, length = 16;
  std::vector<int64_t> ids, labels;
  for (int64_t row = dp_rank * own; row < (dp_rank + 1) * own; ++row) {
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back((row * 37 + t * t * 11 + step * 5 + 3) % 101);
      labels.push_back(t >= length - row ? -100 : ids.back());
    }
  }
  std::vector<Tensor> out;
  out.push_back(make_i64(ids, {own, length}));
  out.push_back(make_i64(labels, {own, length}));
  return out;
}

void check_kind(const Kind& kind, const PipelineLayout& layout) {
  PipelineTask task;
  task.make = [&kind](nxd_context_t* ctx) { return built_in(ctx, kind); };
  task.batch = text_rows;
  task.options.num_microbatches = 4;
  const PipelineLayout alone{layout.tp, 1, layout.dp};
  const PipelineRun want = train_pipeline(alone, task), got = train_pipeline(layout, task);
  check_equal(layout, got, want);
  if (kind.dropout) return;
  on_pipeline_ranks({layout.tp, 1, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = built_in(ctx, kind);
    const std::vector<Tensor> batch = text_rows(0, 0, 1);
    nxd_tensor_t* loss = nullptr;
    NXD_TEST_OK(nxd_module_forward(model.get(), handles(batch).data(), 2, &loss, 1));
    check_loss(kind.name, got.losses.at(0), item(Tensor(loss).get()), kind.tolerance);
  });
}

void built_in_models(void**) {
  for (const Kind& kind : kKinds) {
    check_kind(kind, {2, 2, 1});
    check_kind(kind, {kind.sequence_parallel ? 2 : 1, 2, 2, 1, NXD_PP_SCHEDULE_ZERO_BUBBLE, true});
  }
  for (const Kind& kind : {kKinds[0], kKinds[std::size(kKinds) - 1]}) {
    check_kind(kind, {2, 4, 2, 1, NXD_PP_SCHEDULE_1F1B, false});
    check_kind(kind, {2, 4, 2, 1, NXD_PP_SCHEDULE_ZERO_BUBBLE, true});
  }
  // Casts are not for nothing.
  PipelineTask task;
  task.batch = text_rows;
  task.steps = 1;
  const auto loss = [&](const Kind& kind) {
    task.make = [&kind](nxd_context_t* ctx) { return built_in(ctx, kind); };
    return train_pipeline({1, 2, 1}, task).losses.at(0);
  };
  Kind wide = kKinds[2];
  wide.autocast = false;
  const double cast = loss(kKinds[2]), exact = loss(wide);
  assert_true(cast != exact);
  assert_true(std::fabs(cast - exact) < 2e-2);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tokens_that_count), cmocka_unit_test(mean_of_microbatches),
      cmocka_unit_test(leaves_and_traces), cmocka_unit_test(callers_schedule),
      cmocka_unit_test(built_in_models),   cmocka_unit_test(microbatches_without_tokens),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
