#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>

#include "core/comm/net/peer_hello.h"
#include "core/comm/net/pending_peers.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"

namespace nxd {

// Makes the connections between the ranks of a world. Each rank listens at one port, and both ends
// of a connection prove that they are ranks before it is used (see PeerHello). Unauthenticated
// peers have no effect: a connection without a proof is closed, and the oldest silent ones make
// room for others.
//
// A thread of the connector's own answers, so a rank can be connected to while it computes. Every
// method may be called from several threads at once.
class Connector {
 public:
  // With the job's secret both ends need it. Rank is this one's in the world.
  Connector(const std::string& address, int rank, std::optional<Secret> secret);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // The address by which other ranks connect to this one, and its key in the store.
  std::string peer_address() const { return address_.encode(); }
  const std::string& address() const { return address_.host; }
  static std::string key(int rank) { return "peer/" + std::to_string(rank); }

  // The rank does not listen any more, or cannot be reached.
  class Refused : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };
  // The store names something else than this rank, or a rank without the job's secret.
  class Unproven : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };

  // A connection in the making to a rank. The purpose says what for, and both ends give the same.
  class Dial {
   public:
    Dial(const Connector& own, const std::string& peer_address, int to, const std::string& purpose);
    // The connection, or none when it is not there within the duration. Throws Refused, Unproven.
    Fd wait(std::chrono::milliseconds duration);

   private:
    enum class Stage { kConnecting, kAwaitingAnswer, kAwaitingWelcome, kPausing };

    void connect();
    void say_hello();
    void hear_answer();
    bool hear_welcome();
    void call_again();

    const PeerAddress address_;
    Key key_{};
    std::string hello_;
    Fd fd_;
    Stage stage_ = Stage::kConnecting;
    std::string heard_;
    Deadline pause_ = Deadline::after_ms(0);
  };

  // The connection that a rank has made for the purpose, or none when it has not in the duration.
  Fd take(int from, const std::string& purpose, std::chrono::milliseconds duration);

 private:
  struct Incoming;

  void listen(const std::string& address);
  void run();
  void serve_round();
  void accept_incoming();
  void admit(Fd fd);
  void let_go(int fd) noexcept;
  bool listen_to(Incoming& peer);
  bool answer(Incoming& peer);
  void welcome(Incoming& peer);
  void watch(int operation, int fd, uint32_t events);

  const int rank_;
  const std::optional<Secret> secret_;
  PeerAddress address_;
  Key key_{};
  Fd listener_, epoll_, wake_;
  std::unordered_map<int, std::unique_ptr<Incoming>> incoming_;  // of the thread, by descriptor
  PendingPeers pending_;                                         // of the thread
  std::optional<Deadline> paused_until_;  // of the thread: out of descriptors
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::pair<int, std::string>, std::deque<Fd>> arrived_;
  std::thread thread_;
};

}  // namespace nxd
