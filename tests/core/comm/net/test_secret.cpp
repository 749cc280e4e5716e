// The secret of a job: where it comes from, what is made of it, and that both ends of a connection
// between ranks and to a store must have it.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/comm/net/connector.h"
#include "core/comm/store/tcp_store.h"

#include "support/patience.h"
#include "support/rejection.h"

#include "support/check.h"

namespace {

using namespace nxd::tcp_store;
using nxd::Connector;
using nxd::Deadline;
using nxd::Fd;
using nxd::Secret;
using std::chrono::milliseconds;

const char* const kText = "some secret of a job";

void refused(nxd_status_t status, const char* part, const std::function<void()>& call) {
  const std::string message = nxd_test::rejection(status, part, call);
  if (message.find(kText) != std::string::npos) fail_msg("it says the secret: %s", message.c_str());
}

void from_the_environment(void**) {
  assert_false(Secret::of_environment().has_value());
  ::setenv("NXD_SECRET", kText, 1);
  assert_string_equal(Secret::of_environment()->text().c_str(), kText);
  assert_true(nxd::store_key_of_environment() == Secret(kText).key("store"));
  ::setenv("NXD_OPEN_STORE", "1", 1);
  assert_false(nxd::store_key_of_environment().has_value());
  ::unsetenv("NXD_OPEN_STORE");
  assert_null(std::strstr(nxd::env::table(), kText));
  ::setenv("NXD_SECRET", "too short", 1);
  refused(NXD_ERROR_INVALID_ARGUMENT, "NXD_SECRET: expected a secret of 16",
          [] { static_cast<void>(Secret::of_environment()); });
  ::unsetenv("NXD_SECRET");
}

void from_a_file(void**) {
  char path[] = "/tmp/nxd-secret-XXXXXX";
  ::close(::mkstemp(path));
  std::ofstream(path) << kText << "\nnot this line\n";
  ::setenv("NXD_SECRET_FILE", path, 1);
  const auto read = [] { static_cast<void>(Secret::of_environment()); };
  for (const mode_t mode : {0640, 0604, 0620, 0610, 0660}) {
    assert_int_equal(::chmod(path, mode), 0);
    refused(NXD_ERROR_INVALID_ARGUMENT, "only its owner", read);
  }
  for (const mode_t mode : {0600, 0400}) {
    assert_int_equal(::chmod(path, mode), 0);
    assert_string_equal(Secret::of_environment()->text().c_str(), kText);
  }
  if (::geteuid() == 0) {
    assert_int_equal(::chown(path, 65534, static_cast<gid_t>(-1)), 0);
    refused(NXD_ERROR_INVALID_ARGUMENT, "expected a file of this user's or of root's", read);
    assert_int_equal(::chown(path, 0, static_cast<gid_t>(-1)), 0);
  }
  for (const size_t size : {4096, 4097}) {
    std::ofstream(path) << std::string(size, 's');
    if (size == 4096) {
      assert_int_equal(Secret::of_environment()->text().size(), size);
    } else {
      refused(NXD_ERROR_INVALID_ARGUMENT, "a secret of 16 to 4096 bytes", read);
    }
  }
  ::setenv("NXD_SECRET", kText, 1);
  refused(NXD_ERROR_INVALID_ARGUMENT, "both set", read);
  ::unsetenv("NXD_SECRET");
  ::setenv("NXD_SECRET_FILE", "/tmp", 1);
  refused(NXD_ERROR_INVALID_ARGUMENT, "expected a file", read);
  ::setenv("NXD_SECRET_FILE", "/nonexistent", 1);
  refused(NXD_ERROR_INVALID_ARGUMENT, "No such file", read);
  ::unlink(path);
  assert_int_equal(::mkfifo(path, 0600), 0);
  ::setenv("NXD_SECRET_FILE", path, 1);
  refused(NXD_ERROR_INVALID_ARGUMENT, "expected a file", read);
  ::unlink(path);
  ::unsetenv("NXD_SECRET_FILE");
}

// A change of anything changes a proof: the key, the side, a part, and where parts are divided.
void proofs_differ(void**) {
  const auto key = Secret(kText).key("store");
  std::set<nxd::Proof> proofs = {
      nxd::prove(key, "a", {"bc", "d"}),     nxd::prove(key, "a", {"b", "cd"}),
      nxd::prove(key, "a", {"bcd"}),         nxd::prove(key, "a", {"bc", "d", ""}),
      nxd::prove(key, "ab", {"c", "d"}),     nxd::prove(Secret(kText).key("x"), "a", {"bc", "d"}),
      nxd::prove(key, "", {"a", "bc", "d"}), nxd::prove(Secret::random().key("store"), "a", {"bc"}),
  };
  assert_int_equal(proofs.size(), 8);
  assert_true(nxd::is_same(*proofs.begin(), nxd::Proof(*proofs.begin())));
  assert_false(nxd::is_same(*proofs.begin(), *proofs.rbegin()));
  assert_false(nxd::make_nonce() == nxd::make_nonce());
  assert_int_equal(Secret::random().text().size(), 64);
}

// ---- between ranks
// -------------------------------------------------------------------------------

// The connection that rank 1 makes to rank 0, both ends of it, or why not.
struct Ends {
  Fd near, far;
};
Ends connect(const Connector& from, Connector& to, const std::string& peer_address) {
  Connector::Dial dial(from, peer_address, 0, "group");
  Ends ends;
  for (int i = 0; i < 1000 && !ends.near; ++i) ends.near = dial.wait(milliseconds(20));
  if (ends.near) ends.far = to.take(1, "group", milliseconds(20000));
  return ends;
}

bool is_unproven(const std::string& part, const std::function<void()>& call) {
  try {
    call();
  } catch (const Connector::Unproven& e) {
    if (std::string(e.what()).find(part) == std::string::npos) fail_msg("%s", e.what());
    return true;
  }
  return false;
}

void ranks_prove_themselves(void**) {
  const Secret secret(kText), another("some other job's secret");
  for (const auto& known : {std::optional<Secret>(secret), std::optional<Secret>()}) {
    Connector zero("127.0.0.1", 0, known), one("127.0.0.1", 1, known);
    assert_null(std::strstr(zero.peer_address().c_str(), kText));
    Ends ends = connect(one, zero, zero.peer_address());
    assert_true(ends.near && ends.far);
    assert_true(::send(ends.near.get(), "data", 4, 0) == 4);
    char data[5] = "";
    assert_true(nxd::receive_all(ends.far.get(), data, 4, nxd_test::patiently()));
    assert_string_equal(data, "data");
  }
  Connector zero("127.0.0.1", 0, secret), stranger("127.0.0.1", 1, another),
      open("127.0.0.1", 1, std::nullopt), one("127.0.0.1", 1, secret);
  assert_true(
      is_unproven("secret does not prove", [&] { connect(stranger, zero, zero.peer_address()); }));
  assert_true(is_unproven("has a secret", [&] { connect(open, zero, zero.peer_address()); }));
  assert_true(is_unproven("has no secret", [&] { connect(zero, open, open.peer_address()); }));
  // Without a secret the port of another rank does not prove that it has the token.
  Connector open_zero("127.0.0.1", 0, std::nullopt), other_zero("127.0.0.1", 0, std::nullopt);
  auto swapped = *nxd::PeerAddress::decode(open_zero.peer_address());
  swapped.port = nxd::PeerAddress::decode(other_zero.peer_address())->port;
  assert_true(is_unproven("does not prove", [&] { connect(open, other_zero, swapped.encode()); }));
  for (const char* junk : {"", "x", "127.0.0.1 5 token", "127.0.0.1 5 token open more",
                           "127.0.0.1 5 token secret", "\n\n"}) {
    assert_true(is_unproven("is not to be found", [&] { connect(one, zero, junk); }));
  }
  assert_false(static_cast<bool>(zero.take(1, "group", milliseconds(0))));
}

// Hands on all that two ends say to each other, until one of them ends.
void hand_on(const Fd& a, const Fd& b) {
  pollfd ends[] = {{a.get(), POLLIN, 0}, {b.get(), POLLIN, 0}};
  while (::poll(ends, 2, 20000) > 0) {
    for (int i = 0; i < 2; ++i) {
      char words[512];
      if (ends[i].revents == 0) continue;
      const ssize_t n = ::recv(ends[i].fd, words, sizeof words, 0);
      if (n <= 0 || ::send(ends[1 - i].fd, words, static_cast<size_t>(n), MSG_NOSIGNAL) != n)
        return;
    }
  }
}

// A stranger who can write to the store and knows no secret puts the address of his relay there,
// with all else that is in the rank's own: other values for the proof that no rank made, and
// another rank's.
void relays_are_refused(void**) {
  const Secret secret(kText);
  Connector zero("127.0.0.1", 0, secret), one("127.0.0.1", 1, secret);
  const auto address = *nxd::PeerAddress::decode(zero.peer_address());
  int port = 0;
  const auto listeners = nxd::listen_tcp("127.0.0.1", 0, &port);
  std::thread relay([&] {
    pollfd caller{listeners[0].get(), POLLIN, 0};
    if (::poll(&caller, 1, 20000) < 1) return;
    const Fd near(::accept4(listeners[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!near) return;  // the test has ended
    hand_on(near, nxd::connect_tcp(address.host, std::stoi(address.port), nxd_test::patiently()));
  });
  auto relayed = address, unproven = address;
  relayed.port = std::to_string(port);
  unproven.proof = std::string(address.proof.size(), '0');
  auto of_one = *nxd::PeerAddress::decode(one.peer_address());
  for (const auto& written : {relayed, unproven, of_one}) {
    assert_true(
        is_unproven("secret does not prove", [&] { connect(one, zero, written.encode()); }));
  }
  ::shutdown(listeners[0].get(), SHUT_RDWR);
  relay.join();
  assert_true(static_cast<bool>(connect(one, zero, zero.peer_address()).near));
}

Fd come(const Connector& to) {
  const auto address = *nxd::PeerAddress::decode(to.peer_address());
  return nxd::connect_tcp(address.host, std::stoi(address.port), nxd_test::patiently());
}
std::string hear(const Fd& fd, size_t size) {
  std::string words(size, '\0');
  assert_true(nxd::receive_all(fd.get(), words.data(), size, nxd_test::patiently()));
  return words;
}
void say(const Fd& fd, const std::string& words) {
  assert_true(nxd::send_all(fd.get(), words.data(), words.size(), nxd_test::patiently()));
}
bool is_let_go(const Fd& fd) {
  char byte;
  return !nxd::receive_all(fd.get(), &byte, 1, nxd_test::patiently());
}

std::string hello_of(int from, int to, const std::string& purpose = "group") {
  nxd::PeerHello hello;
  hello.from = from;
  hello.to = to;
  hello.nonce = nxd::make_nonce();
  hello.purpose_size = static_cast<uint32_t>(purpose.size());
  return std::string(nxd::view_of(hello)) + purpose;
}

// The words of a rank that connected once are of no use again, nor are the listener's own.
void old_words_are_refused(void**) {
  const Secret secret(kText);
  Connector zero("127.0.0.1", 0, secret);
  const auto token = nxd::PeerAddress::decode(zero.peer_address())->token;
  const auto key = nxd::peer_key(secret, token);
  const std::string hello = hello_of(1, 0);
  nxd::PeerAnswer answer;
  const Fd good = come(zero);
  say(good, hello);
  std::memcpy(static_cast<void*>(&answer), hear(good, sizeof answer).data(), sizeof answer);
  const auto proof = nxd::check_answer(key, hello, answer);
  assert_true(proof.has_value());
  say(good, std::string(nxd::view_of(*proof)));
  assert_int_equal(hear(good, 1).size(), 1);
  assert_true(static_cast<bool>(zero.take(1, "group", milliseconds(20000))));

  const Fd replaying = come(zero);
  say(replaying, hello + std::string(nxd::view_of(*proof)));
  hear(replaying, sizeof answer);
  assert_true(is_let_go(replaying));

  // Its own proof, and one that it gives for a hello made for this.
  const Fd reflecting = come(zero), asking = come(zero);
  say(reflecting, hello);
  std::memcpy(static_cast<void*>(&answer), hear(reflecting, sizeof answer).data(), sizeof answer);
  say(reflecting, std::string(nxd::view_of(answer.proof)));
  assert_true(is_let_go(reflecting));
  const Fd again = come(zero);
  say(again, hello);
  std::memcpy(static_cast<void*>(&answer), hear(again, sizeof answer).data(), sizeof answer);
  nxd::PeerHello crossed;
  std::memcpy(static_cast<void*>(&crossed), hello.data(), sizeof crossed);
  crossed.nonce = answer.nonce;
  say(asking, std::string(nxd::view_of(crossed)).append("group"));
  nxd::PeerAnswer other;
  std::memcpy(static_cast<void*>(&other), hear(asking, sizeof other).data(), sizeof other);
  say(again, std::string(nxd::view_of(other.proof)));
  assert_true(is_let_go(again));

  // Meant for another rank.
  const Fd lost = come(zero);
  say(lost, hello_of(1, 2));
  assert_true(is_let_go(lost));
  assert_false(static_cast<bool>(zero.take(1, "group", milliseconds(0))));
}

// Neither takes more than its share of a rank's memory or descriptors: a purpose has a bound, and
// one that says nothing is let go.
void strangers_are_bounded(void**) {
  Connector zero("127.0.0.1", 0, Secret(kText));
  const Fd silent = come(zero), slow = come(zero);
  say(slow, hello_of(1, 0).substr(0, 20));
  const Fd longest = come(zero), longer = come(zero);
  say(longest, hello_of(1, 0, std::string(nxd::kPurposeLimit, 'x')));
  assert_int_equal(hear(longest, sizeof(nxd::PeerAnswer)).size(), sizeof(nxd::PeerAnswer));
  say(longer, hello_of(1, 0, std::string(nxd::kPurposeLimit + 1, 'x')));
  assert_true(is_let_go(longer));
  assert_true(is_let_go(silent) && is_let_go(slow) && is_let_go(longest));
}

// ---- stores
// --------------------------------------------------------------------------------------

void stores_want_it(void**) {
  const nxd::Key key = Secret(kText).store_key(), other = Secret::random().store_key();
  const auto server = std::make_shared<nxd::TcpStoreServer>("127.0.0.1", 0, key);
  const auto open = std::make_shared<nxd::TcpStoreServer>("127.0.0.1", 0);
  const auto connect = [](const nxd::TcpStoreServer& to, std::optional<nxd::Key> with) {
    return nxd::TcpStore("127.0.0.1", to.port(), 20000, nullptr, {with}).add("n", 1);
  };
  assert_int_equal(connect(*server, key), 1);
  assert_int_equal(connect(*server, key), 2);
  assert_int_equal(connect(*open, std::nullopt), 1);
  refused(NXD_ERROR_IO, "another secret", [&] { connect(*server, other); });
  refused(NXD_ERROR_IO, "wants the secret", [&] { connect(*server, std::nullopt); });
  refused(NXD_ERROR_IO, "NXD_OPEN_STORE=1 allows it", [&] { connect(*open, key); });
  assert_int_equal(connect(*server, key), 3);
  // Also where it is thought to be torch's.
  refused(NXD_ERROR_IO, "wants the secret", [&] {
    nxd::TcpStore("127.0.0.1", server->port(), 20000, nullptr, {std::nullopt, true});
  });
}

std::string validation() {
  const uint32_t magic = kMagic;
  return std::string(1, kValidate) + std::string(nxd::view_of(magic));
}
std::string set_of(const std::string& key) {
  const uint64_t size = key.size();
  const std::string bytes = std::string(nxd::view_of(size)) + key;
  return std::string(1, kSet) + bytes + bytes;
}

void stores_refuse_old_words(void**) {
  const nxd::Key key = Secret(kText).store_key();
  nxd::TcpStoreServer server("127.0.0.1", 0, key);
  const auto come_to = [&] {
    return nxd::connect_tcp("127.0.0.1", server.port(), nxd_test::patiently());
  };
  Hello hello;
  hello.has_secret = 1;
  hello.nonce = nxd::make_nonce();
  const std::string greeting =
      validation() + std::string(1, kHello) + std::string(nxd::view_of(hello));
  const auto challenge_on = [&](const Fd& fd, const std::string& words) {
    say(fd, words);
    Challenge challenge;
    assert_int_equal(hear(fd, 1)[0], kChallenge);
    std::memcpy(static_cast<void*>(&challenge), hear(fd, sizeof challenge).data(),
                sizeof challenge);
    return challenge;
  };
  const auto prove = [&](const Fd& fd, const nxd::Proof& proof) {
    say(fd, std::string(1, kProve) + std::string(nxd::view_of(proof)));
  };
  const Fd good = come_to(), replaying = come_to(), reflecting = come_to(), crossing = come_to();
  const Challenge first = challenge_on(good, greeting);
  assert_true(nxd::is_same(first.proof, prove_server(key, hello, first.nonce)));
  const nxd::Proof proof = prove_client(key, hello, first.nonce);
  prove(good, proof);
  assert_int_equal(hear(good, 1)[0], kWelcome);

  challenge_on(replaying, greeting);
  prove(replaying, proof);
  assert_true(is_let_go(replaying));
  prove(reflecting, challenge_on(reflecting, greeting).proof);
  assert_true(is_let_go(reflecting));
  const Challenge second = challenge_on(crossing, greeting);
  Hello crossed = hello;
  crossed.nonce = second.nonce;
  const Fd asking = come_to();
  prove(crossing, challenge_on(asking, validation() + std::string(1, kHello) +
                                           std::string(nxd::view_of(crossed)))
                      .proof);
  assert_true(is_let_go(crossing));

  // Requests before, between and instead of the words.
  for (const std::string& words :
       {set_of("k"), validation() + set_of("k"), greeting + set_of("k"),
        greeting + std::string(1, kHello) + std::string(nxd::view_of(hello)),
        validation() + validation(), validation() + std::string(1, kGetNumKeys),
        validation() + std::string(1, kPing) + "1234",
        validation() + std::string(1, kProve) + std::string(32, '\0')}) {
    const Fd fd = come_to();
    say(fd, words);
    // After what was answered before that word.
    char rest;
    while (nxd::receive_all(fd.get(), &rest, 1, nxd_test::patiently())) {
    }
  }
  say(good, std::string(1, kGetNumKeys));
  int64_t keys = -1;
  std::memcpy(&keys, hear(good, sizeof keys).data(), sizeof keys);
  assert_int_equal(keys, 0);
}

}  // namespace

int main() {
  for (const char* name : {"NXD_SECRET", "NXD_SECRET_FILE", "NXD_OPEN_STORE"}) ::unsetenv(name);
  const CMUnitTest tests[] = {
      cmocka_unit_test(from_the_environment),    cmocka_unit_test(from_a_file),
      cmocka_unit_test(proofs_differ),           cmocka_unit_test(ranks_prove_themselves),
      cmocka_unit_test(relays_are_refused),      cmocka_unit_test(old_words_are_refused),
      cmocka_unit_test(strangers_are_bounded),   cmocka_unit_test(stores_want_it),
      cmocka_unit_test(stores_refuse_old_words),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
