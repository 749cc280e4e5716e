// Bytes that ranks of a group send one another before data move: summaries, headers, the envelope
// of a message, a task that failed, the address of shared memory. The connections are between ranks
// that know the world's secret, so that INTERNAL is an answer to bytes that no rank sends; a read
// out of bounds is none.
#include "core/comm/memory/shared_memory.h"
#include "core/comm/monitor/group_monitor.h"
#include "core/comm/transports/gloo/call_summary.h"
#include "core/comm/transports/shm/eager_message.h"
#include "core/pipeline/task_failure.h"
#include "fuzz.h"

namespace {

template <class Function>
void parse_of_peer(Function&& function) {
  try {
    function();
  } catch (const nxd::Error& e) {
    nxd_fuzz::expect(nxd_fuzz::is_rejection(e.status()) || e.status() == NXD_ERROR_INTERNAL,
                     "a message gives a status", std::to_string(e.status()));
  } catch (const std::exception& e) {
    nxd_fuzz::found("an exception that is not the library's", e.what());
  }
}

nxd::GroupMonitor& monitor() {
  static nxd::GroupMonitor value(std::make_shared<nxd::RankShared>(), "key", "group", 1, {0, 1, 2},
                                 1000);
  return value;
}

nxd::CallHeader header(nxd_fuzz::Input& in) { return in.number<nxd::CallHeader>(); }

void summaries(nxd_fuzz::Input& in) {
  std::optional<nxd::Rejection> rejection;
  if (in.byte() & 1) rejection = nxd::Rejection{1, false, "reason"};
  nxd::CallSummary own(1, nxd::CallHeader(), rejection);
  const int count = in.choice(1, 3);
  for (int i = 0; i < count; ++i) {
    nxd::CallSummary other;
    const std::string bytes = in.bytes(sizeof other);
    if (!bytes.empty()) std::memcpy(static_cast<void*>(&other), bytes.data(), bytes.size());
    if (!other.is_of_group(3)) continue;  // which is asked of all that a peer sends
    parse_of_peer([&] { own.merge(other); });
    nxd_fuzz::expect(own.size() <= sizeof own, "a summary of more bytes than there are");
  }
  parse_of_peer([&] { own.rejection({0, 1, 2}); });
}

void headers(nxd_fuzz::Input& in) {
  const nxd::CallHeader first = header(in), second = header(in);
  nxd_fuzz::expect(!first.agrees_with(second) || first.describe() == second.describe(),
                   "headers that agree and read otherwise");
  first.digest();
  const std::string reason = in.bytes(8), other = in.bytes(8);
  parse_of_peer([&] {
    nxd::check_message(monitor(), {1, first, reason.data(), reason.size()},
                       {0, second, other.data(), other.size()});
  });
}

void eager_messages(nxd_fuzz::Input& in) {
  alignas(64) unsigned char place[nxd::EagerMessage::room_for(200)] = {};
  const std::string bytes = in.bytes(sizeof place);
  if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
  char out[200];
  nxd::EagerMessage::read(place, out, static_cast<size_t>(in.choice(0, 200)), in.number<uint64_t>(),
                          1);
}

void texts(nxd_fuzz::Input& in) {
  const std::string text = in.rest();
  if (const auto failure = nxd::TaskFailure::find_in(text)) {
    nxd_fuzz::expect(failure->status != NXD_OK, "a failure without a status");
    nxd::TaskFailure::find_in(failure->to_reason());
  }
  nxd_fuzz::parse([&] { nxd::SharedMemory::Address::decode(text).encode(); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  switch (in.choice(0, 3)) {
    case 0: summaries(in); break;
    case 1: headers(in); break;
    case 2: eager_messages(in); break;
    default: texts(in); break;
  }
  return 0;
}
