#include "core/pipeline/message_stream.h"

#include <utility>

namespace nxd {
namespace {

// The last tags, which programs that send messages of their own over the group hardly use.
int tag_of(Flow flow) { return kTagLimit - static_cast<int>(P2pPlan::index(flow)); }

// In a forked child no work is.
bool is_over(const Work& work) noexcept {
  try {
    return work.is_done();
  } catch (...) {
    return false;
  }
}

}  // namespace

MessageStream::MessageStream(ProcessGroup& group, Operation operation, Flow flow, int peer)
    : group_(group), operation_(operation), flow_(flow), peer_(peer) {}

void MessageStream::begin(const std::vector<P2pPlan::Message>& messages, Timeline* timeline) {
  messages_ = &messages;
  timeline_ = timeline;
  entries_.clear();
  entries_.reserve(messages.size());
  first_open_ = 0;
}

Call MessageStream::call_for(size_t i, void* data) const {
  const P2pPlan::Message& m = message(i);
  return {operation_, data, data, m.count, m.dtype, NXD_REDUCE_INVALID, peer_, tag_of(flow_)};
}

void MessageStream::start(PipelineBuffer buffer) {
  const size_t i = entries_.size();
  check_internal(i < messages_->size(), "a message that the schedule does not have");
  entries_.push_back({nullptr, std::move(buffer)});
  try {
    entries_.back().work =
        group_.start(call_for(i, entries_.back().buffer.data), Work::Bound::kFromWait);
  } catch (...) {
    entries_.pop_back();
    throw;
  }
}

PipelineBuffer MessageStream::await(size_t i) {
  // Earlier messages come first, and this thread must wait for them too.
  for (size_t before = first_open(); before < i; ++before) {
    if (entries_[before].work) entries_[before].work->wait(-1);
  }
  const std::shared_ptr<Work> work = entries_[i].work;
  work->wait(-1);
  record(i, *work);
  entries_[i].work.reset();
  return std::move(entries_[i].buffer);
}

size_t MessageStream::first_open() {
  while (first_open_ < entries_.size() && !entries_[first_open_].work) ++first_open_;
  return first_open_;
}

void MessageStream::record(size_t i, const Work& work) {
  if (!timeline_) return;
  const P2pPlan::Message& m = message(i);
  const Work::Span span = work.span();
  timeline_->add({text(operation_ == Operation::kSend ? "send " : "receive ", flow()),
                  "communication", m.chunk, m.microbatch, span.begin_ns, span.end_ns});
}

void MessageStream::reject_rest(const std::string& reason) noexcept {
  try {
    rejections_.reserve(messages_->size() - entries_.size());
    for (size_t i = entries_.size(); i < messages_->size(); ++i) {
      rejections_.push_back(
          group_.start(call_for(i, nullptr).rejected_for(reason), Work::Bound::kFromWait));
    }
  } catch (...) {
    // Without a thread for them there is only the group's end to tell the peer.
    group_.abort();
  }
}

void MessageStream::settle(const std::shared_ptr<Work>& work) noexcept {
  try {
    if (work) work->wait(-1);
  } catch (...) {
    // Perhaps the wait has ended, and not the work.
    if (!is_over(*work)) group_.end_works();
  }
}

void MessageStream::settle() noexcept {
  for (const Entry& entry : entries_) settle(entry.work);
  for (const auto& rejection : rejections_) settle(rejection);
  entries_.clear();
  rejections_.clear();
}

}  // namespace nxd
