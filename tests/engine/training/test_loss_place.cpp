// The loss of a pipeline by its path in nested outputs: every schedule trains and evaluates as the
// plain forward does, batches of other sizes too; all ranks know the paths; what leads to no loss
// is refused by name on all of them.
#include "engine/training/loss_place.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/serialization/import.h>

#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/told.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

using Paths = std::vector<std::string>;

constexpr nxd_status_t kArgument = NXD_ERROR_INVALID_ARGUMENT;
constexpr int64_t kRows = 8;
constexpr int32_t kMicrobatches = 4;
constexpr const char* kLoss = "rest.all.1.lm";

// The outer tuple of a forward becomes a named one.
void name_result(jit::Module& module, const Paths& fields) {
  auto& function = dynamic_cast<jit::GraphFunction&>(module.get_method("forward").function());
  jit::Value* const result = function.graph()->outputs()[0];
  const auto named =
      c10::TupleType::createNamed(c10::QualifiedName("__torch__.Result"), fields,
                                  result->type()->expect<c10::TupleType>()->elements().vec());
  result->setType(named);
  function.setSchema(function.getSchema().cloneWithReturns({c10::Argument("", named)}));
}

// The loss lies deep, behind as many outputs as the batch has rows: these come from the first
// stage.
jit::Module nested() {
  jit::Module made("__torch__.Nested");
  made.register_module("first", linear("First", 6, 8, at::kDouble));
  made.register_module("second", linear("Second", 8, 8, at::kDouble));
  made.register_module("third", linear("Third", 8, 8, at::kDouble));
  made.register_module("last", linear("Last", 8, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tuple[List[Tensor], Dict[str, Tuple[Tensor, Dict[str, Tensor]]]]:
      a = torch.tanh(self.first.forward(x))
      b = torch.tanh(self.second.forward(a))
      c = torch.tanh(self.third.forward(b))
      d = self.last.forward(c)
      hidden: List[Tensor] = []
      for i in range(x.size(0)):
        hidden.append(a[i])
      aux = torch.mean(a * a)
      lm = torch.mean(d * d) + aux * 0.25
      return (hidden, {"all": (d, {"aux": aux, "count": torch.sum(torch.gt(d, 0.0)), "lm": lm})})
  )");
  name_result(made, {"hidden", "rest"});
  return made;
}

// The results of libtorch's own forward for some rows, the loss last.
struct Plain {
  Plain(const std::string& path, int64_t first, int64_t count) : module(jit::load(path)) {
    const Tensor x = rows(first, count);
    const c10::IValue result = module.forward({numbers_of(values(x.get())).reshape({count, 6})});
    const auto& both = result.toTupleRef().elements();
    outputs = both[0].toTensorVector();
    const auto all = both[1].toGenericDict().at("all").toTupleRef().elements();
    outputs.push_back(all[0].toTensor());
    const auto losses = all[1].toGenericDict();
    for (const char* name : {"aux", "count", "lm"}) outputs.push_back(losses.at(name).toTensor());
  }
  double loss() const { return outputs.back().item<double>(); }

  jit::Module module;
  std::vector<at::Tensor> outputs;
};

PipelineTask task_of(const File& file) {
  PipelineTask task;
  task.make = [&file](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    std::vector<Tensor> batch;
    batch.push_back(rows(kRows * step + dp_rank * (kRows / dp), kRows / dp));
    return batch;
  };
  task.options.num_microbatches = kMicrobatches;
  task.options.loss_path = kLoss;
  return task;
}

// The mean over microbatches is the mean over the batch.
void trained(void**) {
  const File file(nested());
  Plain wanted(file.path, 0, kRows);
  wanted.outputs.back().backward();
  PipelineTask task = task_of(file);
  const PipelineRun alone = train_pipeline({}, task);
  check_loss("one rank", alone.losses.at(0), wanted.loss(), 1e-12);
  assert_int_equal(alone.gradients.size(), 8);
  for (const auto& entry : wanted.module.named_parameters()) {
    check_values(entry.name, alone.gradients.at(entry.name), values_of(entry.value.grad()), 1e-12);
  }
  assert_true(alone.losses.back() < alone.losses.front());
  const char* const cuts[] = {"first", "second", "third"};
  task.options.pipeline_cuts = cuts;
  task.options.num_cuts = 3;
  for (const auto kind : {NXD_PP_SCHEDULE_INTERLEAVED, NXD_PP_SCHEDULE_GPIPE}) {
    const PipelineLayout chunks{1, 2, 1, 2, kind};
    check_equal(chunks, train_pipeline(chunks, task), alone);
  }
  task.options.pipeline_cuts = cuts + 1;
  task.options.num_cuts = 1;
  for (const auto kind :
       {NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_GPIPE, NXD_PP_SCHEDULE_ZERO_BUBBLE}) {
    const PipelineLayout stages{1, 2, 1, 1, kind};
    check_equal(stages, train_pipeline(stages, task), alone);
  }
  PipelineLayout copies{1, 2, 2};
  copies.zero1 = true;
  task.average = true;
  const PipelineRun run = train_pipeline(copies, task);
  check_loss("two copies", run.losses.at(0), wanted.loss(), 1e-9);
}

template <class Handle>
Paths paths_by(nxd_status_t (*count_of)(Handle*, size_t*),
               nxd_status_t (*path_of)(Handle*, size_t, const char**), Handle* handle) {
  size_t count = 99;
  Paths paths;
  NXD_TEST_OK(count_of(handle, &count));
  for (size_t i = 0; i < count; ++i) {
    const char* path = nullptr;
    if (NXD_TEST_OK(path_of(handle, i, &path))) paths.emplace_back(path);
  }
  return paths;
}

Paths outputs_of(nxd_pp_t* pp) {
  return paths_by(nxd_pp_get_output_count, nxd_pp_get_output_path, pp);
}

Paths outputs_of(nxd_module_t* module) {
  return paths_by(nxd_module_get_output_count, nxd_module_get_output_path, module);
}

const Paths kOfTwoRows = {"hidden.0",       "hidden.1",         "rest.all.0",
                          "rest.all.1.aux", "rest.all.1.count", kLoss};
const Paths kOfOneRow = {"hidden.0", "rest.all.0", "rest.all.1.aux", "rest.all.1.count", kLoss};

nxd_pp_options_t cut_in_two(const char* loss_path) {
  static const char* const cuts[] = {"second"};
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = kMicrobatches;
  options.pipeline_cuts = cuts;
  options.num_cuts = 1;
  options.loss_path = loss_path;
  return options;
}

// A run's losses and outputs are the plain forward's of each microbatch, in its order.
void check_evaluated(nxd_pp_t* pp, const std::string& path, int rank, int64_t count) {
  const std::vector<Plain> wanted = [&] {
    std::vector<Plain> each;
    for (int64_t i = 0; i < kMicrobatches; ++i) {
      each.emplace_back(path, i * (count / kMicrobatches), count / kMicrobatches);
    }
    return each;
  }();
  const size_t n_outputs = wanted[0].outputs.size();
  const Tensor x = rows(0, count);
  nxd_tensor_t* const input = x.get();
  std::vector<nxd_tensor_t*> given(n_outputs);
  double loss = NAN, mean = 0;
  NXD_TEST_OK(nxd_pp_run_eval(pp, &input, 1, &loss, given.data(), n_outputs));
  for (const Plain& each : wanted) mean += each.loss() / kMicrobatches;
  check_loss("mean", loss, rank == 1 ? mean : 0, 1e-12);
  for (size_t i = 0; i < n_outputs; ++i) {
    const Tensor output(given[i]);
    if (!NXD_TEST_CHECK((output != nullptr) == (rank == 1)) || rank != 1) continue;
    std::vector<double> all;
    for (const Plain& each : wanted) {
      const std::vector<double> part = values_of(each.outputs[i]);
      all.insert(all.end(), part.begin(), part.end());
    }
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    NXD_TEST_OK(nxd_tensor_get_dtype(output.get(), &dtype));
    NXD_TEST_CHECK((dtype == NXD_DTYPE_I64) == (i + 2 == n_outputs));
    if (dtype != NXD_DTYPE_I64) {
      check_values(std::to_string(i), values(output.get()), all, rounding());
    }
  }
  double losses[kMicrobatches] = {};
  size_t n_losses = 0;
  NXD_TEST_OK(nxd_pp_get_losses(pp, losses, kMicrobatches, &n_losses));
  NXD_TEST_CHECK(n_losses == (rank == 1 ? kMicrobatches : 0));
  for (size_t i = 0; i < n_losses; ++i) {
    check_loss("of a microbatch", losses[i], wanted[i].loss(), rounding());
  }
}

// The place of the loss follows the batch.
void evaluated(void**) {
  const File file(nested());
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, kRows));
    nxd_pp_options_t options = cut_in_two(kLoss);
    options.return_mb_loss = 1;
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    NXD_TEST_CHECK(outputs_of(pp.get()) == kOfTwoRows && outputs_of(model.get()) == kOfTwoRows);
    check_evaluated(pp.get(), file.path, rank, kRows);
    check_evaluated(pp.get(), file.path, rank, kMicrobatches);
    NXD_TEST_CHECK(outputs_of(pp.get()) == kOfOneRow);
    // An output more than there are now, as there were before.
    const Tensor x = rows(0, kMicrobatches);
    nxd_tensor_t *const input = x.get(), *outputs[6] = {};
    NXD_TEST_REFUSED(nxd_pp_run_eval(pp.get(), &input, 1, nullptr, outputs, 6), kArgument,
                     "num_outputs: expected at most 5");
    check_evaluated(pp.get(), file.path, rank, kRows);
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
    check_loss("train", loss, rank == 1 ? Plain(file.path, 0, kRows).loss() : 0, 1e-12);
    const char* path = "set";
    size_t count = 99;
    NXD_TEST_REFUSED(nxd_pp_get_output_path(pp.get(), 6, &path), kArgument, "less than 6");
    NXD_TEST_CHECK(path == nullptr);
    NXD_TEST_REFUSED(nxd_pp_get_output_path(pp.get(), 0, nullptr), kArgument, "out_path");
    NXD_TEST_REFUSED(nxd_pp_get_output_path(nullptr, 0, &path), kArgument, "pp");
    NXD_TEST_REFUSED(nxd_pp_get_output_count(nullptr, &count), kArgument, "pp");
    NXD_TEST_REFUSED(nxd_pp_get_output_count(pp.get(), nullptr), kArgument, "out_count");
  });
}

// Paths of plain forwards, also where the forward is a sequence's, or one of the caller's own.
void paths_of_modules(void**) {
  const File file(nested()), alone(linear("Alone", 6, 6, at::kDouble));
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path), tensor = load(ctx, alone.path);
    NXD_TEST_CHECK(outputs_of(model.get()).empty());
    nxd_module_t* made = nullptr;
    nxd_module_t* const children[] = {tensor.get(), model.get()};
    NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, &made));
    const Module both(made);
    const Tensor x = rows(0, 2);
    nxd_tensor_t *const input = x.get(), *y = nullptr;
    NXD_TEST_OK(nxd_module_forward(both.get(), &input, 1, &y, 1));
    nxd_tensor_destroy(y);
    NXD_TEST_CHECK(outputs_of(both.get()) == kOfTwoRows && outputs_of(model.get()) == kOfTwoRows);
    NXD_TEST_CHECK(outputs_of(tensor.get()) == Paths{"0"});
    const char* path = "set";
    size_t count = 99;
    NXD_TEST_REFUSED(nxd_module_get_output_path(model.get(), 6, &path), kArgument, "less than 6");
    NXD_TEST_CHECK(path == nullptr);
    NXD_TEST_REFUSED(nxd_module_get_output_path(nullptr, 0, &path), kArgument, "module");
    NXD_TEST_REFUSED(nxd_module_get_output_path(model.get(), 0, nullptr), kArgument, "out_path");
    NXD_TEST_REFUSED(nxd_module_get_output_count(nullptr, &count), kArgument, "module");
    NXD_TEST_REFUSED(nxd_module_get_output_count(model.get(), nullptr), kArgument, "out_count");
  });
}

// A list of the caller's: two of the file's outputs.
Module chosen(nxd_context_t* ctx, const std::string& path) {
  Module root = callback_module(ctx, "Chosen",
                                [](nxd_module_t* self, const Handles& inputs,
                                   nxd_tensor_t** outputs, size_t n_outputs) -> nxd_status_t {
                                  nxd_module_t* child = nullptr;
                                  nxd_tensor_t* all[6] = {};
                                  NXD_TEST_TRY(nxd_module_find_module(self, "net", &child));
                                  NXD_TEST_TRY(nxd_module_forward(child, inputs.data(), 1, all, 6));
                                  outputs[0] = std::exchange(all[2], nullptr);
                                  if (n_outputs > 1) outputs[1] = std::exchange(all[5], nullptr);
                                  for (nxd_tensor_t* each : all) nxd_tensor_destroy(each);
                                  return NXD_OK;
                                });
  add_child(root, "net", load(ctx, path));
  return root;
}

void of_plain_lists(void**) {
  const File file(nested());
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    static const char* const cuts[] = {"net.second"};
    const Module model = chosen(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, kRows));
    nxd_pp_options_t options = cut_in_two("1");
    options.pipeline_cuts = cuts;
    options.broadcast_and_average_loss = 1;
    nxd_pp_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(model.get(), handles(batch).data(), 1, &options, &out),
                     kArgument, "one of the 1 outputs, got \"1\"; near names: 0");
    options.num_outputs = 2;
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    NXD_TEST_CHECK(outputs_of(pp.get()) == (Paths{"0", "1"}));
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
    check_loss("on every rank", loss, Plain(file.path, 0, kRows).loss(), 1e-12);
  });
}

void refused(void**) {
  const File file(nested());
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, kRows));
    const auto refuse = [&](const nxd_pp_options_t& options, const char* part) {
      nxd_pp_t* out = nullptr;
      NXD_TEST_REFUSED(nxd_pp_create(model.get(), handles(batch).data(), 1, &options, &out),
                       kArgument, part);
      NXD_TEST_CHECK(out == nullptr);
    };
    refuse(cut_in_two("rest.all.1.lmm"), "got \"rest.all.1.lmm\"; near names: rest.all.1.lm");
    refuse(cut_in_two("loss"), "got \"loss\"; the outputs are \"hidden.0\", \"hidden.1\", \"rest");
    refuse(cut_in_two("rest.all.1"),
           "which leads to 3: \"rest.all.1.aux\", \"rest.all.1.count\", \"rest.all.1.lm\"");
    refuse(cut_in_two("rest.all.1."), "got \"rest.all.1.\"");
    refuse(cut_in_two("rest.all.0"), "expected a scalar at \"rest.all.0\", got f64 [2, 6]");
    refuse(cut_in_two("rest.all.1.count"), "expected a scalar at \"rest.all.1.count\", got i64");
    refuse(cut_in_two(""), "loss_path: expected the path of an output, got \"\"");
    nxd_pp_options_t options = cut_in_two(kLoss);
    options.num_outputs = 3;
    refuse(options, "num_outputs: expected at least 6");
    options.loss_output = 1;
    refuse(options, "loss_path: cannot be given together with a loss_output");
    // On one rank alone.
    refuse(cut_in_two(rank == 0 ? "rest.all.1.lmm" : kLoss), "");
    const Pipeline pp = make_pipeline(model.get(), batch, cut_in_two(kLoss));
    NXD_TEST_CHECK(pp != nullptr);
  });
}

// Keys may have dots, or be the same text as positions; a path may end where one output lies below.
void paths_that_meet(void**) {
  nxd::Graph graph;
  graph.output_paths = {"a.b", "a.b", "loss", "loss.all", "only.x.0", "0", "1.0"};
  for (size_t i = 0; i < graph.output_paths.size(); ++i) {
    nxd::GraphValue value;
    value.id = static_cast<nxd::ValueId>(i);
    graph.values.push_back(value);
    graph.outputs.push_back(value.id);
  }
  assert_int_equal(nxd::find_loss(graph, "loss"), 2);
  assert_int_equal(nxd::find_loss(graph, "loss.all"), 3);
  for (const char* path : {"only", "only.x", "only.x.0"}) {
    assert_int_equal(nxd::find_loss(graph, path), 4);
  }
  assert_int_equal(nxd::find_loss(graph, "0"), 5);
  assert_int_equal(nxd::find_loss(graph, "1"), 6);
  for (const char* path : {"a.b", "a"}) {
    const Told told = told_by([&] { nxd::find_loss(graph, path); });
    assert_int_equal(told.status, kArgument);
    assert_non_null(strstr(told.message.c_str(), "leads to 2: \"a.b\", \"a.b\""));
  }
  graph.outputs[2] = nxd::kNoValue;
  const Told told = told_by([&] { nxd::find_loss(graph, "loss"); });
  assert_non_null(strstr(told.message.c_str(), "expected a scalar at \"loss\", got none"));
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(trained),          cmocka_unit_test(evaluated),
      cmocka_unit_test(paths_of_modules), cmocka_unit_test(of_plain_lists),
      cmocka_unit_test(refused),          cmocka_unit_test(paths_that_meet)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
