#include "core/comm/transports/shm/shm_agreement.h"

#include <algorithm>

#include "core/base/profiler.h"

namespace nxd {
namespace {

// Up to here a copy costs less than the second barrier that arenas take.
constexpr size_t kAlwaysCopied = 1024;
// Every rank reads the small data of all others, so that many ranks do better with parts.
constexpr size_t kCopiedOfAll = size_t{128} << 10;
// The lowest bits of a digest say where the data are; the others are of the header's digest.
constexpr uint64_t kCopied = 1, kInArena = 2, kPlaces = kCopied | kInArena;

bool is_in_arena(const ShmCallDescriptor& descriptor) {
  return descriptor.send.inode != 0 &&
         (descriptor.header.operation != Operation::kAllReduce || descriptor.receive.inode != 0);
}

}  // namespace

ShmAgreement::ShmAgreement(ShmLink& link)
    : link_(link),
      copied_limit_(std::clamp<size_t>(kCopiedOfAll / static_cast<size_t>(link.size()),
                                       kAlwaysCopied, ShmSegment::kSmall)) {}

ShmAgreement::Protocol ShmAgreement::agree(const Call& call, size_t send_bytes,
                                           size_t receive_bytes, bool may_copy) {
  ++calls_;
  const std::string why = call.rejection(rank(), size());
  if (why.empty()) {
    post(call, send_bytes, receive_bytes, may_copy);
  } else {
    link_.monitor().note_rejection(why);
    post_rejection(call, {link_.monitor().world_rank(), false, why});
  }
  post_digest();
  agree_on_flag();
  return protocol_of(call);
}

std::optional<Rejection> ShmAgreement::compare(const Call& call,
                                               const std::optional<Rejection>& own) {
  ++calls_;
  if (own) {
    post_rejection(call, *own);
  } else {
    post(call, 0, 0, false);
  }
  post_digest();
  return find_rejection();
}

// A part of a larger group makes several calls of one number.
uint64_t ShmAgreement::post_flag(const Call& call) {
  ++calls_;
  post(call, 0, 0, false);
  post_digest();
  return (digest_ + calls_ * 0x9e3779b97f4a7c15ULL) | 1;
}

void ShmAgreement::agree_on_flag() {
  if (const auto rejection = find_rejection()) throw rejection->error(link_.monitor());
}

// The data outlast a writer that gave up.
void ShmAgreement::complete_by_flag() {
  link_.post(++progress_);
  link_.check_none_left(begun_);
}

void ShmAgreement::barrier() {
  link_.post(++progress_);
  link_.wait_for_all(progress_);
  link_.check_none_left(begun_);
  if (all_attached_) return;
  link_.all_attached();
  all_attached_ = true;
}

// The descriptor is written before the rank's progress is, and read after it.
void ShmAgreement::post(const Call& call, size_t send_bytes, size_t receive_bytes, bool may_copy) {
  ShmCallDescriptor& own = descriptor(rank());
  own.header = call.header(sequence_);
  own.send = own.receive = {};
  const bool silent = call.operation == Operation::kBroadcast && call.peer != rank();
  if (send_bytes == 0 || silent) return;
  if (send_bytes > kAlwaysCopied) {
    own.send = link_.place_of(call.data(), send_bytes);
    own.receive = link_.place_of(call.recv, receive_bytes);
  }
  if (is_in_arena(own) || send_bytes > copied_limit_ || !may_copy) return;
  writer_.copy(copied(rank()), call.data(), send_bytes);
  own.header.copied = 1;
}

void ShmAgreement::post_rejection(const Call& call, const Rejection& rejection) {
  post(call, 0, 0, false);
  ShmCallDescriptor& own = descriptor(rank());
  own.header.reject(rejection, own.reason, sizeof own.reason);
}

void ShmAgreement::post_digest() {
  const ShmCallDescriptor& own = descriptor(rank());
  const uint64_t places = (own.header.copied ? kCopied : 0) | (is_in_arena(own) ? kInArena : 0);
  digest_ = (own.header.digest() & ~kPlaces) | places;
  digest_of(rank()).store(digest_, std::memory_order_relaxed);
}

// A look at the digests tells whether all agree, and they lie beside the counters. Only a rank that
// finds a difference has to fetch the descriptors.
std::optional<Rejection> ShmAgreement::find_rejection() {
  {
    const WaitScope wait;
    barrier();
  }
  bool agreed = !descriptor(rank()).header.is_rejected();
  for (int r = 0; r < size(); ++r) {
    const uint64_t other = digest_of(r).load(std::memory_order_relaxed);
    agreed = agreed && ((other ^ digest_) & ~kPlaces) == 0;
  }
  if (agreed) return std::nullopt;
  std::vector<CallProposal> proposals;
  for (int r = 0; r < size(); ++r)
    proposals.push_back({&descriptor(r).header, descriptor(r).reason});
  auto found = nxd::find_rejection(link_.ranks(), proposals);
  check_internal(found.has_value(), "headers agree, their digests do not");
  return found;
}

ShmAgreement::Protocol ShmAgreement::protocol_of(const Call& call) const {
  bool eager = true, arenas = true;
  for (int r = 0; r < size(); ++r) {
    if (call.operation == Operation::kBroadcast && r != call.peer) continue;
    const uint64_t places = digest_of(r).load(std::memory_order_relaxed) & kPlaces;
    eager = eager && (places & kCopied);
    arenas = arenas && places == kInArena;
  }
  return eager ? Protocol::kEager : arenas ? Protocol::kZeroCopy : Protocol::kStaged;
}

char* ShmAgreement::sent_by(int rank, const Call& call) {
  const ArenaPlace& place = descriptor(rank).send;
  if (place.inode == 0) return nullptr;
  if (rank == this->rank()) return const_cast<char*>(static_cast<const char*>(call.data()));
  return link_.address(rank, place);
}

char* ShmAgreement::received_by(int rank, const Call& call) {
  return rank == this->rank() ? static_cast<char*>(call.recv)
                              : link_.address(rank, descriptor(rank).receive);
}

}  // namespace nxd
