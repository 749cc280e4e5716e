// Results of the recorded device beside those of the CPU, for tests from inside.
#pragma once

#include <ATen/ATen.h>

#include <cstdio>
#include <exception>
#include <functional>

namespace nxd::test {

// True if what is computed on the device has the shape and dtype of wanted, and nearly its values;
// else it says what differs, or which error came.
inline bool equals_cpu(const char* name, const std::function<at::Tensor()>& compute,
                       const at::Tensor& wanted) {
  bool equal = false;
  try {
    const at::Tensor found = compute().to(at::kCPU);
    equal = found.sizes() == wanted.sizes() && found.scalar_type() == wanted.scalar_type() &&
            at::allclose(found.to(at::kDouble), wanted.to(at::kDouble), 1e-5, 1e-6, true);
  } catch (const std::exception& error) {
    std::printf("%.200s\n", error.what());
  }
  if (!equal) std::printf("%s differs\n", name);
  return equal;
}

}  // namespace nxd::test
