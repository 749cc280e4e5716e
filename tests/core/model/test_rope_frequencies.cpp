// Rotary frequencies against values computed in Python, in double, from the formulas of Hugging
// Face transformers' modeling_rope_utils: case distinctions on wavelengths and correction ranges
// spelt out as there, which is not how the code under test computes them.
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/rope_frequencies.h"

#include "support/check.h"

namespace {

using nxd::RopeOptions;
using Values = std::vector<double>;

void expect_close(const Values& got, const Values& want) {
  assert_int_equal(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::fabs(got[i] - want[i]) <= 1e-13 * std::fabs(want[i]))) {
      fail_msg("value %zu: expected %.17g, got %.17g", i, want[i], got[i]);
    }
  }
}

// A theta or factor of 0 stands for the default.
RopeOptions options_of(nxd_rope_t type, double theta, double factor, int64_t original) {
  RopeOptions o;
  o.type = type;
  if (theta != 0) o.theta = theta;
  if (factor != 0) o.factor = factor;
  o.original_max_position_embeddings = original;
  return o;
}

const Values kDefault16 = {1,    0.316227766016838,   0.1,   0.0316227766016838,
                           0.01, 0.00316227766016838, 0.001, 0.000316227766016838};

void default_and_linear(void**) {
  RopeOptions o;
  const nxd::RopeTable table = nxd::rope_frequencies(o, 16, 7);
  expect_close(table.inverse_frequencies, kDefault16);
  assert_true(table.attention_scaling == 1);

  o.rotary_dim = 16;  // the leading part of a larger head
  expect_close(nxd::rope_frequencies(o, 40, 7).inverse_frequencies, kDefault16);

  expect_close(
      nxd::rope_frequencies(options_of(NXD_ROPE_LINEAR, 0, 4, 0), 16, 7).inverse_frequencies,
      {0.25, 0.0790569415042095, 0.025, 0.00790569415042095, 0.0025, 0.000790569415042095, 0.00025,
       7.90569415042095e-05});
}

void dynamic_by_length(void**) {
  const RopeOptions o = options_of(NXD_ROPE_DYNAMIC, 10000, 2, 128);
  expect_close(nxd::rope_frequencies(o, 16, 96).inverse_frequencies, kDefault16);
  expect_close(nxd::rope_frequencies(o, 16, 128).inverse_frequencies, kDefault16);
  expect_close(nxd::rope_frequencies(o, 16, 300).inverse_frequencies,
               {1, 0.262444986947, 0.0688773711736109, 0.018076520778602, 0.00474409225978736,
                0.00124506323119526, 0.000326760603459228, 8.5756682309651e-05});
}

void yarn(void**) {
  const nxd::RopeTable small =
      nxd::rope_frequencies(options_of(NXD_ROPE_YARN, 10000, 4, 2048), 16, 7);
  expect_close(small.inverse_frequencies, {1, 0.316227766016838, 0.1, 0.0256935059888681, 0.00625,
                                           0.00138349647632367, 0.00025, 7.90569415042095e-05});
  expect_close({small.attention_scaling}, {1.138629436111989});

  RopeOptions exact = options_of(NXD_ROPE_YARN, 10000, 4, 2048);
  exact.truncate = false;
  expect_close(nxd::rope_frequencies(exact, 16, 7).inverse_frequencies,
               {1, 0.316227766016838, 0.1, 0.0238701923217363, 0.00505697152112943,
                0.000811290381701431, 0.00025, 7.90569415042095e-05});

  RopeOptions o = options_of(NXD_ROPE_YARN, 1000000, 8, 32768);
  o.beta_fast = 16;
  o.beta_slow = 2;
  o.attention_factor = 1.25;
  const nxd::RopeTable large = nxd::rope_frequencies(o, 32, 7);
  expect_close(
      large.inverse_frequencies,
      {1, 0.421696503428582, 0.177827941003892, 0.0749894209332456, 0.0316227766016838,
       0.0133352143216332, 0.00562341325190349, 0.00185263570754817, 0.0005625,
       0.000144958173053575, 2.22284926254865e-05, 9.3736776166557e-06, 3.95284707521047e-06,
       1.66690179020416e-06, 7.02926656487936e-07, 2.96421713207707e-07});
  assert_true(large.attention_scaling == 1.25);
}

void llama3(void**) {
  RopeOptions o = options_of(NXD_ROPE_LLAMA3, 500000, 8, 8192);
  o.low_freq_factor = 1;
  o.high_freq_factor = 4;
  const Values want = {1,
                       0.44036660267178,
                       0.193922744748686,
                       0.0853971002857656,
                       0.0376060309308639,
                       0.0165604400809944,
                       0.00729266473721711,
                       0.00321144599475259,
                       0.000524846160992955,
                       7.78465527393245e-05,
                       3.42810219595259e-05,
                       1.50962171764331e-05,
                       6.64786987118124e-06,
                       2.92749987017617e-06,
                       1.28917317215156e-06,
                       5.67708810075984e-07};
  expect_close(nxd::rope_frequencies(o, 32, 7).inverse_frequencies, want);
  o.low_freq_factor = RopeOptions().low_freq_factor;  // the same are the defaults
  o.high_freq_factor = RopeOptions().high_freq_factor;
  expect_close(nxd::rope_frequencies(o, 32, 7).inverse_frequencies, want);
}

void cosines_and_sines(void**) {
  const nxd::RopeTable table =
      nxd::rope_frequencies(options_of(NXD_ROPE_YARN, 10000, 4, 2048), 16, 7);
  const nxd::CosSin out = nxd::cos_sin(table, 2, 3);
  assert_int_equal(out.positions, 3);
  assert_int_equal(out.width, 8);
  assert_int_equal(out.cos.size(), 24);
  // Position 3 is the second row.
  expect_close({out.cos.begin() + 8, out.cos.begin() + 11},
               {-1.12723459815927, 0.6635404151461, 1.0877742479103});
  expect_close({out.sin.begin() + 8, out.sin.begin() + 11},
               {0.160683395201326, 0.925305954940552, 0.3364880062705});
  assert_int_equal(nxd::cos_sin(table, 0, 0).cos.size(), 0);
}

void expect_refused(const RopeOptions& options, int64_t head_dim, const char* part) {
  try {
    nxd::rope_frequencies(options, head_dim, 8);
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (std::string(error.what()).find(part) != std::string::npos) return;
    fail_msg("expected \"%s\" in \"%s\"", part, error.what());
  }
  fail_msg("expected a refusal with \"%s\"", part);
}

void bad_options(void**) {
  RopeOptions o;
  expect_refused(o, 15, "rotary_dim");
  expect_refused(o, 0, "rotary_dim");
  o.rotary_dim = 18;
  expect_refused(o, 16, "rotary_dim");
  o.rotary_dim = -2;
  expect_refused(o, 16, "rotary_dim");
  expect_refused(options_of(5, 0, 0, 0), 16, "rope.type");
  expect_refused(options_of(NXD_ROPE_INVALID, 0, 0, 0), 16, "rope.type");
  expect_refused(options_of(NXD_ROPE_DEFAULT, -1, 0, 0), 16, "rope.theta");
  expect_refused(options_of(NXD_ROPE_LINEAR, 0, INFINITY, 0), 16, "rope.factor");
  expect_refused(options_of(NXD_ROPE_DYNAMIC, 0, 2, 0), 16, "original_max_position_embeddings");
  expect_refused(options_of(NXD_ROPE_YARN, 0, 2, -1), 16, "original_max_position_embeddings");
  expect_refused(options_of(NXD_ROPE_LLAMA3, 0, 2, 0), 16, "original_max_position_embeddings");
  expect_refused(options_of(NXD_ROPE_DYNAMIC, 0, 2, 64), 2, "rotary_dim");
  RopeOptions bands = options_of(NXD_ROPE_LLAMA3, 0, 2, 64);
  bands.low_freq_factor = 4;
  expect_refused(bands, 16, "high_freq_factor");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(default_and_linear),
      cmocka_unit_test(dynamic_by_length),
      cmocka_unit_test(yarn),
      cmocka_unit_test(llama3),
      cmocka_unit_test(cosines_and_sines),
      cmocka_unit_test(bad_options),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
