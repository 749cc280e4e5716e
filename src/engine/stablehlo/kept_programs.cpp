#include "engine/stablehlo/kept_programs.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/lru_map.h"
#include "core/base/proc_file.h"
#include "engine/device/device_metrics.h"

namespace nxd {
namespace {

using ProgramKey = std::pair<const void*, const PjrtClient*>;

struct HashOfProgramKey {
  size_t operator()(const ProgramKey& key) const {
    return Hash()
        .add(reinterpret_cast<uintptr_t>(key.first))
        .add(reinterpret_cast<uintptr_t>(key.second))
        .value();
  }
};

using KeptMap = LruMap<ProgramKey, std::shared_ptr<PjrtExecutable>, HashOfProgramKey>;

// Programs between two looks at the mappings, which read a file of megabytes.
constexpr size_t kBetweenLooks = 8;
// More than come between looks, and few enough that the peers of a rank do not wait for long: the
// plug-in takes some 20 ms to end a program.
constexpr size_t kMostAtOnce = 2 * kBetweenLooks;

struct Programs {
  std::mutex mutex{};
  KeptMap kept{env::most_graphs()};
  size_t added = 0;
};

// XLA's programs for the CPU have tens to hundreds of mappings each, and the plug-in ends the
// process when Linux gives no more.
bool are_mappings_scarce() {
  try {
    const auto maps = read_proc(own_proc("maps"));
    const auto limit = read_proc("/proc/sys/vm/max_map_count");
    if (!maps || !limit) return false;
    const auto most = env::parse_int(limit->substr(0, limit->find('\n')));
    const auto mappings = std::count(maps->begin(), maps->end(), '\n');
    if (!most || mappings < *most / 4 * 3) return false;
    static std::atomic<bool> has_warned{false};
    if (!has_warned.exchange(true)) {
      log(NXD_LOG_WARN, "device xla: the process has ", mappings, " memory mappings of the ", *most,
          " that vm.max_map_count gives it: it lets go of compiled programs");
    }
    return true;
  } catch (const Error&) {
    return false;  // a look that failed
  }
}

Programs& programs() {
  static auto* all = new Programs;  // threads may execute while the process ends
  return *all;
}

}  // namespace

std::shared_ptr<PjrtExecutable> KeptPrograms::find(const void* module, const PjrtClient& client) {
  const std::lock_guard<std::mutex> lock(programs().mutex);
  const auto* const found = programs().kept.find({module, &client});
  return found ? *found : nullptr;
}

// The plug-in takes time to end programs, which go without the lock.
void KeptPrograms::add(const void* module, const PjrtClient& client,
                       std::shared_ptr<PjrtExecutable> executable) {
  Programs& all = programs();
  std::vector<std::optional<KeptMap::Entry>> leaving;
  std::unique_lock<std::mutex> lock(all.mutex);
  leaving.push_back(all.kept.add({module, &client}, std::move(executable)));
  if (++all.added % kBetweenLooks != 0) return lock.unlock();
  lock.unlock();
  if (!are_mappings_scarce()) return;
  lock.lock();
  const size_t count = all.kept.size();
  const size_t going = std::min(count / 4 + 1, kMostAtOnce);
  for (size_t i = 0; i < going && i + 1 < count; ++i) {
    leaving.push_back(all.kept.take_oldest());
    device_metrics::count_eviction();
  }
  lock.unlock();
}

void KeptPrograms::remove(const void* module, const PjrtClient& client) {
  const auto take_locked = [&] {
    const std::lock_guard<std::mutex> lock(programs().mutex);
    return programs().kept.take({module, &client});
  };
  const auto leaves = take_locked();
}

size_t KeptPrograms::count() {
  const std::lock_guard<std::mutex> lock(programs().mutex);
  return programs().kept.size();
}

}  // namespace nxd
