// A PJRT plug-in that computes nothing, for errors that a real one does not make. NXD_FAKE_PJRT
// says how it misbehaves, when it is loaded. A program's text is "ERRORS OUTPUTS", where ERRORS are
// the codes that compile, execute, and the end of the execution give, such as "0,0,14 2". A code of
// -1 is an exception for want of memory.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "core/pjrt/pjrt_abi.h"

namespace {

using namespace nxd::pjrt_abi;

std::atomic<int> live{0};  // objects that the client has yet to destroy

template <class T>
struct Counted {
  Counted() { ++live; }
  ~Counted() { --live; }
};

struct FakeError : Counted<FakeError> {
  int code = 0;
  std::string message;
};
struct FakeEvent : Counted<FakeEvent> {
  int code = 0;
};
struct FakeBuffer : Counted<FakeBuffer> {
  int64_t size = 16;
  float values[16] = {};
};
struct FakeProgram : Counted<FakeProgram> {
  int compile = 0, execute = 0, end = 0, outputs = 0;
};
struct FakeClient : Counted<FakeClient> {};
struct FakeExecutable : Counted<FakeExecutable> {
  FakeProgram* program = nullptr;
};

bool asked_for(const char* mode) {
  const char* given = std::getenv("NXD_FAKE_PJRT");
  return given && std::string(given) == mode;
}

// From 1000 on: the code less 1000, with what XLA's plug-in for the CPU says for want of memory.
Error* error_of(int code, const char* what) {
  if (code == 0) return nullptr;
  auto* error = new FakeError;
  error->code = code % 1000;
  error->message = std::string("fake error of ") + what;
  if (code >= 1000) error->message += ": Out of memory allocating 8 bytes.";
  return reinterpret_cast<Error*>(error);
}

template <class Object>
Error* destroy(ObjectArgs* args) {
  delete static_cast<Object*>(args->object);
  return nullptr;
}

Error* message(ErrorMessageArgs* args) {
  const auto& text = reinterpret_cast<const FakeError*>(args->error)->message;
  args->message = text.data();
  args->message_size = text.size();
  return nullptr;
}

Error* code(ErrorCodeArgs* args) {
  args->code = reinterpret_cast<const FakeError*>(args->error)->code;
  return nullptr;
}

Error* initialize(HeadArgs*) { return error_of(asked_for("init") ? kInternal : 0, "initialize"); }

Error* await(ObjectArgs* args) {
  return error_of(static_cast<FakeEvent*>(args->object)->code, "event");
}

Error* create(ClientCreateArgs* args) {
  if (asked_for("throw")) throw std::runtime_error("fake exception");
  if (asked_for("create")) return error_of(kResourceExhausted, "create");
  if (asked_for("option") && args->option_count > 0) return error_of(kInvalidArgument, "option");
  args->client = reinterpret_cast<Client*>(new FakeClient);
  return nullptr;
}

Error* name(StringArgs* args) {
  args->text = "fake";
  args->text_size = 4;
  return nullptr;
}

Error* devices(ListArgs* args) {
  static int numbers[] = {2, 0, 1};
  static void* const all[] = {&numbers[0], &numbers[1], &numbers[2]};
  args->items = all;
  args->count = asked_for("devices") ? 0 : asked_for("unordered") ? 3 : 1;
  return nullptr;
}

Error* local_hardware_id(IntegerArgs* args) {
  args->value = *static_cast<int*>(args->object);
  return nullptr;
}

Error* compile(CompileArgs* args) {
  auto* program = new FakeProgram;
  const std::string text(args->program->code, args->program->code_size);
  std::sscanf(text.c_str(), "%d,%d,%d %d", &program->compile, &program->execute, &program->end,
              &program->outputs);
  args->executable = reinterpret_cast<LoadedExecutable*>(program);
  if (program->compile == 0) return nullptr;
  const int failure = program->compile;
  delete program;
  if (failure < 0) throw std::bad_alloc();
  return error_of(failure, "compile");
}

Error* get_executable(PointerArgs* args) {
  auto* executable = new FakeExecutable;
  executable->program = static_cast<FakeProgram*>(args->object);
  args->value = executable;
  return nullptr;
}

Error* count_outputs(SizeArgs* args) {
  const int outputs = static_cast<FakeExecutable*>(args->object)->program->outputs;
  if (outputs < 0) return error_of(kUnimplemented, "outputs");
  args->value = static_cast<size_t>(outputs);
  return nullptr;
}

Error* execute(ExecuteArgs* args) {
  const auto* program = reinterpret_cast<const FakeProgram*>(args->executable);
  if (program->execute != 0) return error_of(program->execute, "execute");
  for (int i = 0; i < program->outputs; ++i) {
    args->outputs[0][i] = reinterpret_cast<Buffer*>(new FakeBuffer);
  }
  auto* event = new FakeEvent;
  event->code = program->end;
  args->done[0] = reinterpret_cast<Event*>(event);
  return nullptr;
}

std::atomic<int> last_device{-1};  // that a buffer was made on

Error* import_host(BufferFromHostArgs* args) {
  last_device = *reinterpret_cast<const int*>(args->device);
  args->done_with_host = reinterpret_cast<Event*>(new FakeEvent);
  args->buffer = reinterpret_cast<Buffer*>(new FakeBuffer);
  return nullptr;
}

Error* element_type(IntegerArgs* args) {
  args->value = kF32;
  return nullptr;
}

Error* dimensions(DimensionsArgs* args) {
  args->dimensions = &reinterpret_cast<const FakeBuffer*>(args->buffer)->size;
  args->count = 1;
  return nullptr;
}

Error* on_cpu(BooleanArgs* args) {
  args->value = false;
  return nullptr;
}

Error* to_host(BufferToHostArgs* args) {
  auto* event = new FakeEvent;
  event->code = kDataLoss;
  args->done = reinterpret_cast<Event*>(event);
  return nullptr;
}

constexpr size_t kSlots = 118;
void* table[5 + kSlots];

template <class Function>
void put(Slot slot, Function* function) {
  reinterpret_cast<Api*>(table)->functions[static_cast<size_t>(slot)] =
      reinterpret_cast<void*>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int nxd_fake_live_objects() { return live; }
extern "C" __attribute__((visibility("default"))) int nxd_fake_last_device() { return last_device; }

extern "C" __attribute__((visibility("default"))) const Api* GetPjrtApi() {
  if (asked_for("null")) return nullptr;
  auto* api = reinterpret_cast<Api*>(table);
  api->size = asked_for("short") ? 40 + 8 * 20 : sizeof table;
  api->major = asked_for("major") ? 1 : 0;
  api->minor = asked_for("old") ? 40 : 81;
  put(Slot::kErrorDestroy, destroy<FakeError>);
  put(Slot::kErrorMessage, message);
  put(Slot::kErrorCode, code);
  put(Slot::kPluginInitialize, initialize);
  put(Slot::kEventDestroy, destroy<FakeEvent>);
  put(Slot::kEventAwait, await);
  put(Slot::kClientCreate, create);
  put(Slot::kClientDestroy, destroy<FakeClient>);
  put(Slot::kClientPlatformName, name);
  put(Slot::kClientPlatformVersion, name);
  put(Slot::kClientAddressableDevices, devices);
  put(Slot::kDeviceLocalHardwareId, local_hardware_id);
  put(Slot::kClientCompile, compile);
  put(Slot::kBufferFromHost, import_host);
  put(Slot::kExecutableDestroy, destroy<FakeExecutable>);
  put(Slot::kExecutableNumOutputs, count_outputs);
  put(Slot::kLoadedExecutableDestroy, destroy<FakeProgram>);
  put(Slot::kLoadedExecutableGetExecutable, get_executable);
  put(Slot::kExecute, execute);
  put(Slot::kBufferDestroy, destroy<FakeBuffer>);
  put(Slot::kBufferElementType, element_type);
  put(Slot::kBufferDimensions, dimensions);
  put(Slot::kBufferIsOnCpu, on_cpu);
  put(Slot::kBufferToHost, to_host);
  return api;
}
