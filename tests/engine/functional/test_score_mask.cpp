// Masks of scores that the attention's kernels can apply, and those that they cannot: each one that
// is read hides exactly what it says.
#include "engine/functional/score_mask.h"

#include <ATen/ATen.h>

#include <limits>
#include <string>
#include <vector>

#include "support/check.h"

using namespace nxd;

namespace {

constexpr int64_t kBatch = 2, kHeads = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor triangle(int64_t queries, int64_t keys) {
  return at::ones({queries, keys}, at::kBool).tril(keys - queries);
}

// [batch, 1, 1, keys]
at::Tensor padding(int64_t keys) {
  at::Tensor keep = at::ones({kBatch, 1, 1, keys}, at::kBool);
  keep[1].narrow(-1, keys - 2, 2).fill_(false);
  return keep;
}

at::Tensor added(const at::Tensor& keep, float hides) {
  return at::zeros(keep.sizes(), at::kFloat).masked_fill(keep.logical_not(), hides);
}

// [batch, 1, queries, keys]
at::Tensor applied(const KernelMask& mask, int64_t queries, int64_t keys) {
  at::Tensor keep = at::ones({kBatch, 1, queries, keys}, at::kBool);
  if (mask.causal) keep = keep.logical_and(triangle(queries, keys));
  if (mask.key_mask.defined()) {
    keep = keep.logical_and(mask.key_mask.to(at::kBool).view({kBatch, 1, 1, keys}));
  }
  return keep;
}

struct Case {
  const char* name;
  int64_t queries, keys;
  at::Tensor mask;
  bool causal, of_keys;
};

std::vector<Case> readable() {
  const at::Tensor square = triangle(5, 5), wide = triangle(3, 5);
  const at::Tensor both = padding(5).logical_and(square);
  std::vector<Case> cases = {
      {"all", 4, 5, at::ones({4, 5}, at::kBool), false, false},
      {"triangle", 5, 5, square, true, false},
      {"triangle of fewer queries", 3, 5, wide, true, false},
      {"keys", 4, 5, padding(5), false, true},
      {"keys, materialised", 4, 5, padding(5).expand({kBatch, kHeads, 4, 5}).contiguous(), false,
       true},
      {"keys and triangle", 5, 5, both, true, true},
      {"keys and triangle by heads", 5, 5, both.expand({kBatch, kHeads, 5, 5}), true, true},
      {"keys of all entries", 4, 5, padding(5)[1][0][0], false, true},
      {"no key", 4, 5, at::zeros({4, 5}, at::kBool), false, true},
      {"one query", 1, 5, at::ones({1, 5}, at::kBool), false, false},
  };
  const size_t of_bool = cases.size();
  for (size_t i = 0; i < of_bool; ++i) {
    if (std::string(cases[i].name) == "no key") continue;
    for (const float hides : {-kInfinity, std::numeric_limits<float>::lowest(), -1e9f}) {
      cases.push_back(cases[i]);
      cases.back().mask = added(cases[i].mask, hides);
    }
  }
  return cases;
}

void reads(void**) {
  for (const Case& c : readable()) {
    const std::optional<KernelMask> got = kernel_mask(c.mask, kBatch, c.queries, c.keys);
    if (!got) fail_msg("%s: not read", c.name);
    if (got->causal != c.causal || got->key_mask.defined() != c.of_keys) {
      fail_msg("%s: causal %d, of keys %d", c.name, got->causal, got->key_mask.defined());
    }
    const at::Tensor keep = c.mask.scalar_type() == at::kBool ? c.mask : c.mask == 0;
    const std::vector<int64_t> sizes = {kBatch, kHeads, c.queries, c.keys};
    if (!applied(*got, c.queries, c.keys).expand(sizes).equal(keep.expand(sizes))) {
      fail_msg("%s: hides others", c.name);
    }
  }
}

void leaves(void**) {
  at::Tensor hole = triangle(5, 5), of_head = at::ones({kBatch, kHeads, 5, 5}, at::kBool),
             first_hidden = triangle(5, 5);
  hole[3][1] = false;
  of_head[0][1][0][2] = false;
  first_hidden.select(1, 0).fill_(false);
  at::Tensor learnt = at::zeros({5, 5}).requires_grad_();
  at::Tensor without_key = at::zeros({5, 5});
  without_key[2].fill_(-kInfinity);
  at::Tensor not_a_number = at::zeros({5, 5});
  not_a_number[2][2] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<const char*, at::Tensor>> cases = {
      {"a hole", hole},
      {"one head's", of_head},
      {"more than the triangle", at::ones({5, 5}, at::kBool).tril(1)},
      {"less than the triangle", at::ones({5, 5}, at::kBool).tril(-1)},
      {"the future", at::ones({5, 5}, at::kBool).triu()},
      {"a finite penalty", added(triangle(5, 5), -1e4f)},
      {"a bias", at::arange(25, at::kFloat).view({5, 5}).neg()},
      {"a mask that learns", learnt},
      {"added, a query without a key", without_key},
      {"added, the first query without a key", added(first_hidden, -kInfinity)},
      {"not a number", not_a_number},
      {"one column", at::ones({5, 1}, at::kBool)},
      {"other keys", at::ones({5, 4}, at::kBool)},
      {"other queries", at::ones({4, 5}, at::kBool)},
      {"other batch", at::ones({kBatch + 1, 1, 1, 5}, at::kBool)},
      {"five dimensions", at::ones({1, 1, 1, 5, 5}, at::kBool)},
      {"nothing", at::ones({0, 5}, at::kBool)},
      {"shapes alone", at::ones({5, 5}, at::TensorOptions(at::kBool).device(at::kMeta))},
  };
  for (const auto& [name, mask] : cases) {
    if (kernel_mask(mask, kBatch, 5, 5)) fail_msg("%s: read", name);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(leaves)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
