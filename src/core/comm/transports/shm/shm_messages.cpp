#include "core/comm/transports/shm/shm_messages.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/kernels/copy.h"

namespace nxd {
namespace {

// A function of its own for tests/tsan.supp to name.
[[gnu::noinline]] void write_answer(ShmStagingBuffer& staging, const ShmMessageDescriptor& own) {
  staging.answer.header = own.header;
  std::memcpy(staging.answer.reason, own.reason, sizeof own.reason);
}

// A message that is read from an arena, and an empty one, count as one part.
size_t parts_of(size_t bytes, const ShmMessageDescriptor& message) {
  if (message.data.inode != 0 || bytes == 0) return 1;
  return (bytes + ShmStagingBuffer::kPart - 1) / ShmStagingBuffer::kPart;
}

}  // namespace

ShmMessages::ShmMessages(ShmLink& link)
    : link_(link), monitor_(link.monitor()), outboxes_(static_cast<size_t>(link.size())) {
  for (int from = 0; from < link.size(); ++from) inboxes_.emplace_back(link, from);
}

// Messages of a group that failed may still have peers at its staging buffers.
ShmMessages::~ShmMessages() {
  if (monitor_.has_failed() || monitor_.aborted()) return;
  for (const StagingBuffer& staging : staging_) link_.arena().free(staging.memory);
}

ShmMessages::StagingBuffer ShmMessages::borrow_staging() {
  const std::lock_guard<std::mutex> lock(staging_mutex_);
  if (staging_.empty()) {
    staging_.reserve(++n_staging_);  // so that every buffer finds its place when it comes back
    void* memory = link_.arena().allocate(sizeof(ShmStagingBuffer));
    staging_.push_back({new (memory) ShmStagingBuffer, 0, {}});
  }
  const StagingBuffer staging = staging_.back();
  staging_.pop_back();
  return staging;
}

void ShmMessages::return_staging(const StagingBuffer& staging) {
  const std::lock_guard<std::mutex> lock(staging_mutex_);
  staging_.push_back(staging);
}

ShmMessageDescriptor ShmMessages::describe(const Call& call) const {
  ShmMessageDescriptor message;
  message.header = call.header(0);
  message.tag = call.tag;
  const std::string why = call.rejection(link_.rank(), link_.size());
  if (!why.empty()) {
    monitor_.note_rejection(why);
    message.header.reject({monitor_.world_rank(), false, why}, message.reason,
                          sizeof message.reason);
  }
  return message;
}

void ShmMessages::run(const Call& call) {
  const GroupMonitor::Scope scope(monitor_, call.name(), call.record());
  call.check_peer(monitor_, link_.rank(), link_.size());
  if (call.operation == Operation::kSend) {
    send(describe(call), call.send, call.peer);
  } else {
    receive(describe(call), call.recv, call.peer);
  }
}

// A staging buffer comes back only from messages that ended well or were rejected: no peer is at it
// then.
void ShmMessages::send(const ShmMessageDescriptor& given, const void* buffer, int to) {
  ShmMessageDescriptor message = given;
  link_.segment();
  StagingBuffer staging = borrow_staging();
  const uint32_t base = staging.base;
  const size_t bytes = message.header.message_bytes();
  if (bytes > ShmStagingBuffer::kPart) message.data = link_.place_of(buffer, bytes);
  message.staging = link_.place_of(staging.memory, sizeof(ShmStagingBuffer));
  message.base = base;
  const size_t parts = parts_of(bytes, message);
  const auto fill = [&](size_t number) {
    const size_t from = number * ShmStagingBuffer::kPart;
    if (message.data.inode == 0 && bytes > 0) {
      staging.writer.copy(staging.memory->parts[number % ShmStagingBuffer::kParts],
                          static_cast<const char*>(buffer) + from,
                          std::min(ShmStagingBuffer::kPart, bytes - from));
    }
    staging.memory->filled.advance_to(base + 2 + static_cast<uint32_t>(number));
  };
  fill(0);
  post(message, to);
  const size_t ahead = std::min(parts, ShmStagingBuffer::kParts);
  for (size_t number = 1; number < ahead; ++number) fill(number);
  SharedCounter& taken = staging.memory->taken;
  {
    const WaitScope wait;
    link_.wait(to, taken, base + 1);
  }
  const auto answer = staging.memory->answer;
  const bool agreed = message.header.fits(answer.header);
  if (agreed) {
    for (size_t number = ahead; number < parts; ++number) {
      link_.wait(to, taken, base + 2 + static_cast<uint32_t>(number - ShmStagingBuffer::kParts));
      fill(number);
    }
    link_.wait(to, taken, base + 1 + static_cast<uint32_t>(parts));
  }
  staging.base = base + 1 + static_cast<uint32_t>(std::max(parts, ShmStagingBuffer::kParts));
  return_staging(staging);
  if (agreed) return;
  check_message(monitor_, side(link_.rank(), message), side(to, answer));
}

// Room is awaited without the lock: a thread that waited for the lock would ask nobody whether to
// go on, and serve no store.
void ShmMessages::post(const ShmMessageDescriptor& message, int to) {
  ShmChannel& channel = link_.segment().channel(link_.rank(), to);
  Outbox& outbox = outboxes_[static_cast<size_t>(to)];
  for (;;) {
    uint32_t with_room;
    {
      const std::lock_guard<std::mutex> lock(outbox.mutex);
      with_room = outbox.posted + 1 - ShmChannel::kMessages;
      if (channel.taken.has_reached(with_room)) {
        channel.messages[outbox.posted % ShmChannel::kMessages] = message;
        channel.posted.advance_to(++outbox.posted);
        return;
      }
    }
    link_.wait(to, channel.taken, with_room);
  }
}

void ShmMessages::receive(const ShmMessageDescriptor& own, void* buffer, int from) {
  const ShmMessageDescriptor message = [&] {
    const WaitScope wait;
    return inboxes_[static_cast<size_t>(from)].await(own.tag);
  }();
  link_.check_present(from);  // a sender that waits no more has taken its buffer back
  auto& staging = *reinterpret_cast<ShmStagingBuffer*>(link_.address(from, message.staging));
  write_answer(staging, own);
  if (!message.header.fits(own.header)) {
    staging.taken.advance_to(message.base + 1);
    return check_message(monitor_, side(link_.rank(), own), side(from, message));
  }
  const size_t bytes = own.header.message_bytes();
  const size_t parts = parts_of(bytes, message);
  for (size_t number = 0; number < parts; ++number) {
    const uint32_t here = message.base + 2 + static_cast<uint32_t>(number);
    link_.wait(from, staging.filled, here);
    const size_t at = number * ShmStagingBuffer::kPart;
    if (message.data.inode != 0) {
      kernels::copy_shared(buffer, link_.address(from, message.data), bytes);
    } else if (bytes > 0) {
      kernels::copy_shared(static_cast<char*>(buffer) + at,
                           staging.parts[number % ShmStagingBuffer::kParts],
                           std::min(ShmStagingBuffer::kPart, bytes - at));
    }
    staging.taken.advance_to(here);
  }
}

}  // namespace nxd
