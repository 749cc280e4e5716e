#include "core/comm/transports/shm/shm_eager.h"

#include <algorithm>

#include "core/comm/reduction.h"
#include "core/comm/transports/shm/letter.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

// Longer letters take more lines than their barrier saves, the sooner the more ranks read them.
constexpr size_t kLettersOfAll = 4096, kSurelyLetters = 1024, kLongestLetter = 2048;
// At the lines of a letter before ranks go into the barrier for it.
constexpr int kLooks = 400;

static_assert(Letter::room_for(kLongestLetter) <= ShmSegment::kSmall);

}  // namespace

ShmEager::ShmEager(ShmAgreement& agreement)
    : agreement_(agreement),
      letter_limit_(std::clamp<size_t>(kLettersOfAll / static_cast<size_t>(agreement.size()),
                                       kSurelyLetters, kLongestLetter)),
      inputs_(static_cast<size_t>(agreement.size())),
      letters_(static_cast<size_t>(agreement.size()) * letter_limit_) {}

bool ShmEager::read_letters(size_t bytes, uint64_t mark, int looks) {
  const int size = agreement_.size(), rank = agreement_.rank();
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    if (!Letter::read(agreement_.copied(peer), letter_of(peer), bytes, mark, looks)) return false;
  }
  return true;
}

// The mark is of the digest, so a letter that can be read is of a call that agrees with this one.
void ShmEager::all_reduce_letters(const Call& call, size_t bytes) {
  const uint64_t mark = agreement_.post_mark(call);
  Letter::write(agreement_.copied(agreement_.rank()), call.send, bytes, mark);
  const int looks = agreement_.link().may_spin() ? kLooks : 1;
  if (agreement_.all_attached() && read_letters(bytes, mark, looks)) {
    agreement_.complete_by_mark();
  } else {
    agreement_.agree_on_mark();
    check_internal(read_letters(bytes, mark, 1), "ranks agree, their letters do not");
  }
  for (int r = 0; r < agreement_.size(); ++r) {
    inputs_[static_cast<size_t>(r)] = r == agreement_.rank() ? call.send : letter_of(r);
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
