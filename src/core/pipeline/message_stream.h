#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/process_group.h"
#include "core/pipeline/p2p_plan.h"
#include "core/pipeline/timeline.h"

namespace nxd {

// One flow's messages between this rank and a neighbour, in one direction: started in their order,
// without waiting, and each with the buffer that it needs until it is done.
class MessageStream {
 public:
  MessageStream(ProcessGroup& group, Operation operation, Flow flow, int peer);
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // A run begins that has these messages, which are kept by others until it ends.
  void begin(const std::vector<P2pPlan::Message>& messages, Timeline* timeline);

  int peer() const { return peer_; }
  const char* flow() const { return flow_name(flow_); }
  const P2pPlan::Message& message(size_t i) const { return (*messages_)[i]; }
  size_t started() const { return entries_.size(); }

  // Starts the next message.
  void start(PipelineBuffer buffer);
  bool is_done(size_t i) const { return !entries_[i].work || entries_[i].work->is_done(); }
  // Waits for a message, and gives its buffer. Fails as the message did.
  PipelineBuffer await(size_t i);
  // The first message that has started and was not awaited; started() when there is none.
  size_t first_open();

  // Ends a run early: in place of the messages that have not started the peer gets the reason.
  void reject_rest(const std::string& reason) noexcept;
  // Waits until all messages have ended, well or not, and lets go of their buffers. Afterwards both
  // ends are at the same place again. An error of a wait ends the group.
  void settle() noexcept;

 private:
  struct Entry {
    std::shared_ptr<Work> work;
    PipelineBuffer buffer;
  };

  Call call_for(size_t i, void* data) const;
  void record(size_t i, const Work& work);
  void settle(const std::shared_ptr<Work>& work) noexcept;

  ProcessGroup& group_;
  const Operation operation_;
  const Flow flow_;
  const int peer_;
  const std::vector<P2pPlan::Message>* messages_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Entry> entries_;
  size_t first_open_ = 0;
  std::vector<std::shared_ptr<Work>> rejections_;
};

}  // namespace nxd
