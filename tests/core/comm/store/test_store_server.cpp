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
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/store_client.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "core/comm/store/tcp_store_request.h"
#include "core/comm/store/tcp_store_server.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

void waits_end_with_the_last_key(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  setting.say(Client::append("c", "1"));
  assert_true(waiting[0].hear(1) == kStop);
  waiting[0].hears_nothing();
}

void waits_are_taken_back(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer open("127.0.0.1", 0, std::nullopt, patient_limits());
  Client stranger(open, true), impostor(open), known(open);
  stranger.say(std::string(1, kValidate) + Client::number(kMagic + 1));
  assert_true(stranger.is_let_go());
  Hello hello;
  hello.magic[0] = static_cast<char>(hello.magic[0] + 1);
  impostor.say(std::string(1, kHello) + Client::number(hello));
  assert_true(impostor.is_let_go());
  known.hears_nothing();

  TcpStoreServer closed("127.0.0.1", 0, nxd::Secret::random().store_key(), patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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

// As torch has it: an absent key equals an empty expectation alone. Another one comes back.
void sets_that_compare(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
  Client client(server), waiting(server);
  const auto answer_to = [&client](const std::string& expected, const std::string& desired) {
    client.say(std::string(1, kCompareSet) + Client::bytes("key") + Client::bytes(expected) +
               Client::bytes(desired));
    uint64_t size = 0;
    std::memcpy(&size, client.hear(sizeof size).data(), sizeof size);
    return client.hear(size);
  };
  waiting.say(Client::wait({"key"}));
  waiting.hears_nothing();
  assert_string_equal(answer_to("old", "new").c_str(), "old");
  client.say(std::string(1, kGetNumKeys));
  assert_true(client.hear(8) == Client::number(int64_t{0}));
  waiting.hears_nothing();
  assert_string_equal(answer_to("", "first").c_str(), "first");
  assert_true(waiting.hear(1) == kStop);
  assert_string_equal(answer_to("another", "second").c_str(), "first");
  assert_string_equal(answer_to("", "second").c_str(), "first");
  assert_string_equal(answer_to("first", "second").c_str(), "second");
  client.say(Client::get("key"));
  assert_true(client.hear(8 + 6) == Client::bytes("second"));
}

void stops_in_a_flood(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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

bool answers(const char* host, const TcpStoreServer& at) {
  try {
    return static_cast<bool>(nxd::connect_tcp(host, at.port(), nxd::Deadline::after_ms(0)));
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
      cmocka_unit_test(sets_that_compare),
      cmocka_unit_test(stops_in_a_flood),
      cmocka_unit_test(scans_once),
      cmocka_unit_test(refuses_at_the_head),
      cmocka_unit_test(drips),
      cmocka_unit_test(listens_at_its_address),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
