#include "core/pjrt/pjrt_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "core/pjrt/neuron_environment.h"

namespace nxd {
namespace {

using pjrt_abi::make_args;
using pjrt_abi::Slot;

// Places of functions and layouts are known to hold from here on.
constexpr int kOldestPjrtMinor = 54;

const char* last_dl_error() {
  const char* message = ::dlerror();
  return message ? message : "unknown error";
}

const pjrt_abi::Api* api_of(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(NXD_ERROR_IO, "PJRT plug-in cannot be loaded: ", last_dl_error());
  void* symbol = ::dlsym(library, "GetPjrtApi");
  if (!symbol) {
    const std::string why = last_dl_error();
    ::dlclose(library);
    fail(NXD_ERROR_UNSUPPORTED, path, " is no PJRT plug-in: ", why);
  }
  const auto* api = reinterpret_cast<const pjrt_abi::Api* (*)()>(symbol)();
  if (!api) fail(NXD_ERROR_UNSUPPORTED, path, " is no PJRT plug-in: GetPjrtApi returned NULL");
  return api;
}

void check_pjrt_version(const std::string& path, const pjrt_abi::Api& api) {
  if (api.size < offsetof(pjrt_abi::Api, functions)) {
    fail(NXD_ERROR_UNSUPPORTED, path, ": its PJRT interface has ", api.size,
         " bytes, expected at least ", offsetof(pjrt_abi::Api, functions));
  }
  if (api.major != 0 || api.minor < kOldestPjrtMinor) {
    fail(NXD_ERROR_UNSUPPORTED, path, ": PJRT interface ", api.major, ".", api.minor,
         ", expected 0.", kOldestPjrtMinor, " or a later 0.x");
  }
}

// XLA's plug-in for the CPU has no code of its own for memory that a program lacks when it runs.
nxd_status_t status_of(int code, const std::string& message) {
  const bool lacks_memory =
      code == pjrt_abi::kInternal && message.find("Out of memory allocating") != std::string::npos;
  return lacks_memory ? NXD_ERROR_OUT_OF_MEMORY : status_of_pjrt_code(code);
}

}  // namespace

nxd_status_t status_of_pjrt_code(int code) noexcept {
  switch (code) {
    case pjrt_abi::kInvalidArgument: return NXD_ERROR_INVALID_ARGUMENT;
    case pjrt_abi::kDeadlineExceeded: return NXD_ERROR_TIMEOUT;
    case pjrt_abi::kResourceExhausted: return NXD_ERROR_OUT_OF_MEMORY;
    case pjrt_abi::kFailedPrecondition: return NXD_ERROR_INVALID_STATE;
    case pjrt_abi::kAborted: return NXD_ERROR_ABORTED;
    case pjrt_abi::kUnimplemented: return NXD_ERROR_UNSUPPORTED;
    case pjrt_abi::kUnavailable: return NXD_ERROR_PEER_LOST;
    case pjrt_abi::kDataLoss: return NXD_ERROR_CORRUPT;
    default: return NXD_ERROR_INTERNAL;
  }
}

int pjrt_code_of_status(nxd_status_t status) noexcept {
  for (int code = pjrt_abi::kUnknown; code <= pjrt_abi::kDataLoss; ++code) {
    if (status != NXD_ERROR_INTERNAL && status_of_pjrt_code(code) == status) return code;
  }
  return pjrt_abi::kInternal;
}

std::shared_ptr<PjrtPlugin> PjrtPlugin::load(const std::string& path) {
  static auto* mutex = new std::mutex;
  static auto* plugins = new std::map<std::string, std::shared_ptr<PjrtPlugin>>;
  check_argument(!path.empty(), "path of a PJRT plug-in: expected one, got none");
  std::error_code ignored;
  std::string real = std::filesystem::canonical(path, ignored).string();
  // A bare name is for the loader to find.
  if (real.empty() || path.find('/') == std::string::npos) real = path;

  const std::lock_guard<std::mutex> lock(*mutex);
  auto& plugin = (*plugins)[real];
  if (!plugin) {
    if (is_neuron_plugin(real)) set_neuron_environment();
    const pjrt_abi::Api* api = api_of(real);
    check_pjrt_version(real, *api);
    std::shared_ptr<PjrtPlugin> fresh(new PjrtPlugin(real, api));
    auto args = make_args<pjrt_abi::HeadArgs>();
    fresh->call(Slot::kPluginInitialize, &args, "initialize");
    plugin = std::move(fresh);
  }
  return plugin;
}

PjrtPlugin::PjrtPlugin(std::string path, const pjrt_abi::Api* api)
    : path_(std::move(path)), api_(api) {}

std::string PjrtPlugin::file() const {
  Dl_info info = {};
  const void* const code = api_->functions[static_cast<size_t>(Slot::kPluginInitialize)];
  return ::dladdr(code, &info) != 0 && info.dli_fname ? info.dli_fname : path_;
}

std::string PjrtPlugin::version() const { return nxd::text(api_->major, ".", api_->minor); }

bool PjrtPlugin::has(Slot slot) const noexcept {
  const auto place = static_cast<size_t>(slot);
  const size_t end = offsetof(pjrt_abi::Api, functions) + (place + 1) * sizeof(void*);
  return end <= api_->size && api_->functions[place];
}

pjrt_abi::Error* PjrtPlugin::invoke(Slot slot, void* args, const char* action) const {
  if (!has(slot)) {
    fail(NXD_ERROR_UNSUPPORTED, path_, ": ", action, ": PJRT interface ", version(),
         " of this plug-in has no function ", static_cast<int>(slot));
  }
  const auto function =
      reinterpret_cast<pjrt_abi::Error* (*)(void*)>(api_->functions[static_cast<size_t>(slot)]);
  // Plug-ins are C++ inside, and let some exceptions through.
  try {
    return function(args);
  } catch (const std::bad_alloc&) {
    fail(NXD_ERROR_OUT_OF_MEMORY, path_, ": ", action, ": the plug-in has no memory for it");
  } catch (const std::exception& exception) {
    fail(NXD_ERROR_INTERNAL, path_, ": ", action, ": the plug-in threw ", exception.what());
  } catch (...) {
    fail(NXD_ERROR_INTERNAL, path_, ": ", action, ": the plug-in threw an exception");
  }
}

void PjrtPlugin::call(Slot slot, void* args, const char* action) const {
  if (const ForkGuard* guard = client_guard_.load()) guard->check("PJRT client");
  check(invoke(slot, args, action), action);
}

void PjrtPlugin::release(Slot slot, void* object) const noexcept {
  if (!object || is_foreign()) return;
  try {
    auto args = make_args<pjrt_abi::ObjectArgs>();
    args.object = object;
    check(invoke(slot, &args, "release"), "release");
  } catch (...) {
    // The object is lost to us in any case.
  }
}

Error PjrtPlugin::taken(pjrt_abi::Error* error, const char* action) const {
  auto message = make_args<pjrt_abi::ErrorMessageArgs>();
  message.error = error;
  invoke(Slot::kErrorMessage, &message, action);
  auto code = make_args<pjrt_abi::ErrorCodeArgs>();
  code.error = error;
  if (pjrt_abi::Error* second = invoke(Slot::kErrorCode, &code, action)) {
    release(Slot::kErrorDestroy, second);
    code.code = pjrt_abi::kUnknown;
  }
  const std::string said = message.message ? std::string(message.message, message.message_size)
                                           : std::string("no message");
  Error result(status_of(code.code, said), nxd::text("PJRT: ", action, ": ", said));
  auto destroy = make_args<pjrt_abi::ObjectArgs>();
  destroy.object = error;
  invoke(Slot::kErrorDestroy, &destroy, action);
  return result;
}

void PjrtPlugin::check(pjrt_abi::Error* error, const char* action) const {
  if (error) throw taken(error, action);
}

void PjrtPlugin::await(pjrt_abi::Event* event, const char* action) const {
  if (!event) return;
  auto args = make_args<pjrt_abi::ObjectArgs>();
  args.object = event;
  try {
    call(Slot::kEventAwait, &args, action);
  } catch (...) {
    release(Slot::kEventDestroy, event);
    throw;
  }
  release(Slot::kEventDestroy, event);
}

std::string PjrtPlugin::text(Slot slot, void* object, const char* action) const {
  auto args = make_args<pjrt_abi::StringArgs>();
  args.object = object;
  call(slot, &args, action);
  return std::string(args.text, args.text_size);
}

const pjrt_abi::Extension* PjrtPlugin::extension(int type) const noexcept {
  const pjrt_abi::Extension* extension = api_->extensions;
  while (extension && extension->type != type) extension = extension->next;
  return extension;
}

void PjrtPlugin::client_exists() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!client_guard_.load()) client_guard_ = new ForkGuard;
}

bool PjrtPlugin::is_foreign() const noexcept {
  const ForkGuard* guard = client_guard_.load();
  return guard && guard->is_foreign();
}

}  // namespace nxd
