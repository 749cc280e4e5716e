#include "core/comm/net/connector.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/base/fork_closed.h"
#include "core/base/log.h"
#include "core/base/sleep.h"
#include "core/base/start_thread.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kHandshakeMs = 10000;  // with those who have connected and proved nothing
constexpr int64_t kPauseMs = 100;        // without descriptors
constexpr int64_t kCallAgainMs = 20;     // after a listener that has let go of a connection
constexpr int kAcceptsAtATime = 64;
constexpr char kAdmitted = 'w';

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) fail(NXD_ERROR_IO, "address \"", host, "\": ", gai_strerror(error));
  return Addresses(list, &freeaddrinfo);
}

Fd make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) fail(NXD_ERROR_IO, "socket: ", std::strerror(errno));
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// True if the descriptor is ready within the duration.
bool ready(int fd, short events, milliseconds duration) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, static_cast<int>(duration.count())) > 0;
}

// The buffer of a fresh connection takes so few bytes in one piece.
bool send_whole(int fd, const void* data, size_t size) {
  return ::send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

enum class Heard { kAll, kMore, kEnd };

// Reads up to so many bytes and no further.
Heard hear(int fd, std::string& heard, size_t wanted) {
  char chunk[1024];
  while (heard.size() < wanted) {
    const ssize_t n = ::recv(fd, chunk, std::min(sizeof chunk, wanted - heard.size()), 0);
    if (n > 0) {
      heard.append(chunk, static_cast<size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return Heard::kEnd;
    } else if (errno != EINTR) {
      return Heard::kMore;
    }
  }
  return Heard::kAll;
}

PeerAddress parse_address(const std::string& encoded) {
  const auto address = PeerAddress::decode(encoded);
  if (address) return *address;
  throw Connector::Unproven(
      text("is not to be found: the store has \"", encoded.substr(0, 80), "\" for its address"));
}

}  // namespace

// A peer that has connected.
struct Connector::Incoming {
  Fd fd;
  std::string hello;
  std::optional<Proof> expected;  // once the hello is whole and answered
  std::string said;               // after the hello
};

Connector::Connector(const std::string& address, int rank, std::optional<Secret> secret)
    : rank_(rank), secret_(std::move(secret)), pending_(PendingPeers::usual_limit(), kHandshakeMs) {
  listen(address);
  address_.token = PeerAddress::make_token();
  if (secret_) address_.prove_by(*secret_, rank);
  key_ = peer_key(secret_, address_.token);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) {
    fail(NXD_ERROR_IO, "rank ", rank, " cannot watch its port: ", std::strerror(errno));
  }
  watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
  watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN);
  close_in_forked_children(listener_.get());
  try {
    thread_ = start_thread("for connections", [this] { run(); });
  } catch (...) {
    forget_in_forked_children(listener_.get());
    throw;
  }
}

Connector::~Connector() {
  stopping_ = true;
  const uint64_t one = 1;
  const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  static_cast<void>(written);
  thread_.join();
  for (const auto& [fd, peer] : incoming_) forget_in_forked_children(fd);
  for (const auto& [purpose, fds] : arrived_) {
    for (const Fd& fd : fds) forget_in_forked_children(fd.get());
  }
  forget_in_forked_children(listener_.get());
}

void Connector::listen(const std::string& address) {
  const auto list = resolve(address, "0", AI_PASSIVE);
  for (const addrinfo* a = list.get(); a && !listener_; a = a->ai_next) {
    Fd fd = make_socket(a->ai_family);
    if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) listener_ = std::move(fd);
  }
  if (!listener_ || ::listen(listener_.get(), SOMAXCONN) != 0) {
    fail(NXD_ERROR_IO, "rank ", rank_, " cannot listen at ", address, ": ", std::strerror(errno));
  }
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail(NXD_ERROR_IO, "rank ", rank_, " cannot tell the address that it listens at");
  }
  address_.host = host;
  address_.port = port;
}

void Connector::watch(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return;
  fail(NXD_ERROR_IO, "rank ", rank_, " cannot watch its connections: ", std::strerror(errno));
}

void Connector::run() {
  while (!stopping_) {
    try {
      serve_round();
    } catch (const std::exception& e) {  // out of memory
      log(NXD_LOG_WARN, "rank ", rank_, " could not take a connection: ", e.what());
    }
  }
}

void Connector::serve_round() {
  int64_t ms = pending_.next_ms();
  if (paused_until_) ms = ms < 0 ? paused_until_->remaining_ms() : std::min(ms, kPauseMs);
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), static_cast<int>(ms));
  bool has_callers = false;
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const auto found = incoming_.find(fd);
    if (found == incoming_.end()) {
      has_callers = has_callers || fd == listener_.get();
      continue;
    }
    bool stays = false;
    try {
      stays = listen_to(*found->second);
    } catch (...) {
    }
    if (!stays) let_go(fd);
  }
  while (const auto fd = pending_.overdue()) let_go(*fd);
  if (paused_until_ && paused_until_->expired()) {
    paused_until_.reset();
    watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  }
  if (has_callers) accept_incoming();
}

void Connector::accept_incoming() {
  for (int i = 0; i < kAcceptsAtATime && !stopping_; ++i) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const bool lacks_descriptors = !fd && (errno == EMFILE || errno == ENFILE);
    if (!fd && !lacks_descriptors) return;
    const auto oldest = pending_.oldest();
    if (lacks_descriptors && !oldest) {
      log(NXD_LOG_WARN, "rank ", rank_,
          " may open no more files: raise the limit on open files (ulimit -n)");
      watch(EPOLL_CTL_MOD, listener_.get(), 0);
      paused_until_ = Deadline::after_ms(kPauseMs);
      return;
    }
    if (lacks_descriptors || pending_.is_full()) let_go(*oldest);
    if (fd) admit(std::move(fd));
  }
}

// Most have said hello by the time that they are let in.
void Connector::admit(Fd fd) {
  const int number = fd.get();
  auto made = std::make_unique<Incoming>();
  made->fd = std::move(fd);
  Incoming& peer = *incoming_.emplace(number, std::move(made)).first->second;
  bool stays = false;
  try {
    close_in_forked_children(number);
    pending_.add(number);
    watch(EPOLL_CTL_ADD, number, EPOLLIN);
    stays = listen_to(peer);
  } catch (...) {
    let_go(number);
    throw;
  }
  if (!stays) let_go(number);
}

void Connector::let_go(int fd) noexcept {
  pending_.remove(fd);
  const auto found = incoming_.find(fd);
  if (found == incoming_.end()) return;
  // One that was welcomed has given its descriptor away.
  if (found->second->fd) forget_in_forked_children(fd);
  incoming_.erase(found);
}

// Reads no further than the hello and the proof: the bytes after these are Gloo's. False when the
// peer is done with, either taken in or to be let go.
bool Connector::listen_to(Incoming& peer) {
  if (!peer.expected) {
    Heard heard = hear(peer.fd.get(), peer.hello, sizeof(PeerHello));
    if (heard != Heard::kAll) return heard == Heard::kMore;
    PeerHello hello;
    std::memcpy(static_cast<void*>(&hello), peer.hello.data(), sizeof hello);
    if (!hello.is_well_formed() || hello.to != rank_) return false;
    heard = hear(peer.fd.get(), peer.hello, sizeof hello + hello.purpose_size);
    if (heard != Heard::kAll) return heard == Heard::kMore;
    if (!answer(peer)) return false;
  }
  const Heard heard = hear(peer.fd.get(), peer.said, sizeof(Proof));
  if (heard != Heard::kAll) return heard == Heard::kMore;
  Proof proof;
  std::memcpy(proof.data(), peer.said.data(), proof.size());
  if (is_same(proof, *peer.expected)) welcome(peer);
  return false;
}

bool Connector::answer(Incoming& peer) {
  const PeerAnswer answer = answer_to(key_, peer.hello);
  peer.expected = expected_of_caller(key_, peer.hello, answer);
  send_at_once(peer.fd.get());
  return send_whole(peer.fd.get(), &answer, sizeof answer);
}

void Connector::welcome(Incoming& peer) {
  PeerHello hello;
  std::memcpy(static_cast<void*>(&hello), peer.hello.data(), sizeof hello);
  watch(EPOLL_CTL_DEL, peer.fd.get(), 0);
  if (!send_whole(peer.fd.get(), &kAdmitted, sizeof kAdmitted)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  arrived_[{hello.from, peer.hello.substr(sizeof hello)}].push_back(std::move(peer.fd));
  came_.notify_all();
}

Fd Connector::take(int from, const std::string& purpose, milliseconds duration) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::pair<int, std::string> name(from, purpose);
  auto found = arrived_.end();
  const auto came = [&] {
    found = arrived_.find(name);
    return found != arrived_.end() && !found->second.empty();
  };
  if (!came_.wait_for(lock, duration, came)) return Fd();
  Fd fd = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) arrived_.erase(found);
  forget_in_forked_children(fd.get());
  return fd;
}

Connector::Dial::Dial(const Connector& own, const std::string& peer_address, int to,
                      const std::string& purpose)
    : address_(parse_address(peer_address)) {
  check_internal(purpose.size() <= kPurposeLimit, "a purpose of ", purpose.size(), " bytes");
  if (address_.has_secret() != own.secret_.has_value()) {
    throw Unproven(text(own.secret_ ? "has no secret, and this rank has one"
                                    : "has a secret, and this rank has none",
                        ": NXD_SECRET must be the same on all ranks"));
  }
  if (own.secret_ && !address_.is_proved_by(*own.secret_, to)) {
    throw Unproven(text("has an address in the store (", address_.host, ":", address_.port,
                        ") that the job's secret does not prove: NXD_SECRET must be the same on "
                        "all ranks, or a stranger has written it"));
  }
  key_ = peer_key(own.secret_, address_.token);
  PeerHello hello;
  hello.from = own.rank_;
  hello.to = to;
  hello.nonce = make_nonce();
  hello.purpose_size = static_cast<uint32_t>(purpose.size());
  hello_.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
  hello_ += purpose;
  connect();
}

void Connector::Dial::connect() {
  const auto list = resolve(address_.host, address_.port, AI_NUMERICHOST | AI_NUMERICSERV);
  fd_ = make_socket(list->ai_family);
  send_at_once(fd_.get());
  stage_ = Stage::kConnecting;
  heard_.clear();
  if (::connect(fd_.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    throw Refused(text("connect: ", std::strerror(errno)));
  }
}

Fd Connector::Dial::wait(milliseconds duration) {
  const Deadline until = Deadline::after_ms(duration.count());
  for (;;) {
    const milliseconds left(until.remaining_ms());
    if (stage_ == Stage::kPausing) {
      sleep_for(std::min(left, milliseconds(pause_.remaining_ms())));
      if (pause_.expired()) connect();
    } else if (!ready(fd_.get(), stage_ == Stage::kConnecting ? POLLOUT : POLLIN, left)) {
      return Fd();
    } else if (stage_ == Stage::kConnecting) {
      say_hello();
    } else if (stage_ == Stage::kAwaitingAnswer) {
      hear_answer();
    } else if (hear_welcome()) {
      return std::move(fd_);
    }
    const bool pauses = stage_ == Stage::kPausing || stage_ == Stage::kConnecting;
    if (pauses && until.expired()) return Fd();
  }
}

void Connector::Dial::say_hello() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) throw Refused(text("connect: ", std::strerror(error)));
  stage_ = Stage::kAwaitingAnswer;
  if (!send_whole(fd_.get(), hello_.data(), hello_.size())) call_again();
}

void Connector::Dial::hear_answer() {
  const Heard heard = hear(fd_.get(), heard_, sizeof(PeerAnswer));
  if (heard == Heard::kMore) return;
  if (heard == Heard::kEnd) return call_again();
  PeerAnswer answer;
  std::memcpy(static_cast<void*>(&answer), heard_.data(), sizeof answer);
  const auto proof = check_answer(key_, hello_, answer);
  if (!proof) {
    throw Unproven(text("does not prove that it knows the job's secret (at ", address_.host, ":",
                        address_.port, "): NXD_SECRET must be the same on all ranks"));
  }
  heard_.clear();
  stage_ = Stage::kAwaitingWelcome;
  if (!send_whole(fd_.get(), proof->data(), proof->size())) call_again();
}

// True when the connection is made.
bool Connector::Dial::hear_welcome() {
  const Heard heard = hear(fd_.get(), heard_, 1);
  if (heard == Heard::kEnd) call_again();
  return heard == Heard::kAll;
}

// A rank that is flooded may close a rank's connection, and a rank that has ended rejects the next
// connection.
void Connector::Dial::call_again() {
  fd_.reset();
  stage_ = Stage::kPausing;
  pause_ = Deadline::after_ms(kCallAgainMs);
}

}  // namespace nxd
