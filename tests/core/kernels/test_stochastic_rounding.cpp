// Stochastic rounding to bf16: against the plain form of it, over layouts and threads, in the mean,
// and of special values; and the optimizers' updates of bf16 parameters.
#include "core/kernels/stochastic_rounding.h"

#include <omp.h>

#include "core/kernel_support.h"
#include "core/kernels/optimizer_kernels.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

const RandomSite kSite = RandomSite(7, "weight").at(3, 1);

size_t place(int64_t i) { return static_cast<size_t>(i); }

std::vector<uint16_t> rounded(const RoundingSource& source, const std::vector<float>& in) {
  Buffer from(NXD_DTYPE_F32, static_cast<int64_t>(in.size()));
  Buffer to(NXD_DTYPE_BF16, static_cast<int64_t>(in.size()));
  std::memcpy(from.data(), in.data(), in.size() * sizeof(float));
  cast_stochastic(source, from.size(), from.f32(), to.data());
  assert_true(to.canaries_live());
  std::vector<uint16_t> out(in.size());
  std::memcpy(out.data(), to.data(), out.size() * sizeof(uint16_t));
  return out;
}

std::vector<float> random_values(int64_t n, uint64_t seed) {
  test::Random random(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<float>(random.next() * std::exp2(random.below(40) - 20)));
  }
  return out;
}

void as_the_plain_form(void**) {
  for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 35) - 3}) {
    for (const int64_t n : {1, 7, 8, 9, 100, 1023, 1025, 5000}) {
      const std::vector<float> in = random_values(n, first + place(n));
      const std::vector<uint16_t> got = rounded({.site = kSite, .first = first}, in);
      for (int64_t i = 0; i < n; ++i) {
        const Bf16 want =
            round_stochastic(in[place(i)], kSite.word16(first + static_cast<uint64_t>(i)));
        assert_int_equal(got[place(i)], want.bits);
      }
    }
  }
}

// A [40, 90] tensor in any number of threads, in pieces of rows, of columns, and of both.
void layouts_round_alike(void**) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 90;
  constexpr uint64_t kFirst = 12345;
  const std::vector<float> whole = random_values(kRows * kCols, 1);
  const std::vector<uint16_t> want = rounded({.site = kSite, .first = kFirst}, whole);
  for (const int64_t rows : {1, 8, 40}) {
    for (const int64_t cols : {1, 9, 45, 90}) {
      for (int64_t row = 0; row < kRows; row += rows) {
        for (int64_t col = 0; col < kCols; col += cols) {
          std::vector<float> piece;
          std::vector<uint16_t> expected;
          for (int64_t i = 0; i < rows * cols; ++i) {
            const size_t at = place((row + i / cols) * kCols + col + i % cols);
            piece.push_back(whole[at]);
            expected.push_back(want[at]);
          }
          const uint64_t first = kFirst + static_cast<uint64_t>(row * kCols + col);
          assert_true(rounded({kSite, first, cols, kCols}, piece) == expected);
        }
      }
    }
  }
}

void threads_change_no_bit(void**) {
  const std::vector<float> in = random_values(200000, 2);
  const int before = omp_get_max_threads();
  std::vector<std::vector<uint16_t>> all;
  for (const int team : {1, 2, 3}) {
    omp_set_num_threads(team);
    all.push_back(rounded({.site = kSite, .first = 3}, in));
    all.push_back(rounded({kSite, 3, 50, 70}, in));
  }
  omp_set_num_threads(before);
  for (size_t i = 2; i < all.size(); ++i) assert_true(all[i] == all[i - 2]);
}

// The error of one rounding, as a part of the spacing, has mean 0 and the variance f (1 - f) for a
// value that lies f of the spacing above a bf16.
void no_bias(void**) {
  constexpr int64_t kCount = 1000000;
  const auto check = [](const std::vector<float>& in, const RandomSite& site) {
    const std::vector<uint16_t> got = rounded({.site = site}, in);
    double sum = 0;
    double variance = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double f = (std::bit_cast<uint32_t>(in[i]) & 0xFFFFU) / 65536.0;
      const bool up = got[i] != std::bit_cast<uint32_t>(in[i]) >> 16U;
      sum += (up ? 1 : 0) - f;
      variance += f * (1 - f);
    }
    if (!(std::fabs(sum) <= 3 * std::sqrt(variance))) {
      fail_msg("sum of errors %g, standard deviation %g", sum, std::sqrt(variance));
    }
  };
  check(random_values(kCount, 3), kSite);
  // Far from the middle, where a generator of few distinct words would show.
  for (const float value : {1.0F + 0x1p-23F, 1.0F + 0x1p-8F, 1.0F + 0x1p-7F - 0x1p-23F}) {
    check(std::vector<float>(place(kCount), value), kSite.at(4, 0));
  }
}

void sites_differ(void**) {
  const std::vector<float> in(1000, 1.0F + 0x1p-8F);
  const auto draw = [&](const RandomSite& site) { return rounded({.site = site}, in); };
  const std::vector<uint16_t> base = draw(RandomSite(1, "a"));
  assert_true(base == draw(RandomSite(1, "a")));
  assert_true(base != draw(RandomSite(2, "a")) && base != draw(RandomSite(1, "b")));
  assert_true(base != draw(RandomSite(1, "a").at(1, 0)));
}

void special_values(void**) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  std::vector<float> in;
  for (int i = 0; i < 37; ++i) {
    for (const float value : {0.0F, -0.0F, 1.0F, -1.5F, kInf, -kInf, NAN, -NAN,
                              std::bit_cast<float>(0x7F800001U), 0x1p-133F, kMost, -kMost}) {
      in.push_back(value);
    }
  }
  const std::vector<uint16_t> got = rounded({.site = kSite}, in);
  for (size_t i = 0; i < in.size(); ++i) {
    const float out = to_float(Bf16{got[i]});
    if (std::isnan(in[i])) {
      assert_int_equal(got[i], to_bf16(in[i]).bits);
    } else if (std::fabs(in[i]) == kMost) {
      const float below = std::copysign(to_float(Bf16{0x7F7F}), in[i]);
      assert_true(out == below || out == std::copysign(kInf, in[i]));
    } else {
      assert_true(out == in[i] && std::signbit(out) == std::signbit(in[i]));
    }
  }
}

struct Update {
  Buffer param, grad, m, v, buffer;

  explicit Update(nxd_dtype_t dtype, nxd_dtype_t grad_dtype, int64_t n)
      : param(dtype, n, 1),
        grad(grad_dtype, n, 2),
        m(NXD_DTYPE_F32, n, 3, 0.1),
        v(NXD_DTYPE_F32, n),
        buffer(NXD_DTYPE_F32, n, 5) {
    // All dtypes start from the values that bf16 has.
    for (int64_t i = 0; i < n; ++i) {
      param.set(i, static_cast<double>(to_float(to_bf16(static_cast<float>(param[i])))));
      v.set(i, 0.01 + 0.5 * std::fabs(m[i]));
    }
  }
  void adamw_step(const RoundingSource* rounding, int64_t n) {
    AdamwArgs args{.n = n, .dtype = param.dtype(), .grad_dtype = grad.dtype()};
    args.param = param.data();
    args.grad = grad.data();
    args.exp_avg = m.data();
    args.exp_avg_sq = v.data();
    args.lr = 0.01;
    args.step = 3;
    args.grad_scale = 0.5;
    args.rounding = rounding;
    adamw(args);
  }
  void sgd_step(const RoundingSource* rounding, int64_t n) {
    SgdArgs args{.n = n, .dtype = param.dtype(), .grad_dtype = grad.dtype()};
    args.param = param.data();
    args.grad = grad.data();
    args.momentum_buffer = buffer.data();
    args.lr = 0.01;
    args.momentum = 0.9;
    args.weight_decay = 0.1;
    args.nesterov = true;
    args.rounding = rounding;
    sgd(args);
  }
};

// The update of f32 parameters, rounded: bit for bit, and with the same state.
void optimizers_round_the_f32_update(void**) {
  for (const nxd_dtype_t grad_dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    for (const int64_t n : {1, 17, 3000}) {
      for (const bool is_adamw : {true, false}) {
        Update wide(NXD_DTYPE_F32, grad_dtype, n);
        Update nearest(NXD_DTYPE_BF16, grad_dtype, n);
        Update random(NXD_DTYPE_BF16, grad_dtype, n);
        const RoundingSource source{.site = kSite, .first = 11};
        if (is_adamw) {
          wide.adamw_step(nullptr, n);
          nearest.adamw_step(nullptr, n);
          random.adamw_step(&source, n);
        } else {
          wide.sgd_step(nullptr, n);
          nearest.sgd_step(nullptr, n);
          random.sgd_step(&source, n);
        }
        for (int64_t i = 0; i < n; ++i) {
          const auto value = static_cast<float>(wide.param[i]);
          const uint16_t word = kSite.word16(11 + static_cast<uint64_t>(i));
          assert_true(nearest.param[i] == static_cast<double>(to_float(to_bf16(value))));
          assert_true(random.param[i] ==
                      static_cast<double>(to_float(round_stochastic(value, word))));
        }
        for (const Update* update : {&nearest, &random}) {
          assert_true(update->m == wide.m && update->v == wide.v && update->buffer == wide.buffer);
          assert_true(update->param.canaries_live());
        }
      }
    }
  }
}

// Steps of a hundredth of the spacing are lost to nearest, and add up stochastically.
void small_steps_add_up(void**) {
  constexpr int64_t kCount = 4096;
  constexpr int kSteps = 300;
  Buffer nearest(NXD_DTYPE_BF16, kCount);
  Buffer random(NXD_DTYPE_BF16, kCount);
  Buffer grad(NXD_DTYPE_F32, kCount);
  nearest.fill(1);
  random.fill(1);
  grad.fill(-1);
  for (int step = 0; step < kSteps; ++step) {
    SgdArgs args{.n = kCount, .dtype = NXD_DTYPE_BF16, .grad_dtype = NXD_DTYPE_F32};
    args.grad = grad.data();
    args.lr = 0.01 / 128;
    args.param = nearest.data();
    sgd(args);
    const RoundingSource source{.site = kSite.at(step, 0)};
    args.param = random.data();
    args.rounding = &source;
    sgd(args);
  }
  double mean = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    assert_true(nearest[i] == 1);
    mean += random[i] / kCount;
  }
  // Each step's variance is at most f (1 - f) / 128^2, f the hundredth.
  const double deviation = std::sqrt(kSteps * 0.01 / kCount) / 128;
  assert_true(std::fabs(mean - (1 + kSteps * 0.01 / 128)) < 4 * deviation);
}

template <class Call>
void refused(const char* part, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!std::strstr(error.what(), part)) fail_msg("expected \"%s\" in: %s", part, error.what());
    return;
  }
  fail_msg("accepted, expected: %s", part);
}

void bad_arguments(void**) {
  float in[6] = {};
  uint16_t out[6] = {};
  refused("cols", [&] { cast_stochastic({kSite, 0, 4, 8}, 6, in, out); });
  refused("cols", [&] { cast_stochastic({kSite, 0, -1, 8}, 6, in, out); });
  refused("row_stride", [&] { cast_stochastic({kSite, 0, 3, 2}, 6, in, out); });
  Update wide(NXD_DTYPE_F32, NXD_DTYPE_F32, 4);
  const RoundingSource source{.site = kSite};
  refused("bf16 parameters with stochastic rounding", [&] { wide.adamw_step(&source, 4); });
  refused("bf16 parameters with stochastic rounding", [&] { wide.sgd_step(&source, 4); });
  Update narrow(NXD_DTYPE_BF16, NXD_DTYPE_F64, 4);
  refused("expected gradients of f32 or bf16", [&] { narrow.adamw_step(nullptr, 4); });
  AdamwArgs args{.n = 0, .dtype = NXD_DTYPE_BF16};
  args.copy = out;
  refused("bf16 copy", [&] { adamw(args); });
  const RoundingSource ragged{kSite, 0, 3, 9};
  refused("cols", [&] { Update(NXD_DTYPE_BF16, NXD_DTYPE_F32, 4).sgd_step(&ragged, 4); });
  cast_stochastic({.site = kSite}, 0, nullptr, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(as_the_plain_form),
      cmocka_unit_test(layouts_round_alike),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(no_bias),
      cmocka_unit_test(sites_differ),
      cmocka_unit_test(special_values),
      cmocka_unit_test(optimizers_round_the_f32_update),
      cmocka_unit_test(small_steps_add_up),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests_name("stochastic_rounding", tests, nullptr, nullptr);
}
