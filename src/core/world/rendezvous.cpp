#include "core/world/rendezvous.h"

#include <limits.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <unordered_map>
#include <vector>

#include "core/base/environment.h"
#include "core/base/proc_file.h"
#include "core/base/sleep.h"
#include "core/base/text_stream.h"
#include "core/comm/monitor/failure_registry.h"
#include "core/comm/net/secret.h"
#include "core/comm/net/socket.h"
#include "core/comm/store/store_rate_limit.h"
#include "core/comm/store/store_timeout.h"
#include "core/comm/store/tcp_store.h"
#include "core/launch/launcher.h"
#include "core/launch/rendezvous_endpoint.h"

namespace nxd {
namespace {

std::string own_namespace(const char* kind) {
  char target[128];
  const ssize_t n = ::readlink(own_proc(text("ns/", kind)).c_str(), target, sizeof target);
  return std::string(target, n > 0 ? static_cast<size_t>(n) : 0);
}

// Two processes with the same one reach each other over the loopback.
std::string network_identity() {
  std::string boot = read_proc("/proc/sys/kernel/random/boot_id").value_or("");
  boot.resize(std::min(boot.size(), boot.find('\n')));
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return text(boot, "/", own_namespace("net"), "/", name);
}

// Others may not look into a process that has taken another user's place, or that a file's rights
// made.
bool is_closed_to_others() { return ::geteuid() != 0 && ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1; }

// Two processes with the same one may share memory and know each other's process numbers: neither
// goes between users, nor between namespaces of users. When a process began, which tells it from a
// later one with its number, is another time in each namespace of time.
std::string host_identity(const RankInfo& m) {
  if (!m.host_id.empty()) return m.host_id;
  const auto given = env::get("NXD_HOST_ID");
  if (given) return *given;
  const int own = is_closed_to_others() ? ::getpid() : 0;
  return text(network_identity(), "/", own_namespace("pid"), "/", own_namespace("user"), "/",
              own_namespace("time"), "/", ::geteuid(), "/", own);
}

// Numbers names in the order in which they come.
class Numbering {
 public:
  int number_of(const std::string& name) {
    return numbers_.try_emplace(name, static_cast<int>(numbers_.size())).first->second;
  }
  size_t count() const { return numbers_.size(); }

 private:
  std::unordered_map<std::string, int> numbers_;
};

std::string joined_key(int rank) { return "joined/" + std::to_string(rank); }
std::string info_key(int rank) { return "info/" + std::to_string(rank); }

// In place of the information of a rank that gave up waiting.
const char* const kLeft = "left";
const char* const kLeftEarly = " left before all ranks had come";

// In place of the information of a rank that was in the store already when it came.
const char* const kClaimedTwice = "claimed twice";

std::string why_claimed_twice(int rank) {
  return text("rank ", rank,
              " is in the store already: either two processes claim this rank, or the store holds "
              "keys of an earlier job and is not fresh");
}

// Facts that a rank tells rank 0 about itself.
struct Info {
  int size = 0;
  int serves = 0;
  int near_store = 0;  // the store is served on this rank's host
  int large_group = 0;
  int transport = NXD_TRANSPORT_AUTO;
  std::string network;
  std::string process;
  std::string host;
};

// Differs between processes, also between one and its child, on one host or several.
std::string process_identity() {
  static const uint64_t drawn = [] {
    std::random_device bits;
    return uint64_t{bits()} << 32 | bits();
  }();
  return text(::getpid(), "-", std::hex, drawn);
}

std::string encode(const Info& info) {
  return text(info.size, " ", info.serves, " ", info.near_store, " ", info.large_group, " ",
              info.transport, "\n", info.network, "\n", info.process, "\n", info.host);
}

std::optional<Info> parse_info(const std::string& value) {
  Info info;
  TextReader in(value);
  in >> info.size >> info.serves >> info.near_store >> info.large_group >> info.transport;
  if (!in) return std::nullopt;
  in.get();
  std::getline(in, info.network);
  std::getline(in, info.process);
  std::getline(in, info.host, '\0');
  check_stream(in);
  return info;
}

// Rank 0's: "ok ONE_HOST SERVER_RANK NEAR_STORE HOSTS" and a line of processes, in the form of
// hosts, or "STATUS ROOT_RANK message". Every rank reads it, so its size matters.
struct Announcement {
  std::string text;
  int readers;  // ranks other than 0 that are there to read it, as far as rank 0 knows

  bool good() const { return text.starts_with("ok "); }
};

// One that ends the world, because of a rank.
template <class... Parts>
Announcement failure(int readers, nxd_status_t status, int root_rank, const Parts&... why) {
  return {text(status, " ", root_rank, " ", why...), readers};
}

// The ranks' facts about themselves, in order. Many are asked for at a time; when some of these are
// still to come, one by one.
class Arrivals {
 public:
  Arrivals(Store& store, int size) : store_(store), size_(size) {}

  std::optional<std::string> next(int rank, const Deadline& deadline) {
    const int place = rank % kAtATime;
    if (place == 0) ask_from(rank);
    if (!known_.empty()) return known_[static_cast<size_t>(place)];
    return store_.wait(info_key(rank), deadline);
  }

 private:
  static constexpr int kAtATime = 256;

  void ask_from(int first) {
    std::vector<std::string> keys;
    for (int rank = first; rank < std::min(first + kAtATime, size_); ++rank) {
      keys.push_back(info_key(rank));
    }
    known_.clear();
    if (auto values = store_.get_all(keys)) known_.swap(*values);
  }

  Store& store_;
  const int size_;
  std::vector<std::string> known_;  // from a multiple of kAtATime on
};

// Ranks that are asked for in vain, once the time is up. There may be very many, as with a size
// that is a slip, and the others wait for no longer than half of the timeout.
class Missing {
 public:
  Missing(int size, int64_t timeout_ms)
      : size_(size),
        timeout_ms_(timeout_ms),
        give_up_(Deadline::after_ms(timeout_share(timeout_ms, 5, 4))) {}

  // False when no more are to be asked for.
  bool add(int rank) {
    if (first_ < 0) first_ = rank;
    if (++count_ <= kNamed) names_ += (names_.empty() ? "" : ", ") + std::to_string(rank);
    asked_ = rank + 1;
    return asked_ < kAskedAtLeast || !give_up_.expired();
  }
  bool any() const { return count_ > 0; }
  Announcement announcement(bool all_were_asked) const {
    const std::string part = all_were_asked ? "" : text("the first ", asked_, " of ");
    return failure(size_ - 1 - count_, NXD_ERROR_TIMEOUT, first_, count_, " of ", part, size_,
                   " ranks did not come within ", timeout_ms_, " ms: rank ", names_,
                   count_ > kNamed ? ", ..." : "");
  }

 private:
  static constexpr int kNamed = 8, kAskedAtLeast = 1024;

  const int size_;
  const int64_t timeout_ms_;
  const Deadline give_up_;
  std::string names_;
  int count_ = 0, first_ = -1, asked_ = 0;
};

Announcement collect(Store& store, const RankInfo& m, const Deadline& deadline,
                     int64_t timeout_ms) {
  Missing missing(m.size, timeout_ms);
  int server_rank = -1, near_store = -1;
  Arrivals arrivals(store, m.size);
  Numbering networks, processes, hosts;
  std::vector<int> process_of(static_cast<size_t>(m.size)), host_of = process_of;
  for (int rank = 0; rank < m.size; ++rank) {
    const auto value = arrivals.next(rank, deadline);
    if (!value) {
      if (!missing.add(rank)) return missing.announcement(rank + 1 == m.size);
      continue;
    }
    if (*value == kLeft) {
      return failure(INT_MAX, NXD_ERROR_PEER_LOST, rank, "rank ", rank, kLeftEarly);
    }
    if (*value == kClaimedTwice) {
      return failure(INT_MAX, NXD_ERROR_INVALID_ARGUMENT, rank, why_claimed_twice(rank));
    }
    const auto info = parse_info(*value);
    if (!info) {
      return failure(INT_MAX, NXD_ERROR_CORRUPT, rank, "store key \"", info_key(rank),
                     "\": another version of the library wrote it, or a program that is no rank "
                     "of this world");
    }
    if (info->size != m.size) {
      return failure(INT_MAX, NXD_ERROR_INVALID_ARGUMENT, rank,
                     "ranks disagree about the size of the world: rank 0 has ", m.size, ", rank ",
                     rank, " has ", info->size);
    }
    if (info->large_group != m.large_group) {
      return failure(INT_MAX, NXD_ERROR_INVALID_ARGUMENT, rank,
                     "ranks disagree about NXD_LARGE_GROUP: rank 0 has ", m.large_group, ", rank ",
                     rank, " has ", info->large_group);
    }
    if (info->transport != m.transport) {
      return failure(INT_MAX, NXD_ERROR_INVALID_ARGUMENT, rank,
                     "ranks disagree about the transport: rank 0 has ", env::name_of(m.transport),
                     ", rank ", rank, " has ", env::name_of(info->transport));
    }
    if (info->serves && server_rank < 0) server_rank = rank;
    if (info->near_store && near_store < 0) near_store = rank;
    networks.number_of(info->network);
    process_of[static_cast<size_t>(rank)] = processes.number_of(info->process);
    host_of[static_cast<size_t>(rank)] = hosts.number_of(info->host);
  }
  if (missing.any()) return missing.announcement(true);
  const bool one_network = networks.count() == 1;
  if (one_network) near_store = -1;  // which all ranks share, so nobody loses it with the store
  return {text("ok ", one_network ? 1 : 0, " ", server_rank, " ", near_store, " ",
               HostMap(host_of).encode(), "\n", HostMap(process_of).encode()),
          m.size - 1};
}

const char* const kWorld = "world";
const char* const kReaders = "readers";

// Adds to the ranks that have read why there is no world; gives their number. Where the store has
// gone, nobody waits for them any more: the reason counts all the same.
int64_t count_readers(Store& store, int64_t more) noexcept {
  try {
    return store.add(kReaders, more);
  } catch (...) {
    return INT64_MAX;
  }
}

// A store that rank 0 serves goes with it, but the others are to hear why they failed.
void wait_for_readers(Store& store, const Announcement& announcement, int64_t timeout_ms) {
  const Deadline deadline =
      Deadline::after_ms(std::min<int64_t>(timeout_share(timeout_ms, 1, 4), 1000));
  while (count_readers(store, 0) < announcement.readers && !deadline.expired()) {
    sleep_for(std::chrono::milliseconds(5));
  }
}

[[noreturn]] void fail_with(const std::string& announcement, int rank, int size) {
  TextReader in(announcement);
  nxd_status_t status = NXD_OK;
  std::string message;
  int root_rank = -1;
  const bool readable(in >> status >> root_rank);
  if (!readable || !is_error(status) || root_rank < -1 || root_rank >= size) {
    fail_unreadable(kWorld, announcement);
  }
  in.get();
  std::getline(in, message);
  check_stream(in);
  // Rank 0 has written it down, and the rank that it missed may read it.
  if (status == NXD_ERROR_TIMEOUT && root_rank == rank) {
    message += "; this rank came after rank 0 had given up";
  }
  throw Error(status, message, {root_rank, 0, "", ""});
}

Announcement decide(Store& store, const RankInfo& m, int64_t timeout_ms) {
  Announcement announcement =
      m.size > HostMap::kMostRanks
          ? failure(INT_MAX, NXD_ERROR_INVALID_ARGUMENT, -1, "size of the world: expected at most ",
                    HostMap::kMostRanks, " ranks, got ", m.size)
          : collect(store, m, Deadline::after_ms(timeout_ms), timeout_ms);
  store.set(kWorld, announcement.text);
  if (!announcement.good() && m.store->serves()) wait_for_readers(store, announcement, timeout_ms);
  return announcement;
}

Announcement await_announcement(Store& store, int size, int64_t timeout_ms) {
  // Rank 0 decides when its own time is up, which began at about the same time as this rank's.
  const auto pause = std::max(Store::kUsualPause, store_pause(size, 1));
  const auto given = store.wait(kWorld, Deadline::after_ms(timeout_share(timeout_ms, 3, 2)), pause);
  if (!given) {
    const bool came = store.get(info_key(0)).has_value();
    throw Error(NXD_ERROR_TIMEOUT,
                text("rank 0 ", came ? "came, but did not answer" : "did not come", " within ",
                     timeout_ms, " ms"),
                {0, 0, "", ""});
  }
  const Announcement announcement{*given, 0};
  if (!announcement.good()) count_readers(store, 1);
  return announcement;
}

WorldFacts parse_world(const std::string& announcement, int rank, int size) {
  WorldFacts world;
  int one_host = 0;
  TextReader in(announcement.substr(3));
  const auto is_rank_or_none = [size](int rank) { return rank >= -1 && rank < size; };
  if (!(in >> one_host >> world.server_rank >> world.near_store >> std::ws) ||
      !is_rank_or_none(world.server_rank) || !is_rank_or_none(world.near_store)) {
    fail_unreadable(kWorld, announcement);
  }
  world.one_host = one_host != 0;
  std::string hosts, processes;
  std::getline(in, hosts);
  std::getline(in, processes);
  check_stream(in);
  world.hosts = HostMap::decode(hosts);
  const HostMap by_process = HostMap::decode(processes);
  const int size_there = world.hosts.size();
  if (size_there != by_process.size()) fail_unreadable(kWorld, announcement);
  if (size_there != size) {
    fail(NXD_ERROR_CORRUPT, "store key \"", kWorld, "\": expected a world of ", size,
         " ranks, got one of ", size_there,
         ": the store holds keys of an earlier job and is not fresh");
  }
  world.ranks_here = by_process.ranks_of(by_process.host_of(rank));
  return world;
}

// Ranks that wait hear of a rank that is in the store already, where no world was announced: one
// that was may have the process that came first.
void tell_of_second_claim(Store& store, int rank) noexcept {
  try {
    if (store.get(kWorld)) return;
    FailureRegistry::leave_before_joining(store, rank);
    if (rank == 0) {
      store.set(kWorld, failure(0, NXD_ERROR_INVALID_ARGUMENT, rank, why_claimed_twice(rank)).text);
    } else {
      store.set(info_key(rank), kClaimedTwice);
    }
  } catch (...) {
    // This rank's own error says it.
  }
}

// The bound of each request by which a rank that fails tells the others.
int64_t telling_ms(int64_t timeout_ms) {
  return std::clamp<int64_t>(timeout_share(timeout_ms, 1, 8), 100, 2000);
}

// Tells the ranks that wait, now or after the rendezvous, that this rank does not. A store that has
// failed one request may take the next.
void leave(Store& store, const RankInfo& m, int64_t timeout_ms) noexcept {
  const StoreTimeout bounded(telling_ms(timeout_ms));
  try {
    FailureRegistry::leave_before_joining(store, m.rank);
  } catch (...) {
  }
  try {
    if (m.rank == 0) {
      store.set(kWorld, failure(0, NXD_ERROR_PEER_LOST, 0, "rank 0", kLeftEarly).text);
    } else {
      store.set(info_key(m.rank), kLeft);
    }
  } catch (...) {
  }
}

// Counts this rank in the world; 1 where it is the first process that claims the rank. A world that
// was announced is of a process that came first, and is not told when the store fails this one.
int64_t claim_rank(Store& world, const RankInfo& m, int64_t timeout_ms) {
  try {
    return world.add(joined_key(m.rank), 1);
  } catch (...) {
    const std::exception_ptr why = std::current_exception();
    const StoreTimeout bounded(telling_ms(timeout_ms));
    bool announced = false;
    try {
      announced = world.get(kWorld).has_value();
    } catch (...) {
    }
    if (!announced) leave(world, m, timeout_ms);
    std::rethrow_exception(why);
  }
}

// The keys of the next world of this rank, which is in it from now on.
std::shared_ptr<Store> enter(const RankInfo& m, int64_t timeout_ms) {
  const auto job = std::make_shared<PrefixStore>(m.store, m.prefix);
  const int64_t number =
      m.fresh_keys ? job->add(joined_key(m.rank), 1) - 1 : m.store->next_world(m.rank);
  const auto store = std::make_shared<PrefixStore>(job, text("world", number, "/"));
  if (claim_rank(*store, m, timeout_ms) != 1) {
    tell_of_second_claim(*store, m.rank);
    fail(NXD_ERROR_INVALID_ARGUMENT, why_claimed_twice(m.rank));
  }
  return store;
}

// That of the other ranks, where this one's NXD_OPEN_STORE cannot be read, of which they are told.
std::optional<Key> store_key_of_job() {
  try {
    return store_key_of_environment();
  } catch (const Error&) {
    const auto secret = Secret::of_environment();
    return secret ? std::optional<Key>(secret->store_key()) : std::nullopt;
  }
}

}  // namespace

void check_place(const ContextOptions& options) {
  switch (options.rendezvous) {
    case NXD_RENDEZVOUS_ENVIRONMENT: {
      const Launch launch = detect_launch();
      if (launch.size > 1 && !launch.store_is_of_torch) static_cast<void>(env::open_store());
      return;
    }
    case NXD_RENDEZVOUS_STORE:
      return check_argument(options.local_rank >= 0, "options.local_rank: expected 0 or more, got ",
                            options.local_rank);
    default:
      fail(NXD_ERROR_INVALID_ARGUMENT, "options.rendezvous: expected an NXD_RENDEZVOUS_*, got ",
           options.rendezvous);
  }
}

RankInfo rank_info_of_environment(int64_t timeout_ms) {
  const Launch launch = find_launch();
  RankInfo m;
  m.size = launch.size;
  m.rank = launch.rank;
  m.local_rank = launch.local_rank;
  if (m.size == 1) return m;
  const std::string host = launch.port > 0 ? launch.address : rendezvous_endpoint(launch);
  StoreAccess access;
  access.is_of_torch = launch.store_is_of_torch;
  if (!launch.store_is_of_torch) access.key = store_key_of_job();
  std::shared_ptr<TcpStoreServer> server;
  // Under torchrun's agent and nxd_spawn the store is served already, on this very port.
  if (m.rank == 0 && !launch.store_is_served) {
    server = launch.port > 0 ? std::make_shared<TcpStoreServer>(host, launch.port, access.key)
                             : std::make_shared<TcpStoreServer>(host, access.key);
    m.owns_server = true;
  }
  while_joining(m, [&] {
    try {
      m.store = std::make_shared<TcpStore>(host, launch.port, timeout_ms, server, access);
    } catch (const Error& e) {
      const bool rank_0_is_away = m.rank != 0 && !launch.store_is_served;
      throw Error(e.status(),
                  text("started by ", launch.launcher, ": ", e.what(),
                       launch.port > 0 ? ""
                                       : "; rank 0 did not come, or the ranks are not on one host: "
                                         "then set MASTER_ADDR and MASTER_PORT"),
                  {rank_0_is_away && e.status() == NXD_ERROR_TIMEOUT ? 0 : -1, 0, "", ""});
    }
  });
  m.fresh_keys = true;
  m.prefix = launch.key_prefix;
  return m;
}

RankInfo rank_info_of_options(const ContextOptions& options) {
  check_argument(options.size >= 1, "options.size: expected at least 1, got ", options.size);
  check_argument(options.rank >= 0 && options.rank < options.size, "options.rank: expected 0 to ",
                 options.size - 1, ", got ", options.rank);
  check_argument(options.size == 1 || options.store, "options.store: expected a store for ",
                 options.size, " ranks, got NULL");
  RankInfo m;
  m.rank = options.rank;
  m.size = options.size;
  m.local_rank = options.local_rank;
  if (options.size > 1) m.store = options.store;
  m.prefix = "nxd/";
  return m;
}

void reject_world(const RankInfo& m, int64_t timeout_ms) {
  const StoreTimeout bounded(timeout_ms);
  const std::shared_ptr<Store> store = enter(m, timeout_ms);
  leave(*store, m, timeout_ms);
  if (m.rank == 0 && m.store->serves()) wait_for_readers(*store, {"", m.size - 1}, timeout_ms);
}

WorldFacts join_world(const RankInfo& m, int64_t timeout_ms) {
  // A store of the caller's may have a longer bound of its own.
  const StoreTimeout bounded(timeout_ms);
  return while_joining(m, [&] {
    const std::shared_ptr<Store> store = enter(m, timeout_ms);
    const Announcement announcement = [&] {
      try {
        const std::string server = m.store->server_host();
        const bool near_store = !server.empty() && is_local_address(server);
        store->set(info_key(m.rank),
                   encode({m.size, m.store->serves(), near_store, m.large_group, m.transport,
                           network_identity(), process_identity(), host_identity(m)}));
        return m.rank == 0 ? decide(*store, m, timeout_ms)
                           : await_announcement(*store, m.size, timeout_ms);
      } catch (...) {
        leave(*store, m, timeout_ms);
        throw;
      }
    }();
    if (!announcement.good()) fail_with(announcement.text, m.rank, m.size);
    return or_leave(*store, m.rank, [&] {
      WorldFacts world = parse_world(announcement.text, m.rank, m.size);
      world.store = store;
      return world;
    });
  });
}

}  // namespace nxd
