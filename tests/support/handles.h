// Handles that destroy themselves: std::unique_ptr<nxd_x_t, Destroyer<nxd_x_destroy>>.
#pragma once

namespace nxd_test {

template <auto destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};

}  // namespace nxd_test
