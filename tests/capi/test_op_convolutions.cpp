// Convolutions, plain and transposed, of one to three dimensions: in each dtype their values and
// gradients are those of F64 by the same operands.
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

struct Form {
  int64_t stride, padding, dilation, output_padding, groups;
};
const Form kForms[] = {{1, 0, 1, 0, 1}, {1, 1, 1, 0, 1}, {2, 1, 1, 1, 1}, {2, 1, 2, 0, 2}};

using Sizes = std::vector<int64_t>;

// A leaf of numbers that BF16 can hold, in another dtype.
Tensor operand(const Sizes& shape, nxd_dtype_t dtype, int phase) {
  return leaf(to(wave(shape, NXD_DTYPE_BF16, phase), NXD_DTYPE_F64), dtype, true);
}

void run_backward(const Tensor& y) {
  backward(y, to(wave(y.shape(), NXD_DTYPE_BF16, 4), y.dtype()));
}

struct Results {
  Tensor y, dx, dw, db;
};

Results run(nxd_dtype_t dtype, int dims, bool transposed, const Form& form) {
  std::vector<int64_t> input{2, 4}, weight{4, transposed ? 6 / form.groups : 4 / form.groups};
  if (!transposed) weight[0] = 6;
  for (int i = 0; i < dims; ++i) input.push_back(5 + i), weight.push_back(3);
  const Tensor x = operand(input, dtype, 1), w = operand(weight, dtype, 2),
               b = operand({6}, dtype, 3);
  const auto each = [&](int64_t value) {
    return std::vector<int64_t>(static_cast<size_t>(dims), value);
  };
  std::vector<Argument> arguments{{"input", x},
                                  {"weight", w},
                                  {"bias", b},
                                  {"stride", each(form.stride)},
                                  {"padding", each(form.padding)},
                                  {"dilation", each(form.dilation)},
                                  {"groups", form.groups}};
  if (transposed) arguments.push_back({"output_padding", each(form.output_padding)});
  const std::string size = std::to_string(dims) + "d";
  const Tensor y = transposed
                       ? op(("conv_transpose" + size).c_str(), dims == 1 ? "" : "input", arguments)
                       : op(("conv" + size).c_str(), "", arguments);
  run_backward(y);
  return {y, x.grad(), w.grad(), b.grad()};
}

void as_in_f64(void**) {
  for (const bool transposed : {false, true}) {
    for (const int dims : {1, 2, 3}) {
      for (const Form& form : kForms) {
        const Results want = run(NXD_DTYPE_F64, dims, transposed, form);
        for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
          const Results got = run(dtype, dims, transposed, form);
          const std::string what = std::string(transposed ? "transposed, " : "") +
                                   std::to_string(dims) + "d, stride " +
                                   std::to_string(form.stride) + ", dtype " + std::to_string(dtype);
          const double tolerance = dtype == NXD_DTYPE_F32 ? 1e-5 : 2e-2;
          NXD_TEST_CLOSE(what + ", y", got.y, want.y, tolerance);
          NXD_TEST_CLOSE(what + ", dx", got.dx, want.dx, tolerance);
          NXD_TEST_CLOSE(what + ", dw", got.dw, want.dw, tolerance);
          NXD_TEST_CLOSE(what + ", db", got.db, want.db, tolerance);
        }
      }
    }
  }
}

// With padding a kernel may be larger than the image.
void larger_than_the_image(void**) {
  const struct {
    Sizes image, kernel, stride, padding;
    int64_t in, out;
  } kCases[] = {{{1}, {3}, {2}, {1}, 16, 3},
                {{1}, {3}, {2}, {2}, 32, 32},
                {{2}, {4}, {3}, {3}, 16, 1},
                {{7, 1}, {3, 2}, {2, 2}, {1, 1}, 5, 16},
                {{4, 1}, {5, 5}, {2, 2}, {2, 2}, 16, 16},
                {{4, 3, 1}, {5, 4, 5}, {2, 3, 3}, {3, 1, 3}, 1, 16},
                {{4, 3, 7}, {3, 5, 3}, {2, 2, 2}, {1, 1, 1}, 5, 16}};
  for (const auto& each : kCases) {
    const auto gradients = [&](nxd_dtype_t dtype) {
      Sizes input{2, each.in}, weight{each.out, each.in};
      input.insert(input.end(), each.image.begin(), each.image.end());
      weight.insert(weight.end(), each.kernel.begin(), each.kernel.end());
      const Tensor x = operand(input, dtype, 1), w = operand(weight, dtype, 2),
                   b = operand({each.out}, dtype, 3);
      const std::string name = "conv" + std::to_string(each.image.size()) + "d";
      const Tensor y = op(name.c_str(), "",
                          {{"input", x},
                           {"weight", w},
                           {"bias", b},
                           {"stride", each.stride},
                           {"padding", each.padding}});
      run_backward(y);
      return std::vector<Tensor>{x.grad(), w.grad(), b.grad()};
    };
    const std::vector<Tensor> want = gradients(NXD_DTYPE_F64);
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      for (int repeat = 0; repeat < 10; ++repeat) {
        const std::vector<Tensor> got = gradients(dtype);
        for (size_t i = 0; i < want.size(); ++i) {
          const std::string what = std::to_string(each.image.size()) + "d, dtype " +
                                   std::to_string(dtype) + ", gradient " + std::to_string(i);
          NXD_TEST_CLOSE(what, got[i], want[i], dtype == NXD_DTYPE_F32 ? 1e-5 : 2e-2);
        }
      }
    }
  }
}

// An operator's list may have one number for all dimensions.
void one_number_for_all(void**) {
  const auto gradient = [](nxd_dtype_t dtype) {
    const Tensor x = operand({2, 5, 4, 3, 7}, dtype, 1), w = operand({16, 5, 3, 5, 3}, dtype, 2);
    const Tensor b = operand({16}, dtype, 3);
    const Tensor y = op("convolution", {{"bias", b},
                                        {"input", x},
                                        {"weight", w},
                                        {"stride", Sizes{2}},
                                        {"padding", Sizes{1}},
                                        {"dilation", Sizes{1}},
                                        {"transposed", false},
                                        {"output_padding", Sizes{0}},
                                        {"groups", 1}});
    run_backward(y);
    return w.grad();
  };
  const Tensor want = gradient(NXD_DTYPE_F64);
  NXD_TEST_CLOSE("f32", gradient(NXD_DTYPE_F32), want, 1e-5);
  NXD_TEST_CLOSE("bf16", gradient(NXD_DTYPE_BF16), want, 2e-2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(as_in_f64), cmocka_unit_test(larger_than_the_image),
                              cmocka_unit_test(one_number_for_all)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
