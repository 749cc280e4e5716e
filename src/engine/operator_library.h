#pragma once

// Kernels of ours for operators of libtorch.
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <new>

namespace nxd {

// Kernels for one dispatch key; of `name_space` "_" it takes a fallback. libtorch's messages name
// the place of a registration: __FILE__ there would be the directory that the library was compiled
// in.
inline torch::Library open_operators(c10::DispatchKey key, const char* name_space = "aten") {
  return torch::Library(torch::Library::IMPL, name_space, key, "libnxd", 0);
}

// The same as a static variable. They stay registered, since threads may be computing when the
// process ends, and lie in static memory, where leak checkers see them.
class OperatorLibrary {
 public:
  // Once.
  torch::Library& open(c10::DispatchKey key, const char* name_space = "aten") {
    return *new (place_) torch::Library(open_operators(key, name_space));
  }

 private:
  alignas(torch::Library) unsigned char place_[sizeof(torch::Library)];
};

}  // namespace nxd
