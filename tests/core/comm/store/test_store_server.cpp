// The TCP store's server as clients of torch speak to it, which wait at the server (ours never do),
// and as clients speak to it that mean harm.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "core/comm/store/tcp_store_request.h"
#include "core/comm/store/tcp_store_server.h"

#include "support/check.h"

namespace {

using namespace nxd::tcp_store;
using nxd::Deadline;
using nxd::TcpStoreServer;

class Client {
 public:
  explicit Client(const TcpStoreServer& server, bool is_silent = false)
      : fd_(nxd::connect_tcp("127.0.0.1", server.port(), Deadline::after_ms(10000))) {
    if (!is_silent) say(std::string(1, kValidate) + number(kMagic));
  }

  void say(const std::string& words) {
    assert_true(nxd::send_all(fd_.get(), words.data(), words.size(), Deadline::after_ms(10000)));
  }
  std::string hear(size_t size) {
    std::string words(size, '\0');
    assert_true(nxd::receive_all(fd_.get(), words.data(), size, Deadline::after_ms(10000)));
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
    while (nxd::receive_all(fd_.get(), &byte, 1, Deadline::after_ms(10000))) {
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

const std::string kStop(1, static_cast<char>(kStopWaiting));
const std::string kCanceled(1, static_cast<char>(kWaitCanceled));

void waits_end_with_the_last_key(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  std::vector<Client> waiting;
  for (int i = 0; i < 40; ++i) waiting.emplace_back(server);
  Client setting(server);
  for (Client& client : waiting) client.say(Client::wait({"a", "b", "a"}));
  for (Client& client : waiting) client.hears_nothing();
  setting.say(Client::set("a", "1"));
  setting.hears_nothing();
  for (Client& client : waiting) client.hears_nothing();
  setting.say(Client::set("b", ""));
  for (Client& client : waiting) assert_true(client.hear(1) == kStop);
  for (Client& client : waiting) client.hears_nothing();
  setting.say(Client::wait({"a", "b"}));
  assert_true(setting.hear(1) == kStop);
  waiting[0].say(Client::wait({"c", "c"}));
  waiting[0].hears_nothing();
  setting.say(Client::set("c", "1"));
  assert_true(waiting[0].hear(1) == kStop);
  waiting[0].hears_nothing();
}

void waits_are_taken_back(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client canceling(server), leaving(server), staying(server), setting(server);
  for (Client* client : {&canceling, &leaving, &staying}) {
    client->say(Client::wait({"key"}));
    client->hears_nothing();
  }
  canceling.say(std::string(1, kCancelWait));
  assert_true(canceling.hear(1) == kCanceled);
  leaving.leave();
  setting.say(Client::set("key", "value"));
  assert_true(staying.hear(1) == kStop);
  canceling.hears_nothing();
}

// More than a connection holds: the rest goes out when the client reads.
void answers_wait_for_a_slow_reader(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client slow(server), other(server);
  const std::string large(size_t{3} << 20, 'x');
  other.say(Client::set("large", large));
  other.hears_nothing();
  std::string questions;
  for (int i = 0; i < 10; ++i) questions += Client::get("large");
  slow.say(questions);
  for (int i = 0; i < 50; ++i) other.hears_nothing();
  for (int i = 0; i < 10; ++i) assert_true(slow.hear(8 + large.size()) == Client::bytes(large));
  slow.hears_nothing();
}

// Requests in pieces, and one that is none.
void words_in_pieces(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client client(server), rude(server);
  const std::string words = Client::set("key", "value") + Client::get("key");
  for (const char c : words) {
    client.say(std::string(1, c));
    client.say("");
  }
  assert_true(client.hear(8 + 5) == Client::bytes("value"));
  rude.say(Client::set("last", "words") + std::string(1, char{99}));
  for (int tries = 0;; ++tries) {
    client.say(std::string(1, kCheck) + Client::number(uint64_t{1}) + Client::bytes("last"));
    if (client.hear(1) == std::string(1, char{kReady})) break;
    assert_true(tries < 100000);
  }
}

// A request counts although its client left right behind it: the server reads both at once.
void last_words(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  constexpr size_t kRead = 8192;  // of one client at a time
  for (int i = 0; i < 100; ++i) {
    Client leaving(server);
    leaving.hears_nothing();
    const std::string key = std::to_string(i), head = Client::set(key, "");
    leaving.say(Client::set(key, std::string(4 * kRead - head.size(), 'x')));
    leaving.leave();
  }
  Client waiting(server);
  for (int i = 0; i < 100; ++i) {
    waiting.say(Client::wait({std::to_string(i)}));
    assert_true(waiting.hear(1) == kStop);
  }
}

// Requests that all came before the first was answered, with more answers than a client may have
// unread.
void many_answers_at_once(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client client(server);
  const std::string value(2000, 'x');
  client.say(Client::set("key", value));
  client.hears_nothing();
  std::string questions;
  for (int i = 0; i < 500; ++i) questions += Client::get("key");
  client.say(questions);
  for (int i = 0; i < 500; ++i) assert_true(client.hear(8 + value.size()) == Client::bytes(value));
}

// A greeting of another protocol, and one without the secret that there is.
void greetings(void**) {
  TcpStoreServer open("127.0.0.1", 0);
  Client stranger(open, true), impostor(open), known(open);
  stranger.say(std::string(1, kValidate) + Client::number(kMagic + 1));
  assert_true(stranger.is_let_go());
  Hello hello;
  hello.magic[0] = static_cast<char>(hello.magic[0] + 1);
  impostor.say(std::string(1, kHello) + Client::number(hello));
  assert_true(impostor.is_let_go());
  known.hears_nothing();

  TcpStoreServer closed("127.0.0.1", 0, nxd::Secret::random().store_key());
  Client without(closed);
  without.say(std::string(1, kHello) + Client::number(Hello()));
  assert_true(without.hear(1) == std::string(1, char{kWantsSecret}));
  assert_true(without.is_let_go());
}

// A name in the abstract namespace is open to all users, and the store is not.
void other_users(void**) {
  const std::string name = "nxd-test-" + std::to_string(::getpid());
  TcpStoreServer server(name, std::nullopt);
  const auto is_served = [&name] {
    const nxd::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const std::string words = std::string(1, kValidate) + Client::number(kMagic) +
                              std::string(1, kPing) + Client::number(uint32_t{77});
    uint32_t answer = 0;
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
           ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL) > 0 &&
           ::recv(fd.get(), &answer, sizeof answer, MSG_WAITALL) == sizeof answer && answer == 77;
  };
  assert_true(is_served());
  if (::geteuid() != 0) return;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65534) != 0 ? 2 : is_served() ? 1 : 0);
  int status = 0;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// A sum goes on at the other end of its range. A client that adds to a word gets an error, or is
// disconnected as by torch.
void adds(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client client(server), torch(server);
  client.say(Client::add(kAdd, "sum", INT64_MAX) + Client::add(kAdd, "sum", 2));
  assert_true(client.hear(8) == Client::number(INT64_MAX));
  assert_true(client.hear(8) == Client::number(INT64_MIN + 1));
  client.say(Client::set("word", "no number") + Client::add(kCheckedAdd, "word", 1) +
             Client::add(kCheckedAdd, "sum", -1));
  assert_true(client.hear(1 + 8 + 9) ==
              std::string(1, char{kNoInteger}) + Client::bytes("no number"));
  assert_true(client.hear(1 + 8) == std::string(1, char{kDone}) + Client::number(INT64_MIN));
  torch.say(Client::add(kAdd, "word", 1));
  assert_true(torch.is_let_go());
  client.hears_nothing();
}

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// A large value that is asked for often and never read costs what it costs once.
void unread_answers(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client greedy(server), other(server);
  greedy.say(Client::set("large", std::string(size_t{20} << 20, 'x')));
  greedy.hears_nothing();
  const size_t before = resident_bytes();
  std::string questions;
  for (int i = 0; i < 150; ++i) questions += Client::get("large");
  greedy.say(questions);
  for (int i = 0; i < 100; ++i) other.hears_nothing();
  assert_true(resident_bytes() < before + (size_t{100} << 20));
  server.stop();
}

void stops_in_a_flood(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back(server);
  std::vector<std::thread> floods;
  std::atomic<int> flowing{0};
  std::string many;
  for (int i = 0; i < 20000; ++i) many += Client::set("key", "value");
  for (Client& client : clients) {
    floods.emplace_back([&] {
      for (bool is_first = true;; is_first = false) {
        const auto sent = ::send(client.fd(), many.data(), many.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return;
        if (is_first) ++flowing;
      }
    });
  }
  while (flowing < 4) std::this_thread::yield();
  server.stop();  // while they go on
  for (std::thread& flood : floods) flood.join();
}

// Looks at no byte twice: those it has passed cannot be read any more.
void scans_once(void**) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::string request = std::string(1, kMultiSet) + Client::number(uint64_t{1000});
  for (int i = 0; i < 1000; ++i) {
    request += Client::bytes("key" + std::to_string(i)) + Client::bytes(std::to_string(i * i));
  }
  const size_t pages = request.size() / page + 1;
  auto* memory = static_cast<char*>(
      ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  assert_true(memory != MAP_FAILED && pages > 5);
  request.copy(memory, request.size());
  RequestScanner scanner;
  for (size_t there = 1; there < request.size(); there += 7) {
    assert_true(scanner.advance({memory, there}) == RequestScanner::State::kIncomplete);
    const size_t passed = std::min(scanner.size(), there) / page * page;
    if (passed > 0) assert_int_equal(::mprotect(memory, passed, PROT_NONE), 0);
  }
  assert_true(scanner.advance({memory, request.size()}) == RequestScanner::State::kWhole);
  assert_int_equal(scanner.size(), request.size());
  ::munmap(memory, pages * page);
}

// Sizes and counts beyond the bounds are rejected when they are named, not when they have come.
void refuses_at_the_head(void**) {
  const auto state = [](const std::string& words) { return RequestScanner().advance(words); };
  const auto set_of = [](uint64_t size) {
    return std::string(1, kSet) + Client::bytes("key") + Client::number(size);
  };
  assert_true(state(set_of(kValueLimit)) == RequestScanner::State::kIncomplete);
  assert_true(state(set_of(kValueLimit + 1)) == RequestScanner::State::kRejected);
  assert_true(state(set_of(UINT64_MAX)) == RequestScanner::State::kRejected);
  // A key, with all that comes before it.
  const auto key_of = [](uint8_t query, const std::string& before, uint64_t size) {
    return std::string(1, static_cast<char>(query)) + before + Client::number(size);
  };
  const std::string three = Client::number(uint64_t{3}), first = Client::bytes("key");
  for (const uint8_t query : {kSet, kGet, kAdd, kCheckedAdd, kAppend, kDeleteKey, kCompareSet}) {
    assert_true(state(key_of(query, "", kKeyLimit)) == RequestScanner::State::kIncomplete);
    assert_true(state(key_of(query, "", kKeyLimit + 1)) == RequestScanner::State::kRejected);
  }
  for (const uint8_t query : {kCheck, kWait, kMultiGet, kMultiSet}) {
    const std::string before =
        three + first + (query == kMultiSet ? Client::bytes(std::string(kKeyLimit + 1, 'x')) : "");
    assert_true(state(key_of(query, three, kKeyLimit + 1)) == RequestScanner::State::kRejected);
    assert_true(state(key_of(query, before, kKeyLimit)) == RequestScanner::State::kIncomplete);
    assert_true(state(key_of(query, before, kKeyLimit + 1)) == RequestScanner::State::kRejected);
  }
  for (const uint8_t query : {kCheck, kWait, kMultiGet, kMultiSet}) {
    const std::string head(1, static_cast<char>(query));
    assert_true(state(head + Client::number(kCountLimit)) == RequestScanner::State::kIncomplete);
    assert_true(state(head + Client::number(kCountLimit + 1)) == RequestScanner::State::kRejected);
    assert_true(state(head + Client::number(uint64_t{0})) == RequestScanner::State::kWhole);
  }
  assert_true(state(std::string(1, char{77})) == RequestScanner::State::kRejected);
}

// Many small pieces of one large request.
void drips(void**) {
  TcpStoreServer server("127.0.0.1", 0);
  Client dripping(server), other(server);
  constexpr uint64_t kPairs = 100000;
  std::string words = std::string(1, kMultiSet) + Client::number(kPairs);
  for (uint64_t i = 0; i < kPairs; ++i) {
    words += Client::bytes("k" + std::to_string(i)) + Client::bytes("");
  }
  for (size_t at = 0; at < words.size(); at += 1000) {
    dripping.say(words.substr(at, 1000));
    if (at % 100000 == 0) other.hears_nothing();
  }
  dripping.hears_nothing();
  other.say(std::string(1, kGetNumKeys));
  assert_true(other.hear(8) == Client::number(int64_t{kPairs}));
}

void values_do_not_grow_without_bound(void**) {
  TcpStoreServer::Limits limits;
  limits.values = size_t{80} << 20;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  Client appending(server), setting(server), other(server);
  const std::string megabyte(size_t{1} << 20, 'x');
  for (int i = 0; i < 64; ++i) appending.say(Client::append("grows", megabyte));
  appending.hears_nothing();
  appending.say(Client::append("grows", "x"));
  assert_true(appending.is_let_go());
  other.say(Client::get("grows"));
  assert_int_equal(other.hear(8 + kValueLimit).size(), 8 + kValueLimit);
  for (int i = 0; i < 10; ++i) setting.say(Client::set(std::to_string(i), megabyte));
  setting.hears_nothing();
  // Replacing a value takes its place.
  for (int i = 0; i < 100; ++i) setting.say(Client::set("0", megabyte));
  setting.hears_nothing();
  setting.say(Client::set("large", std::string(size_t{10} << 20, 'x')));
  assert_true(setting.is_let_go());
  other.hears_nothing();
}

// The keys that clients wait for have a bound of one and of all. A client that takes more is let
// go. Waits that have ended leave room for others.
void waits_do_not_grow_without_bound(void**) {
  TcpStoreServer::Limits limits;
  limits.waits = size_t{1} << 20;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  const auto keys = [](const std::string& start, size_t count) {
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(start + std::string(kKeyLimit / 2, 'x') + std::to_string(i));
    }
    return all;
  };
  Client waiting(server), setting(server), other(server);
  for (int i = 0; i < 5; ++i) {
    waiting.say(Client::wait(keys(std::to_string(i), 20)));  // in the place of the last
    waiting.hears_nothing();
  }
  other.say(Client::wait(keys("others", 20)));
  assert_true(other.is_let_go());
  // Keys that are there take nothing.
  for (const std::string& key : keys("there", 100)) setting.say(Client::set(key, ""));
  setting.say(Client::wait(keys("there", 100)));
  assert_true(setting.hear(1) == kStop);
  for (const std::string& key : keys("4", 20)) setting.say(Client::set(key, ""));
  assert_true(waiting.hear(1) == kStop);
  {
    Client leaving(server);
    leaving.say(Client::wait(keys("left", 20)));
    leaving.hears_nothing();
    leaving.say(std::string(1, char{99}));
    assert_true(leaving.is_let_go());
  }
  waiting.say(Client::wait(keys("more", 20)));
  waiting.hears_nothing();

  TcpStoreServer roomy("127.0.0.1", 0);
  Client many(roomy);
  std::vector<std::string> long_keys;
  for (int i = 0; i < 1200; ++i) {
    long_keys.push_back(std::to_string(i));
    long_keys.back().resize(kKeyLimit, 'x');
  }
  many.say(Client::wait(long_keys));
  assert_true(many.is_let_go());
  // The server goes on. One that had been silent meanwhile could be let go on a busy machine.
  Client witness(roomy);
  witness.say(Client::set("there", ""));
  witness.say(Client::wait({"there"}));
  assert_true(witness.hear(1) == kStop);
}

// Beyond the memory for them, large requests take turns; one that does not go on is let go. Small
// ones do not wait.
void large_requests_take_turns(void**) {
  TcpStoreServer::Limits limits;
  limits.in_flight = size_t{1} << 20;
  limits.stall_ms = 3000;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  Client stuck(server), also_stuck(server), other(server);
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) clients.emplace_back(server);
  const std::string value(size_t{6} << 20, 'x');
  stuck.say(Client::set("stuck", value).substr(0, value.size() / 2));
  also_stuck.say(Client::set("also stuck", value).substr(0, value.size() / 4));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      clients[i].say(Client::set(std::to_string(i), value));
      clients[i].hears_nothing();
    });
  }
  for (int i = 0; i < 100; ++i) other.hears_nothing();
  for (std::thread& thread : threads) thread.join();
  assert_true(stuck.is_let_go() && also_stuck.is_let_go());
  other.say(std::string(1, kGetNumKeys));
  assert_true(other.hear(8) == Client::number(int64_t{12}));
}

// One that leaves in the middle of a large request takes no memory from those who stay.
void memory_comes_back(void**) {
  TcpStoreServer::Limits limits;
  limits.in_flight = size_t{1} << 20;
  limits.turn_ms = limits.stall_ms = 60000;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  const auto beginning_of_set = [](size_t bytes) {
    return Client::set("large", std::string(2 * bytes, 'x')).substr(0, bytes);
  };
  Client leaving(server), slow(server), other(server);
  leaving.say(beginning_of_set(size_t{3} << 20));
  leaving.leave();
  slow.say(beginning_of_set(size_t{400} << 10));
  for (int i = 0; i < 10; ++i) {
    other.say(Client::set("key", std::string(size_t{300} << 10, 'x')));
    other.hears_nothing();
  }
}

// The oldest of those who ask for nothing make room for others, and all go when their time is up.
void silent_connections_make_room(void**) {
  TcpStoreServer::Limits limits;
  limits.pending = 8;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  Client early(server);
  early.hears_nothing();
  std::vector<Client> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(server, true);
  Client late(server);
  late.hears_nothing();
  early.hears_nothing();
  for (size_t i = 0; i < 90; ++i) assert_true(silent[i].is_let_go());
  silent.back().say(std::string(1, kValidate) + Client::number(kMagic));
  silent.back().hears_nothing();

  limits.hello_ms = 1000;
  TcpStoreServer strict("127.0.0.1", 0, std::nullopt, limits);
  Client known(strict), unknown(strict, true), idle(strict);
  known.hears_nothing();
  assert_true(unknown.is_let_go());
  assert_true(idle.is_let_go());  // which has said which protocol it speaks, and nothing more
  known.hears_nothing();

  limits.hello_ms = 60000;
  TcpStoreServer full("127.0.0.1", 0, std::nullopt, limits);
  std::vector<Client> idlers;
  for (int i = 0; i < 100; ++i) idlers.emplace_back(full);
  for (size_t i = 0; i < 90; ++i) assert_true(idlers[i].is_let_go());
  idlers.back().hears_nothing();
}

bool answers(const char* host, const TcpStoreServer& at) {
  try {
    return static_cast<bool>(nxd::connect_tcp(host, at.port(), Deadline::after_ms(0)));
  } catch (const nxd::Error&) {
    return false;
  }
}

// A socket that has a port at an address, so that nothing listens there; none where another has it.
nxd::Fd hold_port(const char* address, int port) {
  nxd::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) fd.reset();
  return fd;
}

// Other programs of this host may listen at the other address, on the port that the server was
// given.
bool listens_only_at(const char* host, const char* address, const char* other) {
  for (int i = 0; i < 50; ++i) {
    TcpStoreServer server(host, 0);
    if (const nxd::Fd held = hold_port(other, server.port())) {
      return answers(address, server) && !answers(other, server);
    }
  }
  return false;
}

// The server listens where its address says, and nowhere else.
void listens_at_its_address(void**) {
  assert_true(listens_only_at("127.0.0.1", "127.0.0.1", "127.0.0.2"));
  assert_true(listens_only_at("127.0.0.2", "127.0.0.2", "127.0.0.1"));
  assert_true(listens_only_at("localhost", "127.0.0.1", "127.0.0.2"));
  TcpStoreServer all("", 0);
  assert_true(answers("127.0.0.1", all) && answers("127.0.0.2", all));
  // No address of this host: that of a translation.
  TcpStoreServer elsewhere("192.0.2.1", 0);
  assert_true(answers("127.0.0.2", elsewhere));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(waits_end_with_the_last_key),
      cmocka_unit_test(waits_are_taken_back),
      cmocka_unit_test(answers_wait_for_a_slow_reader),
      cmocka_unit_test(words_in_pieces),
      cmocka_unit_test(last_words),
      cmocka_unit_test(many_answers_at_once),
      cmocka_unit_test(greetings),
      cmocka_unit_test(other_users),
      cmocka_unit_test(adds),
      cmocka_unit_test(unread_answers),
      cmocka_unit_test(stops_in_a_flood),
      cmocka_unit_test(scans_once),
      cmocka_unit_test(refuses_at_the_head),
      cmocka_unit_test(drips),
      cmocka_unit_test(values_do_not_grow_without_bound),
      cmocka_unit_test(waits_do_not_grow_without_bound),
      cmocka_unit_test(large_requests_take_turns),
      cmocka_unit_test(memory_comes_back),
      cmocka_unit_test(silent_connections_make_room),
      cmocka_unit_test(listens_at_its_address),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
