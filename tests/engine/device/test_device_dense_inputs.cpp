// Operators whose callers in libtorch rely on dense memory, on the recorded device, where views are
// dense to their caller and strided when the graph runs: values and gradients are the CPU's.
#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/gradients.h"
#include "engine/stablehlo/device_backend.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;
using Tensors = std::vector<Tensor>;

const at::Device kCpu(at::kCPU);
const at::Device kXla(at::kXLA, 0);

struct Program {
  const char* name;
  std::vector<std::vector<int64_t>> inputs;  // shapes of leaves
  std::function<Tensor(const Tensors&)> run;
};

Tensor turned(const Tensor& x) { return x.transpose(-2, -1); }

// As a program for the CPU has to write it for operators that take dense memory alone.
Tensor dense(const Tensor& x) { return turned(x).contiguous(); }

Tensor classes(const std::vector<int64_t>& sizes, const Tensor& like) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count) % 3).view(sizes).to(like.device());
}

const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"det", {{4, 4}}, [](const Tensors& x) { return at::linalg_det(turned(x[0])); }},
      {"det of a batch", {{3, 4, 4}}, [](const Tensors& x) { return at::det(turned(x[0])); }},
      {"slogdet",
       {{4, 4}},
       [](const Tensors& x) { return std::get<1>(at::linalg_slogdet(turned(x[0]))); }},
      {"solve",
       {{4, 4}, {4, 3}},
       [](const Tensors& x) { return at::linalg_solve(turned(x[0]), x[1]); }},
      {"solve from the right",
       {{3, 4, 4}, {3, 2, 4}},
       [](const Tensors& x) { return at::linalg_solve(turned(x[0]), x[1], /*left=*/false); }},
      {"weight norm",
       {{5, 6}, {6, 1}},
       [](const Tensors& x) { return at::_weight_norm(turned(x[0]), x[1], 0); }},
      {"gradient of a weight norm",
       {{6, 5}, {6, 1}},
       [](const Tensors& x) { return turned(at::_weight_norm(x[0], x[1], 0)); }},
      {"pdist", {{5, 6}}, [](const Tensors& x) { return at::pdist(dense(x[0])); }},
      {"convolution by columns",
       {{2, 3, 5, 4}, {4, 3, 2, 2}},
       [](const Tensors& x) {
         return at::thnn_conv2d(dense(x[0]), x[1], {2, 2}, {}, {1, 1}, {0, 0});
       }},
      {"loss of pixels",
       {{2, 3, 5, 4}},
       [](const Tensors& x) {
         return at::cross_entropy_loss(dense(x[0]), classes({2, 4, 5}, x[0]));
       }},
      {"losses of pixels",
       {{2, 3, 5, 4}},
       [](const Tensors& x) {
         return turned(at::nll_loss2d(dense(x[0]), classes({2, 4, 5}, x[0]), {}, 0));
       }},
      {"sums of a table's rows",
       {{3, 4}},
       [](const Tensors& x) {
         const Tensor ids = classes({6}, x[0]), offsets = at::arange(0, 6, 2).to(x[0].device());
         return std::get<0>(at::embedding_bag(turned(x[0].to(at::kFloat)), ids, offsets));
       }},
      {"complex numbers",
       {{4, 2, 3}},
       [](const Tensors& x) { return at::view_as_real(at::view_as_complex(dense(x[0]))); }},
  };
  return all;
}

// The result, and the gradients of all inputs from one that is not dense either.
Tensors run_on(at::Device device, const Program& program) {
  at::manual_seed(7);
  Tensors leaves;
  for (const auto& sizes : program.inputs) {
    leaves.push_back(at::randn(sizes, at::kDouble).to(device).requires_grad_(true));
  }
  const Tensor y = program.run(leaves);
  const Tensor weights = at::arange(1, 1 + y.numel(), at::kDouble).view(y.sizes()).sin();
  run_backward({(y * weights.to(device)).sum()}, {Tensor()}, false);
  Tensors out{y.detach().to(kCpu)};
  for (const Tensor& leaf : leaves) out.push_back(leaf.grad().to(kCpu));
  return out;
}

// Names what differs, or says how the program failed; empty: nothing did.
std::string difference(const Program& program) {
  try {
    const Tensors wanted = run_on(kCpu, program), given = run_on(kXla, program);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!at::allclose(given[i], wanted[i], 1e-9, 1e-9)) return i == 0 ? "result" : "gradient";
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void test_programs_equal_those_on_the_cpu(void**) {
  int failures = 0;
  for (const Program& program : programs()) {
    const std::string found = difference(program);
    if (found.empty()) continue;
    print_error("%s: %s\n", program.name, found.c_str());
    ++failures;
  }
  assert_int_equal(failures, 0);
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_programs_equal_those_on_the_cpu),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
