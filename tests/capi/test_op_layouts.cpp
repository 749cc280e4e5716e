// Operators of which a release of libtorch takes the elements of a transposed tensor in the order
// in which they lie: the values are the same however the arguments lie in memory.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

const std::vector<std::vector<int64_t>> kShapes = {{2, 16, 39}, {4, 64, 64}, {1, 3, 1}};

// x in each order of its dimensions, as every second element, and as rows with a gap.
std::vector<Tensor> layouts_of(const Tensor& x) {
  std::vector<Tensor> layouts{x};
  for (const std::vector<int64_t>& order :
       {std::vector<int64_t>{0, 2, 1}, std::vector<int64_t>{2, 1, 0},
        std::vector<int64_t>{1, 0, 2}}) {
    const Tensor turned = op("permute", {{"self", x}, {"dims", order}});
    layouts.push_back(
        op("permute", {{"self", op("clone", {{"self", op("contiguous", {{"self", turned}})}})},
                       {"dims", order}}));
  }
  const Tensor pairs =
      op("repeat_interleave", "self_int", {{"self", x}, {"repeats", 2}, {"dim", 2}});
  layouts.push_back(op("slice", "Tensor", {{"self", pairs}, {"dim", 2}, {"step", 2}}));
  const Tensor twice = op("repeat", {{"self", x}, {"repeats", std::vector<int64_t>{1, 1, 2}}});
  layouts.push_back(
      op("narrow", {{"self", twice}, {"dim", 2}, {"start", 0}, {"length", x.shape()[2]}}));
  return layouts;
}

void gradients_of_gelu(void**) {
  for (const auto& shape : kShapes) {
    const Tensor gradient = wave(shape, NXD_DTYPE_F32, 1), input = wave(shape, NXD_DTYPE_F32, 2);
    const std::vector<Tensor> gradients = layouts_of(gradient), inputs = layouts_of(input);
    for (const char* form : {"none", "tanh"}) {
      const Tensor want = op("gelu_backward", {{"grad_output", to(gradient, NXD_DTYPE_F64)},
                                               {"self", to(input, NXD_DTYPE_F64)},
                                               {"approximate", form}});
      for (size_t i = 0; i < gradients.size(); ++i) {
        for (size_t j = 0; j < inputs.size(); ++j) {
          const std::vector<Argument> arguments{
              {"grad_output", gradients[i]}, {"self", inputs[j]}, {"approximate", form}};
          const std::string what =
              std::string(form) + ", layouts " + std::to_string(i) + " and " + std::to_string(j);
          NXD_TEST_CLOSE(what, op("gelu_backward", arguments), want, 1e-6);
          Tensor out = from_doubles({}, {0}, NXD_DTYPE_F32);
          std::vector<Argument> into = arguments;
          into.push_back({"grad_input", out});
          op("gelu_backward", "grad_input", into);
          NXD_TEST_CLOSE(what + ", into a tensor", out, want, 1e-6);
        }
      }
    }
  }
}

// As autograd has it: whatever follows hands back a gradient that lies in its own order.
void gelu_before_a_transpose(void**) {
  for (const auto& shape : kShapes) {
    const Tensor gradient = wave({shape[0], shape[2], shape[1]}, NXD_DTYPE_F64, 3);
    std::vector<Tensor> found;
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
      const Tensor x = leaf(wave(shape, NXD_DTYPE_F64, 4), dtype, true);
      const Tensor y =
          op("transpose", "int", {{"self", op("gelu", {{"self", x}})}, {"dim0", 1}, {"dim1", 2}});
      backward(y, to(gradient, dtype));
      found.push_back(x.grad());
    }
    NXD_TEST_CLOSE("gradient", found[1], found[0], 1e-6);
  }
}

void masked_scatter(void**) {
  for (const auto& shape : kShapes) {
    const Tensor self = wave(shape, NXD_DTYPE_F32, 5);
    const Tensor mask = op("gt", "Scalar", {{"self", wave(shape, NXD_DTYPE_F32, 6)}, {"other", 0}});
    const Tensor source = wave({self.count()}, NXD_DTYPE_F32, 7);
    std::vector<double> want = values(self);
    const std::vector<double> hit = values(mask), given = values(source);
    size_t next = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (hit[i] != 0) want[i] = given[next++];
    }
    const std::vector<Tensor> masks = layouts_of(mask);
    for (size_t i = 0; i < layouts_of(self).size(); ++i) {
      for (size_t j = 0; j < masks.size(); ++j) {
        const Tensor written = i == 0 ? op("clone", {{"self", self}}) : layouts_of(self)[i];
        op("masked_scatter_", {{"self", written}, {"mask", masks[j]}, {"source", source}});
        NXD_TEST_CHECK(values(written) == want);
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_gelu),
      cmocka_unit_test(gelu_before_a_transpose),
      cmocka_unit_test(masked_scatter),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
