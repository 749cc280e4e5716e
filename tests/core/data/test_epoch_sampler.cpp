// Samples of an epoch: what must hold of every permutation, that permutations are of all kinds, and
// that they stay what they are.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "core/data/epoch_sampler.h"
#include "support/ranks.h"

#include "support/check.h"

using nxd::EpochSampler;

namespace {

std::vector<int64_t> samples(int64_t n, int32_t ranks, int32_t rank, int64_t epoch, uint64_t seed,
                             bool shuffle = true, bool drop_last = false) {
  size_t count = 0;
  assert_int_equal(
      nxd_sample_epoch(n, ranks, rank, epoch, seed, shuffle, drop_last, nullptr, 0, &count),
      NXD_OK);
  std::vector<int64_t> out(count + 1, -7);
  size_t again = 0;
  assert_int_equal(nxd_sample_epoch(n, ranks, rank, epoch, seed, shuffle, drop_last, out.data(),
                                    out.size(), &again),
                   NXD_OK);
  assert_int_equal(count, again);
  assert_int_equal(out.back(), -7);
  out.pop_back();
  return out;
}

// Place p of the epoch is sample p / ranks of rank p % ranks.
std::vector<int64_t> whole_epoch(int64_t n, int32_t ranks, int64_t epoch, uint64_t seed,
                                 bool shuffle, bool drop_last) {
  std::vector<std::vector<int64_t>> all;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(samples(n, ranks, rank, epoch, seed, shuffle, drop_last));
    assert_int_equal(all.back().size(), all.front().size());
  }
  std::vector<int64_t> out;
  for (size_t i = 0; i < all.front().size(); ++i) {
    for (const auto& each : all) out.push_back(each[i]);
  }
  return out;
}

// Every sample once, then the epoch's start again; or every sample at most once.
void check_epoch(int64_t n, int32_t ranks, bool shuffle, bool drop_last) {
  const std::vector<int64_t> epoch = whole_epoch(n, ranks, 3, 11, shuffle, drop_last);
  const int64_t each = drop_last ? n / ranks : (n + ranks - 1) / ranks;
  assert_int_equal(epoch.size(), static_cast<size_t>(each * ranks));
  const size_t distinct = std::min(epoch.size(), static_cast<size_t>(n));
  const std::set<int64_t> seen(epoch.begin(), epoch.begin() + static_cast<int64_t>(distinct));
  assert_int_equal(seen.size(), distinct);
  if (!seen.empty()) assert_true(*seen.begin() >= 0 && *seen.rbegin() < n);
  for (size_t i = 0; i < epoch.size(); ++i) {
    assert_int_equal(epoch[i], epoch[i % static_cast<size_t>(n)]);
    if (!shuffle) assert_int_equal(epoch[i], static_cast<int64_t>(i) % n);
  }
  // The permutation knows nothing of the ranks.
  if (drop_last) return;
  const std::vector<int64_t> alone = samples(n, 1, 0, 3, 11, shuffle);
  assert_true(std::equal(alone.begin(), alone.end(), epoch.begin()));
}

void epochs_are_permutations(void**) {
  for (const int64_t n : {1, 2, 3, 4, 5, 9, 16, 17, 100, 1000, 1023, 4096, 5001}) {
    for (const int32_t ranks : {1, 2, 3, 7, 16, 64}) {
      for (const bool shuffle : {true, false}) {
        check_epoch(n, ranks, shuffle, false);
        check_epoch(n, ranks, shuffle, true);
      }
    }
  }
  assert_true(samples(0, 4, 1, 0, 0).empty());
  assert_true(samples(3, 4, 3, 0, 0, true, true).empty());
}

void no_two_epochs_alike(void**) {
  std::set<std::vector<int64_t>> seen;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      assert_true(seen.insert(samples(64, 1, 0, epoch, seed)).second);
    }
  }
  assert_true(samples(64, 2, 1, 9, 5) == samples(64, 2, 1, 9, 5));
}

// As every rank of a large job asks for its own: each sample once over all of them.
void many_ranks(void**) {
  constexpr int kRanks = 65536;
  constexpr int64_t kSamples = int64_t{3} * kRanks + 17;
  const EpochSampler sampler({kSamples, kRanks, 1, 2, true, false});
  assert_int_equal(sampler.count(), 4);
  std::vector<int> times(kSamples, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t i = 0; i < sampler.count(); ++i) {
      ++times[static_cast<size_t>(sampler.sample(rank, i))];
    }
  }
  const int64_t repeated = 4 * int64_t{kRanks} - kSamples;
  assert_int_equal(std::count(times.begin(), times.end(), 1), kSamples - repeated);
  assert_int_equal(std::count(times.begin(), times.end(), 2), repeated);
  // Fewer samples than ranks: some get one again.
  const EpochSampler few({5, kRanks, 0, 0, true, false});
  assert_int_equal(few.count(), 1);
  for (int rank = 0; rank < 50; ++rank)
    assert_int_equal(few.sample(rank, 0), few.sample(rank + 5, 0));
}

// Sets that no memory holds.
void large_sets(void**) {
  constexpr int64_t kSamples = (int64_t{1} << 53) - 3;
  const EpochSampler sampler({kSamples, 1024, 0, 1, true, true});
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t sample = sampler.sample(7, sampler.count() - 1 - i);
    assert_true(sample >= 0 && sample < kSamples);
    seen.insert(sample);
  }
  assert_int_equal(seen.size(), 1000);
  // Spread over the set: the mean of 1000 uniform values is within 5 of its standard deviations.
  double mean = 0;
  for (const int64_t sample : seen) mean += static_cast<double>(sample) / kSamples / 1000;
  assert_true(mean > 0.5 - 5 * 0.0092 && mean < 0.5 + 5 * 0.0092);
}

// Pearson's statistic of counts that should be equal, in standard deviations from its mean.
double excess(const std::map<std::vector<int64_t>, int>& counts, double kinds, double total) {
  double statistic = (kinds - static_cast<double>(counts.size())) * total / kinds;
  for (const auto& [kind, count] : counts) {
    statistic += (count - total / kinds) * (count - total / kinds) / (total / kinds);
  }
  return (statistic - (kinds - 1)) / std::sqrt(2 * (kinds - 1));
}

// All permutations of small sets are equally frequent, odd ones among them.
void every_permutation(void**) {
  double kinds = 1;
  for (int64_t n = 2; n <= 6; ++n) {
    kinds *= static_cast<double>(n);
    std::map<std::vector<int64_t>, int> counts;
    const int total = static_cast<int>(kinds) * 60;
    for (int epoch = 0; epoch < total; ++epoch) ++counts[samples(n, 1, 0, epoch, 5)];
    const double deviations = excess(counts, kinds, total);
    if (std::fabs(deviations) > 4)
      fail_msg("n = %d: %.2f deviations", static_cast<int>(n), deviations);
  }
}

// Every pair of neighbours in a larger set is: the places of samples that follow one another.
void neighbours_are_random(void**) {
  for (const int64_t n : {9, 25, 30, 49}) {
    std::map<std::vector<int64_t>, int> counts;
    const int total = static_cast<int>(n * (n - 1) * 20);
    for (int epoch = 0; epoch < total; ++epoch) {
      const EpochSampler sampler({n, 1, epoch, 9, true, false});
      ++counts[{sampler.sample(0, 3), sampler.sample(0, 4)}];
    }
    const double deviations = excess(counts, static_cast<double>(n * (n - 1)), total);
    if (std::fabs(deviations) > 4)
      fail_msg("n = %d: %.2f deviations", static_cast<int>(n), deviations);
  }
}

// A job that goes on from a checkpoint needs the permutation that it began with.
void permutations_stay(void**) {
  const std::vector<int64_t> got = samples(10, 1, 0, 1, 42);
  assert_true(got == (std::vector<int64_t>{7, 9, 4, 5, 0, 6, 1, 8, 2, 3}));
}

void bad_values(void**) {
  const auto refused = [](int64_t n, int32_t ranks, int32_t rank, int64_t epoch, const char* part) {
    size_t count = 5;
    NXD_TEST_REFUSED(nxd_sample_epoch(n, ranks, rank, epoch, 0, 1, 0, nullptr, 0, &count),
                     NXD_ERROR_INVALID_ARGUMENT, part);
    assert_int_equal(count, 0);
  };
  refused(-1, 1, 0, 0, "num_samples: expected 0 to 2^53, got -1");
  refused((int64_t{1} << 53) + 1, 1, 0, 0, "num_samples");
  refused(4, 0, 0, 0, "ranks: expected at least 1, got 0");
  refused(4, 2, 2, 0, "rank: expected 0 to 1, got 2");
  refused(4, 2, -1, 0, "rank");
  refused(0, 2, 2, 0, "rank");
  refused(4, 2, 0, -1, "epoch");
  refused(4, 2, 0, int64_t{1} << 40, "epoch");
  size_t count = 5;
  int64_t room[2] = {-1, -1};
  NXD_TEST_REFUSED(nxd_sample_epoch(6, 2, 0, 0, 0, 1, 0, room, 2, &count),
                   NXD_ERROR_INVALID_ARGUMENT, "cap: expected at least 3, got 2");
  assert_int_equal(count, 3);
  assert_true(room[0] == -1 && room[1] == -1);
  NXD_TEST_REFUSED(nxd_sample_epoch(6, 2, 0, 0, 0, 1, 0, nullptr, 3, &count),
                   NXD_ERROR_INVALID_ARGUMENT, "out_indices");
  NXD_TEST_REFUSED(nxd_sample_epoch(6, 2, 0, 0, 0, 1, 0, room, 2, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT, "out_count");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(epochs_are_permutations),
                              cmocka_unit_test(no_two_epochs_alike),
                              cmocka_unit_test(many_ranks),
                              cmocka_unit_test(large_sets),
                              cmocka_unit_test(every_permutation),
                              cmocka_unit_test(neighbours_are_random),
                              cmocka_unit_test(permutations_stay),
                              cmocka_unit_test(bad_values)};
  return cmocka_run_group_tests(tests, nullptr, nullptr) + nxd_test_failures();
}
