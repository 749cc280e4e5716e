#pragma once

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/tcp/pair.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/comm/net/socket.h"

namespace nxd {

// A connection of Gloo's over a socket that was connected before. It avoids
// two problems of Gloo's own connections. Gloo takes any process that reaches its port first for
// the peer. An error on its event loop, such as a peer that left before it was accepted, ends the
// process.
class GlooPair final : public gloo::transport::tcp::Pair {
 public:
  GlooPair(gloo::transport::tcp::Context* context, gloo::transport::tcp::Device* device, int rank,
           std::chrono::milliseconds timeout, Fd socket);
  ~GlooPair() override;

  // Runs on Gloo's event loop. An exception becomes the connection's error. Later releases of Gloo
  // pass the loop; the overload that this release knows overrides.
  void handleEvents(int events);
  void handleEvents(gloo::transport::tcp::Loop& loop, int events);

  // True when it has failed because the kernel cannot read or write memory that this rank gave it,
  // which is no fault of the peer's.
  bool had_bad_memory();

  // Grows when bytes have come.
  uint64_t reads() const noexcept { return reads_; }

 protected:
  bool write(gloo::transport::tcp::Op& op) override;
  bool read() override;
  void changeState(state next) noexcept override;

 private:
  template <class... Arguments>
  void handle(Arguments&... arguments);

  std::atomic<uint64_t> reads_{0};
  bool is_writing_ = false;
  bool had_bad_memory_ = false;
};

// Connections of one rank to others of a group.
class GlooConnections final : public gloo::transport::tcp::Context {
 public:
  using Context::Context;
  ~GlooConnections() override;

  // Makes the connection to a rank out of a socket that reaches it.
  GlooPair* adopt(int rank, Fd socket);
  // Makes a GlooBuffer.
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                      size_t size) override;

  // True when one of them had bad memory; set before the peer can see the end of that one.
  bool had_bad_memory() const noexcept { return had_bad_memory_; }

 private:
  friend class GlooPair;
  std::atomic<bool> had_bad_memory_{false};
};

}  // namespace nxd
