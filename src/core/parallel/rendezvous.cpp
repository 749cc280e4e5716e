#include "core/parallel/rendezvous.h"

#include <limits.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "core/base/environment.h"
#include "core/comm/tcp_store.h"

namespace nxd {
namespace {

int int_of_environment(const char* name, int64_t low, int64_t high) {
  const auto value = env::get_int(name);
  check_argument(value.has_value(), "environment variable ", name,
                 ": expected an integer, is not set");
  check_argument(*value >= low && *value <= high, "environment variable ", name, ": expected ", low,
                 " to ", high, ", got ", *value);
  return static_cast<int>(*value);
}

bool agent_serves_store() {
  const auto value = env::get("TORCHELASTIC_USE_AGENT_STORE");
  return value == "True" || value == "true" || value == "1";
}

Membership membership_of_torchrun(int64_t timeout_ms) {
  const auto rank = env::get("RANK");
  const auto size = env::get("WORLD_SIZE");
  check_argument(rank && size, "environment: ", rank ? "RANK" : "WORLD_SIZE", " is set but ",
                 rank ? "WORLD_SIZE" : "RANK", " is not; expected both or neither");
  Membership m;
  m.size = int_of_environment("WORLD_SIZE", 1, INT_MAX);
  m.rank = int_of_environment("RANK", 0, m.size - 1);
  if (env::get("LOCAL_RANK")) m.local_rank = int_of_environment("LOCAL_RANK", 0, m.size - 1);
  if (m.size == 1) return m;
  const std::string host = env::get("MASTER_ADDR").value_or("127.0.0.1");
  const int port = int_of_environment("MASTER_PORT", 1, 65535);
  std::shared_ptr<TcpStoreServer> server;
  // Under torchrun's agent and nxd_spawn the store is served already, on this very port.
  if (m.rank == 0 && !agent_serves_store()) {
    server = std::make_shared<TcpStoreServer>(port);
    m.owns_server = true;
  }
  m.store = std::make_shared<TcpStore>(host, port, timeout_ms, server);
  m.fresh_keys = true;
  m.prefix = text("nxd/", env::get("TORCHELASTIC_RUN_ID").value_or("-"), "/",
                  env::get("TORCHELASTIC_RESTART_COUNT").value_or("0"), "/");
  return m;
}

// Two processes with the same identity reach each other over the loopback.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char netns[128] = "";
  const ssize_t n = ::readlink("/proc/self/ns/net", netns, sizeof netns - 1);
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return boot + "/" + std::string(netns, n > 0 ? static_cast<size_t>(n) : 0) + "/" + name;
}

std::string joined_key(int rank) { return "joined/" + std::to_string(rank); }
std::string info_key(int rank) { return "info/" + std::to_string(rank); }

struct Info {
  int size;
  int serves;
  std::string host;
};

Info parse_info(const std::string& value) {
  Info info{};
  std::istringstream in(value);
  in >> info.size >> info.serves >> info.host;
  return info;
}

// Rank 0's verdict: "ok ONE_HOST SERVER_RANK" or "STATUS message".
std::string collect(Store& store, const Membership& m, const Deadline& deadline,
                    int64_t timeout_ms) {
  std::string missing;
  int missing_count = 0;
  int server_rank = -1;
  bool one_host = true;
  const std::string host = host_identity();
  for (int rank = 0; rank < m.size; ++rank) {
    const auto value = store.wait(info_key(rank), deadline);
    if (!value) {
      if (++missing_count <= 8) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      continue;
    }
    const Info info = parse_info(*value);
    if (info.size != m.size) {
      return text(NXD_ERROR_INVALID_ARGUMENT,
                  " ranks disagree about the size of the world: rank 0 has ", m.size, ", rank ",
                  rank, " has ", info.size);
    }
    if (info.serves && server_rank < 0) server_rank = rank;
    one_host = one_host && info.host == host;
  }
  if (missing_count > 0) {
    if (missing_count > 8) missing += ", ...";
    return text(NXD_ERROR_TIMEOUT, " ", missing_count, " of ", m.size,
                " ranks did not come within ", timeout_ms, " ms: rank ", missing);
  }
  return text("ok ", one_host ? 1 : 0, " ", server_rank);
}

[[noreturn]] void fail_with(const Membership& m, const std::string& verdict) {
  std::istringstream in(verdict);
  nxd_status_t status = NXD_ERROR_INTERNAL;
  std::string message;
  in >> status;
  in.get();
  std::getline(in, message);
  fail(status, "nxd_context_create (rank ", m.rank, " of ", m.size, "): ", message);
}

}  // namespace

bool started_by_launcher() { return env::get("RANK") || env::get("WORLD_SIZE"); }

Membership membership_of_environment(int64_t timeout_ms) {
  if (started_by_launcher()) return membership_of_torchrun(timeout_ms);
  return Membership();
}

Membership membership_of_options(const nxd_context_options_t& options) {
  check_argument(options.size >= 1, "options.size: expected at least 1, got ", options.size);
  check_argument(options.rank >= 0 && options.rank < options.size, "options.rank: expected 0 to ",
                 options.size - 1, ", got ", options.rank);
  check_argument(options.local_rank >= 0, "options.local_rank: expected 0 or more, got ",
                 options.local_rank);
  check_argument(options.size == 1 || options.store, "options.store: expected a store for ",
                 options.size, " ranks, got NULL");
  Membership m;
  m.rank = options.rank;
  m.size = options.size;
  m.local_rank = options.local_rank;
  if (options.size > 1) m.store = options.store->value;
  m.prefix = "nxd/";
  return m;
}

World meet(const Membership& m, int64_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto job = std::make_shared<PrefixStore>(m.store, m.prefix);
  const int64_t number =
      m.fresh_keys ? job->add(joined_key(m.rank), 1) - 1 : m.store->next_world(m.rank);
  const auto store = std::make_shared<PrefixStore>(job, text("world", number, "/"));
  check_argument(store->add(joined_key(m.rank), 1) == 1, "nxd_context_create: rank ", m.rank,
                 " is in the store already: either two processes claim this rank, or the store "
                 "holds keys of an earlier job and is not fresh");
  store->set(info_key(m.rank), text(m.size, " ", m.store->serves() ? 1 : 0, " ", host_identity()));

  std::string verdict;
  if (m.rank == 0) {
    verdict = collect(*store, m, deadline, timeout_ms);
    store->set("world", verdict);
  } else {
    // Rank 0 decides when its own time is up, which began at about the same time as this rank's.
    const auto given = store->wait("world", Deadline::after_ms(timeout_ms + timeout_ms / 2));
    if (!given) {
      const bool came = store->get(info_key(0)).has_value();
      fail(NXD_ERROR_TIMEOUT, "nxd_context_create (rank ", m.rank, " of ", m.size, "): rank 0 ",
           came ? "came, but did not answer" : "did not come", " within ", timeout_ms, " ms");
    }
    verdict = *given;
  }
  if (verdict.rfind("ok ", 0) != 0) fail_with(m, verdict);
  World world;
  world.store = store;
  int one_host = 0;
  std::istringstream(verdict.substr(3)) >> one_host >> world.server_rank;
  world.one_host = one_host != 0;
  return world;
}

}  // namespace nxd
