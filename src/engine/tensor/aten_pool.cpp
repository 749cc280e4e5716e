#include "engine/tensor/aten_pool.h"

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/kernels/memory_pool.h"

namespace nxd {
namespace {

class PoolAllocator final : public c10::Allocator {
 public:
  // The release of libtorch decides which of these override: 1.13 has but the first, later ones ask
  // without const and leave copying to the allocator.
  c10::DataPtr allocate(size_t bytes) const {
    void* data = bytes == 0 ? nullptr : kernels::pool_allocate(bytes);
    return {data, data, &kernels::pool_free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DataPtr allocate(size_t bytes) { return std::as_const(*this).allocate(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

  c10::DeleterFnPtr raw_deleter() const override { return &kernels::pool_free; }
};

// Never destroyed, as the pool is not.
PoolAllocator& pool_allocator() {
  static auto* allocator = new PoolAllocator;
  return *allocator;
}

struct Switch {
  std::mutex mutex;
  c10::Allocator* before = nullptr;  // that of the process, while ours is in its place
};

Switch& the_switch() {
  static auto* state = new Switch;
  return *state;
}

// libtorch's own libraries, which need one another. Not libtorch_python: that comes with programs
// that use libtorch themselves.
bool is_libtorch(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view library : {"libtorch.so", "libtorch_cpu.so", "libc10.so"}) {
    if (name.substr(0, library.size()) == library) return true;
  }
  return false;
}

struct Search {
  const void* own = nullptr;  // where libnxd is loaded
  bool own_seen = false;
  bool found = false;
};

bool needs_libtorch(const dl_phdr_info& object) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (ElfW(Half) i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
  }
  if (!dynamic) return false;
  ElfW(Addr) strings = 0;
  for (const auto* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
  }
  // The loader leaves offsets where the section is read-only, and addresses elsewhere.
  if (strings < object.dlpi_addr) strings += object.dlpi_addr;
  for (const auto* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    if (is_libtorch(reinterpret_cast<const char*>(strings + entry->d_un.d_val))) return true;
  }
  return false;
}

// Objects come in the order they were loaded in, and one after what first asked for it.
int look_at(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (reinterpret_cast<const void*>(object->dlpi_addr) == search.own) {
    search.own_seen = true;
  } else if (is_libtorch(object->dlpi_name)) {
    search.found = search.found || !search.own_seen;
  } else {
    search.found = search.found || needs_libtorch(*object);
  }
  return search.found ? 1 : 0;
}

// oneDNN's large products copy operands into memory of malloc's, call after call. By default malloc
// gives it back to the system between calls, which costs hundreds of page faults a step: up to 64
// MB of free memory stay with the process instead. A setting of malloc in the environment wins.
void keep_heap() noexcept {
#ifdef __GLIBC__
  for (const char* setting :
       {"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"}) {
    if (std::getenv(setting)) return;
  }
  constexpr int kMb = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMb);
  mallopt(M_TRIM_THRESHOLD, 64 * kMb);
#endif
}

// Runs when libnxd is loaded, after what libtorch does then.
__attribute__((constructor)) void decide() noexcept {
  try {
    const auto wish = env::aten_pool();
    const bool vacant = c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator();
    if (!(wish ? *wish : vacant && !others_use_libtorch())) return;
    set_aten_pool(true);
    keep_heap();
  } catch (const std::exception& e) {
    log(NXD_LOG_WARN, "ATen keeps its allocator: ", e.what());
  }
}

}  // namespace

void set_aten_pool(bool on) {
  Switch& state = the_switch();
  const std::lock_guard lock(state.mutex);
  PoolAllocator* ours = &pool_allocator();
  c10::Allocator* current = c10::GetCPUAllocator();
  if (on == (current == ours)) return;
  c10::SetCPUAllocator(on ? ours : state.before);
  check_state(on == (c10::GetCPUAllocator() == ours),
              "on: the process has given ATen an allocator ", "that ranks higher than the pool");
  state.before = on ? current : nullptr;
}

bool aten_pool_is_on() noexcept { return c10::GetCPUAllocator() == &pool_allocator(); }

bool others_use_libtorch() noexcept {
  Search search;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&look_at), &own) == 0) return true;
  search.own = own.dli_fbase;
  dl_iterate_phdr(look_at, &search);
  return search.found;
}

}  // namespace nxd
