// Pipelines of callback modules against values recorded from NxD Core, and against figures that
// were computed with numpy for a chain of eight products.
#include "capi/callback_model.h"
#include "capi/pipeline_support.h"
#include "support/npy.h"
#include "support/paths.h"

using namespace nxd_test;

namespace {

// ---- a chain: loss = mean cross entropy of x W_0^T ... W_7^T, W_l[k] = I + 0.3 sin(0.7 k + l)

constexpr int kLinears = 8;

Module chain(nxd_context_t* ctx, bool tied) {
  Module root = callback_module(
      ctx, "Chain",
      [ctx](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor x;
        for (int i = 0; i < kLinears; ++i) {
          const Handles in{i == 0 ? inputs[0] : x.get()};
          Tensor y;
          NXD_TEST_TRY(call_child(self, ("layers." + std::to_string(i)).c_str(), in, y));
          x = std::move(y);
        }
        return nxd_parallel_cross_entropy(ctx, x.get(), inputs[1], nullptr, outputs);
      });
  const Module layers = callback_module(ctx, "ModuleList");
  for (int i = 0; i < kLinears; ++i) {
    add_child(layers, std::to_string(i).c_str(), column_linear(ctx, 4, 4, false, true));
  }
  add_child(root, "layers", layers);
  NXD_TEST_OK(nxd_module_initialize(root.get(), 1));
  for (int l = 0; l < kLinears; ++l) {
    std::vector<double> w(16);
    const int phase = tied && l == 0 ? 7 : l;  // the recorded run tied to the last one's values
    for (int k = 0; k < 16; ++k) {
      w[static_cast<size_t>(k)] = (k % 5 == 0 ? 1.0 : 0.0) + 0.3 * std::sin(0.7 * k + phase);
    }
    set_whole(root.get(), "layers." + std::to_string(l) + ".weight", w, {4, 4});
  }
  if (tied) NXD_TEST_OK(nxd_module_tie(root.get(), "layers.0.weight", "layers.7.weight"));
  return root;
}

std::vector<Tensor> chain_batch(int step, int dp_rank, int dp) {
  std::vector<float> x;
  std::vector<int64_t> labels;
  (void)dp;
  for (int b = dp_rank * 4; b < dp_rank * 4 + 4; ++b) {
    for (int j = 0; j < 4; ++j) x.push_back(static_cast<float>(std::cos(0.3 * (4 * b + j) + step)));
    labels.push_back(b * (step + 3) % 4);
  }
  const int64_t shape[] = {4, 4};
  nxd_tensor_t* tensor = nullptr;
  NXD_TEST_OK(
      nxd_tensor_from_data(x.data(), x.size() * sizeof(float), shape, 2, NXD_DTYPE_F32, &tensor));
  std::vector<Tensor> batch;
  batch.emplace_back(tensor);
  batch.push_back(make_i64(labels, {4}));
  return batch;
}

void check_chain(const PipelineLayout& layout, int microbatches, bool keep_outputs, bool tied,
                 const std::vector<double>& want) {
  PipelineTask task;
  task.make = [tied](nxd_context_t* ctx) { return chain(ctx, tied); };
  task.batch = chain_batch;
  task.options.num_microbatches = microbatches;
  task.options.keep_outputs = keep_outputs;
  task.options.transformer_layer_class = "ColumnParallelLinear";
  task.average = true;
  task.steps = 4;
  const PipelineRun run = train_pipeline(layout, task);
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string what = layout.name() + " microbatches " + std::to_string(microbatches);
    check_loss(what.c_str(), run.losses[i], want[i], 2e-6);
  }
}

void chain_of_products(void**) {
  for (const int pp : {1, 2, 4}) {
    for (const int microbatches : {1, 2, 4}) {
      for (const bool keep : {false, true}) {
        check_chain({1, pp, 1}, microbatches, keep, false,
                    {1.730898, 2.248688, 1.510330, 1.426008});
        check_chain({1, pp, 1}, microbatches, keep, true, {1.900132, 2.644410, 1.363701, 1.445408});
      }
    }
    check_chain({1, pp, 2}, 2, false, false, {1.707247, 1.961451, 1.403578, 1.501397});
  }
}

// ---- the recorded model: embedding, four residual blocks, head; AdamW

constexpr int64_t kVocabulary = 32, kFeatures = 16;

std::string recorded(const std::string& name, const std::string& file) {
  return oracles() + "/nxd/" + name + "/" + file;
}

Module recorded_model(nxd_context_t* ctx, const std::string& name) {
  Module root = callback_module(
      ctx, "Recorded",
      [ctx](nxd_module_t* self, const Handles& inputs, nxd_tensor_t** outputs, size_t) {
        Tensor x, logits;
        NXD_TEST_TRY(call_child(self, "emb", {inputs[0]}, x));
        for (int i = 0; i < 4; ++i) {
          Tensor y;
          NXD_TEST_TRY(call_child(self, ("layers." + std::to_string(i)).c_str(), {x.get()}, y));
          x = std::move(y);
        }
        NXD_TEST_TRY(call_child(self, "head", {x.get()}, logits));
        return nxd_parallel_cross_entropy(ctx, logits.get(), inputs[1], nullptr, outputs);
      });
  add_child(root, "emb", embedding(ctx, kVocabulary, kFeatures));
  const Module layers = callback_module(ctx, "ModuleList");
  for (int i = 0; i < 4; ++i) {
    add_child(layers, std::to_string(i).c_str(), residual_block(ctx, kFeatures, 32));
  }
  add_child(root, "layers", layers);
  add_child(root, "head", column_linear(ctx, kFeatures, kVocabulary, false, true));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 1));
  for_each_parameter(root.get(), [&](nxd_parameter_t*, const std::string& parameter) {
    const auto array = read_npy<double>(recorded(name, "init." + parameter + ".rank0.npy"));
    set_whole(root.get(), parameter, array.values, array.shape);
  });
  return root;
}

// The losses of the microbatches by the undivided model.
std::vector<double> losses_one_by_one(nxd_context_t* ctx, const std::string& name,
                                      const NpyArray<int64_t>& ids, const NpyArray<int64_t>& labels,
                                      int microbatches) {
  const Module whole = recorded_model(ctx, name);
  const int64_t rows = ids.shape[0] / microbatches, length = ids.shape[1];
  std::vector<double> losses;
  for (int m = 0; m < microbatches; ++m) {
    const auto slice = [&](const NpyArray<int64_t>& all) {
      const auto begin = all.values.begin() + m * rows * length;
      return make_i64({begin, begin + rows * length}, {rows, length});
    };
    const Tensor in = slice(ids), wanted = slice(labels);
    nxd_tensor_t *inputs[] = {in.get(), wanted.get()}, *out = nullptr;
    NXD_TEST_OK(nxd_module_forward(whole.get(), inputs, 2, &out, 1));
    losses.push_back(item(Tensor(out).get()));
  }
  return losses;
}

struct RecordedCase {
  const char* name;
  int chunks, microbatches;
};

using Losses = std::vector<double>;

// The last run's losses on a rank: none without the last stage, else those of the microbatches in
// their order where they are known, and always with their mean.
void check_microbatches(nxd_pp_t* pp, bool none, double mean, const Losses& want) {
  double each[8] = {};
  size_t count = 99;
  NXD_TEST_OK(nxd_pp_get_losses(pp, each, 8, &count));
  if (none) {
    NXD_TEST_CHECK(count == 0);
    return;
  }
  double sum = 0;
  for (size_t m = 0; m < std::min<size_t>(count, 8); ++m) {
    sum += each[m];
    if (!want.empty()) check_loss("loss of a microbatch", each[m], want.at(m), 1e-6);
    // A loss twice would hide an exchange of two.
    for (size_t other = 0; other < m; ++other) NXD_TEST_CHECK(each[m] != each[other]);
  }
  if (!want.empty()) NXD_TEST_CHECK(count == want.size());
  check_loss("mean of the microbatches", sum / static_cast<double>(count), mean, 1e-6);
}

void check_recorded_rank(nxd_context_t* ctx, const RecordedCase& recording) {
  const std::string name = recording.name;
  const int stage = axis_rank(ctx, NXD_AXIS_PIPELINE);
  const nlohmann::json expected =
      nlohmann::json::parse(read_file(recorded(name, "rank" + std::to_string(stage) + ".json")));
  const auto ids = read_npy<int64_t>(recorded(name, "ids.rank0.npy"));
  const auto labels = read_npy<int64_t>(recorded(name, "labels.rank0.npy"));
  std::vector<Tensor> batch;
  batch.push_back(make_i64(ids.values, ids.shape));
  batch.push_back(make_i64(labels.values, labels.shape));
  const Losses separate = losses_one_by_one(ctx, name, ids, labels, recording.microbatches);
  const Module model = recorded_model(ctx, name);
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = recording.microbatches;
  options.virtual_size = recording.chunks;
  options.transformer_layer_class = "Block";
  options.return_mb_loss = 1;
  const Pipeline pp = make_pipeline(model.get(), batch, options);
  if (!pp) return;
  size_t cuts = 0;
  NXD_TEST_OK(nxd_pp_get_cut_count(pp.get(), &cuts));
  NXD_TEST_CHECK(cuts == expected["cuts"].size());
  for (size_t i = 0; i < cuts; ++i) {
    const char* cut = nullptr;
    NXD_TEST_OK(nxd_pp_get_cut(pp.get(), i, &cut));
    NXD_TEST_CHECK(expected["cuts"][i] == cut);
  }
  nxd_module_t* local = local_module(pp.get());
  std::vector<std::string> names;
  for_each_parameter(local, [&](nxd_parameter_t*, const std::string& n) { names.push_back(n); });
  auto wanted = expected["local_params"].get<std::vector<std::string>>();
  std::sort(names.begin(), names.end());
  std::sort(wanted.begin(), wanted.end());
  NXD_TEST_CHECK(names == wanted);
  nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
  adamw.learning_rate = 1e-2;
  adamw.weight_decay = 1e-2;
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(local, &adamw, &made));
  const Optimizer optimizer(made);
  int step = 0;
  for (const auto& want : expected["losses"]) {
    double loss = NAN;
    NXD_TEST_OK(nxd_module_zero_grad(local));
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), batch.size(), &loss));
    check_loss(recording.name, loss, want.is_null() ? 0.0 : want.get<double>(), 1e-5);
    check_microbatches(pp.get(), want.is_null(), loss, step++ == 0 ? separate : Losses());
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
  }
  for (const auto& [parameter, got] : whole_parameters(local)) {
    const auto want = read_npy<double>(
        recorded(name, "final." + parameter + ".rank" + std::to_string(stage) + ".npy"));
    check_values(name + ": " + parameter, got, want.values, 1e-5, 2e-6);
  }
}

void recorded_pipelines(void**) {
  for (const RecordedCase& recording :
       {RecordedCase{"nxdpp", 1, 4}, RecordedCase{"nxdpp_mb2", 1, 2},
        RecordedCase{"nxdpp_vpp2", 2, 4}}) {
    on_pipeline_ranks({1, 2, 1},
                      [&](nxd_context_t* ctx, int) { check_recorded_rank(ctx, recording); });
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chain_of_products),
      cmocka_unit_test(recorded_pipelines),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
