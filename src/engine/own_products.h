#pragma once

namespace nxd {

// While it lives, ATen's products of matrices on this thread are formed by the library's kernels,
// where libtorch has no MKL and the environment does not ask for plain kernels: aten::mm, bmm,
// addmm and baddbmm of dense tensors on the CPU in f32, f64 or bf16. The BLAS that Debian installs
// by default takes tens of times as long. Products that autograd differentiates are among them, and
// those of modules from files.
class OwnProducts {
 public:
  explicit OwnProducts(bool on = true);
  ~OwnProducts();
  OwnProducts(const OwnProducts&) = delete;
  OwnProducts& operator=(const OwnProducts&) = delete;
  // True on a thread in a scope, the innermost of which is on.
  static bool are_on();

 private:
  bool before_;
};

}  // namespace nxd
