// Bounds of all that clients take of the TCP store's server: memory, time and descriptors.
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/store/store_client.h"
#include "core/comm/store/tcp_store_request.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

void values_do_not_grow_without_bound(void**) {
  TcpStoreServer::Limits limits = patient_limits();
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
  TcpStoreServer::Limits limits = patient_limits();
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

  TcpStoreServer roomy("127.0.0.1", 0, std::nullopt, patient_limits());
  Client many(roomy);
  std::vector<std::string> long_keys;
  for (int i = 0; i < 1200; ++i) {
    long_keys.push_back(std::to_string(i));
    long_keys.back().resize(kKeyLimit, 'x');
  }
  many.say(Client::wait(long_keys));
  assert_true(many.is_let_go());
  // The server goes on.
  Client witness(roomy);
  witness.say(Client::set("there", ""));
  witness.say(Client::wait({"there"}));
  assert_true(witness.hear(1) == kStop);
}

// Beyond the memory for them, large requests take turns; one that does not go on is let go. Small
// ones do not wait.
void large_requests_take_turns(void**) {
  TcpStoreServer::Limits limits = patient_limits();
  limits.in_flight = size_t{1} << 20;
  limits.stall_ms = 10000;
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

// The turn of one that leaves is the next one's, in the order of arrival, although there is still
// no memory for any other.
void turns_are_handed_on(void**) {
  TcpStoreServer::Limits limits = patient_limits();
  limits.in_flight = size_t{64} << 10;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  const std::string value(size_t{3} << 20, 'x');
  std::vector<Client> clients;
  std::vector<std::string> rests;
  for (int i = 0; i < 5; ++i) clients.emplace_back(server);
  for (size_t i = 0; i < clients.size(); ++i) {
    const std::string request = Client::set(std::to_string(i), value);
    const size_t begun = size_t{80} << 10;  // the server reads all of it, or as much as it may
    clients[i].hears_nothing();
    clients[i].say(request.substr(0, begun));
    rests.push_back(request.substr(begun));
    // So that it has come into the line before the next does.
    Client other(server);
    for (int k = 0; k < 20; ++k) other.hears_nothing();
  }
  clients[0].leave();
  for (size_t i = 1; i < clients.size(); ++i) {
    clients[i].say(rests[i]);
    clients[i].hears_nothing();
  }
}

// One that leaves in the middle of a large request takes no memory from those who stay.
void memory_comes_back(void**) {
  TcpStoreServer::Limits limits = patient_limits();
  limits.in_flight = size_t{1} << 20;
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
  TcpStoreServer::Limits limits = patient_limits();
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

  limits.hello_ms = 5000;
  TcpStoreServer strict("127.0.0.1", 0, std::nullopt, limits);
  Client known(strict), unknown(strict, true), idle(strict);
  known.hears_nothing();
  assert_true(unknown.is_let_go());
  assert_true(idle.is_let_go());  // which has said which protocol it speaks, and nothing more
  known.hears_nothing();

  limits.hello_ms = kPatienceMs;
  TcpStoreServer full("127.0.0.1", 0, std::nullopt, limits);
  std::vector<Client> idlers;
  for (int i = 0; i < 100; ++i) idlers.emplace_back(full);
  for (size_t i = 0; i < 90; ++i) assert_true(idlers[i].is_let_go());
  idlers.back().hears_nothing();
}

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// A large value that is asked for often and never read costs what it costs once.
void unread_answers(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
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

// Values are in the way of others as long as an answer with them is on its way, and no longer.
void values_on_their_way(void**) {
  TcpStoreServer::Limits limits = patient_limits();
  limits.values = size_t{60} << 20;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  Client slow(server), setting(server), other(server);
  const std::string large(size_t{40} << 20, 'x');
  other.say(Client::set("large", large));
  other.hears_nothing();
  slow.say(Client::get("large"));
  other.hears_nothing();
  // Its reader has what was there when it asked.
  other.say(Client::append("large", std::string(1000, 'y')));
  assert_true(other.is_let_go());
  setting.say(Client::set("large", std::string(size_t{30} << 20, 'z')));
  assert_true(setting.is_let_go());
  assert_true(slow.hear(8 + large.size()) == Client::bytes(large));
  slow.say(Client::set("large", "z") + Client::append("large", "z") + Client::get("large"));
  assert_true(slow.hear(8 + 2) == Client::bytes("zz"));
}

// An addition to a value counts as the value does, and goes with it.
void values_that_grow(void**) {
  TcpStoreServer::Limits limits = patient_limits();
  limits.values = size_t{1} << 20;
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, limits);
  Client client(server), beyond(server), reader(server);
  const std::string part(size_t{300} << 10, 'x');
  for (int i = 0; i < 10; ++i) {
    for (int k = 0; k < 3; ++k) client.say(Client::append("key", part));
    client.say(std::string(1, kDeleteKey) + Client::bytes("key"));
    assert_true(client.hear(8) == Client::number(int64_t{1}));
  }
  for (int k = 0; k < 3; ++k) client.say(Client::append("key", part));
  client.hears_nothing();
  beyond.say(Client::append("key", part));
  assert_true(beyond.is_let_go());
}

// An answer that is on its way stays as it is when its value grows.
void a_value_that_grows_on_its_way(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
  Client slow(server), other(server);
  const std::string large(size_t{40} << 20, 'x');
  other.say(Client::set("large", large));
  other.hears_nothing();
  slow.say(Client::get("large"));
  other.hears_nothing();
  other.say(Client::append("large", std::string(1000, 'y')));
  other.hears_nothing();
  assert_true(slow.hear(8 + large.size()) == Client::bytes(large));
  slow.hears_nothing();
}

// Several values of one request have a bound together.
void many_values_of_one_request(void**) {
  const size_t size = kRequestLimit + (size_t{1} << 20);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(memory != MAP_FAILED);
  auto* bytes = static_cast<char*>(memory);
  const std::string head = std::string(1, kMultiSet) + Client::number(uint64_t{1000});
  const std::string pair = Client::bytes("") + Client::number(uint64_t{kValueLimit});
  size_t at = head.copy(bytes, head.size());
  while (at + pair.size() <= size) {
    pair.copy(bytes + at, pair.size());
    at += pair.size() + kValueLimit;
  }
  assert_true(RequestScanner().advance({bytes, size}) == RequestScanner::State::kRejected);
  ::munmap(memory, size);
  // So have those of one answer.
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
  Client client(server), other(server);
  client.say(Client::set("key", std::string(size_t{40} << 20, 'x')));
  client.hears_nothing();
  std::string question = std::string(1, kMultiGet) + Client::number(uint64_t{100});
  for (int i = 0; i < 100; ++i) question += Client::bytes("key");
  client.say(question);
  assert_true(client.is_let_go());
  other.hears_nothing();
}

// A connection that finds no descriptor is taken when there is one again.
void without_descriptors(void**) {
  TcpStoreServer server("127.0.0.1", 0, std::nullopt, patient_limits());
  Client known(server);
  known.hears_nothing();
  nxd::Fd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<nxd::Fd> taken;
  rlimit limit = {};
  assert_int_equal(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low = {256, limit.rlim_max};
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) taken.emplace_back(fd);
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_false(taken.empty());
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &low), 0);
  assert_int_equal(
      ::connect(late.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (int i = 0; i < 3; ++i) known.hears_nothing();  // a round of the server comes between
  taken.clear();
  const std::string words = std::string(1, kValidate) + Client::number(kMagic) +
                            std::string(1, kPing) + Client::number(uint32_t{77});
  assert_true(nxd::send_all(late.get(), words.data(), words.size(), patiently()));
  uint32_t answer = 0;
  assert_true(nxd::receive_all(late.get(), &answer, sizeof answer, patiently()));
  assert_int_equal(answer, 77);
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(values_do_not_grow_without_bound),
      cmocka_unit_test(waits_do_not_grow_without_bound),
      cmocka_unit_test(large_requests_take_turns),
      cmocka_unit_test(turns_are_handed_on),
      cmocka_unit_test(memory_comes_back),
      cmocka_unit_test(silent_connections_make_room),
      cmocka_unit_test(unread_answers),
      cmocka_unit_test(values_on_their_way),
      cmocka_unit_test(values_that_grow),
      cmocka_unit_test(a_value_that_grows_on_its_way),
      cmocka_unit_test(many_values_of_one_request),
      cmocka_unit_test(without_descriptors),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
