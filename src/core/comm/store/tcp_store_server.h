#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/comm/net/pending_peers.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store_request.h"
#include "core/comm/store/tcp_store_table.h"

namespace nxd {

// Serves torch's TCPStore protocol on one thread. Clients that break the protocol are disconnected.
//
// No client can take more than its share. Each is read from while little of it is unanswered and
// little of its answers unread. Large requests that arrive at once share a bound on memory. Beyond
// it they take turns in the order of their arrival, while small ones go on. A client whose request
// does not go on is disconnected. All values share another bound.
class TcpStoreServer {
 public:
  struct Limits {
    size_t in_flight = size_t{256} << 20;  // of requests that are still incomplete
    size_t values = size_t{1} << 30;       // kept, or on their way out
    size_t waits = size_t{256} << 20;      // keys of pending WAITs
    size_t pending = 0;                    // connections without a hello; 0: by open files
    int64_t hello_ms = 10000;              // for a connection to say hello
    int64_t turn_ms = 30000;               // for a large request while others wait
    int64_t stall_ms = 2000;               // without a byte of it
  };

  // Listens where others find it by this host's name or address (see listen_tcp). Port 0: any.
  // With a key, clients that do not prove that they have it can do nothing.
  TcpStoreServer(const std::string& host, int port, std::optional<Key> key = std::nullopt)
      : TcpStoreServer(host, port, std::move(key), Limits()) {}
  TcpStoreServer(const std::string& host, int port, std::optional<Key> key, const Limits& limits);
  // On a Unix socket of this host, in the abstract namespace, for this user's processes.
  explicit TcpStoreServer(const std::string& local_name, std::optional<Key> key = std::nullopt);
  ~TcpStoreServer();

  int port() const { return port_; }
  // Does not wait for any client.
  void stop();

 private:
  struct Client;

  void start();
  void run();
  void serve_round();
  template <class Serve>
  void drop_unless(Client& client, Serve&& serve);
  int next_timeout_ms() const;
  void let_overdue_go();
  void accept_clients(int listener);
  bool admit(Fd fd);
  void pause_listening();
  void resume_listening();
  bool watch(int operation, int fd, uint32_t events);
  void drop(Client& client);

  // Each is false when the client is to be disconnected.
  bool handle_events(Client& client, uint32_t events);
  bool receive(Client& client);
  bool serve_arrived(Client& client);
  bool send_answers(Client& client);
  bool settle(Client& client);
  bool serve_one(Client& client, std::string_view request);
  bool begin_request(Client& client, uint8_t query);
  void admit_for_good(Client& client);
  bool may_ask(const Client& client, uint8_t query) const;
  bool greet(Client& client, uint8_t query, tcp_store::RequestReader in);
  bool answer_hello(Client& client, const tcp_store::Hello& hello);
  void account(Client& client);
  bool may_read(const Client& client) const;
  void leave_line(Client& client);
  void move_line();
  void clear_line();
  int64_t stall_ms() const;

  const Limits limits_;
  const std::optional<Key> key_;
  int port_ = 0;
  bool is_local_ = false;
  std::vector<Fd> listeners_;
  Fd wake_read_, wake_write_, epoll_;
  std::atomic<bool> stopping_{false};
  PendingPeers pending_;
  std::optional<Deadline> paused_until_;  // out of descriptors
  tcp_store::Table table_;
  std::unordered_map<int, std::unique_ptr<Client>> clients_;  // by descriptor
  std::vector<int> touched_;                                  // to be settled
  size_t in_flight_ = 0;
  std::list<Client*> line_;  // for memory to read more
  // Bounds of the first in the line: for all of its request, and for the next bytes of it.
  std::optional<Deadline> turn_until_, stall_until_;
  bool has_stalled_ = false;  // one did, since the line was empty
  std::thread thread_;
};

}  // namespace nxd
