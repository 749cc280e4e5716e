#include "core/pjrt/pjrt_client.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/log.h"

namespace nxd {
namespace {

using pjrt_abi::make_args;
using pjrt_abi::Slot;

constexpr std::string_view kStablehloFormat = "mlir";

// The flags that an error names; none if it is about something else.
std::vector<std::string> named_flags(const std::map<std::string, std::string>& flags,
                                     std::string_view message) {
  std::vector<std::string> named;
  if (message.find("No such compile option") == std::string_view::npos) return named;
  for (const auto& flag : flags) {
    if (message.find(flag.first) != std::string_view::npos) named.push_back(flag.first);
  }
  return named;
}

}  // namespace

std::shared_ptr<PjrtClient> PjrtClient::load(const std::string& plugin_path) {
  static auto* mutex = new std::mutex;
  static auto* clients = new std::map<const PjrtPlugin*, std::shared_ptr<PjrtClient>>;
  auto plugin = PjrtPlugin::load(plugin_path);
  if (plugin->is_foreign()) {
    fail(NXD_ERROR_INVALID_STATE, plugin->path(),
         ": this process was forked from one that has a PJRT client, whose threads it lacks; fork "
         "before the first use of the device");
  }
  const std::lock_guard<std::mutex> lock(*mutex);
  auto& client = (*clients)[plugin.get()];
  if (!client) client.reset(new PjrtClient(std::move(plugin)));
  return client;
}

PjrtClient::PjrtClient(std::shared_ptr<PjrtPlugin> plugin) : plugin_(std::move(plugin)) {
  plugin_->client_exists();
  try {
    open();
  } catch (...) {
    plugin_->release(Slot::kClientDestroy, handle_);
    throw;
  }
}

void PjrtClient::open() {
  // The CPU plug-in makes four devices with threads for each, unless it is told. Others do not know
  // the option.
  try {
    create(true);
  } catch (const Error& error) {
    if (error.status() != NXD_ERROR_INVALID_ARGUMENT) throw;
    create(false);
  }
  platform_ = plugin_->text(Slot::kClientPlatformName, handle_, "name of the platform");
  platform_version_ = plugin_->text(Slot::kClientPlatformVersion, handle_, "version");
  auto devices = make_args<pjrt_abi::ListArgs>();
  devices.object = handle_;
  plugin_->call(Slot::kClientAddressableDevices, &devices, "devices");
  if (devices.count == 0) fail(NXD_ERROR_UNSUPPORTED, plugin_->path(), ": it has no device");
  device_ = static_cast<pjrt_abi::Device*>(devices.items[0]);
  // Custom calls of this library work on the memory of the host.
  if (platform_ == "cpu") port_ = CustomCallPort::open(plugin_);
}

void PjrtClient::create(bool one_cpu_device) {
  constexpr std::string_view kDeviceCount = "cpu_device_count";
  auto count = make_args<pjrt_abi::NamedValue>();
  count.name = kDeviceCount.data();
  count.name_size = kDeviceCount.size();
  count.type = pjrt_abi::kInt64Value;
  count.integer = 1;
  count.value_size = 1;
  auto args = make_args<pjrt_abi::ClientCreateArgs>();
  args.options = &count;
  args.option_count = one_cpu_device ? 1 : 0;
  plugin_->call(Slot::kClientCreate, &args, "create a client");
  handle_ = args.client;
}

std::string PjrtClient::description() const {
  return text(platform_, " (", platform_version_, "), PJRT interface ", plugin_->version(), ", ",
              plugin_->path());
}

std::shared_ptr<PjrtExecutable> PjrtClient::compile(std::string_view stablehlo,
                                                    const PjrtOptions& options) {
  auto program = make_args<pjrt_abi::Program>();
  std::string code(stablehlo);  // the interface has no const here
  program.code = code.data();
  program.code_size = code.size();
  program.format = kStablehloFormat.data();
  program.format_size = kStablehloFormat.size();
  auto flags = options.all_flags();
  for (;;) {
    const std::string proto = compile_options_proto(flags);
    auto args = make_args<pjrt_abi::CompileArgs>();
    args.client = handle_;
    args.program = &program;
    args.options = proto.data();
    args.options_size = proto.size();
    try {
      plugin_->call(Slot::kClientCompile, &args, "compile");
      return std::make_shared<PjrtExecutable>(plugin_, port_.get(), args.executable);
    } catch (const Error& error) {
      const auto unknown = named_flags(flags, error.what());
      if (unknown.empty()) throw;
      for (const std::string& flag : unknown) {
        log(NXD_LOG_INFO, description(), ": no compile option ", flag, "; compiled without it");
        flags.erase(flag);
      }
    }
  }
}

std::shared_ptr<PjrtExecutable> PjrtClient::deserialize(std::string_view bytes) {
  auto args = make_args<pjrt_abi::DeserializeArgs>();
  args.client = handle_;
  args.bytes = bytes.data();
  args.byte_count = bytes.size();
  plugin_->call(Slot::kDeserializeAndLoad, &args, "load a compiled program");
  return std::make_shared<PjrtExecutable>(plugin_, port_.get(), args.executable);
}

PjrtBuffer PjrtClient::import_host(void* data, const PjrtType& type, HostMemory memory,
                                   std::shared_ptr<void> owner) {
  alignas(kPjrtAlignment) static char nothing[kPjrtAlignment];
  const size_t bytes = type.bytes();
  check_argument(data != nullptr || bytes == 0, "data: expected ", bytes, " bytes, got NULL");
  if (bytes == 0) {
    data = nothing;
    memory = HostMemory::kCopied;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(data) % kPjrtAlignment == 0;
  check_argument(aligned || memory == HostMemory::kCopied, "data: expected an address that ",
                 kPjrtAlignment, " divides, so that the memory can be shared, got ", data);
  auto args = make_args<pjrt_abi::BufferFromHostArgs>();
  args.client = handle_;
  args.data = data;
  args.type = pjrt_element_type(type.dtype);
  args.dimensions = type.shape.data();
  args.dimension_count = type.shape.size();
  args.device = device_;
  switch (memory) {
    case HostMemory::kCopied: args.semantics = pjrt_abi::kImmutableOnlyDuringCall; break;
    case HostMemory::kShared: args.semantics = pjrt_abi::kImmutableZeroCopy; break;
    case HostMemory::kDonatable: args.semantics = pjrt_abi::kMutableZeroCopy; break;
  }
  plugin_->call(Slot::kBufferFromHost, &args, "import memory of the host");
  PjrtBuffer buffer(plugin_, args.buffer, std::move(owner));
  if (memory == HostMemory::kCopied) {
    plugin_->await(args.done_with_host, "import memory of the host");
  } else {
    // It comes when the buffer ends, and the owner is held until then.
    plugin_->release(Slot::kEventDestroy, args.done_with_host);
  }
  return buffer;
}

}  // namespace nxd
