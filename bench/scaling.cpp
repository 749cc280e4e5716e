// How a world's demands grow with its ranks: what they ask of the store, and what each holds of
// connections, threads, descriptors and memory. Worlds of thread ranks are measured; a model with
// what was measured says what larger ones ask for. Optional argument: the largest world to measure.
#include <dirent.h>
#include <getopt.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gloo/transport/tcp/device.h>

#include "core/comm/store/local_store.h"
#include "core/comm/store/store_rate_limit.h"
#include "core/comm/store/tcp_store.h"
#include "core/comm/transports/gloo/agreement.h"
#include "core/comm/transports/gloo/call_summary.h"
#include "core/comm/transports/gloo/gloo_transport.h"
#include "core/comm/transports/shm/shm_segment.h"
#include "core/world/context.h"
#include "core/world/host_map.h"

#include "support/counting_store.h"

#include "number_argument.h"

namespace {

using Clock = std::chrono::steady_clock;
using nxd::Context;

constexpr int kRanksPerHost = 8, kModelRanksPerHost = 32, kMostRanks = 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Resources that this process holds now.
struct Holdings {
  double sockets = 0, descriptors = 0, threads = 0, resident_kib = 0;
};

int entries_of(const char* path, const std::function<bool(const std::string&)>& counts) {
  int n = 0;
  DIR* dir = ::opendir(path);
  while (const dirent* entry = dir ? ::readdir(dir) : nullptr) {
    if (entry->d_name[0] != '.' && counts(std::string(path) + "/" + entry->d_name)) ++n;
  }
  if (dir) ::closedir(dir);
  return n;
}

Holdings holdings() {
  const auto all = [](const std::string&) { return true; };
  const auto is_socket = [](const std::string& path) {
    char target[64];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    return n > 0 && std::string(target, static_cast<size_t>(n)).rfind("socket:", 0) == 0;
  };
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {double(entries_of("/proc/self/fd", is_socket)), double(entries_of("/proc/self/fd", all)),
          double(entries_of("/proc/self/task", all)),
          double(resident) * double(::sysconf(_SC_PAGESIZE)) / 1024};
}

enum Phase { kCreate, kLayout, kFirst, kSecond, kPhases };

struct Measured {
  double requests[kPhases], bytes[kPhases], seconds[kPhases];  // requests and bytes per rank
  Holdings after[kPhases];                                     // per rank
};

struct Setting {
  int ranks;
  nxd_transport_t transport;
  bool over_tcp;
};

void run_phase(Phase phase, const Setting& setting, int rank,
               const std::shared_ptr<nxd::Store>& store, std::shared_ptr<Context>& context) {
  if (phase == kCreate) {
    nxd::ContextOptions options;
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.rank = rank;
    options.size = setting.ranks;
    options.timeout_ms = 120000;
    options.transport = setting.transport;
    if (setting.transport == NXD_TRANSPORT_HIERARCHICAL) {
      options.host_id = "host" + std::to_string(rank / kRanksPerHost);
    }
    options.store = store;
    context = Context::create(options);
  } else if (phase == kLayout) {
    nxd::ParallelOptions options;
    options.tensor = setting.ranks >= 2 ? 2 : 1;
    options.pipeline = setting.ranks >= 4 ? 2 : 1;
    context->init_model_parallel(options);
  } else {
    std::vector<float> data(1024, 1.0F);
    context->world()->run(nxd::Call::all_reduce(data.data(), data.data(), data.size(),
                                                NXD_DTYPE_F32, NXD_REDUCE_SUM));
  }
}

Measured measure(const Setting& setting) {
  const auto counts = std::make_shared<StoreCounts>();
  const auto n = static_cast<size_t>(setting.ranks);
  std::shared_ptr<nxd::Store> server;
  if (setting.over_tcp) server = nxd::open_tcp_store("127.0.0.1", 0, true, 0);
  const int port = setting.over_tcp ? std::static_pointer_cast<nxd::TcpStore>(server)->port() : 0;
  const auto shared = std::make_shared<nxd::LocalStore>();
  std::vector<std::shared_ptr<nxd::Store>> stores(n);
  for (size_t rank = 0; rank < n; ++rank) {
    std::shared_ptr<nxd::Store> own = shared;
    if (setting.over_tcp) own = nxd::open_tcp_store("127.0.0.1", port, false, 0);
    stores[rank] = std::make_shared<CountingStore>(own, counts);
  }
  Measured out{};
  std::barrier gate(setting.ranks + 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<Context> context;
      for (int phase = 0; phase < kPhases; ++phase) {
        gate.arrive_and_wait();
        run_phase(static_cast<Phase>(phase), setting, rank, stores[static_cast<size_t>(rank)],
                  context);
        gate.arrive_and_wait();
      }
      gate.arrive_and_wait();
    });
  }
  const Holdings before = holdings();
  for (int phase = 0; phase < kPhases; ++phase) {
    const int64_t requests = counts->requests, bytes = counts->bytes;
    gate.arrive_and_wait();
    const auto start = Clock::now();
    gate.arrive_and_wait();
    out.seconds[phase] = seconds_since(start);
    const double per = setting.ranks;
    out.requests[phase] = double(counts->requests - requests) / per;
    out.bytes[phase] = double(counts->bytes - bytes) / per;
    const Holdings now = holdings();
    out.after[phase] = {
        (now.sockets - before.sockets) / per, (now.descriptors - before.descriptors) / per,
        (now.threads - before.threads) / per, (now.resident_kib - before.resident_kib) / per};
  }
  gate.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  return out;
}

void print(const char* name, const Setting& setting, const Measured& m) {
  std::printf("%-13s %-5s %5d |", name, setting.over_tcp ? "tcp" : "local", setting.ranks);
  for (int phase = 0; phase < kPhases; ++phase) {
    std::printf(" %6.1f %6.0f %7.1f |", m.requests[phase], m.bytes[phase], m.seconds[phase] * 1e3);
  }
  const Holdings& h = m.after[kSecond];
  std::printf(" %7.1f %6.1f %6.1f %8.0f\n", h.sockets, h.descriptors, h.threads, h.resident_kib);
  std::fflush(stdout);
}

// Requests a second that a server answers over so many connections.
double server_rate(int connections) {
  constexpr int kThreads = 8;
  constexpr double kSeconds = 2;
  const auto server = nxd::open_tcp_store("127.0.0.1", 0, true, 0);
  const int port = std::static_pointer_cast<nxd::TcpStore>(server)->port();
  std::vector<std::shared_ptr<nxd::Store>> clients;
  for (int i = 0; i < connections; ++i) {
    clients.push_back(nxd::open_tcp_store("127.0.0.1", port, false, 0));
  }
  std::atomic<int64_t> answered{0};
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; seconds_since(start) < kSeconds; i = (i + kThreads) % clients.size()) {
        clients[i]->add("count", 1);
        ++answered;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return double(answered) / seconds_since(start);
}

// Seconds that rank 0 takes to read what so many ranks say of themselves.
double reading_seconds(int ranks) {
  const auto store = nxd::open_tcp_store("127.0.0.1", 0, true, 0);
  const std::string info(120, 'x');
  for (int rank = 0; rank < ranks; ++rank) store->set("info/" + std::to_string(rank), info);
  const auto start = Clock::now();
  for (int first = 0; first < ranks; first += 256) {
    std::vector<std::string> keys;
    for (int rank = first; rank < std::min(first + 256, ranks); ++rank) {
      keys.push_back("info/" + std::to_string(rank));
    }
    if (!store->get_all(keys)) std::abort();
  }
  return seconds_since(start);
}

// Heap bytes that a rank's group of so many takes before it is used. No peer is needed for that.
double group_bytes(int ranks) {
  const auto shared = std::make_shared<nxd::RankShared>();
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  shared->device = std::static_pointer_cast<gloo::transport::tcp::Device>(
      gloo::transport::tcp::CreateDevice(address));
  const auto heap = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = heap();
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const nxd::GlooTransport group(
      std::make_shared<nxd::GroupMonitor>(shared, "key", "world", 0, all, 1000), "key", all);
  return double(heap() - before);
}

// Both were measured on so many ranks.
void model(const Measured& flat, const Measured& hosts, int ranks, double rate) {
  const double largest = 65536;
  const double per_peer = (group_bytes(65536) - group_bytes(1024)) / (largest - 1024);
  std::printf("\nA group costs %.0f bytes of heap per member and rank before its first use.\n",
              per_peer);
  const auto log2_of = [](double n) { return std::ceil(std::log2(n)); };
  // Requests that do not depend on the number of ranks; each asks for half of its connections.
  const double flat_fixed = flat.requests[kCreate] - log2_of(ranks);
  const double hosts_fixed =
      hosts.requests[kCreate] - log2_of(std::max(1.0, double(ranks) / kRanksPerHost));
  std::printf("\n%-13s %7s %9s %10s %9s %9s %9s %10s %12s %10s\n", "model", "ranks", "req/rank",
              "req in all", "server s", "sockets", "MiB/rank", "agree B", "all-gather B", "look s");
  for (const int n : {1024, 8192, 65536}) {
    for (const bool by_host : {false, true}) {
      const double members = by_host ? n / kModelRanksPerHost : n;
      const double rounds = log2_of(members);
      const double requests = (by_host ? hosts_fixed : flat_fixed) + rounds;
      // Between hosts there are the rail, and the flat group for what has to go straight.
      const double bytes = per_peer * (by_host ? n + members : n) +
                           1024 * (by_host ? hosts : flat).after[kSecond].resident_kib;
      std::printf("%-13s %7d %9.0f %10.3g %9.1f %9.0f %9.1f %10.0f %12.0f %10.1f\n",
                  by_host ? "hierarchical" : "gloo", n, requests, requests * n, requests * n / rate,
                  2 * rounds + 2, bytes / (1 << 20), rounds * double(nxd::CallSummary().size()),
                  double(n) * sizeof(nxd::CallHeader),
                  double(nxd::store_pause(n, 3).count()) / 1e3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  static const option known[] = {{nullptr, 0, nullptr, 0}};
  long number = 64;
  bool good = ::getopt_long(argc, argv, "", known, nullptr) == -1 && argc - optind <= 1;
  if (good && optind < argc) good = read_number(argv[optind], 2, kMostRanks, &number) != 0;
  if (!good) {
    std::fprintf(stderr, "usage: bench_scaling [RANKS], from 2 to %d\n", kMostRanks);
    return 2;
  }
  const auto largest = static_cast<int>(number);
  ::setenv("OMP_NUM_THREADS", "1", 0);
  const struct {
    const char* name;
    nxd_transport_t transport;
  } transports[] = {{"gloo", NXD_TRANSPORT_GLOO},
                    {"shared_memory", NXD_TRANSPORT_SHARED_MEMORY},
                    {"hierarchical", NXD_TRANSPORT_HIERARCHICAL}};
  std::printf(
      "Per rank: requests to the store, bytes of keys and values, ms (of the world) for creation, "
      "layout, 1st and 2nd all_reduce; then sockets, descriptors, threads, resident KiB.\n");
  Measured flat{}, hosts{};
  int measured = 0;
  for (const bool over_tcp : {true, false}) {
    for (const auto& t : transports) {
      for (int ranks = 2; ranks <= largest; ranks *= 2) {
        const Setting setting{ranks, t.transport, over_tcp};
        const Measured m = measure(setting);
        measured = ranks;
        print(t.name, setting, m);
        if (over_tcp && t.transport == NXD_TRANSPORT_GLOO) flat = m;
        if (over_tcp && t.transport == NXD_TRANSPORT_HIERARCHICAL) hosts = m;
      }
    }
  }
  const double rate = server_rate(512);
  std::printf("\nThe server answers %.0f requests a second over 512 connections, %.0f over 8.\n",
              rate, server_rate(8));
  std::printf("Rank 0 reads 65536 entries in %.2f s.\n", reading_seconds(65536));
  for (const int ranks : {8, 32, 64}) {
    std::printf("Shared memory of %d ranks of a host: %.1f MiB\n", ranks,
                double(nxd::ShmSegment::size_for(ranks)) / (1 << 20));
  }
  model(flat, hosts, measured, rate);
  return 0;
}
