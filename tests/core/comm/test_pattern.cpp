// Patterns of collectives, for groups of every size up to one that is large: what they promise is
// true of all ranks together.
#include "core/comm/pattern.h"

#include <set>

#include "support/check.h"

namespace {

constexpr int kMost = 70;

void test_shares(void**) {
  for (const size_t unit : {1, 16, 64}) {
    for (const size_t count : {0, 1, 63, 64, 65, 1000, 4096}) {
      for (size_t parts = 1; parts < 9; ++parts) {
        size_t end = 0;
        for (size_t i = 0; i < parts; ++i) {
          const nxd::Share share = nxd::share_of(count, parts, i, unit);
          assert_int_equal(share.begin, end);
          end += share.count;
          assert_true(share.count % unit == 0 || end == count);
        }
        assert_int_equal(end, count);
      }
    }
  }
}

// After all rounds each rank knows of all; what one sends is what the other expects.
void test_dissemination(void**) {
  for (int n = 1; n <= kMost; ++n) {
    std::vector<std::vector<nxd::Exchanged>> rounds;
    std::vector<std::vector<int>> known;  // by rank, in the order in which it hears
    for (int rank = 0; rank < n; ++rank) {
      rounds.push_back(nxd::dissemination(rank, n));
      known.push_back({rank});
    }
    for (size_t round = 0; round < rounds[0].size(); ++round) {
      auto next = known;
      for (int rank = 0; rank < n; ++rank) {
        const nxd::Exchanged& own = rounds[static_cast<size_t>(rank)][round];
        const auto from = static_cast<size_t>(own.from);
        assert_int_equal(rounds[from][round].to, rank);
        assert_true(own.blocks <= known[from].size());
        auto& heard = next[static_cast<size_t>(rank)];
        heard.insert(heard.end(), known[from].begin(),
                     known[from].begin() + static_cast<std::ptrdiff_t>(own.blocks));
      }
      known = next;
    }
    for (int rank = 0; rank < n; ++rank) {
      const auto& heard = known[static_cast<size_t>(rank)];
      assert_int_equal(heard.size(), n);
      for (int i = 0; i < n; ++i) {
        assert_int_equal(heard[static_cast<size_t>(i)], (rank + i) % n);
      }
    }
  }
}

// Every rank but the root has one parent, whose child it is, and the root is above all. Children
// stand by the depth of their subtrees, the deepest first: they are ever closer to the parent.
void test_tree(void**) {
  for (int n = 1; n <= kMost; ++n) {
    for (const int root : {0, n / 2, n - 1}) {
      std::set<int> reached{root};
      for (int rank = 0; rank < n; ++rank) {
        const nxd::TreePlace place = nxd::binomial_tree(rank, n, root);
        assert_int_equal(place.parent == -1, rank == root);
        int before = n;
        for (const int child : place.children) {
          const int distance = (child - rank + n) % n;
          assert_true(distance < before);
          before = distance;
          assert_true(reached.insert(child).second);
          assert_int_equal(nxd::binomial_tree(child, n, root).parent, rank);
        }
        int depth = 0;
        for (int up = rank; up != root; up = nxd::binomial_tree(up, n, root).parent) ++depth;
        assert_true((1 << depth) <= n);
      }
      assert_int_equal(reached.size(), n);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_dissemination),
                              cmocka_unit_test(test_tree)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
