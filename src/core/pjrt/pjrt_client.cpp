#include "core/pjrt/pjrt_client.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/build_info.h"
#include "core/base/device_variables.h"
#include "core/base/environment.h"
#include "core/base/log.h"
#include "core/base/proc_file.h"
#include "core/base/text_stream.h"
#include "core/checkpoint/digest.h"
#include "core/pjrt/neuron_environment.h"

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

// Failures that the next process would see too.
bool is_the_programs(const Error& error) {
  return error.status() == NXD_ERROR_INVALID_ARGUMENT || error.status() == NXD_ERROR_INTERNAL ||
         error.status() == NXD_ERROR_UNSUPPORTED;
}

// Machine code is for the processor that it was made on. A digest of its name and features.
const std::string& processor_features() {
  static const std::string digest = [] {
    TextReader lines(read_proc("/proc/cpuinfo").value_or(""));
    Digest features;
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      const bool tells = line.starts_with("model name") || line.starts_with("flags") ||
                         line.starts_with("Features") || line.starts_with("CPU part");
      if (tells) features.add(line + '\n');
    }
    return features.hex();
  }();
  return digest;
}

// By which Neuron's compiler makes other code of a program.
std::string compiler_settings(const CompileCache& cache) {
  std::string settings = text("NEURON_CC_FLAGS ", cache.options().compiler_flags, '\n');
  for (const char* name : {"NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG"}) {
    if (const auto value = env::get(name)) settings += text(name, ' ', *value, '\n');
  }
  return settings;
}

}  // namespace

std::shared_ptr<PjrtClient> PjrtClient::load(const std::string& plugin_path, int devices,
                                             int number) {
  static auto* mutex = new std::mutex;
  static auto* clients =
      new std::map<std::tuple<const PjrtPlugin*, int, int>, std::shared_ptr<PjrtClient>>;
  check_argument(devices >= 1, "devices: expected 1 or more, got ", devices);
  auto plugin = PjrtPlugin::load(plugin_path);
  if (plugin->is_foreign()) {
    fail(NXD_ERROR_INVALID_STATE, plugin->path(),
         ": this process was forked from one that has a PJRT client, whose threads it lacks; fork "
         "before the first use of the device");
  }
  const std::lock_guard<std::mutex> lock(*mutex);
  auto& client = (*clients)[{plugin.get(), devices, number}];
  if (!client) client.reset(new PjrtClient(std::move(plugin), devices));
  return client;
}

PjrtClient::PjrtClient(std::shared_ptr<PjrtPlugin> plugin, int devices)
    : plugin_(std::move(plugin)) {
  const bool is_neuron = is_neuron_plugin(plugin_->path());
  if (is_neuron) target_ = PjrtTarget::neuron(&env::get);
  warn_of_device_variables(is_neuron ? DeviceBackend::kNeuron : DeviceBackend::kOther);
  plugin_->client_exists();
  try {
    open(devices);
  } catch (...) {
    plugin_->release(Slot::kClientDestroy, handle_);
    throw;
  }
}

void PjrtClient::open(int devices) {
  // The CPU plug-in makes four devices with threads for each, unless it is told. Others do not know
  // the option.
  try {
    create(devices);
  } catch (const Error& error) {
    if (error.status() != NXD_ERROR_INVALID_ARGUMENT) throw;
    create(std::nullopt);
  }
  platform_ = plugin_->text(Slot::kClientPlatformName, handle_, "name of the platform");
  platform_version_ = plugin_->text(Slot::kClientPlatformVersion, handle_, "version");
  auto list = make_args<pjrt_abi::ListArgs>();
  list.object = handle_;
  plugin_->call(Slot::kClientAddressableDevices, &list, "devices");
  for (size_t i = 0; i < list.count; ++i) {
    devices_.push_back(static_cast<pjrt_abi::Device*>(list.items[i]));
  }
  if (target_.has(PjrtQuirk::kUnorderedDevices)) sort_devices();
  if (list.count < static_cast<size_t>(devices)) {
    fail(NXD_ERROR_UNSUPPORTED, plugin_->path(), ": expected ", devices,
         " devices or more, it has ", list.count);
  }
  // Custom calls of this library work on the memory of the host.
  if (platform_ == "cpu") port_ = CustomCallPort::open(plugin_);
}

void PjrtClient::sort_devices() {
  std::map<pjrt_abi::Device*, int> numbers;
  for (pjrt_abi::Device* device : devices_) {
    auto number = make_args<pjrt_abi::IntegerArgs>();
    number.object = device;
    plugin_->call(Slot::kDeviceLocalHardwareId, &number, "number of a device");
    numbers[device] = number.value;
  }
  std::stable_sort(devices_.begin(), devices_.end(),
                   [&](auto* a, auto* b) { return numbers.at(a) < numbers.at(b); });
}

void PjrtClient::create(std::optional<int> cpu_devices) {
  constexpr std::string_view kDeviceCount = "cpu_device_count";
  auto count = make_args<pjrt_abi::NamedValue>();
  count.name = kDeviceCount.data();
  count.name_size = kDeviceCount.size();
  count.type = pjrt_abi::kInt64Value;
  count.integer = cpu_devices.value_or(1);
  count.value_size = 1;
  auto args = make_args<pjrt_abi::ClientCreateArgs>();
  args.options = &count;
  args.option_count = cpu_devices ? 1 : 0;
  plugin_->call(Slot::kClientCreate, &args, "create a client");
  handle_ = args.client;
}

std::string PjrtClient::description() const {
  return text(platform_, " (", platform_version_, "), PJRT interface ", plugin_->version(), ", ",
              plugin_->path());
}

std::shared_ptr<PjrtExecutable> PjrtClient::compile(std::string_view stablehlo,
                                                    const PjrtOptions& options) {
  return compile(stablehlo, options, CompileCache(CompileCacheOptions::from_environment()));
}

std::shared_ptr<PjrtExecutable> PjrtClient::compile(std::string_view stablehlo,
                                                    const PjrtOptions& options,
                                                    const CompileCache& cache) {
  const auto flags = flags_of(options);
  std::string key;
  try {
    if (cache.is_on()) key = key_of(stablehlo, options, cache);
  } catch (const Error& error) {
    log(NXD_LOG_WARN, "compile cache: a program is not kept: ", error.what());
  }
  if (key.empty()) return compile_anew(stablehlo, flags, options.replicas);
  if (auto found = find(cache, key)) return found;
  const auto lock = cache.lock(key);
  // Another process may have compiled it while this one waited.
  if (auto found = find(cache, key)) return found;
  std::shared_ptr<PjrtExecutable> fresh;
  try {
    fresh = compile_anew(stablehlo, flags, options.replicas);
  } catch (const Error& error) {
    if (is_the_programs(error)) cache.write({key, error.status(), error.what()});
    throw;
  }
  try {
    cache.write({key, NXD_OK, fresh->serialize()});
  } catch (const Error& error) {
    log(NXD_LOG_INFO, "compile cache: the program is not kept: ", error.what());
  }
  return fresh;
}

std::shared_ptr<PjrtExecutable> PjrtClient::find(const CompileCache& cache,
                                                 const std::string& key) {
  const auto entry = cache.read(key);
  if (!entry) return nullptr;
  if (entry->status != NXD_OK) {
    fail(entry->status, entry->content, "; so it was when it was first compiled, and ",
         "NEURON_CC_FLAGS=--retry_failed_compilation compiles it again");
  }
  try {
    auto program = deserialize(entry->content);
    ++loaded_;
    program->mark_loaded();
    return program;
  } catch (const Error& error) {
    if (plugin_->is_foreign()) throw;
    log(NXD_LOG_WARN, "compile cache: a program is compiled again: ", error.what());
    cache.remove(key);
    return nullptr;
  }
}

// XLA's plug-in for the CPU of PJRT 0.81 hands products to XNNPACK, and some are wrong there within
// a training step: gradients of a Llama of hidden size 256 are off by a third of themselves, by
// JAX's program too. Steps without it take no longer, and later releases are right with either.
// Its fast minima and maxima take a number where one of two is none, so that an infinity norm of
// gradients that are NaN would be finite.
std::map<std::string, std::string> PjrtClient::flags_of(const PjrtOptions& options) const {
  std::map<std::string, std::string> flags = options.all_flags();
  if (platform_ == "cpu") {
    flags.emplace("xla_cpu_use_xnnpack", "false");
    flags.emplace("xla_cpu_enable_fast_min_max", "false");
  }
  return flags;
}

std::string PjrtClient::plugin_digest(const CompileCache& cache) {
  const std::lock_guard<std::mutex> lock(digest_mutex_);
  if (plugin_digest_.empty()) plugin_digest_ = cache.digest_of_file(plugin_->file());
  return plugin_digest_;
}

std::string PjrtClient::key_of(std::string_view stablehlo, const PjrtOptions& options,
                               const CompileCache& cache) {
  std::string key = text("nxd ", build_info::version(), "\n", platform_, ' ', platform_version_,
                         ", PJRT interface ", plugin_->version(), "\nplug-in ",
                         plugin_digest(cache), "\nprocessor ", processor_features(), "\nprogram ",
                         Digest().add(stablehlo).hex(), ' ', stablehlo.size(), "\nreplicas ",
                         options.replicas, " of ", devices_.size(), " devices\n");
  for (const auto& flag : flags_of(options)) key += text(flag.first, '=', flag.second, '\n');
  if (const auto xla_flags = env::get("XLA_FLAGS")) key += text("XLA_FLAGS ", *xla_flags, '\n');
  if (platform_ != "cpu") key += compiler_settings(cache);
  return key;
}

std::shared_ptr<PjrtExecutable> PjrtClient::compile_anew(std::string_view stablehlo,
                                                         std::map<std::string, std::string> flags,
                                                         int replicas) {
  auto program = make_args<pjrt_abi::Program>();
  std::string code(stablehlo);  // the interface has no const here
  program.code = code.data();
  program.code_size = code.size();
  program.format = kStablehloFormat.data();
  program.format_size = kStablehloFormat.size();
  for (;;) {
    const std::string proto = compile_options_proto(flags, replicas);
    auto args = make_args<pjrt_abi::CompileArgs>();
    args.client = handle_;
    args.program = &program;
    args.options = proto.data();
    args.options_size = proto.size();
    try {
      plugin_->call(Slot::kClientCompile, &args, "compile");
    } catch (const Error& error) {
      const auto unknown = named_flags(flags, error.what());
      if (unknown.empty()) throw;
      for (const std::string& flag : unknown) {
        log(NXD_LOG_INFO, description(), ": no compile option ", flag, "; compiled without it");
        flags.erase(flag);
      }
      continue;
    }
    ++compiled_;
    return std::make_shared<PjrtExecutable>(plugin_, port_.get(), args.executable);
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
                                   std::shared_ptr<void> owner, size_t device) {
  alignas(kPjrtAlignment) static char nothing[kPjrtAlignment];
  check_argument(device < devices_.size(), "device: expected 0 to ", devices_.size() - 1, ", got ",
                 device);
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
  args.device = devices_[device];
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
