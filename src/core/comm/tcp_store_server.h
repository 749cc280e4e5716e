#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/comm/socket.h"

namespace nxd {

// Serves torch's TCPStore protocol on one thread. Clients that break the protocol are disconnected.
class TcpStoreServer {
 public:
  explicit TcpStoreServer(int port);  // 0: any free port
  // On a Unix socket of this host, in the abstract namespace.
  explicit TcpStoreServer(const std::string& local_name);
  ~TcpStoreServer();

  int port() const { return port_; }
  void stop();

 private:
  struct Client;
  class Reader;

  void start();
  void run();
  void accept_clients();
  bool read_from(Client& client);
  bool write_to(Client& client);
  bool watch(int operation, int fd, uint32_t events);
  void refuse_clients();
  void drop(Client& client);
  bool serve_one(Client& client, Reader& in);
  bool serve_values(Client& client, Reader& in, uint8_t query);
  bool serve_waits(Client& client, Reader& in, uint8_t query);
  bool serve_many(Client& client, Reader& in, uint8_t query);
  void store(const std::string& key, std::string value);
  void forget_wait(Client& client);

  int port_ = 0;
  Fd listener_, wake_read_, wake_write_, epoll_;
  std::atomic<bool> stopping_{false};
  std::unordered_map<int, std::unique_ptr<Client>> clients_;       // by descriptor
  std::vector<int> to_write_;                                      // those with answers to go out
  bool is_full_ = false;                                           // of descriptors
  std::unordered_map<std::string, std::vector<Client*>> waiting_;  // by key
  std::unordered_map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace nxd
