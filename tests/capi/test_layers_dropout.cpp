// Dropout: which elements it drops depends on the seed, the site, the step, the microbatch and the
// global index, and on nothing else.
#include <mutex>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr double kP = 0.3;
const std::vector<int64_t> kShape{8, 12, 16};

Module make_dropout(nxd_context_t* ctx, const char* site, int32_t shard_dim, double p = kP) {
  Module layer;
  NXD_TEST_OK(nxd_layer_create_dropout(ctx, p, site, shard_dim, layer.out()));
  return layer;
}

Tensor ones(const std::vector<int64_t>& shape, nxd_dtype_t dtype = NXD_DTYPE_F32) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return from_doubles(std::vector<double>(static_cast<size_t>(count), 1.0), shape, dtype);
}

// The result of dropout on ones in this rank's part.
std::vector<double> dropped(nxd_context_t* ctx, const char* site, int32_t shard_dim, int size) {
  std::vector<int64_t> shape = kShape;
  if (shard_dim >= 0) shape[static_cast<size_t>(shard_dim)] /= size;
  return values(make_dropout(ctx, site, shard_dim)({ones(shape)}));
}

struct Reference {
  std::vector<double> bits;  // of the whole, from one rank
};

void record_bits(nxd_context_t* ctx, int, int size, void* user_data) {
  static_cast<Reference*>(user_data)->bits = dropped(ctx, "block.dropout", -1, size);
}

// Every rank drops what one rank alone drops, in its part of any dimension and where replicated.
void same_bits(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const auto& reference = *static_cast<const Reference*>(user_data);
  const Tensor whole = from_doubles(reference.bits, kShape, NXD_DTYPE_F32);
  for (const int shard_dim : {-1, 0, 1, 2}) {
    const std::vector<double> want = values(part(whole, shard_dim, rank, size));
    NXD_TEST_CHECK(dropped(ctx, "block.dropout", shard_dim, size) == want);
  }
  NXD_TEST_OK(nxd_context_set_plain_kernels(ctx, 1));
  NXD_TEST_CHECK(dropped(ctx, "block.dropout", 1, size) == values(part(whole, 1, rank, size)));
}

void test_layouts(void**) {
  Reference reference;
  nxd_test_run_ranks(1, 1, record_bits, &reference);
  size_t zeros = 0;
  for (const double value : reference.bits) {
    assert_true(value == 0 || std::fabs(value - 1 / (1 - kP)) < 1e-6);
    zeros += value == 0;
  }
  // Within five standard deviations of the binomial distribution.
  const auto n = static_cast<double>(reference.bits.size());
  assert_true(std::fabs(static_cast<double>(zeros) - kP * n) < 5 * std::sqrt(kP * (1 - kP) * n));
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, same_bits, &reference);
}

// Independent sites agree in about p^2 + (1 - p)^2 of the elements; equal ones in all.
double agreement(const std::vector<double>& a, const std::vector<double>& b) {
  size_t same = 0;
  for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return static_cast<double>(same) / static_cast<double>(a.size());
}

void sites(nxd_context_t* ctx, int, int size, void*) {
  const std::vector<double> base = dropped(ctx, "a", -1, size);
  NXD_TEST_CHECK(dropped(ctx, "a", -1, size) == base);
  const double independent = kP * kP + (1 - kP) * (1 - kP);
  const auto differs = [&](const std::vector<double>& other) {
    const double same = agreement(base, other);
    if (std::fabs(same - independent) < 0.08) return;
    nxd_test_fail(__FILE__, __LINE__, "%g of the elements agree, expected about %g", same,
                  independent);
  };
  differs(dropped(ctx, "b", -1, size));
  NXD_TEST_OK(nxd_context_set_step(ctx, 1, 0));
  const std::vector<double> next_step = dropped(ctx, "a", -1, size);
  differs(next_step);
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 1));
  const std::vector<double> next_microbatch = dropped(ctx, "a", -1, size);
  differs(next_microbatch);
  NXD_TEST_CHECK(agreement(next_step, next_microbatch) < 0.8);
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  NXD_TEST_CHECK(dropped(ctx, "a", -1, size) == base);

  // In a tree the site is the path, so two layers made alike drop different elements.
  Module root, first = make_dropout(ctx, "a", -1), second = make_dropout(ctx, "a", -1);
  NXD_TEST_OK(nxd_module_create(ctx, "Tree", nullptr, nullptr, nullptr, root.out()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "first", first.get()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "b", second.get()));
  NXD_TEST_CHECK(values(first({ones(kShape)})) == values(second({ones(kShape)})));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
  NXD_TEST_CHECK(agreement(values(first({ones(kShape)})), values(second({ones(kShape)}))) < 0.8);
  NXD_TEST_CHECK(values(second({ones(kShape)})) == dropped(ctx, "b", -1, size));
}

void test_sites(void**) {
  for (const int size : {1, 2}) nxd_test_run_ranks(size, size, sites, nullptr);
}

struct Seeded {
  std::mutex mutex;
  std::vector<std::vector<double>> bits;
};

void test_seed(void**) {
  Seeded seeded;
  for (const uint64_t seed : {1, 2}) {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.seed = seed;
    nxd_test_run_ranks_with(
        &options, 1, 1,
        [](nxd_context_t* ctx, int, int size, void* user_data) {
          auto* to = static_cast<Seeded*>(user_data);
          const std::lock_guard<std::mutex> lock(to->mutex);
          to->bits.push_back(dropped(ctx, "a", -1, size));
        },
        &seeded);
  }
  assert_true(agreement(seeded.bits[0], seeded.bits[1]) < 0.8);
}

// Forward and backward scale by the same mask, in each dtype, and round once.
void gradients(nxd_context_t* ctx, int rank, int size, void*) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    const Module layer = make_dropout(ctx, "g", 1);
    const std::vector<int64_t> shape{8, 12 / size, 16};
    const nxd_dtype_t wide = dtype == NXD_DTYPE_BF16 ? NXD_DTYPE_F32 : dtype;
    const Tensor mask = layer({ones(shape, wide)});
    const Tensor x = leaf(part(wave(kShape, dtype, 1), 1, rank, size), dtype, true);
    const Tensor g = part(wave(kShape, dtype, 2), 1, rank, size);
    const Tensor y = layer({x});
    NXD_TEST_CHECK(y.dtype() == dtype);
    backward(y, g);
    const auto product = [&](const Tensor& t) {
      return to(op("mul", "Tensor", {{"self", leaf(t, wide, false)}, {"other", mask}}), dtype);
    };
    NXD_TEST_CHECK(max_difference(y, product(x)) == 0);
    NXD_TEST_CHECK(max_difference(x.grad(), product(g)) == 0);
    // A step made in between leaves the recorded mask alone.
    const Tensor z = leaf(x, dtype, true);
    const Tensor w = layer({z});
    NXD_TEST_OK(nxd_context_set_step(ctx, 5, 0));
    backward(w, g);
    NXD_TEST_CHECK(max_difference(z.grad(), product(g)) == 0);
    NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  }
}

void test_gradients(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, gradients, nullptr);
}

void evaluation(nxd_context_t* ctx, int, int, void*) {
  const Tensor x = leaf(wave({3, 8}, NXD_DTYPE_F32, 1), NXD_DTYPE_F32, true);
  const Module layer = make_dropout(ctx, "e", -1), none = make_dropout(ctx, "n", -1, 0);
  NXD_TEST_CHECK(max_difference(none({x}), x) == 0);
  NXD_TEST_CHECK(max_difference(layer({x}), x) > 0);
  NXD_TEST_OK(nxd_module_set_training(layer.get(), 0));
  const Tensor y = layer({x});
  NXD_TEST_CHECK(max_difference(y, x) == 0);
  const Tensor g = wave({3, 8}, NXD_DTYPE_F32, 4);
  backward(y, g);
  NXD_TEST_CHECK(max_difference(x.grad(), g) == 0);
  // Training mode reaches a layer through its parents, both ways.
  Module root;
  NXD_TEST_OK(nxd_module_create(ctx, "Tree", nullptr, nullptr, nullptr, root.out()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "dropout", layer.get()));
  NXD_TEST_OK(nxd_module_set_training(root.get(), 1));
  NXD_TEST_CHECK(max_difference(layer({x}), x) > 0);
  NXD_TEST_OK(nxd_module_set_training(root.get(), 0));
  NXD_TEST_CHECK(max_difference(layer({x}), x) == 0);
}

void test_evaluation(void**) { nxd_test_run_ranks(1, 1, evaluation, nullptr); }

// The mean over many steps of what becomes of ones is one: E[keep] / (1 - p).
void mean(nxd_context_t* ctx, int, int, void*) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const Module layer = make_dropout(ctx, "m", -1, p);
    double sum = 0, count = 0;
    for (int step = 0; step < 20; ++step) {
      NXD_TEST_OK(nxd_context_set_step(ctx, step, 0));
      for (const double value : values(layer({ones({64, 64})}))) {
        sum += value != 0;
        ++count;
      }
    }
    NXD_TEST_CHECK(std::fabs(sum / count - (1 - p)) < 5 * std::sqrt(p * (1 - p) / count));
  }
}

void test_mean(void**) { nxd_test_run_ranks(1, 1, mean, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),    cmocka_unit_test(test_sites),
      cmocka_unit_test(test_seed),       cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_evaluation), cmocka_unit_test(test_mean),
  };
  return cmocka_run_group_tests_name("dropout", tests, nullptr, nullptr);
}
