#pragma once

#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/store.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "core/comm/store/tcp_store_server.h"

namespace nxd {

// The means by which a process gets into a store.
struct StoreAccess {
  std::optional<Key> key;    // with one, only a server that proves to have it too is talked to
  bool is_of_torch = false;  // so the server is asked first whether it is torch's
};

// Client of a TCPStore: ours, or the one torchrun's agent serves (torch 1.x or 2.x).
class TcpStore : public Store {
 public:
  // Port 0: host is the name of a Unix socket of this host, in the abstract namespace. With a
  // server the store keeps it running.
  TcpStore(std::string host, int port, int64_t timeout_ms,
           std::shared_ptr<TcpStoreServer> server = nullptr, StoreAccess access = {});

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::vector<std::string>> get_all(const std::vector<std::string>& keys) override;
  int64_t add(const std::string& key, int64_t amount) override;

  std::optional<std::string> wait_bounded(const std::string& key, int64_t timeout_ms) override;
  int64_t longest_wait_ms() const override { return timeout_ms_; }
  std::shared_ptr<Store> open_channel(int64_t timeout_ms) override;
  std::string server_host() const override { return port_ == 0 ? "" : host_; }
  bool serves() const override { return server_ != nullptr; }
  void stop_serving() override;

  int port() const { return port_; }
  int64_t timeout_ms() const { return timeout_ms_; }

 private:
  Fd open_connection(const Deadline& deadline) const;
  std::string address() const;
  // A connection that requests can be sent on; sets the dialect.
  Fd connect(const Deadline& deadline);
  Fd try_to_connect(const Deadline& deadline);
  bool is_ours(int fd, const Deadline& deadline) const;
  bool prove_to(int fd, const tcp_store::Hello& hello, const Deadline& deadline) const;
  bool is_torchs(const Deadline& deadline);
  bool is_torch_2(const Deadline& deadline) const;
  bool is_torch_1(const Deadline& deadline) const;
  bool ask(int fd, const std::string& request, void* answer, size_t size,
           const Deadline& deadline) const;
  [[noreturn]] void fail_strange() const;
  void exchange(const std::string& request, void* answer, size_t size, const Deadline& deadline);
  void read(void* answer, size_t size, const Deadline& deadline);
  void reconnect(const Deadline& deadline);
  void reconnect_later();
  [[noreturn]] void give_up(const Error& e);
  uint8_t ask_for_outcome(const std::string& request, const std::string& key,
                          const Deadline& deadline);
  std::string read_value(const Deadline& deadline);
  void check_connected() const;
  [[noreturn]] void fail_silent(const Error& e) const;
  int64_t bound_ms() const;  // of a request of this thread

  std::string host_;
  int port_;
  int64_t timeout_ms_;
  std::shared_ptr<TcpStoreServer> server_;
  const StoreAccess access_;
  tcp_store::Dialect dialect_ = tcp_store::kTorch2;
  std::mutex mutex_;
  // Empty once a request has failed: the connection may be out of step with the server. After one
  // that the server did not answer in time, or whose answer found no memory, the next one makes
  // another connection. One that the server has closed is lost for good.
  Fd fd_;
  bool reconnects_ = false;
};

// The store of nxd_store_create_tcp: checks the arguments, serves if asked to, and connects.
std::shared_ptr<Store> open_tcp_store(const char* host, int port, bool serve, int64_t timeout_ms);

}  // namespace nxd
