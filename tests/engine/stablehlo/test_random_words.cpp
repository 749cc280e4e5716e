// Random words of programs: masks of dropout and stochastic rounding have the bits that the CPU's
// generator gives each element by its number, whatever part of a tensor a rank has, and without a
// call of the host.
#include <ATen/ATen.h>

#include <limits>
#include <string>
#include <vector>

#include "core/kernels/stochastic_rounding.h"
#include "core/layout/random_rows.h"
#include "core/tensor_parallel/dropout_mask.h"
#include "engine/device/device_metrics.h"
#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"
#include "engine/stablehlo/stablehlo_module.h"
#include "engine/tensor/dtype_map.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;
using Tensors = std::vector<Tensor>;

// Every word of the draw counts.
const RandomSite kSite = RandomSite(11, "site").at((int64_t{3} << 32) + 5, 7);

at::TensorOptions meta(at::ScalarType dtype) { return at::TensorOptions(at::kMeta).dtype(dtype); }

// The step that was recorded becomes a program that needs no host, as a device without calls has
// it.
void run_step() {
  Recording::current()->mark_step(true);
  ModuleReplicas alone;
  alone.have_host = false;
  const StableHloModule module = emit_stablehlo(Recording::current()->step_graph(), alone);
  assert_true(module.text.find("nxd_call") == std::string::npos);
}

Tensor recorded_keep(const RandomRows& rows, const RandomSite& site, uint64_t bound,
                     const Tensor& want) {
  RecordedCall call{"nxd::keep_mask"};
  call.attributes = text("bound ", bound, ", ", rows.code(4));
  call.results = {at::empty({rows.count}, meta(at::kByte))};
  call.function = [want](const Tensors&) { return Tensors{want.clone()}; };
  return device_tensor(
      record_values(std::move(call), {vector_on_device(rows.numbers(site, 4))})[0]);
}

Tensor kept(const RandomRows& rows, const RandomSite& site, double probability) {
  Tensor out = at::empty({rows.count}, at::kByte);
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t local = rows.skipped + i;
    const int64_t number = rows.first + local / rows.cols * rows.stride + local % rows.cols;
    site.fill_bernoulli(out.data_ptr<uint8_t>() + i, static_cast<uint64_t>(number), 1, probability);
  }
  return out;
}

// Rows that begin in each word of a block, by blocks and by elements, and parts of them.
std::vector<RandomRows> all_rows() {
  std::vector<RandomRows> out;
  const auto add = [&](const ShardSpec& shard) { out.push_back(*RandomRows::of(shard)); };
  add(ShardSpec::replicated({3, 5}));
  for (int rank = 0; rank < 2; ++rank) {
    add(ShardSpec::split({6, 7}, 0, rank, 2));
    add(ShardSpec::split({3, 16}, 1, rank, 2));
    add(ShardSpec::split({3, 14}, 1, rank, 2));
    add(ShardSpec::split({2, 6, 8}, 1, rank, 2));
    add(ShardSpec::strided({4, 12}, 1, rank, 2, 3));
  }
  add(ShardSpec::ranges({4, 24}, 1, {{5, 12}}, 24));
  const auto shards = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < shards; ++i) {
    out.push_back(out[static_cast<size_t>(i)].part(i % 7, 7));
  }
  const int64_t last = RandomRows::kMostElements / 8;
  add(ShardSpec::ranges({last, 8}, 0, {{last - 2, last}}, last));
  return out;
}

void test_masks(void**) {
  Tensors want, got;
  const auto add = [&](const RandomRows& rows, double probability) {
    want.push_back(kept(rows, kSite, probability));
    got.push_back(
        recorded_keep(rows, kSite, RandomSite::bernoulli_bound(probability), want.back()));
  };
  const std::vector<RandomRows> all = all_rows();
  for (const RandomRows& rows : all) add(rows, 0.7);
  for (const double probability : {1.0, 0.0, 1e-9}) add(all[0], probability);
  run_step();
  for (size_t i = 0; i < want.size(); ++i) {
    if (!at::equal(got[i].to(at::kCPU), want[i])) fail_msg("rows %zu", i);
  }
}

// The words that the generator's authors publish for zeros (Random123, kat_vectors).
void test_known_words(void**) {
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const RandomSite zeros({0, 0}, 0);
  const RandomRows rows = *RandomRows::of(ShardSpec::replicated({4}));
  Tensors got;
  for (size_t i = 0; i < 4; ++i) {
    for (const uint64_t bound : {uint64_t{words[i]}, uint64_t{words[i]} + 1}) {
      const Tensor replayed = at::zeros({4}, at::kByte);
      for (int64_t k = 0; k < 4; ++k) replayed[k] = words[k] < bound ? 1 : 0;
      got.push_back(recorded_keep(rows, zeros, bound, replayed));
    }
  }
  run_step();
  for (int64_t i = 0; i < 4; ++i) {
    assert_int_equal(got[static_cast<size_t>(2 * i)].to(at::kCPU)[i].item<int>(), 0);
    assert_int_equal(got[static_cast<size_t>(2 * i + 1)].to(at::kCPU)[i].item<int>(), 1);
  }
}

// x - g / 512, exactly, in bf16 by a word; infinities, and what is no number, among them.
struct Rounded {
  Tensor values, gradient, want;
};

Rounded rounded_plainly(const RandomRows& rows) {
  at::manual_seed(static_cast<uint64_t>(rows.first) + 1);
  Rounded out;
  out.values = at::randint(-64, 64, {rows.count}).to(at::kBFloat16);
  out.gradient = at::randint(-400, 400, {rows.count}).to(at::kFloat);
  out.gradient[0] = -std::numeric_limits<float>::infinity();
  out.values[1] = -std::numeric_limits<float>::quiet_NaN();
  out.want = at::empty({rows.count}, at::kBFloat16);
  auto* bits = static_cast<uint16_t*>(out.want.data_ptr());
  const Tensor exact = out.values.to(at::kFloat) - out.gradient / 512;
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t local = rows.skipped + i;
    const int64_t number = rows.first + local / rows.cols * rows.stride + local % rows.cols;
    bits[i] = kernels::round_stochastic(exact[i].item<float>(),
                                        kSite.word16(static_cast<uint64_t>(number)))
                  .bits;
  }
  return out;
}

Tensor recorded_sgd(const RandomRows& rows, const Rounded& given) {
  const auto known = [](const Tensor& t) { return Recording::current()->known(t.clone()); };
  RecordedCall call{"nxd::sgd"};
  call.attributes = text("plain stochastic, ", rows.code(8));
  call.results = {at::empty({rows.count}, meta(at::kBFloat16))};
  call.overwrites = {4};
  call.function = [want = given.want](const Tensors&) { return Tensors{want.clone()}; };
  return device_tensor(record_values(
      std::move(call), {known(given.gradient), known(at::ones({}, at::kDouble)), nullptr,
                        vector_on_device(std::vector<double>{1.0 / 512, 0, 1, 0, 1}),
                        known(given.values), vector_on_device(rows.numbers(kSite, 8))})[0]);
}

void test_rounding(void**) {
  std::vector<Rounded> given;
  Tensors got;
  for (const RandomRows& rows : all_rows()) {
    given.push_back(rounded_plainly(rows));
    got.push_back(recorded_sgd(rows, given.back()));
  }
  run_step();
  for (size_t i = 0; i < given.size(); ++i) {
    const Tensor bits = got[i].to(at::kCPU).view(at::kShort);
    const Tensor want = given[i].want.view(at::kShort);
    for (int64_t k = 0; k < want.numel(); ++k) {
      const int there = bits[k].item<int>(), expected = want[k].item<int>();
      if (there != expected) fail_msg("rows %zu: %x, not %x", i, there, expected);
    }
  }
}

// Ranks, steps and sites differ in numbers alone: one program serves all.
void test_numbers_are_inputs(void**) {
  std::string first;
  for (const int rank : {0, 1}) {
    const RandomRows rows = *RandomRows::of(ShardSpec::split({4, 8}, 0, rank, 2));
    const RandomSite site = RandomSite(static_cast<uint64_t>(rank), "b").at(rank, rank);
    const Tensor mask = recorded_keep(rows, site, 9, kept(rows, site, 0.5));
    const Tensor rounded = recorded_sgd(rows.part(rank, 9), rounded_plainly(rows.part(rank, 9)));
    Recording::current()->mark_step(true);
    const std::string program = emit_stablehlo(Recording::current()->step_graph()).text;
    if (first.empty()) first = program;
    assert_true(program == first);
  }
}

// A shard that is no rows of equal distance.
void test_what_the_host_draws(void**) {
  RecordedCall call{"nxd::keep_mask"};
  call.attributes = "probability 0.5";
  call.results = {at::empty({2}, meta(at::kByte))};
  call.function = [](const Tensors&) { return Tensors{at::ones({2}, at::kByte)}; };
  const Tensor mask = record_call(std::move(call), {})[0];
  Recording::current()->mark_step(true);
  assert_true(at::equal(mask.to(at::kCPU), at::ones({2}, at::kByte)));
  assert_int_equal(emit_stablehlo(Recording::current()->step_graph()).host_nodes.size(), 1);
  const bool is_counted =
      device_metrics::report().find("\nhost_call nxd::keep_mask 1\n") != std::string::npos;
  assert_true(is_counted == has_graph_compiler());
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  to_device(NXD_DEVICE_XLA);  // libtorch knows it from now on
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_masks),
      cmocka_unit_test(test_known_words),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_numbers_are_inputs),
      cmocka_unit_test(test_what_the_host_draws),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
