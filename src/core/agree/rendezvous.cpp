#include "core/agree/rendezvous.h"

#include "core/agree/agree.h"
#include "core/base/exchange_record.h"

namespace nxd {

std::vector<std::string> rendezvous(ProcessGroup& group, const std::string& tag,
                                    const std::string& payload, const Outcome& outcome) {
  // A rank alone exchanges nothing, but an aborted group fails all the same.
  if (group.size() == 1) group.run(Call::barrier());
  std::string own;
  const Outcome written = Outcome::of(group.ranks()[static_cast<size_t>(group.rank())], [&] {
    outcome.rethrow();
    RecordWriter record;
    record.string(tag);
    record.string(payload);
    own = record.take();
  });
  std::vector<std::string> payloads;
  std::string first;
  for (const std::string& bytes : gather_texts(&group, own, written)) {
    RecordReader other(bytes);
    const std::string place = other.string();
    if (payloads.empty()) first = place;
    // Every rank compares with the first one, so that all give the same error.
    const int rank = group.ranks()[payloads.size()];
    if (place != first) {
      throw Error(
          NXD_ERROR_INVALID_ARGUMENT,
          text("tag: expected the same on all ranks of group \"", group.name(), "\", got \"", first,
               "\" on rank ", group.ranks()[0], " and \"", place, "\" on rank ", rank),
          {rank, 0, group.name(), "group_rendezvous"});
    }
    payloads.push_back(other.string());
  }
  return payloads;
}

}  // namespace nxd
