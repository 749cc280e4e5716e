// The eager protocol: data are copied into shared memory before the ranks have agreed on the call.
//
// After the agreement every rank reads the copies of all and makes its own result. No barrier
// follows. The next calls copy to other places, and a rank that passes the next call's barrier
// knows that all ranks have finished this one.
//
// All-reduces of up to 2 KB, fewer among more than two ranks, do without the first barrier, too.
// Each cache line of an eager message has 56 bytes of data and a flag, as in NCCL's LL128. The flag
// is made of the call's number and digest. It therefore says that the line has arrived, and that
// its writer makes the same call.
//
// Example: ranks A, B and C all-reduce 20 f32, two lines each.
//   A and B   write their lines, find each other's, and look for those of C
//   C is late: after some looks A and B raise their counters and wait for C's
//   C         writes its lines, finds those of A and B, raises its counter, adds, and is done
//   A and B   wake up, compare digests, read C's lines and add
// If C calls with 21 elements, its flag is another. No rank finds all flags, so all three meet in
// the barrier. The digests differ: the call fails on every rank, and no buffer has changed.
#include "core/comm/transports/shm/shm_eager.h"

#include <algorithm>

#include "core/base/profiler.h"
#include "core/comm/reduction.h"
#include "core/comm/transports/shm/eager_message.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

// Longer messages take more lines than their barrier saves, the sooner the more ranks read them.
constexpr size_t kBytesOfAll = 4096, kAlwaysMessage = 1024, kLongestMessage = 2048;
// At the lines of a message before ranks go into the barrier for it.
constexpr int kLooks = 400;

static_assert(EagerMessage::room_for(kLongestMessage) <= ShmSegment::kSmall);

}  // namespace

ShmEager::ShmEager(ShmAgreement& agreement)
    : agreement_(agreement),
      message_limit_(std::clamp<size_t>(kBytesOfAll / static_cast<size_t>(agreement.size()),
                                        kAlwaysMessage, kLongestMessage)),
      inputs_(static_cast<size_t>(agreement.size())),
      messages_(static_cast<size_t>(agreement.size()) * message_limit_) {}

bool ShmEager::read_messages(size_t bytes, uint64_t flag, int looks) {
  const int size = agreement_.size(), rank = agreement_.rank();
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    if (!EagerMessage::read(agreement_.copied(peer), message_of(peer), bytes, flag, looks))
      return false;
  }
  return true;
}

bool ShmEager::await_messages(size_t bytes, uint64_t flag, int looks) {
  const WaitScope wait;
  return read_messages(bytes, flag, looks);
}

// The flag is of the digest, so a message that can be read is of a call that agrees with this one.
void ShmEager::all_reduce_messages(const Call& call, size_t bytes) {
  const uint64_t flag = agreement_.post_flag(call);
  EagerMessage::write(agreement_.copied(agreement_.rank()), call.send, bytes, flag);
  const int looks = agreement_.link().may_spin() ? kLooks : 1;
  if (agreement_.all_attached() && await_messages(bytes, flag, looks)) {
    agreement_.complete_by_flag();
  } else {
    agreement_.agree_on_flag();
    check_internal(read_messages(bytes, flag, 1), "ranks agree, their messages do not");
  }
  for (int r = 0; r < agreement_.size(); ++r) {
    inputs_[static_cast<size_t>(r)] = r == agreement_.rank() ? call.send : message_of(r);
  }
  reduce_in_order(inputs_, call.recv, call.count, call.dtype, call.reduce);
}

void ShmEager::run(const Call& call) {
  const size_t bytes = call.bytes();
  const size_t own = static_cast<size_t>(agreement_.rank()) * bytes;
  char* out = static_cast<char*>(call.recv);
  const bool reduces = call.operation == Operation::kAllReduce;
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      for (int r = 0; r < agreement_.size(); ++r) {
        inputs_[static_cast<size_t>(r)] = agreement_.copied(r) + (reduces ? 0 : own);
      }
      return reduce_in_order(inputs_, call.recv, call.count, call.dtype, call.reduce);
    case Operation::kBroadcast:
      if (agreement_.rank() == call.peer) return;
      return kernels::copy_shared(out, agreement_.copied(call.peer), bytes);
    default:  // all-gather and all-to-all
      const bool gathers = call.operation == Operation::kAllGather;
      for (int r = 0; r < agreement_.size(); ++r) {
        kernels::copy_shared(out + static_cast<size_t>(r) * bytes,
                             agreement_.copied(r) + (gathers ? 0 : own), bytes);
      }
  }
}

}  // namespace nxd
