#include "core/base/python_capsule.h"

#include <dlfcn.h>

#include "nxd/dlpack.h"

namespace nxd {
namespace {

// The library links no Python: these are the running interpreter's.
using IsValid = int (*)(void* capsule, const char* name);
using GetPointer = void* (*)(void* capsule, const char* name);

template <class Function>
Function interpreter_function(const char* name) noexcept {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

template <class Managed>
void destroy(void* managed) noexcept {
  auto* tensor = static_cast<Managed*>(managed);
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

}  // namespace

void destroy_python_capsule(void* capsule) noexcept {
  static const auto is_valid = interpreter_function<IsValid>("PyCapsule_IsValid");
  static const auto get_pointer = interpreter_function<GetPointer>("PyCapsule_GetPointer");
  if (!capsule || !is_valid || !get_pointer) return;
  // A consumer renames the capsule. IsValid sets no error and disturbs none, so the pointer of a
  // valid one is had without either.
  if (is_valid(capsule, "dltensor") != 0) {
    destroy<DLManagedTensor>(get_pointer(capsule, "dltensor"));
  } else if (is_valid(capsule, "dltensor_versioned") != 0) {
    destroy<DLManagedTensorVersioned>(get_pointer(capsule, "dltensor_versioned"));
  }
}

}  // namespace nxd
