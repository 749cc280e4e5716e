#include "core/pjrt/custom_call.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/base/dtype.h"
#include "core/pjrt/custom_call_abi.h"

namespace nxd {
namespace {

namespace abi = pjrt_abi::call;
using pjrt_abi::make_args;
using pjrt_abi::Slot;

constexpr std::string_view kCustomCallTarget = "nxd_call";
constexpr std::string_view kCustomCallPlatform = "Host";
constexpr std::string_view kCustomCallScope = "nxd_custom_call_scope";
constexpr std::string_view kFunctionAttribute = "function";

class CustomCallRegistry {
 public:
  // Never destroyed: threads of a plug-in may call until the process ends.
  static CustomCallRegistry& instance() {
    static auto* registry = new CustomCallRegistry;
    return *registry;
  }
  void add(const std::string& name, CustomCallFunction function) {
    check_argument(!name.empty(), "name of a custom call: expected some, got none");
    check_argument(function != nullptr, "custom call ", name, ": expected a function, got none");
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    check_argument(functions_.emplace(name, std::move(function)).second, "custom call ", name,
                   ": there is one of this name");
  }
  const CustomCallFunction& get(const std::string& name) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = functions_.find(name);
    if (found == functions_.end()) {
      fail(NXD_ERROR_UNSUPPORTED, "custom call: no function \"", name, "\" was registered");
    }
    return found->second;  // entries stay where they are
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, CustomCallFunction> functions_;
};

nxd_dtype_t dtype_of_call_element(int type) noexcept {
  if (type == abi::kBf16) return NXD_DTYPE_BF16;
  return type == pjrt_abi::kBf16 ? NXD_DTYPE_INVALID : dtype_of_pjrt_element(type);
}

std::vector<CustomCallBuffer> buffers_of(const abi::List& list) {
  std::vector<CustomCallBuffer> buffers;
  for (int64_t i = 0; i < list.count; ++i) {
    const auto& view = *static_cast<const abi::BufferView*>(list.values[i]);
    if (view.type == abi::kToken) continue;
    PjrtType type{dtype_of_call_element(view.type), {}};
    type.shape.assign(view.dimensions, view.dimensions + view.rank);
    const size_t bytes = type.dtype == NXD_DTYPE_INVALID ? 0 : type.bytes();
    buffers.push_back({type.dtype, std::move(type.shape), view.data, bytes});
  }
  return buffers;
}

// The attribute of the name and kind; null if there is none of the name.
const void* attribute_of(const abi::Frame& frame, std::string_view name, int kind) {
  const abi::Attributes& all = frame.attributes;
  for (int64_t i = 0; i < all.count; ++i) {
    if (std::string_view(all.names[i]->data, all.names[i]->size) != name) continue;
    check_argument(all.types[i] == kind, "custom call: attribute ", name, ": expected XLA's kind ",
                   kind, ", got ", all.types[i]);
    return all.values[i];
  }
  return nullptr;
}

const void* wanted_attribute(const abi::Frame& frame, std::string_view name, int kind) {
  const void* value = attribute_of(frame, name, kind);
  check_argument(value != nullptr, "custom call: expected an attribute ", name, ", got none");
  return value;
}

// Entry number index of an attribute with numbers.
int64_t integer_at(std::string_view name, int type, const void* values, size_t index) {
  switch (type) {
    case pjrt_abi::kPred: return static_cast<const bool*>(values)[index];
    case pjrt_abi::kS8: return static_cast<const int8_t*>(values)[index];
    case pjrt_abi::kU8: return static_cast<const uint8_t*>(values)[index];
    case pjrt_abi::kS16: return static_cast<const int16_t*>(values)[index];
    case pjrt_abi::kU16: return static_cast<const uint16_t*>(values)[index];
    case pjrt_abi::kS32: return static_cast<const int32_t*>(values)[index];
    case pjrt_abi::kU32: return static_cast<const uint32_t*>(values)[index];
    case pjrt_abi::kS64: return static_cast<const int64_t*>(values)[index];
    default:
      fail(NXD_ERROR_INVALID_ARGUMENT, "custom call: attribute ", name,
           ": expected an integer, got PJRT's element type ", type);
  }
}

void* new_xla_error(const abi::Frame& frame, const Error& error) {
  abi::ErrorCreateArgs args{};
  args.head.size = sizeof args;
  args.message = error.what();
  args.code = pjrt_code_of_status(error.status());
  const auto create =
      reinterpret_cast<void* (*)(abi::ErrorCreateArgs*)>(frame.api->functions[abi::kErrorCreate]);
  return create(&args);
}

// XLA tells a handler neither its target nor its plug-in, so there is a handler for each plug-in,
// and the target's name is an attribute.
constexpr size_t kMostCustomCallPlugins = 8;
std::array<int64_t, kMostCustomCallPlugins> scope_types{};

void* run_custom_call(const abi::Frame& frame, size_t place) noexcept {
  CustomCallScope* scope = nullptr;
  try {
    abi::ContextGetArgs args{};
    args.head.size = sizeof args;
    args.context = frame.context;
    args.type_id = &scope_types[place];
    const auto get =
        reinterpret_cast<void* (*)(abi::ContextGetArgs*)>(frame.api->functions[abi::kContextGet]);
    if (void* error = get(&args)) return error;
    scope = static_cast<CustomCallScope*>(args.data);
    const CustomCall call(frame, scope->rank_data());
    CustomCallRegistry::instance().get(call.text(kFunctionAttribute))(call);
    return nullptr;
  } catch (...) {
    const Error error = Error::current();
    try {
      if (scope) scope->keep(error);
    } catch (...) {
      // XLA's copy of the message has to do.
    }
    return new_xla_error(frame, error);
  }
}

template <size_t kPlace>
void* handle_custom_call(abi::Frame* frame) noexcept {
  if (frame->head.extension && frame->head.extension->type == abi::kMetadata) {
    auto* extension = reinterpret_cast<abi::MetadataExtension*>(frame->head.extension);
    // The plug-in's own version: no later field is read here.
    extension->metadata->major = frame->api ? frame->api->major : 0;
    extension->metadata->minor = frame->api ? frame->api->minor : 1;
    extension->metadata->traits = 0;
    return nullptr;
  }
  return frame->stage == abi::kExecute ? run_custom_call(*frame, kPlace) : nullptr;
}

using CustomCallHandler = void* (*)(abi::Frame*);
template <size_t... kPlaces>
constexpr std::array<CustomCallHandler, sizeof...(kPlaces)> handlers_of(
    std::index_sequence<kPlaces...>) {
  return {handle_custom_call<kPlaces>...};
}
constexpr auto kCustomCallHandlers =
    handlers_of(std::make_index_sequence<kMostCustomCallPlugins>());

const pjrt_abi::CustomCallExtension* extension_of(const PjrtPlugin& plugin) {
  const auto* found = plugin.extension(pjrt_abi::kCustomCallExtension);
  if (!found || found->size < sizeof(pjrt_abi::CustomCallExtension)) return nullptr;
  return reinterpret_cast<const pjrt_abi::CustomCallExtension*>(found);
}

}  // namespace

CustomCall::CustomCall(const abi::Frame& frame, void* rank_data)
    : frame_(frame),
      rank_data_(rank_data),
      inputs_(buffers_of(frame.inputs)),
      outputs_(buffers_of(frame.outputs)) {}

bool CustomCall::has(std::string_view name) const {
  const abi::Attributes& all = frame_.attributes;
  return std::any_of(all.names, all.names + all.count, [&](const abi::Text* text) {
    return std::string_view(text->data, text->size) == name;
  });
}

int64_t CustomCall::integer(std::string_view name) const {
  const auto& scalar =
      *static_cast<const abi::Scalar*>(wanted_attribute(frame_, name, abi::kScalar));
  return integer_at(name, scalar.type, scalar.value, 0);
}

double CustomCall::number(std::string_view name) const {
  const auto& scalar =
      *static_cast<const abi::Scalar*>(wanted_attribute(frame_, name, abi::kScalar));
  if (scalar.type == pjrt_abi::kF64) return *static_cast<const double*>(scalar.value);
  if (scalar.type == pjrt_abi::kF32) return *static_cast<const float*>(scalar.value);
  return static_cast<double>(integer_at(name, scalar.type, scalar.value, 0));
}

std::string CustomCall::text(std::string_view name) const {
  const auto& text = *static_cast<const abi::Text*>(wanted_attribute(frame_, name, abi::kString));
  return std::string(text.data, text.size);
}

std::vector<int64_t> CustomCall::integers(std::string_view name) const {
  const auto& array = *static_cast<const abi::Array*>(wanted_attribute(frame_, name, abi::kArray));
  std::vector<int64_t> values;
  for (size_t i = 0; i < array.count; ++i) {
    values.push_back(integer_at(name, array.type, array.values, i));
  }
  return values;
}

void register_custom_call(const std::string& name, CustomCallFunction function) {
  CustomCallRegistry::instance().add(name, std::move(function));
}

CustomCallPort::CustomCallPort(std::shared_ptr<PjrtPlugin> plugin, size_t place)
    : plugin_(std::move(plugin)), place_(place) {}

std::shared_ptr<CustomCallPort> CustomCallPort::open(std::shared_ptr<PjrtPlugin> plugin) {
  static auto* mutex = new std::mutex;
  static auto* opened = new std::map<const PjrtPlugin*, std::shared_ptr<CustomCallPort>>;
  const auto* extension = extension_of(*plugin);
  if (!extension) return nullptr;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto known = opened->find(plugin.get());
  if (known != opened->end()) return known->second;
  if (opened->size() == kMostCustomCallPlugins) {
    fail(NXD_ERROR_UNSUPPORTED, plugin->path(), ": ", kMostCustomCallPlugins,
         " plug-ins of this process have custom calls, and no more can");
  }
  const size_t place = opened->size();
  auto type = make_args<pjrt_abi::RegisterTypeArgs>();
  static const pjrt_abi::TypeInfo info{};
  type.name = kCustomCallScope.data();
  type.name_size = kCustomCallScope.size();
  type.info = &info;
  plugin->check(extension->register_type(&type), "register a type of custom calls");
  scope_types[place] = type.type_id;
  pjrt_abi::RegisterHandlerArgs handler{};
  handler.size = pjrt_abi::kRegisterHandlerSize;
  handler.target = kCustomCallTarget.data();
  handler.target_size = kCustomCallTarget.size();
  handler.handler = reinterpret_cast<void*>(kCustomCallHandlers[place]);
  handler.platform = kCustomCallPlatform.data();
  handler.platform_size = kCustomCallPlatform.size();
  plugin->check(extension->register_handler(&handler), "register custom calls");
  const PjrtPlugin* const key = plugin.get();
  std::shared_ptr<CustomCallPort> port(new CustomCallPort(std::move(plugin), place));
  opened->emplace(key, port);
  return port;
}

pjrt_abi::ExecuteContext* CustomCallPort::make_context(CustomCallScope& scope) const {
  auto context = make_args<pjrt_abi::ContextArgs>();
  plugin_->call(Slot::kExecuteContextCreate, &context, "context of an execution");
  auto data = make_args<pjrt_abi::AddUserDataArgs>();
  data.context = context.context;
  data.type_id = scope_types[place_];
  data.data = &scope;
  try {
    plugin_->check(extension_of(*plugin_)->add_user_data(&data), "context of an execution");
  } catch (...) {
    plugin_->release(Slot::kExecuteContextDestroy, context.context);
    throw;
  }
  return context.context;
}

}  // namespace nxd
