#include "core/comm/tcp_store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/blocked_signals.h"
#include "core/base/log.h"
#include "core/comm/store.h"
#include "core/comm/tcp_store_protocol.h"

namespace nxd {
namespace {

using namespace tcp_store;

struct ProtocolError {};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, const std::string& bytes) {
  put<uint64_t>(out, bytes.size());
  out += bytes;
}

}  // namespace

struct TcpStoreServer::Client {
  Fd fd;
  bool validated = false;
  bool is_watched_for_room = false;  // to write
  std::string in, out;
  std::vector<std::string> awaited;  // keys of a pending WAIT
};

// Takes a request apart. Incomplete ones throw kIncomplete, and are looked at again when more bytes
// have come.
class TcpStoreServer::Reader {
 public:
  struct Incomplete {};

  Reader(const std::string& bytes, size_t start) : bytes_(bytes), at_(start) {}
  size_t position() const { return at_; }

  template <class T>
  T number() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string bytes() {
    const uint64_t size = number<uint64_t>();
    if (size > kSizeLimit) throw ProtocolError();
    need(size);
    std::string value = bytes_.substr(at_, size);
    at_ += size;
    return value;
  }
  std::vector<std::string> list() {
    const uint64_t count = number<uint64_t>();
    if (count > kSizeLimit / 8) throw ProtocolError();
    std::vector<std::string> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(bytes());
    return values;
  }

 private:
  void need(uint64_t size) const {
    if (bytes_.size() - at_ < size) throw Incomplete();
  }
  const std::string& bytes_;
  size_t at_;
};

TcpStoreServer::TcpStoreServer(int port) {
  listener_ = listen_tcp(port, &port_);
  start();
}

TcpStoreServer::TcpStoreServer(const std::string& local_name) {
  listener_ = listen_local(local_name);
  start();
}

void TcpStoreServer::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    fail(NXD_ERROR_IO, "cannot make a pipe: ", std::strerror(errno));
  }
  wake_read_ = Fd(ends[0]);
  wake_write_ = Fd(ends[1]);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) fail(NXD_ERROR_IO, "cannot make an epoll: ", std::strerror(errno));
  watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
  watch(EPOLL_CTL_ADD, wake_read_.get(), EPOLLIN);
  BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

TcpStoreServer::~TcpStoreServer() { stop(); }

void TcpStoreServer::stop() {
  if (stopping_.exchange(true)) return;
  const ssize_t written = ::write(wake_write_.get(), "x", 1);
  static_cast<void>(written);
  thread_.join();
  clients_.clear();
  listener_.reset();
}

bool TcpStoreServer::watch(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

// What a round costs depends on how many clients ask, not on how many there are.
void TcpStoreServer::run() {
  epoll_event events[256];
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), events, std::size(events), -1);
    bool has_callers = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      has_callers = has_callers || fd == listener_.get();
      const auto found = clients_.find(fd);
      if (found == clients_.end()) continue;
      Client& client = *found->second;
      bool alive = true;
      try {
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) alive = read_from(client);
      } catch (...) {
        alive = false;
      }
      if (!alive) {
        drop(client);
      } else if (!client.out.empty()) {
        to_write_.push_back(fd);
      }
    }
    // A request of one client may have produced answers for others.
    for (const int fd : std::exchange(to_write_, {})) {
      const auto found = clients_.find(fd);
      if (found != clients_.end() && !write_to(*found->second)) drop(*found->second);
    }
    if (has_callers) accept_clients();
  }
}

void TcpStoreServer::accept_clients() {
  for (;;) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE) refuse_clients();
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int number = fd.get();
    auto client = std::make_unique<Client>();
    client->fd = std::move(fd);
    if (watch(EPOLL_CTL_ADD, number, EPOLLIN)) clients_.emplace(number, std::move(client));
  }
}

// Those who call now wait in the kernel until a client leaves.
void TcpStoreServer::refuse_clients() {
  log(NXD_LOG_WARN, "the store serves ", clients_.size(),
      " connections and may open no more files: raise the limit on open files (ulimit -n) to more "
      "than twice the number of ranks");
  watch(EPOLL_CTL_MOD, listener_.get(), 0);
  is_full_ = true;
}

void TcpStoreServer::drop(Client& client) {
  forget_wait(client);
  const int fd = client.fd.get();
  watch(EPOLL_CTL_DEL, fd, 0);
  clients_.erase(fd);
  if (!is_full_) return;
  is_full_ = false;
  watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
}

bool TcpStoreServer::read_from(Client& client) {
  char chunk[16384];
  bool ended = false;
  for (;;) {
    const ssize_t n = ::recv(client.fd.get(), chunk, sizeof chunk, 0);
    if (n > 0) {
      client.in.append(chunk, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof chunk) break;  // what comes later wakes us again
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  // What came before the end still counts: a set needs no answer.
  size_t done = 0;
  bool alive = true;
  try {
    while (alive && done < client.in.size()) {
      Reader in(client.in, done);
      alive = serve_one(client, in);
      if (alive) done = in.position();
    }
  } catch (const Reader::Incomplete&) {
  }
  client.in.erase(0, done);
  return alive && !ended;
}

bool TcpStoreServer::write_to(Client& client) {
  while (!client.out.empty()) {
    const ssize_t n =
        ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (n < 0) break;
    client.out.erase(0, static_cast<size_t>(n));
  }
  const bool needs_room = !client.out.empty();
  if (needs_room == client.is_watched_for_room) return true;
  client.is_watched_for_room = needs_room;
  return watch(EPOLL_CTL_MOD, client.fd.get(), needs_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool TcpStoreServer::serve_one(Client& client, Reader& in) {
  const auto query = in.number<uint8_t>();
  if (!client.validated) {
    if (query != kValidate || in.number<uint32_t>() != kMagic) return false;
    client.validated = true;
    return true;
  }
  switch (query) {
    case kSet:
    case kCompareSet:
    case kGet:
    case kAdd:
    case kAppend:
    case kDeleteKey: return serve_values(client, in, query);
    case kCheck:
    case kWait:
    case kCancelWait: return serve_waits(client, in, query);
    case kGetNumKeys:
    case kMultiGet:
    case kMultiSet: return serve_many(client, in, query);
    case kPing: put<uint32_t>(client.out, in.number<uint32_t>()); return true;
    default: return false;
  }
}

bool TcpStoreServer::serve_values(Client& client, Reader& in, uint8_t query) {
  const std::string key = in.bytes();
  const auto found = values_.find(key);
  switch (query) {
    case kSet: store(key, in.bytes()); return true;
    case kAppend: {
      const std::string more = in.bytes();
      store(key, found == values_.end() ? more : found->second + more);
      return true;
    }
    case kAdd: {
      const auto amount = in.number<int64_t>();
      const int64_t sum =
          add_to_counter(key, found == values_.end() ? nullptr : &found->second, amount);
      store(key, std::to_string(sum));
      put<int64_t>(client.out, sum);
      return true;
    }
    case kCompareSet: {
      const std::string expected = in.bytes();
      const std::string desired = in.bytes();
      // As torch has it: an absent key equals an empty expectation, and otherwise the expectation
      // comes back.
      if (found == values_.end() && !expected.empty()) {
        put_bytes(client.out, expected);
        return true;
      }
      if (found == values_.end() || found->second == expected) store(key, desired);
      put_bytes(client.out, values_[key]);
      return true;
    }
    case kDeleteKey:
      put<int64_t>(client.out, static_cast<int64_t>(values_.erase(key)));
      return true;
    default:
      if (found == values_.end()) return false;
      put_bytes(client.out, found->second);
      return true;
  }
}

bool TcpStoreServer::serve_waits(Client& client, Reader& in, uint8_t query) {
  if (query == kCancelWait) {
    forget_wait(client);
    put<uint8_t>(client.out, kWaitCanceled);
    return true;
  }
  std::vector<std::string> keys = in.list();
  std::erase_if(keys, [&](const std::string& key) { return values_.count(key) > 0; });
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  if (query == kCheck) {
    put<uint8_t>(client.out, keys.empty() ? kReady : kNotReady);
  } else if (keys.empty()) {
    put<uint8_t>(client.out, kStopWaiting);
  } else {
    forget_wait(client);
    client.awaited = std::move(keys);
    for (const std::string& key : client.awaited) waiting_[key].push_back(&client);
  }
  return true;
}

bool TcpStoreServer::serve_many(Client& client, Reader& in, uint8_t query) {
  if (query == kGetNumKeys) {
    put<int64_t>(client.out, static_cast<int64_t>(values_.size()));
    return true;
  }
  if (query == kMultiGet) {
    for (const std::string& key : in.list()) {
      const auto found = values_.find(key);
      if (found == values_.end()) return false;
      put_bytes(client.out, found->second);
    }
    return true;
  }
  // All pairs are read before the first is stored: the request may still be incomplete.
  const uint64_t count = in.number<uint64_t>();
  if (count > kSizeLimit / 16) return false;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = in.bytes();
    pairs.emplace_back(std::move(key), in.bytes());
  }
  for (auto& [key, value] : pairs) store(key, std::move(value));
  return true;
}

void TcpStoreServer::store(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  for (Client* client : found->second) {
    std::erase(client->awaited, key);
    if (!client->awaited.empty()) continue;
    put<uint8_t>(client->out, kStopWaiting);
    to_write_.push_back(client->fd.get());
  }
  waiting_.erase(found);
}

void TcpStoreServer::forget_wait(Client& client) {
  for (const std::string& key : client.awaited) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) continue;
    std::erase(found->second, &client);
    if (found->second.empty()) waiting_.erase(found);
  }
  client.awaited.clear();
}

}  // namespace nxd
