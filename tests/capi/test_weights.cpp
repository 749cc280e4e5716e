// Shards of weights over a caller's arrays: initial values, copies from and to whole weights, and
// safetensors, against the parts of whole arrays, on 1, 2 and 4 ranks.
#include "nxd/weights.h"

#include <fstream>

#include "support/layer_arrays.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr nxd_dtype_t kFloats[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16};
constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";

// A way to divide a whole weight, and a rank's part by indices of the divided dimension; -1 is
// padding.
struct Division {
  const char* text;
  Sizes whole;
  nxd_shard_options_t options;
  std::vector<int64_t> own;
  int dim() const {
    return options.dim < 0 ? options.dim + static_cast<int>(whole.size()) : options.dim;
  }
  Numbers part(const Numbers& full) const {
    if (!options.has_dim) return full;
    const auto d = static_cast<size_t>(dim());
    Sizes shape = whole;
    shape[d] = static_cast<int64_t>(own.size());
    Numbers result(shape);
    int64_t inner = 1;
    for (size_t i = d + 1; i < whole.size(); ++i) inner *= whole[i];
    for (int64_t i = 0; i < count_of(shape); ++i) {
      const int64_t from = own[static_cast<size_t>(i / inner % shape[d])];
      const int64_t outer = i / inner / shape[d];
      if (from >= 0) result.at(i) = full.at((outer * whole[d] + from) * inner + i % inner);
    }
    return result;
  }
};

nxd_shard_options_t along(int dim) {
  nxd_shard_options_t options = NXD_SHARD_OPTIONS_INIT;
  options.has_dim = 1;
  options.dim = dim;
  return options;
}

std::vector<Division> divisions(int rank, int ranks) {
  const auto range = [](int64_t begin, int64_t end) {
    std::vector<int64_t> indices;
    for (int64_t i = begin; i < end; ++i) indices.push_back(i);
    return indices;
  };
  const nxd_shard_options_t whole = NXD_SHARD_OPTIONS_INIT;
  std::vector<Division> all{
      {"the whole", {3, 5}, whole, {}},
      {"rows", {4 * 3, 5}, along(0), range(rank * 12 / ranks, (rank + 1) * 12 / ranks)},
      {"columns", {3, 8}, along(-1), range(rank * 8 / ranks, (rank + 1) * 8 / ranks)},
      {"a bias", {8}, along(0), range(rank * 8 / ranks, (rank + 1) * 8 / ranks)},
  };
  Division padded{"a padded vocabulary", {2 * ranks + 1, 3}, along(0), {}};
  padded.options.size = 2 * ranks + 1;
  for (int64_t i = rank * 3; i < rank * 3 + 3; ++i) padded.own.push_back(i <= 2 * ranks ? i : -1);
  all.push_back(padded);
  Division fused{"gate and up", {2 * 8, 2}, along(0), {}};
  fused.options.num_fused = 2;
  for (int64_t which = 0; which < 2; ++which) {
    for (int64_t i = rank * 8 / ranks; i < (rank + 1) * 8 / ranks; ++i) {
      fused.own.push_back(which * 8 + i);
    }
  }
  all.push_back(fused);
  // Two heads of three rows, which four ranks share.
  Division heads{"key heads", {6, 2}, along(0), {}};
  heads.options.num_heads = 2;
  heads.own = ranks == 1 ? range(0, 6) : range(rank * 2 / ranks * 3, rank * 2 / ranks * 3 + 3);
  all.push_back(heads);
  return all;
}

// Shards have the values of the whole weight, which one rank would have.
void check_initial(nxd_context_t* ctx, int rank, int ranks, void*) {
  const nxd_shard_options_t whole = NXD_SHARD_OPTIONS_INIT;
  const struct {
    nxd_init_t kind;
    double a, b;
  } inits[] = {{NXD_INIT_NORMAL, 0.5, 2},
               {NXD_INIT_UNIFORM, -1, 3},
               {NXD_INIT_CONSTANT, 0.75, 0},
               {NXD_INIT_KAIMING_UNIFORM, 1, 0}};
  for (const Division& d : divisions(rank, ranks)) {
    for (const auto& [kind, a, b] : inits) {
      Buffer full(d.whole, NXD_DTYPE_F64);
      NXD_TEST_OK(nxd_shard_initialize(ctx, kName, kind, a, b, &whole, full.tensor()));
      Numbers values(d.whole);
      for (int64_t i = 0; i < count_of(d.whole); ++i) values.at(i) = full.get(i);
      const Numbers expected = d.part(values);
      int layout = static_cast<int>(kind);
      for (const nxd_dtype_t dtype : kFloats) {
        Buffer shard(expected.shape, dtype, kLayouts[layout++ % 6]);
        NXD_TEST_OK(nxd_shard_initialize(ctx, kName, kind, a, b, &d.options, shard.tensor()));
        shard.equals(expected, 4, std::string("initial values of ") + d.text);
      }
    }
  }
}

// Numbers of the distribution that was asked for. Weights without elements have any.
void check_moments(nxd_context_t* ctx, int, int, void*) {
  const nxd_shard_options_t whole = NXD_SHARD_OPTIONS_INIT;
  Buffer none({4, 0}, NXD_DTYPE_F32);
  NXD_TEST_OK(
      nxd_shard_initialize(ctx, kName, NXD_INIT_KAIMING_UNIFORM, 1, 0, &whole, none.tensor()));
  const Sizes shape{64, 96};
  const auto moments = [&](nxd_init_t kind, double a, double b) {
    Buffer full(shape, NXD_DTYPE_F32);
    NXD_TEST_OK(nxd_shard_initialize(ctx, kName, kind, a, b, &whole, full.tensor()));
    double mean = 0, square = 0, most = 0;
    const auto n = static_cast<double>(count_of(shape));
    for (int64_t i = 0; i < count_of(shape); ++i) {
      mean += full.get(i) / n;
      square += full.get(i) * full.get(i) / n;
      most = std::max(most, std::fabs(full.get(i)));
    }
    return std::array<double, 3>{mean, std::sqrt(square - mean * mean), most};
  };
  const auto near = [](double a, double b, double by) { return std::fabs(a - b) < by; };
  const auto [mean, deviation, most] = moments(NXD_INIT_NORMAL, 0.5, 0.02);
  NXD_TEST_CHECK(near(mean, 0.5, 0.002) && near(deviation, 0.02, 0.001));
  // The bound is sqrt(6 / (2 fan_in)) = 0.1768, and the deviation that by sqrt(3).
  const auto [zero, spread, bound] = moments(NXD_INIT_KAIMING_UNIFORM, 1, 0);
  NXD_TEST_CHECK(near(zero, 0, 0.005) && near(spread, 0.10206, 0.003));
  NXD_TEST_CHECK(bound <= 0.17678 && bound > 0.17);
  (void)most;
}

// A whole weight divided and put together again, of numbers and of integers.
void check_copies(nxd_context_t* ctx, int rank, int ranks, void*) {
  int number = 0;
  for (const Division& d : divisions(rank, ranks)) {
    const Numbers whole = Numbers::pattern(d.whole, 1);
    Numbers integers = whole;
    for (double& value : integers.values) value *= 16;
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16,
                                    NXD_DTYPE_I32, NXD_DTYPE_I64}) {
      for (int twice = 0; twice < 2; ++twice) {
        const Numbers& values = dtype == NXD_DTYPE_I32 || dtype == NXD_DTYPE_I64 ? integers : whole;
        const Layout layout = kLayouts[number++ % 6], other = kLayouts[number % 6];
        const std::string what = std::string(d.text) + ", dtype " + std::to_string(dtype);
        Buffer full(values, dtype, layout), shard(d.part(values).shape, dtype, other);
        NXD_TEST_OK(nxd_shard_set_full(ctx, full.tensor(), &d.options, shard.tensor()));
        shard.equals(d.part(values), 0, "shard of " + what);
        Buffer again(d.whole, dtype, layout);
        NXD_TEST_OK(nxd_shard_gather_full(ctx, shard.tensor(), &d.options, again.tensor()));
        again.equals(values, 0, "whole of " + what);
      }
    }
  }
}

// A file with one tensor of f32 and one of bf16, written by hand.
void write_file(const std::string& path, const Numbers& values) {
  const auto count = static_cast<size_t>(count_of(values.shape));
  std::string shape;
  for (const int64_t size : values.shape)
    shape += (shape.empty() ? "" : ",") + std::to_string(size);
  const std::string header =
      "{\"wide\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[0," +
      std::to_string(4 * count) + "]},\"narrow\":{\"dtype\":\"BF16\",\"shape\":[" + shape +
      "],\"data_offsets\":[" + std::to_string(4 * count) + "," + std::to_string(6 * count) + "]}}";
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  for (const double value : values.values) {
    const auto f32 = static_cast<float>(value);
    file.write(reinterpret_cast<const char*>(&f32), sizeof f32);
  }
  for (const double value : values.values) {
    const uint16_t bf16 = nxd::f32_to_bf16(static_cast<float>(value));
    file.write(reinterpret_cast<const char*>(&bf16), sizeof bf16);
  }
}

void check_files(nxd_context_t* ctx, int rank, int ranks, void* user_data) {
  const std::string directory = *static_cast<const std::string*>(user_data);
  int number = 0;
  for (const Division& d : divisions(rank, ranks)) {
    const Numbers whole = Numbers::pattern(d.whole, 3);
    const std::string path = directory + "/" + std::to_string(rank) + ".safetensors";
    write_file(path, whole);
    const Numbers expected = d.part(whole);
    for (const nxd_dtype_t dtype : kFloats) {
      for (const char* const name : {"wide", "narrow"}) {
        Buffer shard(expected.shape, dtype, kLayouts[number++ % 6]);
        NXD_TEST_OK(
            nxd_shard_load_safetensors(ctx, path.c_str(), name, &d.options, shard.tensor()));
        shard.equals(expected, 0, std::string("stored ") + name + " of " + d.text);
      }
    }
  }
  Buffer shard({4, 5}, NXD_DTYPE_F32), integers({4, 5}, NXD_DTYPE_I32);
  const std::string path = directory + "/" + std::to_string(rank) + ".safetensors";
  const auto load = [&](const char* file, const char* name, Buffer& to) {
    return nxd_shard_load_safetensors(ctx, file, name, nullptr, to.tensor());
  };
  NXD_TEST_REFUSED(load((directory + "/none").c_str(), "wide", shard), NXD_ERROR_IO, "none");
  NXD_TEST_REFUSED(load(path.c_str(), "absent", shard), NXD_ERROR_INVALID_ARGUMENT, "absent");
  NXD_TEST_REFUSED(load(path.c_str(), "wyde", shard), NXD_ERROR_INVALID_ARGUMENT,
                   "no tensor \"wyde\"; near names: wide");
  NXD_TEST_REFUSED(load(path.c_str(), "wide", shard), NXD_ERROR_INVALID_ARGUMENT,
                   "expected shape [4, 5], the file has [6, 2]");
  Buffer other({6, 2}, NXD_DTYPE_I32);
  NXD_TEST_REFUSED(load(path.c_str(), "wide", other), NXD_ERROR_INVALID_ARGUMENT,
                   "dtype F32 cannot be read as");
  NXD_TEST_REFUSED(load(nullptr, "wide", shard), NXD_ERROR_INVALID_ARGUMENT,
                   "path: expected a text, got NULL");
  NXD_TEST_REFUSED(load(path.c_str(), nullptr, shard), NXD_ERROR_INVALID_ARGUMENT,
                   "name: expected a text, got NULL");
  std::ofstream(path, std::ios::binary) << "no safetensors file";
  NXD_TEST_REFUSED(load(path.c_str(), "wide", shard), NXD_ERROR_CORRUPT, "safetensors");
}

// Arguments that are found bad before anything is written.
void check_bad(nxd_context_t* ctx, int, int ranks, void*) {
  Buffer full(Numbers::pattern({12, 4}, 1), NXD_DTYPE_F32);
  Buffer shard(Numbers::pattern({12 / ranks, 4}, 2), NXD_DTYPE_F32);
  const std::vector<char> before = shard.bytes();
  nxd_shard_options_t options = along(0);
  const auto initialize = [&](const char* name, nxd_init_t kind, double a, double b) {
    return nxd_shard_initialize(ctx, name, kind, a, b, &options, shard.tensor());
  };
  const auto refused = [&](nxd_status_t status, const char* why) {
    NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, why);
    NXD_TEST_CHECK(shard.bytes() == before);
  };
  refused(nxd_shard_initialize(nullptr, kName, NXD_INIT_NORMAL, 0, 1, &options, shard.tensor()),
          "ctx: expected a context, got NULL");
  refused(nxd_shard_initialize(ctx, kName, NXD_INIT_NORMAL, 0, 1, &options, nullptr),
          "shard: expected an array, got NULL");
  refused(initialize(nullptr, NXD_INIT_NORMAL, 0, 1), "name: expected a text, got NULL");
  refused(initialize("", NXD_INIT_NORMAL, 0, 1), "name: expected the name of a weight");
  refused(initialize(kName, NXD_INIT_DEFAULT, 0, 1), "init: expected a distribution, got DEFAULT");
  refused(initialize(kName, 9, 0, 1), "init: expected an NXD_INIT_*, got 9");
  refused(initialize(kName, NXD_INIT_NORMAL, 0, -1), "init_b: expected a standard deviation");
  refused(initialize(kName, NXD_INIT_UNIFORM, 2, 1), "expected a <= b, got 2 and 1");
  refused(initialize(kName, NXD_INIT_NORMAL, NAN, 1), "expected finite numbers");
  const auto set = [&] { return nxd_shard_set_full(ctx, full.tensor(), &options, shard.tensor()); };
  options.dim = 2;
  refused(set(), "dim: expected a dimension of an array with 2 dimensions, got 2");
  options = along(0);
  options.has_dim = 2;
  refused(set(), "has_dim: expected 0 or 1, got 2");
  options.has_dim = 0;
  options.num_heads = 2;
  refused(set(), "num_heads: expected 0 for a weight that each rank has whole (has_dim 0), got 2");
  options.num_heads = 0;
  options.num_fused = 2;
  refused(set(), "num_fused: expected 1 for a weight that each rank has whole");
  options.num_fused = 0;
  options.size = 12;
  refused(set(), "size: expected 0 for a weight that each rank has whole");
  options.size = 0;
  options.dim = -1;
  refused(set(), "dim: expected 0 for a weight that each rank has whole");
  options = along(0);
  options.size = 13;
  refused(set(), "size: expected 0 to 12, the shards' sizes together, got 13");
  options.size = -1;
  refused(set(), "size: expected 0 or more, got -1");
  options = along(0);
  options.num_heads = 5;
  refused(set(), "divisible by 5");
  options.num_heads = -1;
  refused(set(), "num_heads: expected 0 or more, got -1");
  options.num_heads = ranks;
  options.num_fused = 2;
  refused(set(), "num_fused: expected 1 for a weight with padding or heads, got 2");
  options = along(0);
  options.num_fused = 5;
  refused(set(), "divisible by");
  options = along(1);
  if (ranks > 1) refused(set(), "full: expected the shape");
  options = along(0);
  full.tensor()->dtype.bits = 64;
  refused(set(), "full: expected f32 as shard, got f64");
  full.tensor()->dtype.bits = 32;
  full.tensor()->data = shard.tensor()->data;
  if (ranks == 1) refused(set(), "shard: expected memory apart from that of full");
  options.struct_size = 3;
  NXD_TEST_REFUSED(set(), NXD_ERROR_ABI_MISMATCH, "options.struct_size");
}

void on_all_ranks(nxd_test_rank_fn body, void* user_data = nullptr) {
  for (const int ranks : {1, 2, 4}) nxd_test_run_ranks(ranks, ranks, body, user_data);
}

void initial_values(void**) { on_all_ranks(check_initial); }
void moments_of_values(void**) { on_all_ranks(check_moments); }
void copies_of_weights(void**) { on_all_ranks(check_copies); }
void bad_arguments(void**) { on_all_ranks(check_bad); }

// A distribution with values that the shard's dtype does not have is rejected on every rank,
// whether or not one of its own is too large, and before the shard changes.
void check_range(nxd_context_t* ctx, int, int ranks, void*) {
  const nxd_shard_options_t rows = along(0);
  const struct {
    nxd_dtype_t dtype;
    nxd_init_t kind;
    double a, b;
    bool fits;
  } cases[] = {{NXD_DTYPE_F16, NXD_INIT_CONSTANT, 65504, 0, true},
               {NXD_DTYPE_F16, NXD_INIT_CONSTANT, -65505, 0, false},
               {NXD_DTYPE_F16, NXD_INIT_NORMAL, 0, 5000, true},
               {NXD_DTYPE_F16, NXD_INIT_NORMAL, 0, 20000, false},
               {NXD_DTYPE_F16, NXD_INIT_UNIFORM, 0, 1e5, false},
               {NXD_DTYPE_BF16, NXD_INIT_CONSTANT, 1e38, 0, true},
               {NXD_DTYPE_BF16, NXD_INIT_CONSTANT, 3.4e38, 0, false},
               {NXD_DTYPE_F32, NXD_INIT_CONSTANT, 3.4e38, 0, true},
               {NXD_DTYPE_F32, NXD_INIT_CONSTANT, 1e39, 0, false},
               {NXD_DTYPE_F64, NXD_INIT_CONSTANT, 1e39, 0, true}};
  for (const auto& c : cases) {
    Buffer shard({8 / ranks, 3}, c.dtype);
    const std::vector<char> before = shard.bytes();
    const nxd_status_t status =
        nxd_shard_initialize(ctx, kName, c.kind, c.a, c.b, &rows, shard.tensor());
    if (c.fits) {
      NXD_TEST_OK(status);
      for (int64_t i = 0; i < 8 / ranks * 3; ++i) NXD_TEST_CHECK(std::isfinite(shard.get(i)));
    } else {
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, kName);
      NXD_TEST_CHECK(shard.bytes() == before);
    }
  }
}

void range(void**) { on_all_ranks(check_range); }
void stored_weights(void**) {
  const TempDir directory;
  std::string path = directory.path();
  on_all_ranks(check_files, &path);
}

// A gather whose arguments are bad on one rank, or differ, fails on all and changes nothing.
struct GatherSlip {
  const char* why;
  void (*spoil)(Buffer& shard, Buffer& full, nxd_shard_options_t& options);
};

const GatherSlip kGatherSlips[] = {
    {"shard: expected memory of the CPU",
     [](Buffer& shard, Buffer&, nxd_shard_options_t&) {
       shard.tensor()->device.device_type = kDLCUDA;
     }},
    {"full: expected the shape [6, 4], got [6, 2]",
     [](Buffer&, Buffer& full, nxd_shard_options_t&) { full.tensor()->shape[1] = 2; }},
    {"full: expected memory apart from that of shard",
     [](Buffer& shard, Buffer& full, nxd_shard_options_t&) {
       full.tensor()->data = shard.tensor()->data;
     }},
    {"elements of the shard: expected the same on all ranks",
     [](Buffer& shard, Buffer& full, nxd_shard_options_t&) {
       shard.tensor()->shape[0] = 1;
       full.tensor()->shape[0] = 3;
     }},
    {"shape of the shard: expected the same on all ranks",
     [](Buffer& shard, Buffer& full, nxd_shard_options_t&) {
       shard.tensor()->shape[0] = 4, shard.tensor()->shape[1] = 2;
       full.tensor()->shape[0] = 12, full.tensor()->shape[1] = 2;
     }},
    {"num_fused: expected the same on all ranks",
     [](Buffer&, Buffer&, nxd_shard_options_t& options) { options.num_fused = 2; }},
};

void check_gather_slips(nxd_context_t* ctx, int rank, int, void*) {
  for (const GatherSlip& slip : kGatherSlips) {
    Buffer shard(Numbers::pattern({2, 4}, 1), NXD_DTYPE_F32), full({6, 4}, NXD_DTYPE_F32);
    nxd_shard_options_t options = along(0);
    const std::vector<char> before = full.bytes();
    if (rank == 1) slip.spoil(shard, full, options);
    NXD_TEST_REFUSED(nxd_shard_gather_full(ctx, shard.tensor(), &options, full.tensor()),
                     NXD_ERROR_INVALID_ARGUMENT, slip.why);
    NXD_TEST_CHECK(full.bytes() == before);
  }
}

void check_gather_lost(nxd_context_t* ctx, int rank, int, void*) {
  Buffer shard(Numbers::pattern({2, 4}, 1), NXD_DTYPE_F32), full({6, 4}, NXD_DTYPE_F32);
  const nxd_shard_options_t options = along(0);
  if (rank == 0) {
    NXD_TEST_OK(nxd_context_abort(ctx));
    return;
  }
  NXD_TEST_REFUSED(nxd_shard_gather_full(ctx, shard.tensor(), &options, full.tensor()),
                   NXD_ERROR_PEER_LOST, "rank 0");
}

void gather_slips(void**) { nxd_test_run_ranks(3, 3, check_gather_slips, nullptr); }
void gather_lost(void**) { nxd_test_run_ranks(3, 3, check_gather_lost, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(initial_values),    cmocka_unit_test(moments_of_values),
      cmocka_unit_test(copies_of_weights), cmocka_unit_test(stored_weights),
      cmocka_unit_test(bad_arguments),     cmocka_unit_test(range),
      cmocka_unit_test(gather_slips),      cmocka_unit_test(gather_lost)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
