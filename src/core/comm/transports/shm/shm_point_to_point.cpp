// Send and receive of ShmGroup. The sender offers a message and fills the parts of a desk; the
// receiver answers there, and takes the parts, or reads all of it from the sender's arena.
#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/dtype.h"
#include "core/comm/transports/shm/shm_group.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

using Kind = GroupMonitor::Kind;

template <class Note>
void refuse_in(Note& note, const std::string& reason) {
  note.header.refused = 1;
  note.header.payload_size = static_cast<uint32_t>(std::min(reason.size(), sizeof note.reason));
  std::memcpy(note.reason, reason.data(), note.header.payload_size);
}

template <class Note>
std::string reason_of(const Note& note) {
  return std::string(note.reason, note.header.refused ? note.header.payload_size : 0);
}

// Either side's part in a message.
ShmOffer offer_of(Operation operation, const void* buffer, size_t count, nxd_dtype_t dtype,
                  int tag) {
  ShmOffer offer;
  offer.header.operation = operation;
  offer.header.count = count;
  offer.header.dtype = static_cast<int8_t>(dtype);
  offer.tag = tag;
  const std::string refusal = message_refusal(buffer, count, dtype);
  if (!refusal.empty()) refuse_in(offer, refusal);
  return offer;
}

bool agree_on(const CallHeader& one, const CallHeader& other) {
  return !one.refused && !other.refused && one.count == other.count && one.dtype == other.dtype;
}

size_t bytes_of(const CallHeader& header) {
  return header.refused ? 0 : header.count * dtype_size(header.dtype);
}

// A function of its own for tests/tsan.supp to name.
[[gnu::noinline]] void write_answer(ShmDesk& desk, const ShmOffer& own) {
  desk.answer.header = own.header;
  std::memcpy(desk.answer.reason, own.reason, sizeof own.reason);
}

// A message that is read from an arena, and an empty one, count as one part.
size_t parts_of(size_t bytes, const ShmOffer& offer) {
  if (offer.data.inode != 0 || bytes == 0) return 1;
  return (bytes + ShmDesk::kPart - 1) / ShmDesk::kPart;
}

}  // namespace

// Messages of a group that failed may still have peers at its desks.
ShmGroup::~ShmGroup() {
  if (monitor_.has_failed() || monitor_.aborted()) return;
  for (const Desk& desk : desks_) link_.arena().free(desk.memory);
}

ShmGroup::Desk ShmGroup::borrow_desk() {
  const std::lock_guard<std::mutex> lock(desks_mutex_);
  if (desks_.empty()) {
    desks_.reserve(++n_desks_);  // so that every desk finds its place when it comes back
    void* memory = link_.arena().allocate(sizeof(ShmDesk));
    desks_.push_back({new (memory) ShmDesk, 0, {}});
  }
  const Desk desk = desks_.back();
  desks_.pop_back();
  return desk;
}

void ShmGroup::return_desk(const Desk& desk) {
  const std::lock_guard<std::mutex> lock(desks_mutex_);
  desks_.push_back(desk);
}

void ShmGroup::send(const void* buffer, size_t count, nxd_dtype_t dtype, int to, int tag) {
  const GroupMonitor::Call started(monitor_, "send", Kind::kMessage, {count, dtype, to});
  check_peer(monitor_, "to", to, rank(), size(), tag);
  send_offer(offer_of(Operation::kSend, buffer, count, dtype, tag), buffer, to);
}

void ShmGroup::receive(void* buffer, size_t count, nxd_dtype_t dtype, int from, int tag) {
  const GroupMonitor::Call started(monitor_, "receive", Kind::kMessage, {count, dtype, from});
  check_peer(monitor_, "from", from, rank(), size(), tag);
  accept_offer(offer_of(Operation::kReceive, buffer, count, dtype, tag), buffer, from);
}

void ShmGroup::refuse_message(Operation operation, int peer, int tag, const std::string& reason) {
  const GroupMonitor::Call started(monitor_, operation_name(operation), Kind::kMessage,
                                   {0, NXD_DTYPE_INVALID, peer});
  check_peer(monitor_, "peer", peer, rank(), size(), tag);
  ShmOffer own = offer_of(operation, nullptr, 0, NXD_DTYPE_U8, tag);
  refuse_in(own, reason);
  operation == Operation::kSend ? send_offer(own, nullptr, peer) : accept_offer(own, nullptr, peer);
}

// A desk comes back only from messages that ended well or were refused: no peer is at it then.
void ShmGroup::send_offer(ShmOffer offer, const void* buffer, int to) {
  link_.segment();
  Desk desk = borrow_desk();
  const uint32_t base = desk.base;
  const size_t bytes = bytes_of(offer.header);
  if (bytes > ShmDesk::kPart) offer.data = link_.place_of(buffer, bytes);
  offer.desk = link_.place_of(desk.memory, sizeof(ShmDesk));
  offer.base = base;
  const size_t parts = parts_of(bytes, offer);
  const auto fill = [&](size_t number) {
    const size_t from = number * ShmDesk::kPart;
    if (offer.data.inode == 0 && bytes > 0) {
      desk.writer.copy(desk.memory->parts[number % ShmDesk::kParts],
                       static_cast<const char*>(buffer) + from,
                       std::min(ShmDesk::kPart, bytes - from));
    }
    desk.memory->filled.advance_to(base + 2 + static_cast<uint32_t>(number));
  };
  fill(0);
  post_offer(offer, to);
  const size_t ahead = std::min(parts, ShmDesk::kParts);
  for (size_t number = 1; number < ahead; ++number) fill(number);
  SharedCounter& taken = desk.memory->taken;
  link_.wait(to, taken, base + 1);
  const auto answer = desk.memory->answer;
  const bool agreed = agree_on(offer.header, answer.header);
  if (agreed) {
    for (size_t number = ahead; number < parts; ++number) {
      link_.wait(to, taken, base + 2 + static_cast<uint32_t>(number - ShmDesk::kParts));
      fill(number);
    }
    link_.wait(to, taken, base + 1 + static_cast<uint32_t>(parts));
  }
  desk.base = base + 1 + static_cast<uint32_t>(std::max(parts, ShmDesk::kParts));
  return_desk(desk);
  if (agreed) return;
  check_message(monitor_, {monitor_.world_rank(), &offer.header, reason_of(offer)},
                {ranks()[static_cast<size_t>(to)], &answer.header, reason_of(answer)});
}

void ShmGroup::post_offer(const ShmOffer& offer, int to) {
  ShmChannel& channel = link_.segment().channel(rank(), to);
  Outbox& outbox = outboxes_[static_cast<size_t>(to)];
  const std::lock_guard<std::mutex> lock(outbox.mutex);
  link_.wait(to, channel.taken, outbox.offered + 1 - ShmChannel::kOffers);
  channel.offers[outbox.offered % ShmChannel::kOffers] = offer;
  channel.offered.advance_to(++outbox.offered);
}

// Whichever thread looks takes out all there are, also those that others wait for.
ShmOffer ShmGroup::await_offer(int from, int tag) {
  ShmChannel& channel = link_.segment().channel(from, rank());
  Inbox& inbox = inboxes_[static_cast<size_t>(from)];
  for (;;) {
    uint32_t seen;
    {
      const std::lock_guard<std::mutex> lock(inbox.mutex);
      while (channel.offered.has_reached(inbox.taken + 1)) {
        const ShmOffer& next = channel.offers[inbox.taken % ShmChannel::kOffers];
        inbox.offers[next.tag].push_back(next);
        channel.taken.advance_to(++inbox.taken);
      }
      const auto waiting = inbox.offers.find(tag);
      if (waiting != inbox.offers.end() && !waiting->second.empty()) {
        const ShmOffer offer = waiting->second.front();
        waiting->second.pop_front();
        if (waiting->second.empty()) inbox.offers.erase(waiting);
        return offer;
      }
      seen = inbox.taken;
    }
    link_.wait(from, channel.offered, seen + 1);
  }
}

void ShmGroup::accept_offer(ShmOffer own, void* buffer, int from) {
  const ShmOffer offer = await_offer(from, own.tag);
  link_.check_present(from);  // a sender that waits no more has taken its buffer back
  auto& desk = *reinterpret_cast<ShmDesk*>(link_.address(from, offer.desk));
  write_answer(desk, own);
  if (!agree_on(offer.header, own.header)) {
    desk.taken.advance_to(offer.base + 1);
    return check_message(monitor_, {monitor_.world_rank(), &own.header, reason_of(own)},
                         {ranks()[static_cast<size_t>(from)], &offer.header, reason_of(offer)});
  }
  const size_t bytes = bytes_of(own.header);
  const size_t parts = parts_of(bytes, offer);
  for (size_t number = 0; number < parts; ++number) {
    const uint32_t here = offer.base + 2 + static_cast<uint32_t>(number);
    link_.wait(from, desk.filled, here);
    const size_t at = number * ShmDesk::kPart;
    if (offer.data.inode != 0) {
      kernels::copy_shared(buffer, link_.address(from, offer.data), bytes);
    } else if (bytes > 0) {
      kernels::copy_shared(static_cast<char*>(buffer) + at, desk.parts[number % ShmDesk::kParts],
                           std::min(ShmDesk::kPart, bytes - at));
    }
    desk.taken.advance_to(here);
  }
}

}  // namespace nxd
