#pragma once

#include "core/base/error.h"
#include "engine/device/custom_function.h"
#include "engine/device/op_call.h"
#include "engine/device/tensor_handle.h"
#include "engine/translate.h"

struct nxd_op {
  nxd::OpCall call;
  nxd::ForkStamp stamp{};
};

struct nxd_function {
  nxd::CustomFunction function;
  nxd::ForkStamp stamp{};
};

namespace nxd {

// Where a result goes: zero until the call has succeeded.
template <class T>
T& output(T* out, const char* name) {
  check_argument(out, name, ": expected a pointer, got NULL");
  *out = T{};
  return *out;
}

// An array of results, all zero until the call has succeeded.
template <class T>
void clear_outputs(T* out, size_t count, const char* name) {
  check_argument(out || count == 0, name, ": expected room for ", count, " results, got NULL");
  for (size_t i = 0; i < count; ++i) out[i] = T{};
}

template <class T>
T& required(T* pointer, const char* name) {
  check_argument(pointer, name, ": expected a pointer, got NULL");
  return *pointer;
}

}  // namespace nxd
