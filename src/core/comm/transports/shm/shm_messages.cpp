#include "core/comm/transports/shm/shm_messages.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/dtype.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

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

ShmMessages::ShmMessages(ShmLink& link)
    : link_(link),
      monitor_(link.monitor()),
      outboxes_(static_cast<size_t>(link.size())),
      inboxes_(static_cast<size_t>(link.size())) {}

// Messages of a group that failed may still have peers at its desks.
ShmMessages::~ShmMessages() {
  if (monitor_.has_failed() || monitor_.aborted()) return;
  for (const Desk& desk : desks_) link_.arena().free(desk.memory);
}

ShmMessages::Desk ShmMessages::borrow_desk() {
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

void ShmMessages::return_desk(const Desk& desk) {
  const std::lock_guard<std::mutex> lock(desks_mutex_);
  desks_.push_back(desk);
}

ShmOffer ShmMessages::offer_of(const Call& call) const {
  ShmOffer offer;
  offer.header = call.header(0);
  offer.tag = call.tag;
  const std::string why = call.rejection(link_.size());
  if (!why.empty()) {
    offer.header.reject({monitor_.world_rank(), false, why}, offer.reason, sizeof offer.reason);
  }
  return offer;
}

void ShmMessages::run(const Call& call) {
  const GroupMonitor::Scope scope(monitor_, call.name(), call.record());
  call.check_peer(monitor_, link_.rank(), link_.size());
  if (call.operation == Operation::kSend) {
    send(offer_of(call), call.send, call.peer);
  } else {
    receive(offer_of(call), call.recv, call.peer);
  }
}

// A desk comes back only from messages that ended well or were rejected: no peer is at it then.
void ShmMessages::send(const ShmOffer& given, const void* buffer, int to) {
  ShmOffer offer = given;
  link_.segment();
  Desk desk = borrow_desk();
  const uint32_t base = desk.base;
  const size_t bytes = offer.header.message_bytes();
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
  post(offer, to);
  const size_t ahead = std::min(parts, ShmDesk::kParts);
  for (size_t number = 1; number < ahead; ++number) fill(number);
  SharedCounter& taken = desk.memory->taken;
  link_.wait(to, taken, base + 1);
  const auto answer = desk.memory->answer;
  const bool agreed = offer.header.fits(answer.header);
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
  check_message(monitor_, side(link_.rank(), offer), side(to, answer));
}

void ShmMessages::post(const ShmOffer& offer, int to) {
  ShmChannel& channel = link_.segment().channel(link_.rank(), to);
  Outbox& outbox = outboxes_[static_cast<size_t>(to)];
  const std::lock_guard<std::mutex> lock(outbox.mutex);
  link_.wait(to, channel.taken, outbox.offered + 1 - ShmChannel::kOffers);
  channel.offers[outbox.offered % ShmChannel::kOffers] = offer;
  channel.offered.advance_to(++outbox.offered);
}

// Whichever thread looks takes out all there are, also those that others wait for.
ShmOffer ShmMessages::await(int from, int tag) {
  ShmChannel& channel = link_.segment().channel(from, link_.rank());
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

void ShmMessages::receive(const ShmOffer& own, void* buffer, int from) {
  const ShmOffer offer = await(from, own.tag);
  link_.check_present(from);  // a sender that waits no more has taken its buffer back
  auto& desk = *reinterpret_cast<ShmDesk*>(link_.address(from, offer.desk));
  write_answer(desk, own);
  if (!offer.header.fits(own.header)) {
    desk.taken.advance_to(offer.base + 1);
    return check_message(monitor_, side(link_.rank(), own), side(from, offer));
  }
  const size_t bytes = own.header.message_bytes();
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
