// Ranks that compare what they were given: values that differ, a rank that rejects, texts of any
// length, and an outcome that one rank tells the others. Ranks are threads.
#include "core/agree/agree.h"

#include "capi/handles.h"

#include "core/world/context.h"
#include "support/ranks.h"
#include "support/told.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::Outcome;
using nxd::Proposal;
using nxd_test::Told;
using nxd_test::told_by;

constexpr int kRanks = 4;

// Over the world, and over the two axes of a layout one after the other.
template <class Function>
void on_ranks(Function function) {
  nxd_test_run_ranks(
      kRanks, 2,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        const auto parallel = ctx->value->parallel();
        const auto group = [&](nxd_axis_t axis) { return parallel->group(axis).get(); };
        const std::vector<std::vector<nxd::ProcessGroup*>> ways{
            {group(NXD_AXIS_WORLD)}, {group(NXD_AXIS_TENSOR), nullptr, group(NXD_AXIS_DATA)}};
        for (const auto& groups : ways) (*static_cast<Function*>(user_data))(groups, rank);
      },
      &function);
}

void test_same(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    Proposal proposal(rank);
    proposal.same("one", 1).same_within(rank % 2, 2, "own", rank % 2);
    proposal.compare_within(rank % 2, 2, rank % 2 == 0 ? 5 : rank);
    const std::vector<bool> alike = nxd::agree(groups, proposal);
    NXD_TEST_CHECK(alike.size() == 1 && alike[0] == (rank % 2 == 0));
  });
}

void test_differences(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    const Told told = told_by([&] {
      nxd::agree(groups, Proposal(rank).same("size", 3).same("scale", rank == 2 ? 0.5 : 1));
    });
    NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_ARGUMENT && told.rank == 2);
    NXD_TEST_CHECK(told.message ==
                   "scale: expected the same on all ranks, got 0.5 on rank 2 and 1 on rank 0");
  });
}

// Six digits show these as one.
void test_close_differences(void**) {
  struct Pair {
    double ours, theirs;
    const char* shown;
  };
  constexpr double kNarrow = 1e-5F;
  for (const Pair& pair : {Pair{1048578, 1048576, "1048576 on rank 0 and 1048578 on rank 2"},
                           Pair{1e15 + 1, 1e15, "1000000000000000 on rank 0 and 1000000000000001"},
                           Pair{kNarrow, 1e-5, "9.999999747378752e-06 on rank 2 and 1e-05"},
                           Pair{1e300, -0.0, "0 on rank 0 and 1e+300 on rank 2"}}) {
    on_ranks([&](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
      const Told told = told_by([&] {
        nxd::agree(groups, Proposal(rank).same("size", rank == 2 ? pair.ours : pair.theirs));
      });
      NXD_TEST_CHECK(told.message.find(pair.shown) != std::string::npos);
    });
  }
}

void test_rejections(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    const Told told = told_by([&] {
      Proposal proposal(rank);
      if (rank == 1) proposal.reject(NXD_ERROR_INVALID_STATE, "no \xc3\xa9tat");
      if (rank == 3) proposal.reject(NXD_ERROR_OUT_OF_MEMORY, "no memory");
      nxd::agree(groups, proposal.same("other", rank));
    });
    const bool own = rank == 1;
    if (rank == 3) return;
    NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_STATE);
    NXD_TEST_CHECK(told.message == (own ? "no \xc3\xa9tat" : "rank 1 failed: no \xc3\xa9tat"));
    NXD_TEST_CHECK(own || told.rank == 1);
  });
}

// Peers hear a reason of 512 bytes whole, and as much of both ends of a longer one.
void test_long_reasons(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    constexpr size_t kMost = 512;
    std::string reason;
    while (reason.size() < 600) reason += std::to_string(reason.size()) + " ";
    for (const size_t size : {kMost, reason.size()}) {
      const Told told = told_by([&] {
        Proposal proposal(rank);
        if (rank == 1) proposal.reject(NXD_ERROR_INVALID_STATE, reason.substr(0, size));
        nxd::agree(groups, proposal);
      });
      NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_STATE);
      const std::string given = reason.substr(0, size), of_peer = "rank 1 failed: ";
      if (rank == 1 || size == kMost) {
        NXD_TEST_CHECK(told.message == (rank == 1 ? "" : of_peer) + given);
        continue;
      }
      const size_t gap = told.message.find(" ... ");
      NXD_TEST_CHECK(told.message.size() == of_peer.size() + kMost && gap != std::string::npos);
      NXD_TEST_CHECK((of_peer + given).starts_with(told.message.substr(0, gap)));
      NXD_TEST_CHECK(given.ends_with(told.message.substr(gap + 5)));
    }
  });
}

void test_texts(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    if (groups.size() > 1) return;
    const auto text_of = [](int r) { return std::string(static_cast<size_t>(r) * 1000, 'a'); };
    const auto texts = nxd::gather_texts(groups[0], text_of(rank), {});
    for (int r = 0; r < kRanks; ++r) NXD_TEST_CHECK(texts.at(static_cast<size_t>(r)) == text_of(r));
    const Told told = told_by([&] {
      const auto fails = [&] { nxd::check_argument(rank != 2, "name: expected one"); };
      nxd::gather_texts(groups[0], "x", Outcome::of(rank, fails));
    });
    NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_ARGUMENT);
    NXD_TEST_CHECK(
        told.message ==
        (rank == 2 ? "name: expected one" : "rank 2 rejected its arguments: name: expected one"));
    NXD_TEST_CHECK(nxd::gather_texts(nullptr, "x", {}).at(0) == "x");
  });
}

void test_outcomes(void**) {
  on_ranks([](const std::vector<nxd::ProcessGroup*>& groups, int rank) {
    if (groups.size() > 1) return;
    for (const bool good : {true, false}) {
      Outcome outcome;
      if (rank == 0) {
        outcome = Outcome::of(0, [&] {
          if (!good) throw nxd::Error(NXD_ERROR_IO, "disk: full");
        });
      }
      outcome.share(*groups[0]);
      const Told told = told_by([&] { outcome.check(" could not write: "); });
      NXD_TEST_CHECK(told.status == (good ? NXD_OK : NXD_ERROR_IO));
      NXD_TEST_CHECK(good || told.message == "rank 0 could not write: disk: full");
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_same),
      cmocka_unit_test(test_differences),
      cmocka_unit_test(test_close_differences),
      cmocka_unit_test(test_rejections),
      cmocka_unit_test(test_long_reasons),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_outcomes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
