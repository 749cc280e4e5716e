// The TCP store's server as clients of torch speak to it, which wait at the server. Ours never do.
#include <string>
#include <vector>

#include "core/comm/tcp_store_protocol.h"
#include "core/comm/tcp_store_server.h"

#include "support/check.h"

namespace {

using namespace nxd::tcp_store;
using nxd::Deadline;
using nxd::TcpStoreServer;

class Client {
 public:
  explicit Client(const TcpStoreServer& server)
      : fd_(nxd::connect_tcp("127.0.0.1", server.port(), Deadline::after_ms(10000))) {
    say(std::string(1, kValidate) + number(kMagic));
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
  TcpStoreServer server(0);
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
  TcpStoreServer server(0);
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
  TcpStoreServer server(0);
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
  TcpStoreServer server(0);
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(waits_end_with_the_last_key),
      cmocka_unit_test(waits_are_taken_back),
      cmocka_unit_test(answers_wait_for_a_slow_reader),
      cmocka_unit_test(words_in_pieces),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
