#pragma once

#include <atomic>
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
  ~TcpStoreServer();

  int port() const { return port_; }
  void stop();

 private:
  struct Client;
  class Reader;

  void run();
  void accept_clients();
  bool read_from(Client& client);
  bool write_to(Client& client);
  bool serve_one(Client& client, Reader& in);
  bool serve_values(Client& client, Reader& in, uint8_t query);
  bool serve_waits(Client& client, Reader& in, uint8_t query);
  bool serve_many(Client& client, Reader& in, uint8_t query);
  void store(const std::string& key, std::string value);

  int port_ = 0;
  Fd listener_, wake_read_, wake_write_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Client>> clients_;
  std::unordered_map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace nxd
