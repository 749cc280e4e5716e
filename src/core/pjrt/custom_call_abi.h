#pragma once

#include "core/pjrt/pjrt_abi.h"

// The extension of PJRT's C interface for custom calls, and what a function that XLA calls is given
// (XLA's "FFI", version 0.x). Written from its layout, as pjrt_abi.h.
namespace nxd::pjrt_abi {

struct TypeInfo {
  void (*destroy)(void*);
  void (*serialize)();
  void (*deserialize)();
};
struct RegisterTypeArgs {
  Head head;
  const char* name;
  size_t name_size;
  int64_t type_id;  // 0: to be given
  const TypeInfo* info;
  static constexpr size_t size() { return 48; }
};
struct AddUserDataArgs {
  Head head;
  ExecuteContext* context;
  int64_t type_id;
  void* data;
  static constexpr size_t size() { return 40; }
};
// The one struct without a pointer to extensions.
struct RegisterHandlerArgs {
  size_t size;
  const char* target;
  size_t target_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};
constexpr size_t kRegisterHandlerSize = 52;
static_assert(NXD_PJRT_SIZE(RegisterHandlerArgs, traits) == kRegisterHandlerSize);
static_assert(sizeof(RegisterTypeArgs) == 48 && sizeof(AddUserDataArgs) == 40);

struct CustomCallExtension {
  Extension base;
  Error* (*register_type)(RegisterTypeArgs*);
  Error* (*add_user_data)(AddUserDataArgs*);
  Error* (*register_handler)(RegisterHandlerArgs*);
};
static_assert(sizeof(CustomCallExtension) == 48);

namespace call {

// Element types have PJRT's numbers up to f64. These differ.
enum ElementType : int { kBf16 = 16, kToken = 17 };
enum AttributeType : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };
enum Stage : int { kExecute = 3 };
enum ExtensionType : int { kMetadata = 1 };
enum Function : int { kErrorCreate = 0, kContextGet = 6 };

struct Text {
  const char* data;
  size_t size;
};
struct BufferView {
  Head head;
  int type;
  void* data;
  int64_t rank;
  const int64_t* dimensions;
};
struct Scalar {
  int type;
  const void* value;
};
struct Array {
  int type;
  size_t count;
  const void* values;
};
struct List {
  Head head;
  int64_t count;
  const int* types;
  void* const* values;
};
struct Attributes {
  Head head;
  int64_t count;
  const int* types;
  const Text* const* names;
  void* const* values;
};
struct Functions {
  Head head;
  Head version;
  int major, minor;
  void* internal;
  void* functions[1];
};
struct Frame {
  Head head;
  const Functions* api;
  void* context;
  int stage;
  List inputs, outputs;
  Attributes attributes;
};
static_assert(sizeof(Frame) == 168);
static_assert(offsetof(Frame, stage) == 32 && offsetof(Frame, inputs) == 40);
static_assert(offsetof(Frame, outputs) == 80 && offsetof(Frame, attributes) == 120);

// The first call of a handler asks for the version that it was written for.
struct Metadata {
  size_t size;
  Head version;
  int major, minor;
  uint32_t traits;
  int64_t state_type_id;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};
struct ErrorCreateArgs {
  Head head;
  const char* message;
  int code;
};
struct ContextGetArgs {
  Head head;
  void* context;
  const int64_t* type_id;
  void* data;
};

}  // namespace call
}  // namespace nxd::pjrt_abi
