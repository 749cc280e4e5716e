// A client of the TCP store's server that says what a test wants, byte by byte.
#pragma once

#include <string>
#include <vector>

#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "core/comm/store/tcp_store_server.h"

#include "support/check.h"
#include "support/patience.h"

namespace nxd_test {

using namespace nxd::tcp_store;
using nxd::TcpStoreServer;

// A server with these lets nobody go for being slow.
inline TcpStoreServer::Limits patient_limits() {
  TcpStoreServer::Limits limits;
  limits.hello_ms = limits.turn_ms = limits.stall_ms = kPatienceMs;
  return limits;
}

class Client {
 public:
  explicit Client(const TcpStoreServer& server, bool is_silent = false)
      : fd_(nxd::connect_tcp("127.0.0.1", server.port(), patiently())) {
    if (!is_silent) say(std::string(1, kValidate) + number(kMagic));
  }

  void say(const std::string& words) {
    assert_true(nxd::send_all(fd_.get(), words.data(), words.size(), patiently()));
  }
  std::string hear(size_t size) {
    std::string words(size, '\0');
    assert_true(nxd::receive_all(fd_.get(), words.data(), size, patiently()));
    return words;
  }
  // Nothing more has come, once what was asked before is answered.
  void hears_nothing() {
    say(std::string(1, kPing) + number(uint32_t{77}));
    assert_true(hear(4) == number(uint32_t{77}));
  }
  void leave() { fd_.reset(); }
  // True if the server has closed the connection, or does so now. Skips what it has answered.
  bool is_let_go() {
    char byte;
    while (nxd::receive_all(fd_.get(), &byte, 1, patiently())) {
    }
    return true;
  }
  int fd() const { return fd_.get(); }

  template <class T>
  static std::string number(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::string bytes(const std::string& value) {
    return number(uint64_t{value.size()}) + value;
  }
  static std::string set(const std::string& key, const std::string& value) {
    return std::string(1, kSet) + bytes(key) + bytes(value);
  }
  static std::string append(const std::string& key, const std::string& value) {
    return std::string(1, kAppend) + bytes(key) + bytes(value);
  }
  static std::string add(uint8_t query, const std::string& key, int64_t amount) {
    return std::string(1, static_cast<char>(query)) + bytes(key) + number(amount);
  }
  static std::string get(const std::string& key) { return std::string(1, kGet) + bytes(key); }
  static std::string wait(const std::vector<std::string>& keys) {
    std::string out = std::string(1, kWait) + number(uint64_t{keys.size()});
    for (const std::string& key : keys) out += bytes(key);
    return out;
  }

 private:
  nxd::Fd fd_;
};

inline const std::string kStop(1, static_cast<char>(kStopWaiting));
inline const std::string kCanceled(1, static_cast<char>(kWaitCanceled));

}  // namespace nxd_test
