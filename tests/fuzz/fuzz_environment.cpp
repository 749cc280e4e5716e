// The library's own variables, a NAME=VALUE each line, through every function that reads them.
#include "core/base/environment.h"
#include "core/pjrt/compile_cache.h"
#include "fuzz.h"

namespace {

constexpr const char* kNames[] = {"NXD_ATEN_POOL",
                                  "NXD_COMPILE_CACHE_MB",
                                  "NXD_CPU_MODE",
                                  "NXD_FLIGHT_RECORD",
                                  "NXD_HOST_ID",
                                  "NXD_LARGE_GROUP",
                                  "NXD_LOG_LEVEL",
                                  "NXD_MAX_GRAPH_NODES",
                                  "NXD_OPEN_STORE",
                                  "NXD_PJRT_FAST_COMPILE",
                                  "NXD_PLAIN_KERNELS",
                                  "NXD_SEED",
                                  "NXD_SOCKET_IFNAME",
                                  "NXD_TIMEOUT_MS",
                                  "NXD_TRANSPORT",
                                  "NXD_XLA_BACKEND",
                                  "NEURON_CC_FLAGS",
                                  "NEURON_COMPILE_CACHE_URL",
                                  "XLA_COMPILATION_CACHE_SIZE"};

void check_context() {
  nxd_context_t* ctx = nullptr;
  const nxd_status_t status = nxd_context_create(nullptr, &ctx);
  nxd_fuzz::expect(status == NXD_OK || nxd_fuzz::is_rejection(status), "status of a context",
                   nxd_last_error());
  nxd_fuzz::expect((status == NXD_OK) == (ctx != nullptr), "a context beside a failure");
  nxd_context_destroy(ctx);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace env = nxd::env;
  nxd_fuzz::Input in(data, size);
  for (const char* name : kNames) ::unsetenv(name);
  while (in.left() > 0) {
    const std::string line = in.until('\n');
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    // Flight records would be written to the path.
    if (name == "NXD_FLIGHT_RECORD") continue;
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) continue;
    ::setenv(name.c_str(), line.c_str() + equals + 1, 1);
  }
  nxd_fuzz::parse([] { nxd_fuzz::expect(env::timeout_ms() > 0, "a timeout"); });
  nxd_fuzz::parse([] { nxd_fuzz::expect(env::large_group() >= 2, "a large group"); });
  nxd_fuzz::parse([] { env::seed(); });
  nxd_fuzz::parse([] { env::plain_kernels(); });
  nxd_fuzz::parse([] { env::aten_pool(); });
  nxd_fuzz::parse([] { nxd_fuzz::expect(env::transport() >= 0, "a transport"); });
  nxd_fuzz::parse([] { env::cpu_mode(); });
  nxd_fuzz::parse([] { env::log_level(); });
  nxd_fuzz::parse([] { nxd_fuzz::expect(env::most_graph_nodes() > 0, "a bound on nodes"); });
  nxd_fuzz::parse([] { nxd_fuzz::expect(env::most_graphs() > 0, "a bound on graphs"); });
  nxd_fuzz::parse([] { env::pjrt_fast_compile(); });
  nxd_fuzz::parse([] { env::open_store(); });
  nxd_fuzz::parse([] {
    const auto options = nxd::CompileCacheOptions::from_environment();
    nxd_fuzz::expect(options.max_bytes > 0 || options.directory.empty(), "a cache without room");
  });
  check_context();
  return 0;
}
