#include "core/kernels/onednn_library.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace nxd::kernels::onednn {
namespace {

void* open_onednn() {
  if (void* library = ::dlopen(NXD_DNNL_SONAME, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* why = ::dlerror();
  fail(NXD_ERROR_IO, "oneDNN cannot be loaded: ", why ? why : NXD_DNNL_SONAME);
}

}  // namespace

void* address_of(const char* function) {
  static void* const library = open_onednn();
  if (void* address = ::dlsym(library, function)) return address;
  fail(NXD_ERROR_IO, "oneDNN cannot be used: " NXD_DNNL_SONAME " has no function ", function);
}

}  // namespace nxd::kernels::onednn
