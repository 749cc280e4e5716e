#pragma once

#include <cstddef>
#include <cstdint>

// The part of the PJRT C interface that this library calls, written from its layout: functions
// stand in a table behind a head of 40 bytes, at places that have not moved since version 0.54, and
// each takes one struct that begins with its own size. These are the structs of version 0.81. Later
// plug-ins take them as they are, since the size says which fields there are.
namespace nxd::pjrt_abi {

struct Extension {
  size_t size;
  int type;
  Extension* next;
};

enum ExtensionType : int { kCustomCallExtension = 5 };  // XLA's "FFI"

struct Api {
  size_t size;
  Extension* extensions;
  size_t version_size;
  Extension* version_extensions;
  int major, minor;
  void* functions[1];
};
static_assert(offsetof(Api, functions) == 40);

enum class Slot : int {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorCode = 2,
  kPluginInitialize = 3,
  kEventDestroy = 5,
  kEventAwait = 8,
  kClientCreate = 10,
  kClientDestroy = 11,
  kClientPlatformName = 12,
  kClientPlatformVersion = 14,
  kClientAddressableDevices = 16,
  kClientCompile = 20,
  kBufferFromHost = 22,
  kDeviceLocalHardwareId = 31,
  kExecutableDestroy = 40,
  kExecutableNumOutputs = 44,
  kExecutableSerialize = 49,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kExecute = 55,
  kDeserializeAndLoad = 56,
  kBufferDestroy = 58,
  kBufferElementType = 59,
  kBufferDimensions = 60,
  kBufferIsDeleted = 68,
  kBufferToHost = 70,
  kBufferIsOnCpu = 71,
  kBufferReadyEvent = 72,
  kBufferUnsafePointer = 73,
  kExecuteContextCreate = 98,
  kExecuteContextDestroy = 99
};

enum ElementType : int {
  kInvalidType = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBf16 = 13
};

enum ErrorCode : int {
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15
};

enum HostSemantics : int {
  kImmutableOnlyDuringCall = 0,
  kImmutableZeroCopy = 2,
  kMutableZeroCopy = 3
};

// The plug-in's own objects.
struct Error;
struct Event;
struct Client;
struct Device;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct ExecuteContext;

struct Head {
  size_t size;
  Extension* extension;
};

// The size that a struct states: to the end of its last field, without the padding behind it.
#define NXD_PJRT_SIZE(type, last) (offsetof(type, last) + sizeof(type::last))

struct ErrorMessageArgs {
  Head head;
  const Error* error;
  const char* message;
  size_t message_size;
  static constexpr size_t size();
};
struct ErrorCodeArgs {
  Head head;
  const Error* error;
  int code;
  static constexpr size_t size();
};
// Initialize has a head alone.
struct HeadArgs {
  Head head;
  static constexpr size_t size();
};
// Destroys an object, or waits for it.
struct ObjectArgs {
  Head head;
  void* object;
  static constexpr size_t size();
};
struct IntegerArgs {
  Head head;
  void* object;
  int value;
  static constexpr size_t size();
};
struct BooleanArgs {
  Head head;
  void* object;
  bool value;
  static constexpr size_t size();
};
struct SizeArgs {
  Head head;
  void* object;
  size_t value;
  static constexpr size_t size();
};
struct PointerArgs {
  Head head;
  void* object;
  void* value;
  static constexpr size_t size();
};
struct StringArgs {
  Head head;
  void* object;
  const char* text;
  size_t text_size;
  static constexpr size_t size();
};
struct ListArgs {
  Head head;
  void* object;
  void* const* items;
  size_t count;
  static constexpr size_t size();
};
struct DimensionsArgs {
  Head head;
  Buffer* buffer;
  const int64_t* dimensions;
  size_t count;
  static constexpr size_t size();
};
struct ContextArgs {
  Head head;
  ExecuteContext* context;
  static constexpr size_t size();
};

enum NamedValueType : int { kStringValue = 0, kInt64Value = 1 };
struct NamedValue {
  Head head;
  const char* name;
  size_t name_size;
  int type;
  union {
    const char* text;
    int64_t integer;
  };
  size_t value_size;  // 1 for all but texts
  static constexpr size_t size();
};
struct ClientCreateArgs {
  Head head;
  const NamedValue* options;
  size_t option_count;
  void* kv_get;
  void* kv_get_user;
  void* kv_put;
  void* kv_put_user;
  Client* client;
  void* kv_try_get;
  void* kv_try_get_user;
  static constexpr size_t size();
};
struct Program {
  Head head;
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
  static constexpr size_t size();
};
struct CompileArgs {
  Head head;
  Client* client;
  const Program* program;
  const char* options;
  size_t options_size;
  LoadedExecutable* executable;
  static constexpr size_t size();
};
struct BufferFromHostArgs {
  Head head;
  Client* client;
  const void* data;
  int type;
  const int64_t* dimensions;
  size_t dimension_count;
  const int64_t* byte_strides;
  size_t byte_stride_count;
  int semantics;
  Device* device;
  void* memory;
  void* layout;
  Event* done_with_host;
  Buffer* buffer;
  static constexpr size_t size();
};
struct BufferToHostArgs {
  Head head;
  Buffer* buffer;
  void* layout;
  void* data;
  size_t data_size;
  Event* done;
  static constexpr size_t size();
};
struct ExecuteOptions {
  Head head;
  void** send;
  void** receive;
  size_t send_count, receive_count;
  int launch_id;
  const int64_t* non_donatable;
  size_t non_donatable_count;
  ExecuteContext* context;
  const char* call_location;
  size_t task_count;
  int* task_ids;
  int64_t* incarnations;
  static constexpr size_t size();
};
struct ExecuteArgs {
  Head head;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* inputs;  // of each device
  size_t device_count, input_count;
  Buffer** const* outputs;
  Event** done;
  Device* device;
  static constexpr size_t size();
};
struct SerializeArgs {
  Head head;
  const Executable* executable;
  const char* bytes;
  size_t byte_count;
  SerializedExecutable* backing;
  void (*delete_backing)(SerializedExecutable*);
  static constexpr size_t size();
};
struct DeserializeArgs {
  Head head;
  Client* client;
  const char* bytes;
  size_t byte_count;
  LoadedExecutable* executable;
  const char* options;
  size_t options_size;
  static constexpr size_t size();
};

#define NXD_PJRT_LAST(type, last) \
  constexpr size_t type::size() { return NXD_PJRT_SIZE(type, last); }
NXD_PJRT_LAST(ErrorMessageArgs, message_size)
NXD_PJRT_LAST(ErrorCodeArgs, code)
NXD_PJRT_LAST(HeadArgs, head)
NXD_PJRT_LAST(ObjectArgs, object)
NXD_PJRT_LAST(IntegerArgs, value)
NXD_PJRT_LAST(BooleanArgs, value)
NXD_PJRT_LAST(SizeArgs, value)
NXD_PJRT_LAST(PointerArgs, value)
NXD_PJRT_LAST(StringArgs, text_size)
NXD_PJRT_LAST(ListArgs, count)
NXD_PJRT_LAST(DimensionsArgs, count)
NXD_PJRT_LAST(ContextArgs, context)
NXD_PJRT_LAST(NamedValue, value_size)
NXD_PJRT_LAST(ClientCreateArgs, kv_try_get_user)
NXD_PJRT_LAST(Program, format_size)
NXD_PJRT_LAST(CompileArgs, executable)
NXD_PJRT_LAST(BufferFromHostArgs, buffer)
NXD_PJRT_LAST(BufferToHostArgs, done)
NXD_PJRT_LAST(ExecuteOptions, incarnations)
NXD_PJRT_LAST(ExecuteArgs, device)
NXD_PJRT_LAST(SerializeArgs, delete_backing)
NXD_PJRT_LAST(DeserializeArgs, options_size)

// Sizes that plug-ins of 0.81 to 0.117 name when they are given less.
static_assert(sizeof(void*) == 8, "the layout of 64-bit machines");
static_assert(NamedValue::size() == 56 && ClientCreateArgs::size() == 88 && Program::size() == 48);
static_assert(CompileArgs::size() == 56 && ExecuteOptions::size() == 112);
static_assert(ExecuteArgs::size() == 80 && DeserializeArgs::size() == 64);
static_assert(SerializeArgs::size() == 56 && BufferFromHostArgs::size() == 120);
static_assert(offsetof(BufferFromHostArgs, semantics) == 72);
static_assert(offsetof(ExecuteOptions, non_donatable) == 56);
static_assert(offsetof(ExecuteOptions, context) == 72);
static_assert(BufferToHostArgs::size() == 56 && IntegerArgs::size() == 28);

// All fields 0, but for the size.
template <class Args>
Args make_args() {
  Args args{};
  args.head.size = Args::size();
  return args;
}

}  // namespace nxd::pjrt_abi
