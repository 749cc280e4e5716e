// The planner: counts against recorded models, small cases worked out by hand, the schedule's own
// report, properties, and a search against one that tries everything.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/planner/layout_plan.h"
#include "core/planner/plan_search.h"

#include "support/paths.h"
#include "support/planner_predictions.h"

#include "support/check.h"

using nlohmann::json;

namespace {

std::string read_oracle(const std::string& name) {
  std::ifstream file(nxd_test::oracles() + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nxd_plan_model_t model_of(const std::string& name) {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  assert_int_equal(nxd_plan_model_from_config(read_oracle(name + "/config.json").c_str(), &model),
                   NXD_OK);
  return model;
}

// As many elements as the recorded models' files have.
void test_models(void**) {
  for (const char* name : {"llama_tiny", "mistral_tiny", "qwen2_tiny", "gpt2_tiny", "gpt_neox_tiny",
                           "gpt_neox_serial_tiny", "bert_tiny"}) {
    const std::string file = read_oracle(std::string(name) + "/model.safetensors");
    uint64_t length = 0;
    std::copy_n(file.begin(), sizeof length, reinterpret_cast<char*>(&length));
    int64_t expected = 0;
    const json header = json::parse(file.substr(sizeof length, length));
    for (const auto& [tensor, entry] : header.items()) {
      if (tensor == "__metadata__") continue;
      int64_t elements = 1;
      for (const int64_t size : entry["shape"]) elements *= size;
      expected += elements;
    }
    const nxd_plan_model_t model = model_of(name);
    const nxd::ModelSizes sizes = nxd::read_plan_model(model);
    int64_t elements =
        sizes.embedding_elements() + sizes.last_elements() + sizes.layers * sizes.layer_elements();
    if (!sizes.tied_embeddings) elements += sizes.head_elements();
    assert_int_equal(elements, expected);
    const auto alone = predict(model, round_machine(), layout_of(1, 1, 1, 1, 8));
    assert_int_equal(alone.parameter_bytes, 4 * expected);
  }
  // 6 x matrices x tokens + 6 x layers x sequence x width x tokens, as of the comparison Llama.
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = 512;
  model.num_layers = model.num_heads = 8;
  model.num_kv_heads = 4;
  model.intermediate_size = 1408;
  model.vocab_size = 8192;
  model.gated_mlp = 1;
  const nxd::ModelSizes read = nxd::read_plan_model(model);
  assert_near(read.step_operations(4, 512),
              2048.0 * (6 * (8 * 2949120.0 + 4194304) + 6 * 8 * 512 * 512.0));
}

// A layer of ten tokens in f32 keeps two sums, two norms, q, k, v and the result of 8 features, and
// three times 16.
constexpr uint64_t kLayerBytes = 8 * block(320) + 3 * block(640);

// One rank, one microbatch of ten tokens, f32. A layer's matrices have 8 x (2 x 8 + 2 x 8 + 3 x 16)
// = 640 elements, with its norms 656; the embedding has 256, norm and head 264.
void test_one_rank_by_hand(void**) {
  const auto p = predict(small_model(), round_machine(), layout_of(1, 1, 1, 1, 10));
  assert_int_equal(p.parameter_bytes, 4 * 3144);
  assert_int_equal(p.grad_bytes, 4 * 3144);
  assert_int_equal(p.optimizer_bytes, 8 * 3144);
  assert_int_equal(p.activation_bytes, 4 * kLayerBytes + 2 * block(320));
  // A layer's, the logits; four copies of each matrix.
  assert_int_equal(p.buffer_bytes, 5 * block(320) + 2 * block(640) + block(1280) +
                                       4 * (4 * kLayerSlack + 2 * kTableSlack));
  assert_int_equal(p.total_bytes, 16 * 3144 + p.activation_bytes + p.buffer_bytes);
  assert_int_equal(p.fits, 1);
  assert_near(p.gemm_seconds, (3 * 4 * 12800 + 3 * 5120) / 1e6);
  assert_near(p.attention_seconds, 3 * 4 * 1600 / 0.5e6);
  // Layer forwards 8 x 80 + 10 x (32 + 48), backwards 8 x 80 + 10 x (32 + 80), embedding 5 x 80,
  // norm 8 x 80, loss 3 x 320.
  assert_near(p.elementwise_seconds, 4 * (4 * (1440 + 1760) + 400 + 640 + 960) / 1e6);
  assert_near(p.optimizer_seconds, 32 * 3144 / 1e6);
  assert_near(p.pipeline_seconds, p.gemm_seconds + p.attention_seconds + p.elementwise_seconds);
  assert_near(p.step_seconds, p.pipeline_seconds + p.optimizer_seconds);
  assert_near(p.tokens_per_second, 10 / p.step_seconds);
  assert_true(p.tensor_parallel_seconds == 0 && p.data_parallel_seconds == 0);
  assert_true(p.bubble_share == 0 && p.transfer_seconds == 0);
}

// The same sizes as a BERT: all tokens see all, a layer's output alone crosses a boundary, and the
// head has two dense layers of 8 x 8, for ten tokens and for one sequence.
void test_bert_by_hand(void**) {
  nxd_plan_model_t model = small_model();
  const auto decoder = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  const auto two = predict(model, round_machine(), layout_of(1, 2, 1, 2, 10));
  model.num_token_types = 2;
  const auto bert = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  assert_near(bert.attention_seconds, 2 * decoder.attention_seconds);
  assert_near(bert.gemm_seconds - decoder.gemm_seconds, 3 * 2 * 11 * 64 / 1e6, 1e-9);
  // Token types and the norm behind them; both dense layers, their norm instead of the last one,
  // the bias of 32 logits, and two rows with biases.
  assert_int_equal(bert.parameter_bytes - decoder.parameter_bytes,
                   4 * (2 * 8 + 8 + 2 * 9 * 8 + 8 - 8 + 32 + 2 * 9));
  const auto stages = predict(model, round_machine(), layout_of(1, 2, 1, 2, 10));
  assert_near(stages.transfer_seconds - 1e-3, (two.transfer_seconds - 1e-3) / 2);
}

// Queries of two of four layers see four keys: of 10 x 10 scores 6 x 6 are not formed, and of what
// is left half. A window of the sequence's length and a layout's ranks change nothing else.
void test_windows(void**) {
  nxd_plan_model_t model = small_model();
  const auto full = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  model.sliding_window = 4;
  model.num_window_layers = 2;
  const auto some = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  assert_near(some.attention_seconds, 3 * 4 * (4 * 100 - 2 * 36) / 2.0 * 8 / 0.5e6);
  assert_near(some.gemm_seconds, full.gemm_seconds);
  const auto halves = predict(model, round_machine(), layout_of(2, 1, 1, 1, 10));
  assert_near(halves.attention_seconds, some.attention_seconds / 2);
  model.num_window_layers = 0;
  const auto all = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  assert_near(all.attention_seconds, 3 * 4 * (4 * 100 - 4 * 36) / 2.0 * 8 / 0.5e6);
  model.sliding_window = 10;
  assert_near(predict(model, round_machine(), layout_of(1, 1, 1, 1, 10)).attention_seconds,
              full.attention_seconds);
  // A configuration gives them; without a window both fields are 0.
  nxd_plan_model_t read = NXD_PLAN_MODEL_INIT;
  const std::string mistral =
      R"({"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
          "vocab_size": 128, "sliding_window": )";
  assert_int_equal(nxd_plan_model_from_config((mistral + "16}").c_str(), &read), NXD_OK);
  assert_int_equal(read.sliding_window, 16);
  assert_int_equal(read.num_window_layers, 3);
  assert_int_equal(nxd_plan_model_from_config((mistral + "null}").c_str(), &read), NXD_OK);
  assert_int_equal(read.sliding_window, 0);
  assert_int_equal(read.num_window_layers, 0);
}

// Six heads with three key heads of 4 features, an MLP of 10, hidden 8, a vocabulary of 32. The
// last rank has the most.
void test_uneven_shares(void**) {
  nxd_plan_model_t model = small_model();
  model.num_heads = 6;
  model.num_kv_heads = 3;
  model.head_dim = 4;
  model.intermediate_size = 10;
  const auto elements = [](int heads, int key_heads, int features, int rows) {
    return 4 * (8 * (2 * 4 * (heads + key_heads) + 3 * features) + 2 * 8) + 2 * 8 * rows + 8;
  };
  const auto check = [&](int tensor, int expected) {
    const auto p = predict(model, round_machine(), layout_of(tensor, 1, 1, 1, 10));
    assert_int_equal(p.parameter_bytes, 4 * expected);
  };
  check(1, elements(6, 3, 10, 32));
  check(2, elements(4, 2, 5, 16));
  check(3, elements(2, 1, 4, 11));
  check(4, elements(2, 1, 3, 8));  // heads of the ranks: 1, 1, 2, 2
  check(5, elements(2, 1, 2, 7));  // 1, 1, 1, 1, 2
  check(6, elements(1, 1, 2, 6));
  // The slowest rank sets the pace: with two ranks it has two thirds of the heads.
  const auto whole = predict(model, round_machine(), layout_of(1, 1, 1, 1, 10));
  const auto halves = predict(model, round_machine(), layout_of(2, 1, 1, 1, 10));
  assert_near(halves.attention_seconds, whole.attention_seconds * 2 / 3);

  nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
  options.world_size = 5;  // which four layers and a batch of seven exclude otherwise
  options.sequence_length = 10;
  options.batch_size = 7;
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  size_t count = 0;
  assert_int_equal(nxd_plan_search(&model, nullptr, &options, &layout, nullptr, 1, &count), NXD_OK);
  assert_int_equal(layout.tensor_parallel_size, 5);
}

void test_collectives_by_hand(void**) {
  const nxd_plan_model_t model = small_model();
  nxd_plan_machine_t machine = round_machine();
  nxd_plan_layout_t layout = layout_of(2, 1, 1, 3, 10);
  // Each sum of 320 bytes: twice latency and half of the bytes. Four a layer, one of the embedding,
  // one of the head, in three microbatches.
  const double half = 1e-3 + 160 / 1e6;
  assert_near(predict(model, machine, layout).tensor_parallel_seconds, 3 * 18 * 2 * half);
  // Halves instead of sums; inputs are gathered once more for the weights' gradients.
  layout.sequence_parallel = 1;
  const auto split = predict(model, machine, layout);
  assert_near(split.tensor_parallel_seconds, 3 * (4 * (8 + 2) + 2 + 2) * half);
  // Nine tokens take the places of ten, but for attention.
  layout.sequence_length = 9;
  const auto padded = predict(model, machine, layout);
  assert_near(padded.tensor_parallel_seconds, split.tensor_parallel_seconds);
  assert_near(padded.gemm_seconds, split.gemm_seconds);
  assert_near(padded.attention_seconds, split.attention_seconds * 81 / 100);
  assert_int_equal(padded.activation_bytes, split.activation_bytes);
  layout.sequence_length = 10;
  layout.dtype = NXD_DTYPE_BF16;  // sums are exchanged in f32, the rest in bf16
  const double bf16_half = 1e-3 + 80 / 1e6;
  assert_near(predict(model, machine, layout).tensor_parallel_seconds,
              3 * (4 * (4 * half + 6 * bf16_half) + 2 * half + 2 * bf16_half));

  // Data parallel within a host, and then over two hosts of two ranks each: bytes of two groups go
  // over a link, as far as the last microbatch's backward pass does not cover them.
  const double bytes = 4 * 3144;
  layout = layout_of(1, 1, 2, 1, 10);
  auto p = predict(model, machine, layout);
  assert_near(p.data_parallel_seconds, 2 * (1e-3 + bytes / 2 / 1e6));
  assert_near(p.exposed_seconds, p.data_parallel_seconds);
  machine.ranks_per_host = 2;
  layout = layout_of(2, 1, 2, 1, 10);
  p = predict(model, machine, layout);
  const double elements = 128 + 4 * (320 + 16) + 8 + 128;
  assert_near(p.data_parallel_seconds, 2 * (1e-2 + 4 * elements / 2 * 2 / 1e5));
  assert_true(p.exposed_seconds < p.data_parallel_seconds && p.exposed_seconds >= 0);
  layout.zero_stage = 1;  // gathering covers nothing
  p = predict(model, machine, layout);
  assert_true(p.exposed_seconds >= p.data_parallel_seconds / 2);
}

// A host with places for more ranks than there are has all groups, as hosts without a bound have.
void test_a_world_within_a_host(void**) {
  for (const int copies : {3, 5, 7}) {
    const nxd_plan_layout_t layout = layout_of(1, 1, copies, 1, 10);
    nxd_plan_machine_t machine = round_machine();
    const double within = predict(small_model(), machine, layout).step_seconds;
    for (const int per_host : {copies, copies + 1, 64}) {
      machine.ranks_per_host = per_host;
      assert_near(predict(small_model(), machine, layout).step_seconds, within);
    }
    machine.ranks_per_host = copies - 1;
    assert_true(predict(small_model(), machine, layout).step_seconds > within);
  }
}

// The pipeline's time is that of the schedule's report for the stages' own costs.
void test_pipeline_report(void**) {
  const nxd_plan_model_t model = small_model();
  const nxd_plan_machine_t machine = round_machine();
  const nxd::ModelSizes read = nxd::read_plan_model(model);
  for (const auto kind : {NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_GPIPE, NXD_PP_SCHEDULE_INTERLEAVED,
                          NXD_PP_SCHEDULE_ZERO_BUBBLE}) {
    nxd_plan_layout_t layout = layout_of(1, 2, 1, 6, 10);
    layout.schedule = kind;
    layout.virtual_size = kind == NXD_PP_SCHEDULE_INTERLEAVED ? 2 : 1;
    layout = nxd::read_plan_layout(layout, read);
    const nxd::PlanParts parts = nxd::plan_parts(read, machine, layout);
    const int stages = 2 * layout.virtual_size;
    std::vector<double> forward, input, weight;
    for (int stage = 0; stage < stages; ++stage) {
      const int layers = 4 / stages;
      const auto cost = [&](nxd::PassTime nxd::PlanPart::*pass) {
        double sum = layers * (parts.layer.*pass).sum();
        if (stage == 0) sum += (parts.embedding.*pass).sum();
        if (stage == stages - 1) sum += (parts.head.*pass).sum();
        return sum;
      };
      forward.push_back(cost(&nxd::PlanPart::forward));
      input.push_back(cost(&nxd::PlanPart::input));
      weight.push_back(cost(&nxd::PlanPart::weight));
    }
    nxd_pp_costs_t costs = NXD_PP_COSTS_INIT;
    costs.forward = forward.data();
    costs.backward_input = input.data();
    costs.backward_weight = weight.data();
    costs.transfer = 1e-3 + 2 * 320 / 1e6;  // two values of 10 x 8
    nxd_pp_schedule_t* schedule = nullptr;
    nxd_pp_report_t report = {};
    report.struct_size = sizeof report;
    assert_int_equal(nxd_pp_schedule_create(kind, 2, layout.virtual_size, 6, &schedule), NXD_OK);
    assert_int_equal(nxd_pp_schedule_get_report(schedule, &costs, &report), NXD_OK);
    nxd_pp_schedule_destroy(schedule);
    const auto p = predict(model, machine, layout);
    assert_near(p.pipeline_seconds, report.makespan, 1e-9);
    assert_near(p.bubble_share, report.bubble_share, 1e-9);
    assert_near(p.transfer_seconds, costs.transfer);
  }
}

// Kept activations are those of the schedule: p - r microbatches under 1F1B, all under GPipe.
void test_pipeline_memory(void**) {
  nxd_plan_layout_t layout = layout_of(1, 2, 1, 6, 10);
  // The last rank keeps one microbatch, with 264 + 2 x 656 parameters; the first keeps two, with
  // 256 + 2 x 656, and is the fullest.
  auto p = predict(small_model(), round_machine(), layout);
  assert_int_equal(p.fullest_rank, 0);
  assert_int_equal(p.busiest_rank, 1);  // it has the head
  // The first of the two that share the last stage.
  const auto two = predict(small_model(), round_machine(), layout_of(2, 2, 1, 6, 10));
  assert_int_equal(two.busiest_rank, 2);
  assert_int_equal(p.parameter_bytes, 4 * (256 + 2 * 656));
  assert_int_equal(p.activation_bytes, 2 * 2 * kLayerBytes);
  layout.schedule = NXD_PP_SCHEDULE_GPIPE;
  p = predict(small_model(), round_machine(), layout);
  assert_int_equal(p.fullest_rank, 1);
  const uint64_t head = 2 * block(320) + block(1024);
  assert_int_equal(p.activation_bytes, 6 * (2 * kLayerBytes + head));
  layout.recompute = 1;  // two values of 10 x 8 of each layer
  p = predict(small_model(), round_machine(), layout);
  assert_int_equal(p.activation_bytes, 6 * (2 * 2 * block(320) + head));
  // Tied weights are in both.
  nxd_plan_model_t tied = small_model();
  tied.tied_embeddings = 1;
  assert_int_equal(predict(tied, round_machine(), layout_of(1, 1, 1, 1, 10)).parameter_bytes,
                   4 * (3144 - 256));
  assert_int_equal(predict(tied, round_machine(), layout).parameter_bytes, 4 * (264 + 2 * 656));
}

// A head as dear as three layers: cut by cost it is a stage of its own.
void test_cuts(void**) {
  nxd_plan_model_t model = small_model();
  model.num_layers = 5;
  const int64_t layer = 2 * 640 + 4 * 10 * 8;  // operations of a token, of ten
  model.vocab_size = 3 * layer / (2 * 8);
  const nxd::ModelSizes m = nxd::read_plan_model(model);
  const auto check = [&](nxd_pp_partition_t partition, const std::vector<int>& expected) {
    const int stages = static_cast<int>(expected.size());
    assert_true(nxd::stage_layers(m, partition, stages, 10) == expected);
  };
  check(NXD_PP_PARTITION_EVEN, {2, 3});
  check(NXD_PP_PARTITION_EVEN, {1, 2, 2});
  check(NXD_PP_PARTITION_COST, {4, 1});
  check(NXD_PP_PARTITION_COST, {2, 3, 0});
  check(NXD_PP_PARTITION_COST, {1, 1, 1, 2, 0});
  check(NXD_PP_PARTITION_COST, {5});
  // With no layer it has the head alone.
  nxd_plan_layout_t layout = layout_of(1, 3, 1, 6, 10);
  layout.partition = NXD_PP_PARTITION_COST;
  layout.schedule = NXD_PP_SCHEDULE_GPIPE;
  layout.recompute = 1;
  const auto p = predict(model, round_machine(), layout);
  assert_int_equal(p.fullest_rank, 2);
  assert_int_equal(p.busiest_rank, 1);  // three layers that are recomputed, as dear as the head
  assert_int_equal(p.parameter_bytes, 4 * 8 * (1 + model.vocab_size));
  assert_int_equal(p.activation_bytes, 6 * (2 * block(320) + block(10240)));  // 9600, in its class
}

struct RandomPlans {
  std::mt19937_64 random{7};

  int draw(std::vector<int> values) { return values[random() % values.size()]; }

  nxd_plan_model_t model() {
    nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
    model.hidden_size = draw({64, 128});
    model.num_layers = draw({4, 6, 8, 16});
    model.num_heads = draw({4, 8});
    model.num_kv_heads = draw({2, 4});
    model.intermediate_size = draw({128, 256});
    model.vocab_size = draw({64, 4096});
    model.gated_mlp = draw({0, 1});
    model.tied_embeddings = draw({0, 1});
    return model;
  }

  nxd_plan_layout_t layout() {
    nxd_plan_layout_t layout =
        layout_of(draw({1, 2, 4}), draw({1, 2, 4}), draw({1, 2, 8}), draw({4, 8, 12, 20}), 64);
    layout.microbatch_size = draw({1, 3});
    layout.schedule = draw({NXD_PP_SCHEDULE_1F1B, NXD_PP_SCHEDULE_GPIPE,
                            NXD_PP_SCHEDULE_INTERLEAVED, NXD_PP_SCHEDULE_ZERO_BUBBLE});
    if (layout.schedule == NXD_PP_SCHEDULE_INTERLEAVED) {
      layout.pipeline_parallel_size = 2;
      layout.virtual_size = 2;
    }
    layout.dtype = draw({NXD_DTYPE_F32, NXD_DTYPE_BF16});
    layout.zero_stage = draw({0, 1});
    layout.sequence_parallel = draw({0, 1});
    layout.partition = draw({NXD_PP_PARTITION_EVEN, NXD_PP_PARTITION_COST});
    return layout;
  }

  nxd_plan_machine_t machine() {
    nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
    machine.ranks_per_host = draw({0, 1, 2, 4, 8});
    machine.link_bandwidth = draw({1, 100}) * 1e8;
    return machine;
  }
};

// Properties of every layout, whatever its figures.
void test_properties(void**) {
  RandomPlans random;
  for (int i = 0; i < 1500; ++i) {
    const nxd_plan_model_t model = random.model();
    const nxd_plan_machine_t machine = random.machine();
    const nxd_plan_layout_t layout = random.layout();
    const auto p = predict(model, machine, layout);
    assert_true(p.gemm_share > 0 && p.gemm_share < 1);
    assert_true(p.bubble_share >= 0 && p.bubble_share < 1);
    assert_true(p.exposed_seconds <= p.data_parallel_seconds);
    assert_true(p.pipeline_seconds <= p.step_seconds);
    assert_int_equal(p.total_bytes, p.parameter_bytes + p.grad_bytes + p.optimizer_bytes +
                                        p.activation_bytes + p.buffer_bytes);

    // The bound that the search prunes by.
    const nxd::ModelSizes m = nxd::read_plan_model(model);
    const nxd_plan_machine_t read = nxd::read_plan_machine(machine);
    const nxd_plan_layout_t l = nxd::read_plan_layout(layout, m);
    const nxd::LayoutPlan plan(
        m, read, l,
        nxd::stage_layers(m, l.partition, l.pipeline_parallel_size * l.virtual_size,
                          l.sequence_length));
    assert_true(plan.least_seconds() <= p.step_seconds * (1 + 1e-12));

    nxd_plan_machine_t better = machine;
    better.memory_bandwidth = 40e9;
    better.gemm_rate_f32 = 200e9;
    better.gemm_rate_bf16 = 400e9;
    better.host_bandwidth = 40e9;
    assert_true(predict(model, better, layout).step_seconds <= p.step_seconds);
    nxd_plan_machine_t worse = machine;
    worse.link_latency = 1e-3;
    worse.link_bandwidth = machine.link_bandwidth / 2;
    assert_true(predict(model, worse, layout).step_seconds >= p.step_seconds * (1 - 1e-12));

    nxd_plan_layout_t other = layout;
    other.recompute = 1;
    const auto recomputed = predict(model, machine, other);
    if (layout.pipeline_parallel_size == 1) {  // with several, another may be the fullest
      assert_true(recomputed.activation_bytes < p.activation_bytes);
    }
    assert_true(recomputed.step_seconds > p.step_seconds);
    other = layout;
    other.num_microbatches *= 2;
    assert_true(predict(model, machine, other).step_seconds > p.step_seconds);
    other = layout;
    other.dtype = NXD_DTYPE_F32;
    other.zero_stage = 1;
    const auto sharded = predict(model, machine, other);
    other.data_parallel_size *= 2;
    // In a pipeline another stage may become the fullest, and its state counts then.
    if (layout.pipeline_parallel_size == 1) {
      assert_true(predict(model, machine, other).optimizer_bytes <=
                  sharded.optimizer_bytes / 2 + 1);
    }
  }
}

// Every layout of eight ranks, one after the other.
double best_of_all(const nxd_plan_model_t& model, const nxd_plan_machine_t& machine, int batch,
                   int* tried) {
  double best = INFINITY;
  nxd_plan_layout_t l = layout_of(1, 1, 1, 1, 64);
  for (int bits = 0; bits < 4 * 4 * 4 * 6 * 2 * 2 * 2 * 2 * 5; ++bits) {
    int rest = bits;
    const auto take = [&](int range) {
      const int digit = rest % range;
      rest /= range;
      return digit;
    };
    l.tensor_parallel_size = 1 << take(4);
    l.pipeline_parallel_size = 1 << take(4);
    l.virtual_size = 1 + take(4);
    l.microbatch_size = 1 << take(6);
    l.sequence_parallel = take(2);
    l.recompute = take(2);
    l.zero_stage = take(2);
    l.partition = 1 + take(2);
    l.schedule = take(5);
    if (8 % (l.tensor_parallel_size * l.pipeline_parallel_size) != 0) continue;
    l.data_parallel_size = 8 / l.tensor_parallel_size / l.pipeline_parallel_size;
    if (batch % (l.data_parallel_size * l.microbatch_size) != 0) continue;
    l.num_microbatches = batch / l.data_parallel_size / l.microbatch_size;
    nxd_plan_prediction_t p = {};
    p.struct_size = sizeof p;
    if (nxd_plan_predict(&model, &machine, &l, &p) != NXD_OK || !p.fits) continue;
    ++*tried;
    best = std::min(best, p.step_seconds);
  }
  return best;
}

void test_search_finds_the_best(void**) {
  RandomPlans random;
  int tried = 0;
  for (int i = 0; i < 12; ++i) {
    const nxd_plan_model_t model = random.model();
    nxd_plan_machine_t machine = random.machine();
    if (i % 2 == 1) machine.memory_bytes = 24 << 20;
    nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
    options.world_size = 8;
    options.sequence_length = 64;
    options.batch_size = 8 << i % 3;
    const double expected =
        best_of_all(model, machine, static_cast<int>(options.batch_size), &tried);
    nxd_plan_layout_t layouts[5];
    nxd_plan_prediction_t predictions[5];
    for (int k = 0; k < 5; ++k) {
      layouts[k].struct_size = sizeof layouts[k];
      predictions[k].struct_size = sizeof predictions[k];
    }
    size_t count = 0;
    const nxd_status_t status =
        nxd_plan_search(&model, &machine, &options, layouts, predictions, 5, &count);
    if (std::isinf(expected)) {
      assert_int_equal(status, NXD_ERROR_INVALID_ARGUMENT);
      assert_true(std::string(nxd_last_error()).find("memory_bytes: expected at least") !=
                  std::string::npos);
      continue;
    }
    assert_int_equal(status, NXD_OK);
    assert_true(count >= 1 && count <= 5);
    assert_near(predictions[0].step_seconds, expected, 1e-12);
    for (size_t k = 0; k < count; ++k) {
      assert_near(predict(model, machine, layouts[k]).step_seconds, predictions[k].step_seconds);
      assert_int_equal(predictions[k].fits, 1);
      if (k > 0) assert_true(predictions[k].step_seconds >= predictions[k - 1].step_seconds);
    }
  }
  assert_true(tried > 1000);
}

nxd_plan_model_t large_model() {
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  model.hidden_size = 8192;
  model.num_layers = 80;
  model.num_heads = 64;
  model.num_kv_heads = 8;
  model.intermediate_size = 28672;
  model.vocab_size = 128256;
  model.gated_mlp = 1;
  return model;
}

void test_search_many_ranks(void**) {
  const nxd_plan_model_t model = large_model();
  nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  machine.ranks_per_host = 64;
  machine.memory_bytes = uint64_t{16} << 30;
  machine.link_bandwidth = 50e9;
  nxd_plan_search_options_t options = NXD_PLAN_SEARCH_OPTIONS_INIT;
  options.world_size = 65536;
  options.sequence_length = 4096;
  options.batch_size = 16384;
  options.dtype = NXD_DTYPE_BF16;
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  nxd_plan_prediction_t prediction = {};
  prediction.struct_size = sizeof prediction;
  size_t count = 0;
  assert_int_equal(nxd_plan_search(&model, &machine, &options, &layout, &prediction, 1, &count),
                   NXD_OK);
  assert_int_equal(count, 1);
  assert_int_equal(
      layout.tensor_parallel_size * layout.pipeline_parallel_size * layout.data_parallel_size,
      65536);
  assert_int_equal(
      int64_t{layout.data_parallel_size} * layout.num_microbatches * layout.microbatch_size, 16384);
  assert_true(prediction.total_bytes <= machine.memory_bytes && prediction.gemm_share > 0.1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_models),
                              cmocka_unit_test(test_one_rank_by_hand),
                              cmocka_unit_test(test_bert_by_hand),
                              cmocka_unit_test(test_windows),
                              cmocka_unit_test(test_uneven_shares),
                              cmocka_unit_test(test_collectives_by_hand),
                              cmocka_unit_test(test_a_world_within_a_host),
                              cmocka_unit_test(test_pipeline_report),
                              cmocka_unit_test(test_pipeline_memory),
                              cmocka_unit_test(test_cuts),
                              cmocka_unit_test(test_properties),
                              cmocka_unit_test(test_search_finds_the_best),
                              cmocka_unit_test(test_search_many_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
