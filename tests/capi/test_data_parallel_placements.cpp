// A model that is split over tensor- and pipeline-parallel ranks, in a caller's buffers: norms,
// clipping, updates and saved states equal those of one process that has all of it.
#include <algorithm>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Split {
  int32_t tensor, pipeline, data;
  int32_t zero_stage;
  bool first_innermost = false;  // arrays are not in C order
  int ranks() const { return tensor * pipeline * data; }
  std::string text() const {
    return "TP " + std::to_string(tensor) + " PP " + std::to_string(pipeline) + " DP " +
           std::to_string(data) + " ZeRO " + std::to_string(zero_stage) +
           (first_innermost ? " first dimension innermost" : "");
  }
};

// A parameter of the undivided model. Its gradient depends on its values and on a sample.
struct Entry {
  const char* name;
  int stage;  // of two; -1: both stages have it
  std::vector<int64_t> shape;
  nxd_placement_t placement;
  int32_t dim;
};
const std::vector<Entry> kModel = {
    {"embedding", -1, {6, 5}, NXD_PLACEMENT_SHARDED, 0},
    {"up", 0, {8, 5}, NXD_PLACEMENT_SHARDED, 0},
    {"up.bias", 0, {8}, NXD_PLACEMENT_SHARDED, 0},
    {"down", 0, {5, 8}, NXD_PLACEMENT_SHARDED, -1},
    {"down.bias", 0, {5}, NXD_PLACEMENT_REPLICATED, 7},  // which does not count
    {"norm", 0, {5}, NXD_PLACEMENT_PARTIAL_GRAD, 0},
    {"heads", 1, {3, 4, 2}, NXD_PLACEMENT_SHARDED, 1},
    {"scale", 1, {}, NXD_PLACEMENT_REPLICATED, 0},
    {"norm.last", 1, {5}, NXD_PLACEMENT_PARTIAL_GRAD, 0},
};
constexpr int kSamples = 4;

// One rank's part of the model.
class Part {
 public:
  Part(nxd_context_t* ctx, const Split& split, nxd_dtype_t dtype) : split_(split) {
    const auto rank_of = [&](nxd_axis_t axis) {
      int32_t rank = 0;
      if (split.ranks() > 1) NXD_TEST_OK(nxd_parallel_get_rank(ctx, axis, &rank));
      return rank;
    };
    tensor_ = rank_of(NXD_AXIS_TENSOR), stage_ = rank_of(NXD_AXIS_PIPELINE);
    data_ = rank_of(NXD_AXIS_DATA);
    for (size_t k = 0; k < kModel.size(); ++k) {
      const Entry& entry = kModel[k];
      const int stage = std::min(entry.stage, split.pipeline - 1);
      if (entry.stage >= 0 && stage != stage_) continue;
      held_.push_back(k);
      std::vector<int64_t> shape = entry.shape;
      if (entry.placement == NXD_PLACEMENT_SHARDED) shape[axis(entry)] /= split.tensor;
      params.push_back(std::make_unique<Array>(shape, dtype, split.first_innermost));
      grads.push_back(std::make_unique<Array>(shape, dtype, split.first_innermost));
      for (int64_t i = 0; i < params.back()->count(); ++i) {
        params.back()->set(i, wave(global(entry, i), static_cast<int>(k)));
      }
    }
  }

  nxd_status_t create(nxd_context_t* ctx, Ddp& out) {
    std::vector<DLTensor*> p, g;
    std::vector<const char*> names;
    for (const auto& array : params) p.push_back(array->tensor());
    for (const auto& array : grads) g.push_back(array->tensor());
    for (const size_t k : held_) names.push_back(kModel[k].name);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = split_.zero_stage;
    options.bucket_bytes = 256;
    nxd_ddp_t* ddp = nullptr;
    const nxd_status_t status = nxd_ddp_create_buffers(ctx, nullptr, names.data(), p.data(),
                                                       g.data(), p.size(), &options, &ddp);
    out.reset(ddp);
    return status;
  }
  nxd_status_t place(const Ddp& ddp) const {
    std::vector<nxd_placement_t> placements;
    std::vector<int32_t> dims, tied;
    for (const size_t k : held_) {
      placements.push_back(kModel[k].placement);
      dims.push_back(kModel[k].dim);
      tied.push_back(kModel[k].stage < 0 && stage_ > 0);
    }
    return nxd_ddp_set_placements(ddp.get(), placements.data(), dims.data(), tied.data(),
                                  placements.size());
  }

  // The loss is sum((p - t)^2) / 2 over this rank's samples, whose targets t are waves.
  void set_gradients() {
    const int each = kSamples / split_.data;
    for (size_t h = 0; h < held_.size(); ++h) {
      const Entry& entry = kModel[held_[h]];
      // Tensor-parallel ranks have parts of unequal sizes.
      const double whole = split_.tensor * (split_.tensor + 1) / 2.0;
      const double part = entry.placement == NXD_PLACEMENT_PARTIAL_GRAD ? (tensor_ + 1) / whole : 1;
      for (int64_t i = 0; i < params[h]->count(); ++i) {
        double sum = 0;
        for (int sample = data_ * each; sample < (data_ + 1) * each; ++sample) {
          sum += params[h]->get(i) -
                 0.3 * wave(3 * global(entry, i) + 7 * sample, sample + static_cast<int>(h_of(h)));
        }
        grads[h]->set(i, sum * part);
      }
    }
  }

  // Values of the undivided model, where this rank has them.
  std::vector<std::pair<size_t, double>> values() const {
    std::vector<std::pair<size_t, double>> out;
    for (size_t h = 0; h < held_.size(); ++h) {
      for (int64_t i = 0; i < params[h]->count(); ++i) {
        out.emplace_back(held_[h] * 1000 + static_cast<size_t>(global(kModel[held_[h]], i)),
                         params[h]->get(i));
      }
    }
    return out;
  }

  std::vector<std::unique_ptr<Array>> params, grads;

 private:
  size_t h_of(size_t h) const { return held_[h]; }
  static size_t axis(const Entry& entry) {
    return static_cast<size_t>(entry.dim < 0 ? entry.dim + static_cast<int>(entry.shape.size())
                                             : entry.dim);
  }
  // The place in the undivided parameter of an element of this rank's part.
  int64_t global(const Entry& entry, int64_t i) const {
    if (entry.placement != NXD_PLACEMENT_SHARDED) return i;
    int64_t inner = 1;
    for (size_t d = axis(entry) + 1; d < entry.shape.size(); ++d) inner *= entry.shape[d];
    const int64_t run = entry.shape[axis(entry)] / split_.tensor * inner;
    return (i / run * split_.tensor + tensor_) * run + i % run;
  }

  Split split_;
  int32_t tensor_, stage_, data_;
  std::vector<size_t> held_;
};

bool init_layout(nxd_context_t* ctx, const Split& split) {
  if (split.ranks() == 1) return true;
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = split.tensor;
  options.pipeline_parallel_size = split.pipeline;
  return NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
}

struct Run {
  std::vector<std::pair<size_t, double>> values;
  std::vector<double> norms;
};

struct Plan : AdamWSteps {
  nxd_dtype_t dtype = NXD_DTYPE_F64;
};

Run train(nxd_context_t* ctx, const Split& split, const Plan& plan) {
  Run run;
  if (!init_layout(ctx, split)) return run;
  Part part(ctx, split, plan.dtype);
  Ddp ddp;
  if (!NXD_TEST_OK(part.create(ctx, ddp))) return run;
  if (split.ranks() > 1) NXD_TEST_OK(part.place(ddp));
  run.norms = plan.run(ddp, [&] { part.set_gradients(); });
  run.values = part.values();
  return run;
}

std::vector<Run> train_on_ranks(const Split& split, const Plan& plan) {
  return on_ranks<Run>(split.ranks(),
                       [&](nxd_context_t* ctx, int, int) { return train(ctx, split, plan); });
}

// The undivided model on one rank, without any placement.
constexpr Split kAlone{1, 1, 1, 0};

void check_equal(const Split& split, const std::vector<Run>& runs, const Run& expected,
                 double tolerance) {
  std::vector<double> values(kModel.size() * 1000, NAN);
  for (const auto& [at, value] : expected.values) values[at] = value;
  size_t seen = 0;
  for (const Run& run : runs) {
    if (run.norms != runs[0].norms) fail_msg("%s: norms differ among ranks", split.text().c_str());
    for (size_t i = 0; i < expected.norms.size(); ++i) {
      if (std::fabs(run.norms[i] - expected.norms[i]) <= tolerance * expected.norms[i]) continue;
      fail_msg("%s: norm %.17g, expected %.17g", split.text().c_str(), run.norms[i],
               expected.norms[i]);
    }
    for (const auto& [at, value] : run.values) {
      ++seen;
      if (std::fabs(value - values[at]) <= tolerance) continue;
      fail_msg("%s: element %zu is %.17g, expected %.17g", split.text().c_str(), at, value,
               values[at]);
    }
  }
  assert_true(seen >= expected.values.size());
}

const std::vector<Split> kSplits = {{2, 1, 2, 0},       {2, 1, 2, 1},      {1, 2, 2, 0},
                                    {1, 2, 2, 1},       {2, 2, 2, 0},      {2, 2, 2, 1},
                                    {2, 1, 1, 0},       {1, 2, 1, 1},      {2, 1, 2, 1, true},
                                    {2, 2, 1, 0, true}, {1, 1, 2, 1, true}};

void clipping(void**) {
  for (const double norm_type : {2.0, 1.0, HUGE_VAL}) {
    for (const double max_norm : {0.0, 0.5}) {
      Plan plan;
      plan.norm_type = norm_type;
      plan.max_norm = max_norm;
      const Run expected = train_on_ranks(kAlone, plan)[0];
      assert_true(expected.norms[0] > 0.5);  // so that clipping does something
      for (const Split& split : kSplits) {
        check_equal(split, train_on_ranks(split, plan), expected, 1e-12);
      }
    }
  }
}

// A state that one layout wrote goes on in another.
void saved_states(void**) {
  const TempDir directory;
  Plan first, second, through;
  first.save = directory.path() + "/state.safetensors";
  second.load = first.save;
  through.steps = first.steps;
  for (const Split& split :
       {Split{2, 1, 2, 1}, Split{2, 2, 2, 0}, Split{1, 2, 2, 1}, Split{2, 1, 2, 1, true}}) {
    train_on_ranks(split, first);
    const Run expected = [&] {
      Plan alone = first;
      alone.save = directory.path() + "/alone.safetensors";
      train_on_ranks(kAlone, alone);
      alone.load = alone.save;
      alone.save = "";
      return train_on_ranks(kAlone, alone)[0];
    }();
    check_equal(kAlone, train_on_ranks(kAlone, second), expected, 1e-12);
    for (const Split& other :
         {Split{2, 1, 1, 0}, Split{1, 2, 2, 1}, Split{2, 2, 2, 1}, Split{2, 1, 2, 1, true}}) {
      check_equal(other, train_on_ranks(other, second), expected, 1e-12);
    }
  }
}

// A parameter that one tensor-parallel rank did not use counts as zeros there, whatever lies in its
// gradient from before, also where that rank has no data-parallel peer.
void unused_on_one_rank(void**) {
  for (const Split& split :
       {Split{2, 1, 1, 0}, Split{2, 1, 1, 1}, Split{2, 1, 2, 0}, Split{2, 1, 2, 1}}) {
    const bool is_sum[] = {true, false};
    const std::vector<std::vector<double>> values = on_ranks<
        std::vector<double>>(split.ranks(), [&](nxd_context_t* ctx, int, int) {
      init_layout(ctx, split);
      int32_t place = -1;
      NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &place));
      BufferModel model({{4}, {4}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = split.zero_stage;
      options.reduce = NXD_REDUCE_AVG;
      NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
      const nxd_placement_t placements[] = {NXD_PLACEMENT_PARTIAL_GRAD, NXD_PLACEMENT_REPLICATED};
      NXD_TEST_OK(nxd_ddp_set_placements(ddp.get(), placements, nullptr, nullptr, 2));
      nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
      sgd.learning_rate = 1;
      nxd_optimizer_t* made = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made));
      const Optimizer optimizer(made);
      for (size_t k = 0; k < 2; ++k) {
        for (int64_t i = 0; i < 4; ++i) {
          model.params[k]->set(i, 8);
          model.grads[k]->set(i, is_sum[k] && place == 1 ? 100 : 1);
        }
      }
      NXD_TEST_OK(place == 1 ? nxd_ddp_mark_unused(ddp.get(), 0)
                             : nxd_ddp_mark_ready(ddp.get(), 0));
      nxd_step_report_t report = {};
      report.struct_size = sizeof report;
      NXD_TEST_OK(nxd_optimizer_step(made, nullptr, &report));
      NXD_TEST_CHECK(std::fabs(report.norm - std::sqrt(8)) < 1e-6);
      return model.values();
    });
    for (const auto& of_rank : values) {
      for (const double value : of_rank) {
        if (value != 7) fail_msg("%s: got %g, expected 7", split.text().c_str(), value);
      }
    }
  }
}

// Partial gradients of more bytes than are summed in one call: each counts once.
void large_partial_gradients(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int, int) {
    init_layout(ctx, {2, 1, 1, 0});
    constexpr int64_t kCount = 3'000'000;
    const Shapes shapes(3, {kCount});
    BufferModel model(shapes, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    NXD_TEST_OK(model.create_ddp(ctx, NXD_DDP_OPTIONS_INIT, ddp));
    const std::vector<nxd_placement_t> placements(3, NXD_PLACEMENT_PARTIAL_GRAD);
    NXD_TEST_OK(nxd_ddp_set_placements(ddp.get(), placements.data(), nullptr, nullptr, 3));
    for (const auto& grad : model.grads) {
      auto* values = static_cast<float*>(grad->data());
      std::fill(values, values + kCount, 1.0F);
    }
    double norm = 0;
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, &norm));
    for (const auto& grad : model.grads) {
      const auto* values = static_cast<const float*>(grad->data());
      NXD_TEST_CHECK(std::count(values, values + kCount, 2.0F) == kCount);
    }
    NXD_TEST_CHECK(std::fabs(norm - 2 * std::sqrt(3.0 * kCount)) < 1e-6 * norm);
    return 0;
  });
}

// Random bits of an update follow the place in the undivided parameter.
void stochastic_rounding(void**) {
  Plan plan;
  plan.dtype = NXD_DTYPE_BF16;
  plan.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
  plan.steps = 1;
  plan.max_norm = 0;
  const Run expected = train_on_ranks(kAlone, plan)[0];
  for (const Split& split : {Split{2, 1, 1, 0}, Split{1, 2, 1, 0}, Split{2, 2, 1, 0}}) {
    // Partial gradients are rounded before they are summed, so that norms differ a little.
    const std::vector<Run> runs = train_on_ranks(split, plan);
    size_t other = 0, all = 0;
    std::vector<double> values(kModel.size() * 1000, NAN);
    for (const auto& [at, value] : expected.values) values[at] = value;
    for (const Run& run : runs) {
      for (const auto& [at, value] : run.values) {
        const Entry& entry = kModel[at / 1000];
        if (entry.placement == NXD_PLACEMENT_PARTIAL_GRAD) continue;
        ++all;
        if (value != values[at]) ++other;
      }
    }
    assert_true(all > 0);
    assert_int_equal(other, 0);
  }
}

// --- Bad calls ----------------------------------------------------------------------------------

struct Arguments {
  std::vector<nxd_placement_t> placements = {NXD_PLACEMENT_SHARDED, NXD_PLACEMENT_REPLICATED};
  std::vector<int32_t> dims = {0, 0}, tied = {0, 0};
  const nxd_placement_t* given = placements.data();
  size_t n = 2;
};

struct Slip {
  const char* message;
  std::function<void(Arguments&)> spoil;
};

const Slip kSlips[] = {
    {"num_params: expected 2, got 1", [](Arguments& a) { a.n = 1; }},
    {"placements: expected an array of 2, got NULL", [](Arguments& a) { a.given = nullptr; }},
    {"placements[1]: expected an NXD_PLACEMENT_*, got 3",
     [](Arguments& a) { a.placements[1] = 3; }},
    {"placements[0]: expected an NXD_PLACEMENT_*, got -1",
     [](Arguments& a) { a.placements[0] = -1; }},
    {"dims[0]: expected a dimension of 0, which has 2, got 2", [](Arguments& a) { a.dims[0] = 2; }},
    {"dims[0]: expected a dimension of 0, which has 2, got -3",
     [](Arguments& a) { a.dims[0] = -3; }},
    {"tied[1]: expected 0 or 1, got 2", [](Arguments& a) { a.tied[1] = 2; }},
    // Good, but others than those of the peers.
    {"names, shapes and placements of the stage's parameters", [](Arguments& a) { a.dims[0] = 1; }},
    {"names, shapes and placements of the stage's parameters",
     [](Arguments& a) { a.placements[1] = NXD_PLACEMENT_PARTIAL_GRAD; }},
    {"names, shapes and placements of the stage's parameters", [](Arguments& a) { a.tied[0] = 1; }},
};

nxd_status_t set(const Ddp& ddp, const Arguments& a) {
  return nxd_ddp_set_placements(ddp.get(), a.given, a.dims.data(), a.tied.data(), a.n);
}

void bad_calls(void**) {
  on_ranks<int>(4, [&](nxd_context_t* ctx, int rank, int) {
    init_layout(ctx, {2, 1, 2, 0});
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    for (const Slip& slip : kSlips) {
      Arguments arguments;
      if (rank == 1) slip.spoil(arguments);
      NXD_TEST_REFUSED(set(ddp, arguments), NXD_ERROR_INVALID_ARGUMENT, slip.message);
    }
    if (rank == 2) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 0));
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_INVALID_STATE, "gradients are marked");
    model.set_gradients(0, 1);
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    NXD_TEST_OK(set(ddp, {}));
    nxd_finish_options_t clip = NXD_FINISH_OPTIONS_INIT;
    clip.max_norm = 1;
    double norm = 0;
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), &clip, &norm));
    NXD_TEST_CHECK(norm > 0);
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.learning_rate = 1;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &made));
    const Optimizer optimizer(made);
    NXD_TEST_OK(nxd_optimizer_step(made, &clip, nullptr));
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_INVALID_STATE, "before the first step");
    NXD_TEST_REFUSED(nxd_ddp_set_placements(nullptr, nullptr, nullptr, nullptr, 0),
                     NXD_ERROR_INVALID_ARGUMENT, "ddp: expected");
    return 0;
  });
}

// One file would have one rank's part in place of all, and be read by the others.
void unplaced_states(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state.safetensors";
  const char* part = "a part of it; say which parameters are parts by nxd_ddp_set_placements";
  for (const Split& split : {Split{2, 1, 2, 1}, Split{1, 2, 1, 0}}) {
    on_ranks<int>(split.ranks(), [&](nxd_context_t* ctx, int, int) {
      init_layout(ctx, split);
      BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = split.zero_stage;
      NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
      nxd_optimizer_t* made = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &made));
      const Optimizer optimizer(made);
      model.set_gradients(0, 1);
      NXD_TEST_OK(nxd_optimizer_step(made, nullptr, nullptr));
      NXD_TEST_REFUSED(nxd_optimizer_save(made, path.c_str()), NXD_ERROR_UNSUPPORTED, part);
      nxd_training_state_t* state = nullptr;
      NXD_TEST_OK(nxd_training_state_create(ctx, &state));
      NXD_TEST_OK(nxd_training_state_add_optimizer(state, "optimizer", made));
      NXD_TEST_REFUSED(nxd_training_state_save(state, directory.path().c_str(), 1, 1),
                       NXD_ERROR_UNSUPPORTED, part);
      nxd_training_state_destroy(state);
      return 0;
    });
    assert_false(std::filesystem::exists(path));
  }
}

// A pattern is for a parameter of the model, whichever stage has it; one for none is a mistake.
void patterns_of_all_stages(void**) {
  on_ranks<int>(4, [&](nxd_context_t* ctx, int, int) {
    const Split split{2, 2, 1, 0};
    init_layout(ctx, split);
    Part part(ctx, split, NXD_DTYPE_F32);
    Ddp ddp;
    NXD_TEST_OK(part.create(ctx, ddp));
    NXD_TEST_OK(part.place(ddp));
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &made));
    const Optimizer optimizer(made);
    for (const Entry& parameter : kModel) {
      const char* pattern = parameter.name;
      NXD_TEST_OK(nxd_optimizer_add_group(made, &pattern, 1, nullptr));
    }
    const char* none = "*.biass";
    int32_t group = 7;
    NXD_TEST_REFUSED(nxd_optimizer_add_group(made, &none, 1, &group), NXD_ERROR_INVALID_ARGUMENT,
                     "matches none of");
    NXD_TEST_CHECK(group == 0);
    return 0;
  });
}

void other_groups(void**) {
  on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_INVALID_STATE, "initialised");
    init_layout(ctx, {2, 1, 1, 0});
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_INVALID_ARGUMENT,
                     "ddp: expected one over the data-parallel group");
    return 0;
  });
  // Stages whose parameters have the same names would overwrite one another's states.
  on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
    init_layout(ctx, {1, 2, 1, 0});
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_INVALID_ARGUMENT,
                     "names: expected different names in all pipeline stages");
    return 0;
  });
}

// Where tensor-parallel groups are rings, the ranks of a copy are no run of numbers: two rings of
// 32 on a host of 64. All ranks find the norm of one process that has the whole.
void norm_over_rings(void**) {
  constexpr int kRing = 32;
  for (const int32_t zero_stage : {0, 1}) {
    const std::vector<double> norms =
        on_ranks<double>(2 * kRing, [&](nxd_context_t* ctx, int, int) {
          nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
          layout.tensor_parallel_size = kRing;
          layout.platform = NXD_PLATFORM_TRN2;
          layout.lnc_size = 2;
          NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout));
          int32_t place = -1;
          NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &place));
          BufferModel model({{1}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
          nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
          options.zero_stage = zero_stage;
          options.reduce = NXD_REDUCE_AVG;
          Ddp ddp;
          nxd_optimizer_t* made = nullptr;
          const nxd_placement_t sharded = NXD_PLACEMENT_SHARDED;
          if (!NXD_TEST_OK(model.create_ddp(ctx, options, ddp)) ||
              !NXD_TEST_OK(nxd_ddp_set_placements(ddp.get(), &sharded, nullptr, nullptr, 1)) ||
              !NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), nullptr, &made))) {
            return 0.0;
          }
          const Optimizer optimizer(made);
          model.grads[0]->set(0, place + 1);
          nxd_step_report_t report{};
          report.struct_size = sizeof report;
          NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, &report));
          return report.norm;
        });
    const double want = std::sqrt(kRing * (kRing + 1) * (2 * kRing + 1) / 6.0);
    for (const double norm : norms) assert_true(norm == want);
  }
}

void lost_peer(void**) {
  on_ranks<int>(4, [&](nxd_context_t* ctx, int rank, int) {
    init_layout(ctx, {2, 1, 2, 0});
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    if (rank == 3) {
      NXD_TEST_OK(nxd_context_abort(ctx));
      NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_ABORTED, "aborted");
      return 0;
    }
    NXD_TEST_REFUSED(set(ddp, {}), NXD_ERROR_PEER_LOST, "rank 3");
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(clipping),
                              cmocka_unit_test(saved_states),
                              cmocka_unit_test(unused_on_one_rank),
                              cmocka_unit_test(stochastic_rounding),
                              cmocka_unit_test(large_partial_gradients),
                              cmocka_unit_test(bad_calls),
                              cmocka_unit_test(unplaced_states),
                              cmocka_unit_test(patterns_of_all_stages),
                              cmocka_unit_test(other_groups),
                              cmocka_unit_test(norm_over_rings),
                              cmocka_unit_test(lost_peer)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
