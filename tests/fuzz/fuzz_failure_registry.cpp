// Entries of peers' failures and waits that a rank reads in the store. Bytes of the input up to the
// first line end are calls of the registry, the other lines are the values.
#include "core/comm/monitor/failure_registry.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const std::string calls = in.until('\n').substr(0, 16);
  constexpr int kRank = 1, kSize = 4;
  const auto values = nxd_fuzz::pieces(in, '\n');
  if (values.empty() || std::count(values.begin(), values.end(), "") > 0) return 0;
  const auto store = std::make_shared<nxd_fuzz::InputStore>(values);
  const int server = calls.empty() ? -1 : calls[0] % kSize;
  nxd::FailureRegistry failures(store, kRank, kSize, server, server);
  for (const char call : calls) {
    switch (call % 10) {
      case 0: failures.poll(); break;
      case 1: failures.store_failed(call & 8 ? NXD_ERROR_IO : NXD_ERROR_TIMEOUT); break;
      case 2: failures.report({NXD_ERROR_PEER_LOST, 2, "closed its connection"}); break;
      case 3: failures.has_left(2, "group"); break;
      case 4: {
        const auto culprit = failures.find_culprit(call & 8 ? 3 : 2);
        nxd_fuzz::expect(culprit.rank >= 0 && culprit.rank < kSize, "a culprit of the world");
        break;
      }
      case 5: failures.publish_wait(&failures, 3); break;
      case 6: failures.clear_wait(&failures); break;
      case 7: failures.has_rejections(); break;
      case 8: failures.find_circle(call & 8 ? 3 : 2); break;
      default: failures.outlast_loss(nxd::Deadline::after_ms(0)); break;
    }
  }
  const auto loss = failures.loss();
  if (!loss) return 0;
  nxd_fuzz::expect(loss->status == NXD_ERROR_PEER_LOST || loss->status == NXD_ERROR_TIMEOUT,
                   "a loss has status", std::to_string(loss->status));
  nxd_fuzz::expect(loss->rank >= -1 && loss->rank < kSize, "a loss is of rank",
                   std::to_string(loss->rank));
  return 0;
}
