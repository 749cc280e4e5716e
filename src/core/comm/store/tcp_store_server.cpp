#include "core/comm/store/tcp_store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "core/base/start_thread.h"

namespace nxd {
namespace {

using namespace tcp_store;

// A client may have so much unanswered, and so much unread, whatever the others have.
constexpr size_t kShare = size_t{64} << 10;
// Read of one client before the next one's turn.
constexpr size_t kBytesAtATime = size_t{256} << 10;
// The same of one that has not been admitted.
constexpr size_t kGreetingBytes = 512;
constexpr size_t kCallersAtATime = 64;
constexpr int64_t kStorePauseMs = 100;

}  // namespace

struct TcpStoreServer::Client : Session {
  Fd socket;
  enum class Stage { kNew, kValidated, kChallenged, kRejected, kAdmitted };
  Stage stage = Stage::kNew;
  Proof expected{};      // of one that was challenged
  uint32_t watched = 0;  // for these events
  std::string in;        // before done it was served
  size_t done = 0;
  RequestScanner scanner;  // of the request at done
  size_t accounted = 0;    // in in_flight_
  bool in_line = false;
  Deadline::Clock::time_point in_line_since{};

  size_t unserved() const { return in.size() - done; }
};

TcpStoreServer::TcpStoreServer(const std::string& host, int port, std::optional<Key> key,
                               const Limits& limits)
    : limits_(limits),
      key_(std::move(key)),
      pending_(limits.pending > 0 ? limits.pending : PendingPeers::usual_limit(), limits.hello_ms),
      table_(limits.values, limits.waits) {
  listeners_ = listen_tcp(host, port, &port_);
  start();
}

TcpStoreServer::TcpStoreServer(const std::string& local_name, std::optional<Key> key)
    : key_(std::move(key)),
      is_local_(true),
      pending_(PendingPeers::usual_limit(), limits_.hello_ms),
      table_(limits_.values, limits_.waits) {
  listeners_.push_back(listen_local(local_name));
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
  bool watched = watch(EPOLL_CTL_ADD, wake_read_.get(), EPOLLIN);
  for (const Fd& fd : listeners_) watched = watched && watch(EPOLL_CTL_ADD, fd.get(), EPOLLIN);
  if (!watched) fail(NXD_ERROR_IO, "cannot watch the store's sockets: ", std::strerror(errno));
  thread_ = start_thread("for the store", [this] { run(); });
}

TcpStoreServer::~TcpStoreServer() { stop(); }

void TcpStoreServer::stop() {
  if (stopping_.exchange(true) || !thread_.joinable()) return;
  const ssize_t written = ::write(wake_write_.get(), "x", 1);
  static_cast<void>(written);
  thread_.join();
  clients_.clear();
  listeners_.clear();
}

bool TcpStoreServer::watch(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void TcpStoreServer::run() {
  while (!stopping_) {
    try {
      serve_round();
    } catch (...) {  // out of memory, outside of any client's request
    }
  }
}

// Its cost depends on how many clients ask, not on how many there are.
void TcpStoreServer::serve_round() {
  epoll_event events[256];
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), next_timeout_ms());
  let_overdue_go();
  std::vector<int> callers;
  for (int i = 0; i < count && !stopping_; ++i) {
    const int fd = events[i].data.fd;
    const auto found = clients_.find(fd);
    if (found == clients_.end()) {
      callers.push_back(fd);
      continue;
    }
    drop_unless(*found->second, [&](Client& client) {
      touched_.push_back(fd);
      return handle_events(client, events[i].events);
    });
  }
  // A request of one client may have produced answers for others, or room for them.
  move_line();
  table_.take_woken(touched_);
  while (!touched_.empty() && !stopping_) {
    for (const int fd : std::exchange(touched_, {})) {
      const auto found = clients_.find(fd);
      if (found == clients_.end()) continue;
      drop_unless(*found->second, [&](Client& client) { return settle(client); });
    }
    move_line();
    table_.take_woken(touched_);
  }
  // Last, so that no descriptor of this round has become another connection's.
  for (const Fd& fd : listeners_) {
    if (std::find(callers.begin(), callers.end(), fd.get()) == callers.end()) continue;
    accept_clients(fd.get());
  }
}

template <class Serve>
void TcpStoreServer::drop_unless(Client& client, Serve&& serve) {
  bool alive = false;
  try {
    alive = serve(client);
  } catch (...) {  // out of memory
  }
  if (!alive) drop(client);
}

int TcpStoreServer::next_timeout_ms() const {
  int64_t ms = pending_.next_ms();
  const auto sooner = [&](const std::optional<Deadline>& deadline) {
    if (!deadline) return;
    ms = ms < 0 ? deadline->remaining_ms() : std::min(ms, deadline->remaining_ms());
  };
  sooner(paused_until_);
  sooner(turn_until_);
  sooner(stall_until_);
  return static_cast<int>(std::min<int64_t>(ms, INT32_MAX));
}

void TcpStoreServer::let_overdue_go() {
  while (const auto fd = pending_.overdue()) drop(*clients_.at(*fd));
  clear_line();
  if (paused_until_ && paused_until_->expired()) resume_listening();
}

void TcpStoreServer::accept_clients(int listener) {
  for (size_t i = 0; i < kCallersAtATime && !stopping_; ++i) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && errno != EMFILE && errno != ENFILE) return;
    if (!fd || pending_.is_full()) {
      const auto oldest = pending_.oldest();
      if (!oldest) return pause_listening();
      drop(*clients_.at(*oldest));
    }
    if (!fd) continue;
    const int number = fd.get();
    bool admitted = false;
    try {
      admitted = admit(std::move(fd));
    } catch (...) {
    }
    if (!admitted) {
      log(NXD_LOG_WARN, "the store could not take a connection: no memory to watch it");
      const auto found = clients_.find(number);
      if (found != clients_.end()) drop(*found->second);
    }
  }
}

bool TcpStoreServer::admit(Fd fd) {
  if (is_local_ && !is_own_user(fd.get())) return true;  // closed, with nothing said
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int number = fd.get();
  auto made = std::make_unique<Client>();
  made->fd = number;
  made->socket = std::move(fd);
  made->watched = EPOLLIN;
  clients_.emplace(number, std::move(made));
  pending_.add(number);
  return watch(EPOLL_CTL_ADD, number, EPOLLIN);
}

// Callers wait in the kernel until there may be room.
void TcpStoreServer::pause_listening() {
  if (!paused_until_) {
    log(NXD_LOG_WARN, "the store serves ", clients_.size(),
        " connections and may open no more files: raise the limit on open files (ulimit -n) to "
        "more than twice the number of ranks");
    for (const Fd& fd : listeners_) watch(EPOLL_CTL_MOD, fd.get(), 0);
  }
  paused_until_ = Deadline::after_ms(kStorePauseMs);
}

void TcpStoreServer::resume_listening() {
  paused_until_.reset();
  for (const Fd& fd : listeners_) watch(EPOLL_CTL_MOD, fd.get(), EPOLLIN);
}

void TcpStoreServer::drop(Client& client) {
  table_.leave(client);
  leave_line(client);
  const int fd = client.fd;
  in_flight_ -= client.accounted;
  pending_.remove(fd);
  watch(EPOLL_CTL_DEL, fd, 0);
  clients_.erase(fd);
}

bool TcpStoreServer::handle_events(Client& client, uint32_t events) {
  if (client.watched & EPOLLIN) {
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return true;
    const bool goes_on = receive(client);
    // A client's requests count also when it left behind them: a set needs no answer.
    return serve_arrived(client) && goes_on;
  }
  return (events & (EPOLLHUP | EPOLLERR)) == 0;
}

bool TcpStoreServer::receive(Client& client) {
  char chunk[size_t{8} << 10];  // threads may have small stacks
  const bool is_admitted = client.stage == Client::Stage::kAdmitted;
  const size_t most = is_admitted ? sizeof chunk : kGreetingBytes;
  for (size_t read = 0; read < kBytesAtATime && !stopping_ && may_read(client);) {
    const ssize_t n = ::recv(client.fd, chunk, most, 0);
    if (n > 0) {
      client.in.append(chunk, static_cast<size_t>(n));
      account(client);
      read += static_cast<size_t>(n);
      if (client.in_line) stall_until_ = Deadline::after_ms(stall_ms());
      // Later bytes wake us again.
      if (static_cast<size_t>(n) < most || !is_admitted) return true;
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    } else if (errno != EINTR) {
      return true;
    }
  }
  return true;
}

// Serves until a request is incomplete, or too many answers wait to be read.
bool TcpStoreServer::serve_arrived(Client& client) {
  while (client.out.bytes() < kShare && !stopping_) {
    const std::string_view rest = std::string_view(client.in).substr(client.done);
    const auto state = client.scanner.advance(rest);
    if (state == RequestScanner::State::kRejected) return false;
    if (!rest.empty() && !begin_request(client, static_cast<uint8_t>(rest[0]))) return false;
    if (state == RequestScanner::State::kIncomplete) break;
    const size_t size = std::exchange(client.scanner, {}).size();
    if (!serve_one(client, rest.substr(0, size))) return false;
    client.done += size;
  }
  // A byte is moved only when at least as many were served as are moved.
  if (client.done >= client.unserved()) {
    client.in.erase(0, client.done);
    client.done = 0;
    if (client.in.capacity() > kShare && client.in.size() < client.in.capacity() / 4) {
      client.in = std::string(client.in);  // whose capacity is its size
    }
  }
  account(client);
  return true;
}

bool TcpStoreServer::send_answers(Client& client) {
  while (!client.out.empty()) {
    iovec segments[64];
    msghdr message{};
    message.msg_iov = segments;
    message.msg_iovlen = client.out.front(segments, std::size(segments));
    const ssize_t n = ::sendmsg(client.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    client.out.remove(static_cast<size_t>(n));
  }
  return true;
}

// Sends what can be sent, serves the requests that waited for that, and decides what to watch for.
bool TcpStoreServer::settle(Client& client) {
  if (!send_answers(client)) return false;
  if (client.stage == Client::Stage::kRejected) return false;
  if (client.unserved() > 0) {
    if (!serve_arrived(client) || !send_answers(client)) return false;
  }
  const bool has_room = client.out.bytes() < kShare;
  const bool reads = has_room && may_read(client);
  if (has_room && !reads && !client.in_line) {
    line_.push_back(&client);
    client.in_line = true;
    client.in_line_since = Deadline::Clock::now();
  }
  const uint32_t wanted = (reads ? uint32_t{EPOLLIN} : 0U) | (client.out.empty() ? 0U : EPOLLOUT);
  // Both may have become possible since they were tried.
  if (has_room && client.unserved() > 0 && client.scanner.size() == 0) {
    touched_.push_back(client.fd);
  }
  if (wanted == client.watched) return true;
  client.watched = wanted;
  return watch(EPOLL_CTL_MOD, client.fd, wanted);
}

bool TcpStoreServer::may_read(const Client& client) const {
  return client.unserved() < kShare || in_flight_ < limits_.in_flight ||
         (!line_.empty() && line_.front() == &client);
}

void TcpStoreServer::account(Client& client) {
  in_flight_ += client.in.size() - client.accounted;
  client.accounted = client.in.size();
  if (client.in_line && client.unserved() < kShare) leave_line(client);
}

void TcpStoreServer::leave_line(Client& client) {
  if (!client.in_line) return;
  if (line_.front() == &client) {
    turn_until_.reset();
    stall_until_.reset();
  }
  line_.remove(&client);
  client.in_line = false;
}

// As many as there is memory for leave the line. When there is none, its first goes on all the
// same, so that some request always becomes whole.
void TcpStoreServer::move_line() {
  while (!line_.empty() && in_flight_ < limits_.in_flight) {
    touched_.push_back(line_.front()->fd);
    leave_line(*line_.front());
  }
  if (line_.empty()) has_stalled_ = false;
  if (line_.empty() || turn_until_) return;
  turn_until_ = Deadline::after_ms(limits_.turn_ms);
  stall_until_ = Deadline::after_ms(stall_ms());
  touched_.push_back(line_.front()->fd);
}

// Ranks that send large values do not stall. After one that did, more may follow, and those behind
// them wait for all.
int64_t TcpStoreServer::stall_ms() const {
  return has_stalled_ ? limits_.stall_ms / 10 : limits_.stall_ms;
}

// Lets the first in the line go when it does not go on, and with it those behind it that have sent
// nothing since they came to it.
void TcpStoreServer::clear_line() {
  const bool stalls = stall_until_ && stall_until_->expired();
  if (!stalls && !(turn_until_ && turn_until_->expired())) return;
  has_stalled_ = has_stalled_ || stalls;
  std::vector<Client*> leaving = {line_.front()};
  for (Client* client : line_) {
    int arrived = 0;
    if (!stalls || client == leaving[0] || ms_since(client->in_line_since) < limits_.stall_ms ||
        ::ioctl(client->fd, FIONREAD, &arrived) != 0 || arrived > 0) {
      continue;
    }
    leaving.push_back(client);
  }
  log(NXD_LOG_WARN, "the store lets ", leaving.size(),
      " connections go whose large requests do not go on while others wait for memory");
  for (Client* client : leaving) drop(*client);
}

// A store without a key admits any client that has said which protocol it speaks, once it asks for
// something.
bool TcpStoreServer::begin_request(Client& client, uint8_t query) {
  if (!may_ask(client, query)) return false;
  if (!key_ && client.stage == Client::Stage::kValidated) admit_for_good(client);
  return true;
}

void TcpStoreServer::admit_for_good(Client& client) {
  client.stage = Client::Stage::kAdmitted;
  pending_.remove(client.fd);
}

// Until a client is admitted it may only send the next message of the handshake.
bool TcpStoreServer::may_ask(const Client& client, uint8_t query) const {
  switch (client.stage) {
    case Client::Stage::kNew: return query == kValidate;
    case Client::Stage::kValidated:
      return query == kHello || (!key_ && query != kValidate && query != kProve);
    case Client::Stage::kChallenged: return query == kProve;
    case Client::Stage::kRejected: return false;
    default: return query != kValidate && query != kProve;
  }
}

bool TcpStoreServer::serve_one(Client& client, std::string_view request) {
  RequestReader in(request);
  const auto query = in.number<uint8_t>();
  if (query == kValidate || query == kHello || query == kProve) return greet(client, query, in);
  return table_.serve(client, query, in);
}

bool TcpStoreServer::greet(Client& client, uint8_t query, RequestReader in) {
  if (query == kHello) return answer_hello(client, in.number<Hello>());
  if (query == kValidate) {
    if (in.number<uint32_t>() != kMagic) return false;
    client.stage = Client::Stage::kValidated;
  } else {
    if (!is_same(in.number<Proof>(), client.expected)) return false;
    admit_for_good(client);
    client.out.put(kWelcome);
  }
  return true;
}

bool TcpStoreServer::answer_hello(Client& client, const Hello& hello) {
  if (std::memcmp(hello.magic, Hello().magic, sizeof hello.magic) != 0) return false;
  if (!key_) {
    client.out.put(kOpenStore);
  } else if (client.stage != Client::Stage::kValidated) {
    return false;
  } else if (hello.has_secret == 0) {
    client.out.put(kWantsSecret);
    client.stage = Client::Stage::kRejected;
  } else {
    Challenge challenge;
    challenge.nonce = make_nonce();
    challenge.proof = prove_server(*key_, hello, challenge.nonce);
    client.expected = prove_client(*key_, hello, challenge.nonce);
    client.out.put(kChallenge);
    client.out.put(challenge);
    client.stage = Client::Stage::kChallenged;
  }
  return true;
}

}  // namespace nxd
