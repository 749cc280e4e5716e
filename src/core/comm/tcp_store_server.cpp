#include "core/comm/tcp_store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
  std::string in, out;
  std::vector<std::string> awaited;  // keys of a pending WAIT
};

// Takes a request apart. Incomplete ones throw kIncomplete, and are looked at again when more bytes
// have come.
class TcpStoreServer::Reader {
 public:
  struct Incomplete {};

  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  size_t consumed() const { return at_; }

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
  size_t at_ = 0;
};

TcpStoreServer::TcpStoreServer(int port) {
  listener_ = listen_tcp(port, &port_);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    fail(NXD_ERROR_IO, "cannot make a pipe: ", std::strerror(errno));
  }
  wake_read_ = Fd(ends[0]);
  wake_write_ = Fd(ends[1]);
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

void TcpStoreServer::run() {
  std::vector<pollfd> fds;
  while (!stopping_) {
    fds.assign({{listener_.get(), POLLIN, 0}, {wake_read_.get(), POLLIN, 0}});
    for (const auto& c : clients_) {
      fds.push_back(
          {c->fd.get(), static_cast<short>(c->out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    std::vector<Client*> gone;
    for (size_t i = 2; i < fds.size(); ++i) {
      Client& client = *clients_[i - 2];
      bool alive = true;
      try {
        if (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) alive = read_from(client);
      } catch (...) {
        alive = false;
      }
      if (!alive) gone.push_back(&client);
    }
    // A request of one client may have produced answers for others.
    for (const auto& c : clients_) {
      if (!c->out.empty() && !write_to(*c)) gone.push_back(c.get());
    }
    std::erase_if(clients_, [&](const auto& c) {
      return std::find(gone.begin(), gone.end(), c.get()) != gone.end();
    });
    if (fds[0].revents) accept_clients();
  }
}

void TcpStoreServer::accept_clients() {
  for (;;) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto client = std::make_unique<Client>();
    client->fd = std::move(fd);
    clients_.push_back(std::move(client));
  }
}

bool TcpStoreServer::read_from(Client& client) {
  char chunk[16384];
  for (;;) {
    const ssize_t n = ::recv(client.fd.get(), chunk, sizeof chunk, 0);
    if (n > 0) {
      client.in.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
      // What came before the end still counts: a set needs no answer.
      while (!client.in.empty()) {
        Reader in(client.in);
        try {
          if (!serve_one(client, in)) break;
        } catch (const Reader::Incomplete&) {
          break;
        }
        client.in.erase(0, in.consumed());
      }
      return false;
    }
    break;
  }
  while (!client.in.empty()) {
    Reader in(client.in);
    try {
      if (!serve_one(client, in)) return false;
    } catch (const Reader::Incomplete&) {
      return true;
    }
    client.in.erase(0, in.consumed());
  }
  return true;
}

bool TcpStoreServer::write_to(Client& client) {
  while (!client.out.empty()) {
    const ssize_t n =
        ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    client.out.erase(0, static_cast<size_t>(n));
  }
  return true;
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
      int64_t sum = in.number<int64_t>();
      if (found != values_.end()) sum += parse_counter(key, found->second);
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
    client.awaited.clear();
    put<uint8_t>(client.out, kWaitCanceled);
    return true;
  }
  std::vector<std::string> keys = in.list();
  std::erase_if(keys, [&](const std::string& key) { return values_.count(key) > 0; });
  if (query == kCheck) {
    put<uint8_t>(client.out, keys.empty() ? kReady : kNotReady);
  } else if (keys.empty()) {
    put<uint8_t>(client.out, kStopWaiting);
  } else {
    client.awaited = std::move(keys);
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
  for (const auto& c : clients_) {
    if (c->awaited.empty()) continue;
    std::erase(c->awaited, key);
    if (c->awaited.empty()) put<uint8_t>(c->out, kStopWaiting);
  }
}

}  // namespace nxd
