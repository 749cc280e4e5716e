// A job of two ranks, processes of their own over TCP, goes on making groups and store connections
// while connections that mean harm come to all of its ports: with a secret, and without one, when
// strangers may use the store as the ranks do. NXD_LONG=1: as many as a host can open.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/tcp_store_protocol.h"
#include "nxd.h"
#include "support/listening.h"
#include "support/paths.h"

#include "support/check.h"
#include "support/patience.h"

namespace {

using namespace nxd::tcp_store;
using nxd::Fd;

constexpr int kRanks = 2;
const char* const kSecret = "a secret of this test, and of no job";

bool is_long() { return std::getenv("NXD_LONG") != nullptr; }

// ---- the job
// -------------------------------------------------------------------------------------

int say(const char* what) {
  std::fprintf(stderr, "rank %s: %s: %s\n", std::getenv("RANK"), what, nxd_last_error());
  return 1;
}

// Groups over new connections, each with a result to check, until the driver closes its pipe.
int rank_main() {
  const int rank = std::atoi(std::getenv("RANK"));
  const int report = std::atoi(std::getenv("NXD_TEST_REPORT"));
  const int stop = std::atoi(std::getenv("NXD_TEST_STOP"));
  nxd_context_t* ctx = nullptr;
  if (nxd_context_create(nullptr, &ctx) != NXD_OK) return say("create");
  for (int32_t stops = 0; !stops;) {
    pollfd ended{stop, POLLIN, 0};
    const int32_t wishes[2] = {rank == 0 && ::poll(&ended, 1, 0) > 0, rank + 1};
    int32_t sums[2] = {0, 0};
    const int32_t all[kRanks] = {0, 1};
    nxd_group_t* group = nullptr;
    if (nxd_group_create(ctx, all, kRanks, "round", &group) != NXD_OK) return say("group");
    const auto status = nxd_all_reduce(group, wishes, sums, 2, NXD_DTYPE_I32, NXD_REDUCE_SUM);
    if (status != NXD_OK || sums[1] != 3) return say("all_reduce");
    nxd_group_destroy(group);
    stops = sums[0];
    nxd_store_t* store = nullptr;
    int64_t visits = 0;
    if (rank == 1 &&
        (nxd_store_create_tcp(std::getenv("MASTER_ADDR"), std::atoi(std::getenv("MASTER_PORT")), 0,
                              30000, &store) != NXD_OK ||
         nxd_store_add(store, "visits", 1, &visits) != NXD_OK)) {
      return say("store");
    }
    nxd_store_destroy(store);
    if (rank == 0 && ::write(report, "r", 1) != 1) return 1;
  }
  if (nxd_context_finalize(ctx) != NXD_OK) return say("finalize");
  nxd_context_destroy(ctx);
  return 0;
}

class Job {
 public:
  explicit Job(bool has_secret) : port_(free_port()) {
    int report[2], stop[2];
    assert_int_equal(::pipe(report) | ::pipe(stop), 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      pids_[rank] = ::fork();
      if (pids_[rank] == 0) {
        ::close(stop[1]);
        execute(rank, has_secret, report[1], stop[0]);
      }
    }
    ::close(report[1]);
    ::close(stop[0]);
    report_ = Fd(report[0]);
    stop_ = Fd(stop[1]);
    advance(2);
    for (const pid_t pid : pids_) {
      for (const auto& at : nxd_test::listening_of(pid)) {
        if (!at.is_loopback) fail_msg("port %d listens beyond the loopback", at.port);
        // Gloo's own is gone again by now, or about to go.
        if (at.port != port_) rank_ports_.push_back(at.port);
      }
    }
    assert_true(rank_ports_.size() >= kRanks);
  }
  ~Job() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
  }

  // Waits until it has gone on for so many rounds that began after this call.
  void advance(int rounds) {
    char byte;
    while (ready(0) && ::read(report_.get(), &byte, 1) == 1) {
    }
    for (int i = 0; i <= rounds; ++i) {
      if (!ready(100000) || ::read(report_.get(), &byte, 1) != 1)
        fail_msg("the job does not go on");
    }
  }
  void finish() {
    stop_.reset();
    for (pid_t& pid : pids_) {
      int status = 1;
      assert_int_equal(::waitpid(std::exchange(pid, 0), &status, 0) > 0, 1);
      assert_int_equal(status, 0);
    }
  }
  int port() const { return port_; }
  const std::vector<int>& rank_ports() const { return rank_ports_; }
  std::vector<int> ports() const {
    std::vector<int> all = rank_ports_;
    all.push_back(port_);
    return all;
  }
  // Resident memory of the rank that serves the store.
  size_t memory() const {
    size_t total = 0, resident = 0;
    std::ifstream("/proc/" + std::to_string(pids_[0]) + "/statm") >> total >> resident;
    return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  }

 private:
  static int free_port() {
    int port = 0;
    nxd::listen_tcp("127.0.0.1", 0, &port);
    return port;
  }
  bool ready(int ms) {
    pollfd p{report_.get(), POLLIN, 0};
    return ::poll(&p, 1, ms) > 0;
  }
  [[noreturn]] void execute(int rank, bool has_secret, int report, int stop) {
    const auto set = [](const char* name, const std::string& value) {
      ::setenv(name, value.c_str(), 1);
    };
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(kRanks));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port_));
    set("NXD_TRANSPORT", "gloo");
    set("NXD_TIMEOUT_MS", "60000");
    set("NXD_LOG_LEVEL", "off");
    set("NXD_TEST_REPORT", std::to_string(report));
    set("NXD_TEST_STOP", std::to_string(stop));
    if (has_secret) set("NXD_SECRET", kSecret);
    const rlimit few{1024, 1024};
    ::setrlimit(RLIMIT_NOFILE, &few);
    ::execl("/proc/self/exe", "test_hostile_network", "rank", static_cast<char*>(nullptr));
    ::_exit(127);
  }

  const int port_;
  pid_t pids_[kRanks] = {};
  Fd report_, stop_;
  std::vector<int> rank_ports_;
};

// ---- strangers
// -----------------------------------------------------------------------------------

std::atomic<int64_t> connections{0}, admitted{0};

Fd come(int port, bool waits = true) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0));
  const int result = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (!fd || (result != 0 && errno != EINPROGRESS)) return Fd();
  ++connections;
  return fd;
}

// As much as is taken at once.
void say_some(const Fd& fd, const std::string& words) {
  if (fd)
    static_cast<void>(::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}
// All of it, or until the other end closes or takes nothing more for so long.
void say_all(const Fd& fd, const std::string& words, int timeout_ms = 1000) {
  for (size_t at = 0; fd && at < words.size();) {
    pollfd p{fd.get(), POLLOUT, 0};
    if (::poll(&p, 1, timeout_ms) <= 0) return;
    const ssize_t n =
        ::send(fd.get(), words.data() + at, words.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}
// True if the other end closes the connection rather than serve what was asked.
bool is_let_go(const Fd& fd) {
  assert_true(static_cast<bool>(fd));
  char bytes[4096];
  pollfd p{fd.get(), POLLIN, 0};
  for (;;) {
    if (::poll(&p, 1, 60000) <= 0) return false;
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (n <= 0) return true;
  }
}
void reset(Fd fd) {
  const linger at_once = {1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

template <class T>
std::string number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string bytes(const std::string& value) { return number(uint64_t{value.size()}) + value; }
std::string query(uint8_t q) { return std::string(1, static_cast<char>(q)); }
std::string set(const std::string& key, const std::string& value) {
  return query(kSet) + bytes(key) + bytes(value);
}
const std::string kValidation = query(kValidate) + number(kMagic);

std::string random_bytes(std::mt19937_64& random, size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// ---- attacks ------------------------------------------------------------------------------------

using Held = std::vector<Fd>;  // connections that stay until the job has ended

void stay_silent(const Job& job, Held& held) {
  // The other attacks need some descriptors of this process too.
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::vector<int> ports = job.ports();
  const int most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 100000));
  const int room = std::max(most - (is_long() ? 3000 : 600), most / 4);
  const int each = std::min(is_long() ? 5000 : 1200, room / static_cast<int>(ports.size()));
  assert_true(each > 0);
  for (const int port : ports) {
    for (int i = 0; i < each; ++i) held.push_back(come(port, false));
  }
}

void talk_nonsense(const Job& job, Held& held) {
  std::mt19937_64 random(7);
  const std::string http = "GET / HTTP/1.1\r\nHost: a host\r\n\r\n";
  const std::string tls("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const int port : job.ports()) {
    for (int i = 0; i < (is_long() ? 3000 : 150); ++i) {
      Fd fd = come(port);
      const std::string words = i % 3 == 0   ? http
                                : i % 3 == 1 ? tls
                                             : random_bytes(random, 1 + random() % 3000);
      say_some(fd, words);
      if (i % 2) {
        reset(std::move(fd));
      } else if (i % 20 == 0) {
        held.push_back(std::move(fd));
      }
    }
  }
}

// Greetings cut at every byte, kept open, shut down and reset in turns.
void cut_greetings(const Job& job, Held& held) {
  nxd::tcp_store::Hello hello;
  hello.has_secret = 1;
  const std::string store = kValidation + query(kHello) + number(hello) + query(kProve) +
                            std::string(32, 'x') + set("stranger", "was here");
  std::string rank = "nxdpeer2" + number(int32_t{1}) + number(int32_t{0}) + std::string(32, 'n') +
                     number(uint32_t{5}) + "world" + std::string(32, 'p');
  for (const int port : job.ports()) {
    const std::string& words = port == job.port() ? store : rank;
    for (size_t size = 1; size <= words.size(); ++size) {
      Fd fd = come(port);
      say_some(fd, words.substr(0, size));
      if (size % 3 == 1) ::shutdown(fd.get(), SHUT_WR);
      if (size % 3 == 2) {
        reset(std::move(fd));
      } else {
        held.push_back(std::move(fd));
      }
    }
  }
}

// Asks for a large value again and again, and reads nothing.
void amplify(const Job& job, Held& held) {
  const size_t before = job.memory();
  Fd fd = come(job.port());
  std::string words = kValidation + set("large", std::string(size_t{20} << 20, 'x'));
  for (int i = 0; i < 150; ++i) words += query(kGet) + bytes("large");
  say_all(fd, words);
  held.push_back(std::move(fd));
  for (int i = 0; i < 20; ++i) {
    assert_true(job.memory() < before + (size_t{150} << 20));
    ::usleep(5000);
  }
}

// One request of many small parts, in many small pieces.
void drip(const Job& job, Held& held) {
  Fd fd = come(job.port());
  std::string words = kValidation + query(kMultiSet) + number(uint64_t{kCountLimit});
  for (uint64_t i = 0; i + 1 < kCountLimit; ++i) words += bytes(std::to_string(i)) + bytes("");
  for (size_t at = 0; at < words.size(); at += 2000) say_all(fd, words.substr(at, 2000));
  held.push_back(std::move(fd));
}

// Large requests that never become whole, on many connections at once.
void set_large(const Job& job, Held& held) {
  const size_t before = job.memory();
  const std::string start = kValidation + query(kSet) + bytes("key") + number(kValueLimit) +
                            std::string(size_t{30} << 20, 'x');
  std::vector<std::thread> threads;
  Held made(is_long() ? 40 : 12);
  for (Fd& fd : made) {
    threads.emplace_back([&] { say_all(fd = come(job.port()), start); });
  }
  for (std::thread& thread : threads) thread.join();
  // The strings that grow take twice as much at most.
  assert_true(job.memory() < before + (size_t{700} << 20));
  for (Fd& fd : made) held.push_back(std::move(fd));
}

void append_without_end(const Job& job, Held&) {
  const Fd fd = come(job.port());
  say_some(fd, kValidation);
  const std::string more =
      query(kAppend) + bytes("grows") + bytes(std::string(size_t{1} << 20, 'x'));
  for (int i = 0; i < 80; ++i) say_all(fd, more, 60000);
  assert_true(is_let_go(fd));
}

void claim_too_much(const Job& job, Held&) {
  for (const uint64_t size : {kValueLimit + 1, uint64_t{1} << 40, UINT64_MAX}) {
    for (const uint8_t q :
         {kSet, kGet, kAppend, kCompareSet, kMultiGet, kMultiSet, kWait, kCheck}) {
      const Fd fd = come(job.port());
      say_some(fd, kValidation + query(q) + number(size));
      assert_true(is_let_go(fd));
    }
  }
}

// Uses the store as a client of torch's would, which no secret is asked of.
void use_without_secret(const Job& job, Held&) {
  for (int i = 0; i < 200; ++i) {
    const Fd fd = come(job.port());
    say_some(fd, kValidation + set("stranger", "was here") + query(kGet) + bytes("stranger"));
    if (!is_let_go(fd)) ++admitted;
  }
}

// The connections stay while the job goes on, and when it ends.
void attack(bool has_secret, const std::vector<void (*)(const Job&, Held&)>& kinds) {
  Job job(has_secret);
  Held held;
  for (const auto kind : kinds) {
    kind(job, held);
    job.advance(3);
  }
  job.finish();
}

void with_secret(void**) {
  attack(true, {stay_silent, talk_nonsense, cut_greetings, amplify, drip, set_large,
                append_without_end, claim_too_much, use_without_secret});
  assert_int_equal(admitted, 0);
}

void without_secret(void**) {
  attack(false, {stay_silent, talk_nonsense, cut_greetings, amplify, drip, set_large,
                 append_without_end, claim_too_much});
}

// A process without the job's secret learns that it is wanted, that it has another, or none.
void wrong_secrets(void**) {
  const auto expect = [](int port, const char* secret, const char* part) {
    secret ? ::setenv("NXD_SECRET", secret, 1) : ::unsetenv("NXD_SECRET");
    nxd_store_t* store = nullptr;
    assert_int_equal(nxd_store_create_tcp("127.0.0.1", port, 0, 20000, &store), NXD_ERROR_IO);
    if (!std::strstr(nxd_last_error(), part)) fail_msg("%s", nxd_last_error());
    ::unsetenv("NXD_SECRET");
    ++connections;
  };
  {
    Job job(true);
    for (int i = 0; i < 20; ++i) {
      expect(job.port(), "another secret than the job's", "has another secret");
      expect(job.port(), nullptr, "wants the secret");
    }
    job.advance(1);
    job.finish();
  }
  Job open(false);
  expect(open.port(), kSecret, "has no secret");
  open.advance(1);
  open.finish();
}

// Something else than a store at the port, which answers everything in a protocol of its own.
void web_server(void**) {
  int port = 0;
  const auto listeners = nxd::listen_tcp("127.0.0.1", 0, &port);
  std::atomic<bool> ends{false};
  std::thread server([&] {
    const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    while (!ends) {
      pollfd p{listeners[0].get(), POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      const Fd fd(::accept(listeners[0].get(), nullptr, nullptr));
      char words[1024];
      if (::recv(fd.get(), words, sizeof words, 0) > 0) say_some(fd, answer);
      ::shutdown(fd.get(), SHUT_WR);
      while (::recv(fd.get(), words, sizeof words, 0) > 0) {
      }
    }
  });
  nxd_store_t* store = nullptr;
  const nxd_status_t status = nxd_store_create_tcp("127.0.0.1", port, 0, 30000, &store);
  const std::string message = nxd_last_error();
  ends = true;
  server.join();
  assert_int_equal(status, NXD_ERROR_IO);
  if (message.find("no store of libnxd's or torch's") == std::string::npos) {
    fail_msg("%s", message.c_str());
  }
}

// A process that may open no more files is told so.
void no_descriptors(void**) {
  Held all;
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  const rlimit few{256, old.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  for (;;) {
    Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) break;
    all.push_back(std::move(fd));
  }
  const auto reason = [](const std::function<void()>& look) -> std::string {
    try {
      look();
    } catch (const nxd::Error& e) {
      assert_int_equal(e.status(), NXD_ERROR_IO);
      return e.what();
    }
    return "nothing";
  };
  const std::string words[] = {reason([] { nxd::is_local_address("127.0.0.1"); }),
                               reason([] { nxd::local_address_toward("127.0.0.1"); }), reason([] {
                                 nxd::connect_tcp("127.0.0.1", 1, nxd_test::patiently());
                               })};
  ::setrlimit(RLIMIT_NOFILE, &old);
  for (const std::string& word : words) {
    if (word.find("Too many open files") == std::string::npos) fail_msg("%s", word.c_str());
  }
}

// The children of every thread, and theirs.
std::vector<pid_t> with_descendants(pid_t parent) {
  std::vector<pid_t> pids = {parent};
  for (size_t i = 0; i < pids.size(); ++i) {
    const std::string tasks = "/proc/" + std::to_string(pids[i]) + "/task";
    DIR* directory = ::opendir(tasks.c_str());
    if (!directory) continue;
    while (const dirent* entry = ::readdir(directory)) {
      std::ifstream in(tasks + "/" + entry->d_name + "/children");
      for (pid_t pid; in >> pid;) pids.push_back(pid);
    }
    ::closedir(directory);
  }
  return pids;
}

// Under nxdrun, which serves the store, the same holds of its ports.
void nxdrun_listens_on_the_loopback(void**) {
  int report[2], stop[2];
  assert_int_equal(::pipe(report) | ::pipe(stop), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::close(stop[1]);
    ::setenv("NXD_TRANSPORT", "gloo", 1);
    ::setenv("NXD_TIMEOUT_MS", "60000", 1);
    ::setenv("NXD_TEST_REPORT", std::to_string(report[1]).c_str(), 1);
    ::setenv("NXD_TEST_STOP", std::to_string(stop[0]).c_str(), 1);
    const std::string binaries = nxd_test_binaries;
    const std::string self = binaries + "/tests/test_hostile_network";
    ::execl((binaries + "/tools/nxdrun").c_str(), "nxdrun", "-n", "2", self.c_str(), "rank",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(report[1]);
  ::close(stop[0]);
  char byte;
  const bool has_begun = ::read(report[0], &byte, 1) == 1;
  const std::vector<pid_t> pids = with_descendants(launcher);
  size_t ports = 0;
  bool is_all_loopback = true;
  for (const pid_t pid : pids) {
    for (const auto& at : nxd_test::listening_of(pid)) {
      ++ports;
      is_all_loopback = is_all_loopback && at.is_loopback;
    }
  }
  ::close(stop[1]);
  int status = 1;
  ::waitpid(launcher, &status, 0);
  ::close(report[0]);
  assert_int_equal(status, 0);
  assert_true(has_begun);
  assert_int_equal(pids.size(), 2 + kRanks);  // nxdrun, its supervisor, the ranks
  assert_true(ports >= 1 + kRanks && is_all_loopback);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "rank") == 0) return rank_main();
  ::signal(SIGPIPE, SIG_IGN);
  for (const char* name : {"NXD_SECRET", "NXD_SECRET_FILE", "NXD_OPEN_STORE"}) ::unsetenv(name);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const CMUnitTest tests[] = {
      cmocka_unit_test(with_secret),    cmocka_unit_test(without_secret),
      cmocka_unit_test(wrong_secrets),  cmocka_unit_test(web_server),
      cmocka_unit_test(no_descriptors), cmocka_unit_test(nxdrun_listens_on_the_loopback),
  };
  const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
  std::printf("%lld hostile connections, %s\n", static_cast<long long>(connections),
              failed == 0 ? "0 crashes, 0 hangs" : "see above");
  return failed;
}
