// Entries of groups that peers refused to make, as a rank reads them in the store: lines of the
// input are the list's entries.
#include "core/comm/monitor/group_rejections.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const int manner = in.byte();
  const auto values = nxd_fuzz::pieces(in, '\n', 8);
  if (values.empty() || std::count(values.begin(), values.end(), "") > 0) return 0;
  const auto store = std::make_shared<nxd_fuzz::InputStore>(values);
  constexpr int kRank = 1, kSize = 4;
  // The count is the input's own in one of four. Entries that do not come are waited for, which
  // makes inputs slow, so that larger counts than there are take another bit.
  const int64_t given = std::strtoll(values[0].c_str(), nullptr, 10);
  // The input's store has a value for every key, so that a large count below the bound is only
  // slow.
  if (given > 1000 && given <= int64_t{1} << 24) return 0;
  const bool is_larger = given > static_cast<int64_t>(values.size());
  if (manner & 3 || (is_larger && !(manner & 64))) {
    store->set("count", std::to_string(values.size()));
  }
  const std::vector<int> ranks = manner & 4 ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 3};
  nxd::GroupRejections rejections(store, kRank, kSize);
  for (int i = 0; i < 3; ++i) {
    if (manner >> (3 + i) & 1) rejections.reject(ranks, "bad arguments");
    nxd::GroupRejections::Attempt attempt(rejections, ranks);
    const auto error = attempt.rejection("group");
    rejections.count_of(ranks);
    if (!error) continue;
    nxd_fuzz::expect(nxd_fuzz::is_rejection(error->status()), "status of a refusal");
  }
  return 0;
}
