#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/comm/socket.h"

namespace nxd {

// Makes the connections between the ranks of a world. Each rank listens at one port, and whoever
// connects says first who it is, for what, and a secret that only ranks can have from the store.
// So strangers are of no effect: those who say anything else are let go, and those who say nothing
// keep nobody waiting.
//
// Nobody has to be there to accept: the connecting end is done when it has said its words. Every
// method may be called from several threads at once.
class Connector {
 public:
  Connector(const std::string& address, int rank);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // What other ranks need to connect to this one, and the key that they find it by in the store.
  const std::string& invitation() const { return invitation_; }
  std::string address() const { return invitation_.substr(0, invitation_.find(' ')); }
  static std::string key(int rank) { return "peer/" + std::to_string(rank); }

  // The rank does not listen any more, or cannot be reached.
  class Refused : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };

  // A connection in the making to the rank with an invitation. The key says what for, and both ends
  // give the same.
  class Dial {
   public:
    Dial(const std::string& invitation, int own_rank, const std::string& key);
    // The connection, or none when it is not there within the duration. Throws Refused.
    Fd wait(std::chrono::milliseconds duration);

   private:
    Fd fd_;
    std::string words_;
  };

  // The connection that a rank has made for the key, or none when it has not within the duration.
  Fd take(int from, const std::string& key, std::chrono::milliseconds duration);

 private:
  struct Guest;

  void poll_once(std::chrono::milliseconds duration);
  void accept_guests();
  bool listen_to(Guest& guest);

  Fd listener_;
  std::string secret_, invitation_;
  std::vector<std::unique_ptr<Guest>> guests_;  // of the thread that waits for all
  std::mutex mutex_;                            // of the following
  bool polling_ = false;                        // a thread waits for all
  std::condition_variable polled_;
  std::map<std::pair<int, std::string>, std::deque<Fd>> arrived_;
};

}  // namespace nxd
