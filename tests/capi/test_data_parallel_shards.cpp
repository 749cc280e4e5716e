// Parameters in a caller's buffers that tensor-parallel ranks hold padded, fused, or several ranks
// alike: norms, updates and saved states equal those of one rank that has all.
#include <algorithm>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Split {
  int32_t tensor, data, zero_stage;
  bool first_innermost = false;  // arrays are not in C order
  int ranks() const { return tensor * data; }
  std::string text() const {
    return "TP " + std::to_string(tensor) + " DP " + std::to_string(data) + " ZeRO " +
           std::to_string(zero_stage) + (first_innermost ? " first dimension innermost" : "");
  }
};

struct Entry {
  const char* name;
  std::vector<int64_t> shape;  // of the whole parameter
  int32_t dim;                 // -1: each rank has all of it
  int32_t num_fused, num_heads;
  bool partial_grad;
};
const std::vector<Entry> kModel = {
    {"vocabulary", {5, 3}, 0, 0, 0, false},  // padded by every even number of ranks
    {"gate_up", {16, 3}, 0, 2, 0, false},
    {"gate_up.columns", {3, 16}, 1, 2, 0, false},
    {"keys", {4, 3}, 0, 0, 2, true},  // four ranks share two heads
    {"values.alike", {4, 3}, 0, 0, 2, false},
    {"down", {3, 8}, 1, 0, 0, false},
    {"norm", {3}, -1, 0, 0, true},
    {"bias", {3}, -1, 0, 0, false},
};
constexpr int kSamples = 4;

using Values = std::vector<std::vector<double>>;  // of each whole parameter

int64_t elements(const Entry& entry) {
  int64_t count = 1;
  for (const int64_t size : entry.shape) count *= size;
  return count;
}

Values initial_values() {
  Values values;
  for (size_t k = 0; k < kModel.size(); ++k) {
    std::vector<double>& own = values.emplace_back();
    for (int64_t i = 0; i < elements(kModel[k]); ++i) own.push_back(wave(i, static_cast<int>(k)));
  }
  return values;
}

class Part {
 public:
  Part(nxd_context_t* ctx, const Split& split, const Values& values) : ctx_(ctx), split_(split) {
    NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &tensor_));
    NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &data_));
    for (size_t k = 0; k < kModel.size(); ++k) {
      const Entry& entry = kModel[k];
      nxd_shard_options_t& options = shards_.emplace_back();
      NXD_TEST_OK(nxd_shard_options_init(&options, sizeof options));
      options.has_dim = entry.dim >= 0;
      options.dim = std::max(entry.dim, 0);
      options.num_fused = entry.num_fused;
      options.num_heads = entry.num_heads;
      std::vector<int64_t> shape = entry.shape;
      if (entry.dim >= 0) {
        int64_t& size = shape[static_cast<size_t>(entry.dim)];
        const int parts =
            entry.num_heads > 0 ? std::min(entry.num_heads, split.tensor) : split.tensor;
        if (size % parts != 0) options.size = size;
        size = (size + parts - 1) / parts;
      }
      params_.push_back(std::make_unique<Array>(shape, NXD_DTYPE_F64, split.first_innermost));
      grads_.push_back(std::make_unique<Array>(shape, NXD_DTYPE_F64, split.first_innermost));
      put(values[k], k, *params_.back());
    }
  }

  Ddp make_ddp() {
    std::vector<DLTensor*> p, g;
    std::vector<const char*> names;
    for (const auto& array : params_) p.push_back(array->tensor());
    for (const auto& array : grads_) g.push_back(array->tensor());
    for (const Entry& entry : kModel) names.push_back(entry.name);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = split_.zero_stage;
    options.bucket_bytes = 256;
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx_, nullptr, names.data(), p.data(), g.data(), p.size(),
                                       &options, &ddp));
    std::vector<const nxd_shard_options_t*> shards;
    std::vector<int32_t> partial;
    for (size_t k = 0; k < kModel.size(); ++k) {
      shards.push_back(kModel[k].dim < 0 ? nullptr : &shards_[k]);
      partial.push_back(kModel[k].partial_grad);
    }
    NXD_TEST_OK(nxd_ddp_set_shards(ddp, shards.data(), partial.data(), nullptr, kModel.size()));
    return Ddp(ddp);
  }

  // The loss is sum((p - t)^2) / 2 over this rank's samples, whose targets t are waves.
  void set_gradients() {
    const Values values = gather();
    const int each = kSamples / split_.data;
    for (size_t k = 0; k < kModel.size(); ++k) {
      std::vector<double> gradient(values[k].size(), 0);
      for (int sample = data_ * each; sample < (data_ + 1) * each; ++sample) {
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] += (values[k][i] - 0.3 * wave(3 * static_cast<int64_t>(i) + 7 * sample,
                                                    sample + static_cast<int>(k))) *
                         share(kModel[k]);
        }
      }
      put(gradient, k, *grads_[k]);
    }
  }

  Values gather() {
    Values values;
    for (size_t k = 0; k < kModel.size(); ++k) {
      Array whole(kModel[k].shape, NXD_DTYPE_F64);
      NXD_TEST_OK(nxd_shard_gather_full(ctx_, params_[k]->tensor(), &shards_[k], whole.tensor()));
      std::vector<double>& own = values.emplace_back();
      for (int64_t i = 0; i < whole.count(); ++i) own.push_back(whole.get(i));
    }
    return values;
  }

 private:
  // Ranks that hold the same elements have unequal parts of a partial gradient.
  double share(const Entry& entry) const {
    if (!entry.partial_grad) return 1;
    const int alike = entry.dim < 0 ? split_.tensor : std::max(1, split_.tensor / entry.num_heads);
    return 2.0 * (tensor_ % alike + 1) / (alike * (alike + 1));
  }
  void put(const std::vector<double>& values, size_t k, Array& shard) {
    Array whole(kModel[k].shape, NXD_DTYPE_F64);
    for (int64_t i = 0; i < whole.count(); ++i) whole.set(i, values[static_cast<size_t>(i)]);
    NXD_TEST_OK(nxd_shard_set_full(ctx_, whole.tensor(), &shards_[k], shard.tensor()));
  }

  nxd_context_t* ctx_;
  Split split_;
  int32_t tensor_ = 0, data_ = 0;
  std::vector<nxd_shard_options_t> shards_;
  std::vector<std::unique_ptr<Array>> params_, grads_;
};

struct Run {
  Values values;
  std::vector<double> norms;
};

struct Plan : AdamWSteps {
  Values values = initial_values();
};

void init_layout(nxd_context_t* ctx, const Split& split) {
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.tensor_parallel_size = split.tensor;
  NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
}

Run train(nxd_context_t* ctx, const Split& split, const Plan& plan) {
  Run run;
  init_layout(ctx, split);
  Part part(ctx, split, plan.values);
  const Ddp ddp = part.make_ddp();
  run.norms = plan.run(ddp, [&] { part.set_gradients(); });
  run.values = part.gather();
  return run;
}

std::vector<Run> train_on_ranks(const Split& split, const Plan& plan) {
  return on_ranks<Run>(split.ranks(),
                       [&](nxd_context_t* ctx, int, int) { return train(ctx, split, plan); });
}

constexpr Split kAlone{1, 1, 0};
const std::vector<Split> kSplits = {{2, 1, 0}, {4, 1, 0},       {2, 2, 1},
                                    {4, 1, 1}, {2, 1, 0, true}, {4, 1, 1, true}};

void check_equal(const Split& split, const std::vector<Run>& runs, const Run& expected) {
  for (const Run& run : runs) {
    if (run.norms != runs[0].norms) fail_msg("%s: norms differ among ranks", split.text().c_str());
    assert_int_equal(run.norms.size(), expected.norms.size());
    for (size_t i = 0; i < expected.norms.size(); ++i) {
      if (std::fabs(run.norms[i] - expected.norms[i]) <= 1e-12 * expected.norms[i]) continue;
      fail_msg("%s: norm %.17g, expected %.17g", split.text().c_str(), run.norms[i],
               expected.norms[i]);
    }
    for (size_t k = 0; k < kModel.size(); ++k) {
      for (size_t i = 0; i < expected.values[k].size(); ++i) {
        if (std::fabs(run.values[k][i] - expected.values[k][i]) <= 1e-12) continue;
        fail_msg("%s: %s[%zu] is %.17g, expected %.17g", split.text().c_str(), kModel[k].name, i,
                 run.values[k][i], expected.values[k][i]);
      }
    }
  }
}

void trains_as_one_rank(void**) {
  const Run expected = train_on_ranks(kAlone, {})[0];
  assert_true(expected.norms[0] > 0.5);  // so that clipping does something
  for (const Split& split : kSplits) check_equal(split, train_on_ranks(split, {}), expected);
}

// A state that one layout wrote goes on in every other.
void saved_states(void**) {
  const TempDir directory;
  Plan first, alone;
  first.save = directory.path() + "/state.safetensors";
  alone.save = directory.path() + "/alone.safetensors";
  Plan second;
  second.values = train_on_ranks(kAlone, alone)[0].values;
  second.load = alone.save;
  const Run expected = train_on_ranks(kAlone, second)[0];
  second.load = first.save;
  for (const Split& split : kSplits) {
    train_on_ranks(split, first);
    check_equal(kAlone, train_on_ranks(kAlone, second), expected);
    for (const Split& other : {Split{2, 1, 0}, Split{4, 1, 1, true}}) {
      check_equal(other, train_on_ranks(other, second), expected);
    }
  }
}

struct Arguments {
  nxd_shard_options_t rows = NXD_SHARD_OPTIONS_INIT;
  std::vector<const nxd_shard_options_t*> shards;
  std::vector<int32_t> partial = {0, 0}, tied = {0, 0};
  size_t n = 2;
  bool has_shards = true;

  nxd_status_t set(const Ddp& ddp) {
    rows.has_dim = 1;
    shards = {&rows, nullptr};
    return nxd_ddp_set_shards(ddp.get(), has_shards ? shards.data() : nullptr, partial.data(),
                              tied.data(), n);
  }
};

struct Slip {
  const char* message;
  std::function<void(Arguments&)> spoil;
};

const Slip kSlips[] = {
    {"num_params: expected 2, got 3", [](Arguments& a) { a.n = 3; }},
    {"shards: expected an array of 2, got NULL", [](Arguments& a) { a.has_shards = false; }},
    {"shards[0] (0): dim: expected a dimension of an array with 2 dimensions, got 2",
     [](Arguments& a) { a.rows.dim = 2; }},
    {"shards[0] (0): size: expected 0 to 8, the shards' sizes together, got 9",
     [](Arguments& a) { a.rows.size = 9; }},
    {"shards[0] (0): num_fused: expected 1 for a weight with padding or heads, got 2",
     [](Arguments& a) { a.rows.num_fused = 2, a.rows.size = 7; }},
    {"partial_grads[1]: expected 0 or 1, got 2", [](Arguments& a) { a.partial[1] = 2; }},
    {"tied[0]: expected 0 or 1, got -1", [](Arguments& a) { a.tied[0] = -1; }},
    // Good, but others than those of the peers.
    {"names, shapes and placements of the stage's parameters: expected the same on all ranks, got "
     "another on rank 1 than on rank 0",
     [](Arguments& a) { a.rows.num_fused = 2; }},
    {"names, shapes and placements", [](Arguments& a) { a.rows.size = 7; }},
    {"names, shapes and placements", [](Arguments& a) { a.partial[1] = 1; }},
};

void bad_calls(void**) {
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    init_layout(ctx, {2, 1, 0});
    BufferModel model({{4, 3}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    for (const Slip& slip : kSlips) {
      Arguments arguments;
      if (rank == 1) slip.spoil(arguments);
      NXD_TEST_REFUSED(arguments.set(ddp), NXD_ERROR_INVALID_ARGUMENT, slip.message);
    }
    Arguments old;
    if (rank == 1) old.rows.struct_size = 1;
    NXD_TEST_REFUSED(old.set(ddp), NXD_ERROR_ABI_MISMATCH, "shards[0]");
    NXD_TEST_OK(Arguments().set(ddp));
    NXD_TEST_REFUSED(nxd_ddp_set_shards(nullptr, nullptr, nullptr, nullptr, 0),
                     NXD_ERROR_INVALID_ARGUMENT, "ddp: expected");
    return 0;
  });
}

// Six rows, padded to eight on one rank and to six on the other, overlap.
void other_paddings(void**) {
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    init_layout(ctx, {2, 1, 0});
    BufferModel model({{rank == 0 ? 4 : 3, 2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    nxd_shard_options_t rows = NXD_SHARD_OPTIONS_INIT;
    rows.has_dim = 1;
    rows.size = 6;
    const nxd_shard_options_t* shards[] = {&rows};
    NXD_TEST_REFUSED(nxd_ddp_set_shards(ddp.get(), shards, nullptr, nullptr, 1),
                     NXD_ERROR_INVALID_ARGUMENT, "names, shapes and placements");
    return 0;
  });
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trains_as_one_rank),
      cmocka_unit_test(saved_states),
      cmocka_unit_test(bad_calls),
      cmocka_unit_test(other_paddings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
