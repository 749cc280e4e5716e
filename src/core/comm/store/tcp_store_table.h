#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/comm/store/tcp_store_request.h"
#include "core/comm/store/tcp_store_values.h"

namespace nxd::tcp_store {

// One client of a store.
struct Session {
  int fd = -1;
  Answers out;
  std::unordered_set<const std::string*> awaited;  // keys of a pending WAIT, which the table holds
  size_t awaited_bytes = 0;
};

// The keys of a store and their waiting clients: everything that a request does. It has no I/O.
class Table {
 public:
  // The memory that values take, and that pending WAITs take.
  Table(size_t values_limit, size_t waits_limit)
      : values_(values_limit), waits_limit_(waits_limit) {}

  // False when the client breaks the protocol or a bound, and is to be disconnected.
  bool serve(Session& session, uint8_t query, RequestReader in);
  // To be called before a session ends: it waits for nothing any more.
  void leave(Session& session);
  // Adds the sessions, by descriptor, that have got an answer because of what another one asked.
  void take_woken(std::vector<int>& to);

 private:
  bool serve_value(Session& session, uint8_t query, RequestReader in);
  bool serve_add(Session& session, uint8_t query, const std::string& key, int64_t amount);
  bool serve_waits(Session& session, uint8_t query, RequestReader in);
  bool wait(Session& session, const std::vector<std::string_view>& keys);
  bool await(Session& session, std::string_view key);
  bool serve_many(Session& session, uint8_t query, RequestReader in);
  bool serve_checked_set(Session& session, const std::string& key, std::string_view value);
  bool store(const std::string& key, std::string_view value);
  bool store_or_reject(const std::string& key, std::string_view value);
  bool append(const std::string& key, std::string_view more);
  bool reject_value(size_t size);
  void say_full(Session& session) const;
  void wake_waiting(const std::string& key);

  Values values_;
  bool has_said_full_ = false;
  bool has_said_full_of_waits_ = false;
  const size_t waits_limit_;
  size_t waits_bytes_ = 0;  // of all sessions
  // By key. A session refers to the key here, so that it is held once, however many wait for it.
  std::unordered_map<std::string, std::unordered_set<Session*>> waiting_;
  std::vector<int> woken_;
};

}  // namespace nxd::tcp_store
