#include "engine/device/call_site.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "core/base/error.h"
#include "core/base/public_call.h"

namespace nxd {
namespace {

constexpr int kMostFrames = 128;

Dl_info symbol_at(const void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0) info = {};
  return info;
}

template <class Result, class... Arguments>
const void* base_of(Result (*function)(Arguments...)) {
  return symbol_at(reinterpret_cast<const void*>(function)).dli_fbase;
}

// libnxd, libnxd_core, and the two of libtorch that operators go through.
bool is_passed_through(const void* base) {
  static const std::array<const void*, 4> bases = {
      base_of(&call_site), base_of(&current_public_call), base_of(&at::get_num_threads),
      base_of(&c10::GetAllocator)};
  return std::find(bases.begin(), bases.end(), base) != bases.end();
}

// Without its arguments, as one word.
std::string readable(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 && plain ? plain.get() : symbol;
  const size_t arguments = name.find('(');
  if (arguments != 0 && arguments != std::string::npos) name.resize(arguments);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string described(const Dl_info& symbol, const void* address) {
  if (symbol.dli_sname) return readable(symbol.dli_sname);
  const std::string_view path = symbol.dli_fname ? symbol.dli_fname : "";
  const auto offset =
      reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(symbol.dli_fbase);
  return text(path.substr(path.rfind('/') + 1), "+0x", std::hex, offset);
}

}  // namespace

std::string call_site() {
  const char* const function = current_public_call();
  if (function && std::string_view(function).starts_with("nxd_")) return function;
  std::array<void*, kMostFrames> frames{};
  const int count = ::backtrace(frames.data(), kMostFrames);
  for (int i = 0; i < count; ++i) {
    // The address is that of the return; a call may be a function's last instruction.
    const void* const address = static_cast<const char*>(frames[static_cast<size_t>(i)]) - 1;
    const Dl_info symbol = symbol_at(address);
    if (symbol.dli_fbase && !is_passed_through(symbol.dli_fbase)) return described(symbol, address);
  }
  return "unknown";
}

}  // namespace nxd
