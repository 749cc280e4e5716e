// Shapes and dtypes that are recorded are those that operators give on the CPU, and calls that the
// CPU rejects for them are rejected when they are recorded.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_tensor.h"
#include "engine/device/trial_arguments.h"
#include "engine/ops/op_call.h"
#include "engine/stablehlo/device_backend.h"

#include "support/device_compare.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

const at::Device kCpu(at::kCPU);
const at::Device kXla(at::kXLA, 0);

Tensor floats(at::Device device) {
  return at::tensor({1.5f, -2.0f, NAN, 0.25f, INFINITY, -4.0f}).view({2, 3}).to(device);
}

Tensor whole(at::ScalarType dtype, at::Device device) {
  return at::tensor({1, 0, 3, 1, 2, 0}, at::kLong).view({2, 3}).to(dtype).to(device);
}

Tensor first(at::Device device) { return at::zeros({1}, at::kLong).to(device); }
Tensor ten(at::Device device) { return at::full({}, 10.0f).to(device); }

struct Case {
  const char* name;
  std::function<Tensor(at::Device)> run;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Calls that a release of libtorch rejects on the CPU are rejected on the device.
void check_equal(const std::vector<Case>& cases) {
  bool all_equal = true;
  for (const Case& c : cases) {
    Tensor expected;
    if (!message_of([&] { expected = c.run(kCpu); }).empty()) {
      const bool is_rejected = !message_of([&] { c.run(kXla); }).empty();
      if (!is_rejected) std::printf("%s: the CPU alone rejects it\n", c.name);
      all_equal = is_rejected && all_equal;
      continue;
    }
    all_equal = test::equals_cpu(
                    c.name, [&] { return c.run(kXla); }, expected) &&
                all_equal;
  }
  assert_true(all_equal);
}

void test_shapes_and_dtypes_are_those_of_the_cpu(void**) {
  using D = at::Device;
  std::vector<Case> cases = {
      {"abs_", [](D d) { return floats(d).abs_(); }},
      {"nan_to_num_", [](D d) { return floats(d).nan_to_num_(0.5, 7.0); }},
      {"abs_ of a view",
       [](D d) {
         const Tensor x = floats(d);
         x.select(0, 1).abs_();
         return x;
       }},
      {"logsumexp without dimensions", [](D d) { return at::logsumexp(floats(d)[0][1], {0}); }},
      {"count_nonzero without dimensions",
       [](D d) { return at::count_nonzero(floats(d)[0][1], at::IntArrayRef{-1}); }},
      {"var without dimensions",
       [](D d) { return at::var(floats(d)[0][1], at::IntArrayRef{0}, 0, true); }},
      {"isin of a number", [](D d) { return at::isin(1.5, floats(d)); }},
      {"mm of no rows in f16",
       [](D d) {
         const Tensor none = at::zeros({0, 3}, at::kHalf).to(d);
         return at::mm(none, at::ones({3, 2}, at::kHalf).to(d));
       }},
      {"softmax of no integers",
       [](D d) { return at::log_softmax(whole(at::kLong, d).slice(1, 0, 0), 1); }},
      {"lift_fresh", [](D d) { return at::lift_fresh(floats(d)).mul_(2); }},
      {"lift of a view", [](D d) { return at::lift(floats(d).t()); }},
      {"index_add of a number", [](D d) { return floats(d)[0].index_add(0, first(d), ten(d)); }},
      {"index_add_ of a number",
       [](D d) { return floats(d)[0].clone().index_add_(0, first(d), ten(d)); }},
  };
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    cases.push_back(
        {"logsumexp of integers", [dtype](D d) { return at::logsumexp(whole(dtype, d), {1}); }});
    cases.push_back(
        {"logit of integers", [dtype](D d) { return at::logit(whole(dtype, d), 0.1); }});
    cases.push_back({"nansum of integers", [dtype](D d) { return at::nansum(whole(dtype, d)); }});
  }
  check_equal(cases);
}

// The tensor that another one is a view of, once the view was written.
Tensor written_through(at::Device device, const std::function<void(Tensor)>& write) {
  const Tensor base = (at::arange(1, 31, at::kFloat) / 8).view({5, 6}).to(device);
  write(base);
  return base;
}

void test_writes_that_are_composed(void**) {
  using D = at::Device;
  const std::vector<Case> cases = {
      {"fill_diagonal_ of rows and columns",
       [](D d) { return written_through(d, [](Tensor x) { x.t().fill_diagonal_(-1); }); }},
      {"fill_diagonal_ of a part",
       [](D d) {
         return written_through(d,
                                [](Tensor x) { x.slice(1, 1, 5).slice(0, 2).fill_diagonal_(-1); });
       }},
      {"fill_diagonal_ of what is tall",
       [](D d) {
         return written_through(d, [](Tensor x) { x.slice(1, 2, 4).t().t().fill_diagonal_(-1); });
       }},
      {"fill_diagonal_ that wraps",
       [](D d) {
         return written_through(d, [](Tensor x) { x.view({10, 3}).fill_diagonal_(-1, true); });
       }},
      {"fill_diagonal_ that wraps, of one column",
       [](D d) {
         return written_through(d, [](Tensor x) { x.view({30, 1}).fill_diagonal_(-1, true); });
       }},
      {"fill_diagonal_ of a cube",
       [](D d) {
         return written_through(d, [](Tensor x) {
           x.view({-1}).slice(0, 0, 27).view({3, 3, 3}).fill_diagonal_(-1);
         });
       }},
      {"gradient of fill_diagonal_",
       [](D d) {
         Tensor x = floats(d).nan_to_num(0, 1, -1).requires_grad_(true);
         run_backward({(x * x).fill_diagonal_(3).sum()}, {Tensor()}, false);
         return x.grad();
       }},
      {"ldexp_", [](D d) { return floats(d).ldexp_(whole(at::kLong, d)); }},
      {"polygamma_", [](D d) { return floats(d).abs_().nan_to_num_(0.5, 2).polygamma_(2); }},
      {"polygamma_ of a view",
       [](D d) { return written_through(d, [](Tensor x) { x.select(1, 2).polygamma_(1); }); }},
      {"gradient of polygamma_",
       [](D d) {
         Tensor x = floats(d).nan_to_num(1, 1, 1).requires_grad_(true);
         run_backward({x.abs().polygamma_(1).sum()}, {Tensor()}, false);
         return x.grad();
       }},
  };
  check_equal(cases);
}

bool says(const std::string& message, const char* part) {
  if (message.find(part) != std::string::npos) return true;
  std::printf("\"%s\" does not say \"%s\"\n", message.c_str(), part);
  return false;
}

void test_dtypes_are_checked_when_recorded(void**) {
  const Tensor x = whole(at::kLong, kXla), b = whole(at::kBool, kXla);
  assert_true(says(message_of([&] { at::var(x, at::IntArrayRef{1}, 1, false); }), "got Long"));
  assert_true(says(message_of([&] { at::std_mean(b, at::IntArrayRef{1}, 1, true); }), "got Bool"));
  assert_true(says(message_of([&] { at::relu(b); }), "booleans"));
  assert_true(says(message_of([&] { at::logsumexp(x, {2}); }), "out of range"));
  const Tensor y = floats(kXla);
  assert_true(says(message_of([&] { at::bitwise_or(y, y); }), "'Float'"));
  assert_true(says(message_of([&] { at::bitwise_and(x, 1.5); }), "'Float'"));
  assert_true(says(message_of([&] { x.bitwise_xor(y); }), "'Float'"));
  assert_true(says(message_of([&] { at::bitwise_not(y); }), "'Float'"));
  assert_true(says(message_of([&] { at::renorm(x, 2, 0, 1); }), "Got Long"));
  assert_true(says(message_of([&] { at::gelu(x); }), "'Long'"));
  assert_true(says(message_of([&] { at::mm(b, b.t()); }), "'Bool'"));
  assert_true(says(message_of([&] { at::hardsigmoid(x); }), "'Long'"));
  assert_true(says(message_of([&] { at::index_fill(x, 0, b, 1); }), "dtype int64"));
  assert_true(says(message_of([&] { at::embedding(y, y); }), "indices"));
  assert_true(says(message_of([&] { at::hardtanh(b); }), "Bool"));
  assert_true(says(message_of([&] { at::nll_loss(y, first(kXla).expand({2}).to(at::kFloat)); }),
                   "expected scalar type Long"));
  assert_true(says(message_of([&] { at::dot(y, y); }), "1D tensors"));
  const Tensor square = at::zeros({2, 2, 3}).to(kXla);
  assert_true(says(message_of([&] { square.clone().fill_diagonal_(1); }), "[2, 2, 3]"));
  assert_true(says(message_of([&] { first(kXla).fill_diagonal_(1); }), "at least 2"));
  const Tensor line = at::zeros({1, 1, 3}).to(kXla), kernel = at::zeros({1, 1, 3}).to(kXla);
  const std::vector<int64_t> two{2}, none{0};
  const auto convolve = [&] { at::conv1d(line, kernel, Tensor(), two, none, two); };
  assert_true(says(message_of(convolve), "kernel is larger"));
}

// Operators that take sizes by number, too.
void test_dtypes_beside_sizes_are_checked_when_recorded(void**) {
  const Tensor image = whole(at::kLong, kXla).view({1, 1, 2, 3}), y = floats(kXla);
  const std::vector<int64_t> one{1}, ones{1, 1}, twos{2, 2}, none{0, 0};
  const Tensor small = image.to(at::kInt), point = small.slice(2, 0, 1).slice(3, 0, 1);
  const auto dilated = [&] { at::conv2d(small, point, Tensor(), ones, none, twos); };
  assert_true(says(message_of(dilated), "'Int'"));
  assert_true(says(message_of([&] { at::max_pool2d(image.to(at::kBool), ones); }), "'Bool'"));
  assert_true(says(message_of([&] { at::layer_norm(image, {2, 3}); }), "'Long'"));
  assert_true(says(message_of([&] { at::group_norm(image, 1); }), "'Long'"));
  const Tensor wide = at::ones({3}, at::kDouble).to(kXla);
  assert_true(says(message_of([&] { at::layer_norm(y, {3}, wide); }), "scalar type"));
  const Tensor line = at::ones({1, 1, 3}).to(kXla);
  assert_true(says(message_of([&] { at::conv1d(line, wide.view({1, 1, 3})); }), "scalar type"));
  assert_true(says(message_of([&] { at::topk(whole(at::kBool, kXla), 2); }), "'Bool'"));
  assert_true(says(message_of([&] { at::upsample_nearest1d(line.to(at::kLong), one); }), "'Long'"));
}

// A compiled graph would cut them off without a word.
void test_numbers_are_checked_when_recorded(void**) {
  const Tensor bytes = whole(at::kChar, kXla), mask = whole(at::kBool, kXla), y = floats(kXla);
  const at::TensorOptions options = at::TensorOptions().device(kXla).dtype(at::kChar);
  const std::vector<std::function<void()>> calls = {
      [&] { at::masked_fill(bytes, mask, 300); },
      [&] { at::masked_fill(y, mask, 1e300); },
      [&] { at::clamp(bytes, -300, 1); },
      [&] { at::fill(bytes, 300); },
      [&] { at::full_like(bytes, -300); },
      [&] { at::full({2}, 300, options); },
      [&] { at::scalar_tensor(300, options); },
      [&] { bytes.new_full({2}, 300); },
      [&] { at::threshold_backward(y, y, -1e300); },
  };
  for (const auto& call : calls) assert_true(says(message_of(call), "without overflow"));
  assert_true(message_of([&] { bytes.new_full({2}, 300, at::kLong); }).empty());
  check_equal({{"a sum wraps", [](at::Device d) { return whole(at::kChar, d) + 300; }}});
}

void test_shapes_are_checked_when_recorded(void**) {
  const Tensor x = at::zeros({2, 4, 3}).to(kXla), four = at::ones({4}).to(kXla),
               matrix = at::ones({4, 1}).to(kXla), none = at::ones({0}).to(kXla);
  const auto prelu = [&](const Tensor& self, const Tensor& weight) {
    return message_of([&] { at::prelu(self, weight); });
  };
  // In the words of this library or of libtorch's later releases.
  assert_false(prelu(x, at::ones({3}).to(kXla)).empty());
  assert_false(prelu(x, none).empty());
  assert_false(prelu(x, matrix).empty());
  assert_false(prelu(four, four).empty());
  assert_true(prelu(x, four).empty());
  const auto norm = [&](at::IntArrayRef shape, const Tensor& weight, const Tensor& bias) {
    return message_of([&] { at::layer_norm(x, shape, weight, bias); });
  };
  assert_true(says(norm({}, {}, {}), "at least 1 dimension"));
  assert_true(says(norm({2}, {}, {}), "expected last dimensions [2], got shape [2, 4, 3]"));
  assert_true(says(norm({5, 2, 4, 3}, {}, {}), "at least 4 dimensions"));
  assert_true(says(norm({3}, four, {}), "weight: expected shape [3], got [4]"));
  assert_true(says(norm({4, 3}, {}, four), "bias: expected shape [4, 3], got [4]"));
  for (const int64_t groups : {-2, 0, 3, 5}) {
    assert_true(says(message_of([&] { at::channel_shuffle(x, groups); }), "positive divisor"));
    for (const at::Device device : {kCpu, kXla}) {
      const Tensor self = x.to(device);
      const auto shuffle = [&] { at::native_channel_shuffle(self, groups); };
      assert_true(says(message_of(shuffle), "expected a positive divisor of the 4 channels, got"));
    }
  }
  const auto convolve = [&](at::IntArrayRef stride, int64_t padding, int64_t dilation) {
    const Tensor weight = four.view({1, 4, 1});
    return message_of(
        [&] { at::convolution(x, weight, {}, stride, {padding}, {dilation}, false, {0}, 1); });
  };
  assert_true(convolve({1}, 0, 1).empty());
  assert_true(says(convolve({0}, 0, 1), "stride: expected 1 or more, got 0"));
  assert_true(says(convolve({1}, -1, 1), "padding: expected 0 or more, got -1"));
  assert_true(says(convolve({1}, 0, 0), "dilation: expected 1 or more, got 0"));
  assert_true(says(convolve({}, 0, 1), "stride: expected 1 number or 1, got 0"));
  assert_true(says(message_of([&] { at::_adaptive_avg_pool2d(four, {1, 1}); }), "at least 3 dim"));
  assert_false(message_of([&] { at::diag(x); }).empty());  // libtorch 2 has words of its own
  assert_true(says(message_of([&] { at::index_select(x, 5, first(kXla)); }), "Dimension out of"));
  assert_true(says(message_of([&] { at::channel_shuffle(matrix, 2); }), "more than 2 dimensions"));
  assert_true(says(message_of([&] { at::native_channel_shuffle(four, 2); }), "at least 2"));
  assert_true(says(message_of([&] { at::native_channel_shuffle(four.cpu(), 2); }), "at least 2"));
}

Tensor shuffled(at::Device device, at::IntArrayRef sizes) {
  const Tensor x = at::arange(at::prod(at::tensor(sizes)).item<int64_t>(), at::kFloat);
  return at::native_channel_shuffle(x.view(sizes).to(device), 2);
}

void test_channels_are_shuffled(void**) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 4}, {2, 6, 3}, {1, 4, 2, 3}}) {
    assert_true(test::equals_cpu(
        "shuffle", [&] { return shuffled(kXla, sizes); }, shuffled(kCpu, sizes)));
  }
  for (const at::Device device : {kCpu, kXla}) {
    assert_true(shuffled(device, {0, 4, 2}).sizes() == at::IntArrayRef({0, 4, 2}));
    assert_true(shuffled(device, {2, 0, 2}).sizes() == at::IntArrayRef({2, 0, 2}));
  }
}

// Integers take the values of what has a gradient, and have none.
void test_integers_have_no_history(void**) {
  for (const at::Device device : {kCpu, kXla}) {
    const Tensor value = ten(device).requires_grad_(true);
    for (const bool whole_tensor : {true, false}) {
      const Tensor x = whole(at::kLong, device), y = whole_tensor ? x : x.select(0, 1);
      OpCall fill("fill_", "Tensor");
      fill.set_tensor("self", &y);
      fill.set_tensor("value", &value);
      fill.run();
      assert_false(x.requires_grad());
      assert_true((y * 2).to(at::kCPU).equal(at::full(y.sizes(), 20, at::kLong)));
    }
  }
}

void fail_in_python(const c10::OperatorHandle&, torch::jit::Stack*) {
  throw std::runtime_error("'>=' not supported between instances of 'NoneType' and 'int'");
}

// Python's PyTorch gives the meta device kernels that lack what others take, and its own errors.
void test_shapes_without_kernels_of_python(void**) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, "/dev/null", 241);
  library.impl("_cdist_forward", torch::CppFunction::makeFromBoxedFunction<&fail_in_python>());
  const auto distances = [](at::Device device) {
    return at::cdist(floats(device).nan_to_num(0, 1, -1), at::ones({4, 3}).to(device));
  };
  assert_true(test::equals_cpu(
      "cdist", [&] { return distances(kXla); }, distances(kCpu)));
}

// A tensor keeps its shape and values where an operator would write more to it than it has.
void test_writes_of_other_shapes_are_rejected(void**) {
  const Tensor base = at::zeros({2, 3}).to(kXla), row = base.select(0, 0),
               all = at::ones({2, 3}).to(at::kBool).to(kXla), ones = at::ones({3}).to(kXla);
  const auto call = [&](const char* name, const char* overload, const Tensor& self) {
    OpCall op(name, overload);
    op.set_tensor("self", &self);
    return op;
  };
  for (const Tensor& self : {row, at::zeros({3}).to(kXla)}) {
    OpCall fill = call("masked_fill_", "Scalar", self);
    fill.set_tensor("mask", &all);
    fill.set_double("value", 1.5);
    assert_true(says(message_of([&] { fill.run(); }), "doesn't match the broadcast shape [2, 3]"));
    OpCall scatter = call("masked_scatter_", "", self);
    scatter.set_tensor("mask", &all);
    scatter.set_tensor("source", &base);
    assert_true(says(message_of([&] { scatter.run(); }), "doesn't match"));
    OpCall scale = call("ldexp_", "", self);
    scale.set_tensor("other", &base);
    assert_true(says(message_of([&] { scale.run(); }), "doesn't match the broadcast shape [2, 3]"));
    OpCall outer = call("addr_", "", self);
    outer.set_tensor("vec1", &ones);
    outer.set_tensor("vec2", &ones);
    assert_true(says(message_of([&] { outer.run(); }), "doesn't match"));
    assert_true(self.to(at::kCPU).equal(at::zeros({3})));
  }
  const Tensor first = base.slice(0, 0, 1), other = at::zeros({2, 3}).to(kXla);
  OpCall sum = call("add", "out", other);
  sum.set_tensor("other", &other);
  sum.set_tensor("out", &first);
  assert_true(says(message_of([&] { sum.run(); }), "doesn't match the broadcast shape [2, 3]"));
  const Tensor counts = at::ones({3}, at::kLong).to(kXla), more = base.to(at::kLong);
  OpCall shift = call("__ilshift__", "Tensor", counts);
  shift.set_tensor("other", &more);
  assert_true(says(message_of([&] { shift.run(); }), "doesn't match the broadcast shape [2, 3]"));
  const Tensor rows = at::zeros({3}).to(kXla);
  OpCall own = call("add", "out", rows);
  own.set_tensor("other", &other);
  own.set_tensor("out", &rows);
  assert_true(says(message_of([&] { own.run(); }), "doesn't match the broadcast shape [2, 3]"));
  OpCall fill = call("masked_fill_", "Scalar", base);
  const Tensor mask = all.select(0, 1);
  fill.set_tensor("mask", &mask);
  fill.set_double("value", 1.5);
  fill.run();
  assert_true(base.to(at::kCPU).equal(at::full({2, 3}, 1.5)));
}

// In the dtype of the tensor that is given for the result, and only where the CPU takes that.
void test_results_of_other_dtypes(void**) {
  const auto sum_of = [](at::Device device) {
    const Tensor x = at::tensor({0.75f, 0.75f, 1.5f}).to(device);
    const Tensor out = at::zeros({0}, at::kLong).to(device);
    OpCall op("sum", "IntList_out");
    op.set_tensor("self", &x);
    op.set_ints("dim", {0});
    op.set_tensor("out", &out);
    op.run();
    return out;
  };
  assert_true(test::equals_cpu(
      "sum in whole numbers", [&] { return sum_of(kXla); }, sum_of(kCpu)));
  const Tensor x = floats(kXla), out = at::zeros({2, 3}, at::kLong).to(kXla);
  for (const char* name : {"abs", "exp", "nonzero"}) {
    const Tensor small = at::zeros({0}, at::kInt).to(kXla);
    OpCall op(name, "out");
    op.set_tensor("self", &x);
    op.set_tensor("out", &small);
    assert_false(message_of([&] { op.run(); }).empty());
    assert_true(small.sizes() == at::IntArrayRef({0}));
  }
  OpCall add("add_", "Tensor");
  add.set_tensor("self", &out);
  add.set_tensor("other", &x);
  assert_true(says(message_of([&] { add.run(); }), "can't be cast"));
  assert_true(out.to(at::kCPU).equal(at::zeros({2, 3}, at::kLong)));
}

void test_indices_and_masks_are_checked_when_recorded(void**) {
  const Tensor x = floats(kXla), line = x.select(0, 0), mask = at::ones({3}, at::kBool).to(kXla);
  const Tensor one = at::ones({}).to(kXla), value = at::ones({1}).to(kXla);
  const auto put = [&](const Tensor& self, const Tensor& index) {
    return message_of([&] { at::index_put(self, {index}, one); });
  };
  assert_true(says(put(x, mask), "mask of shape [3] does not fit dimension 0"));
  const Tensor narrow = at::ones({2, 1}, at::kBool).to(kXla);
  assert_true(says(put(x, narrow), "mask of shape [2, 1] does not fit dimension 1"));
  assert_true(put(line, mask).empty());
  assert_true(says(put(one, first(kXla)), "at most 0"));
  assert_true(says(message_of([&] { at::masked_fill(line, mask, value); }), "no dimensions"));
  assert_true(says(message_of([&] { at::tril(line); }), "at least 2 dimensions"));
}

void test_extremes_of_one_element(void**) {
  for (const bool keep : {false, true}) {
    const auto extremes = [keep](at::Device device) {
      return std::get<0>(at::aminmax(ten(device), 0, keep));
    };
    assert_true(test::equals_cpu(
        "aminmax", [&] { return extremes(kXla); }, extremes(kCpu)));
  }
}

// A view that is given for a result is left as it is where the result has other sizes, and a tensor
// that is no view takes them, whatever the operator is made of.
void test_results_of_other_sizes(void**) {
  const Tensor x = floats(kXla).nan_to_num(0, 1, -1), row = at::ones({3}).to(kXla);
  const auto call = [&](const char* name, const char* overload, const Tensor& out) {
    OpCall op(name, overload);
    op.set_tensor("self", &x);
    op.set_tensor(std::string(name) == "topk" ? "values" : "out", &out);
    return op;
  };
  const Tensor indices = at::zeros({0}, at::kLong).to(kXla);
  for (const char* name : {"maximum", "max", "topk", "nonzero"}) {
    const bool is_whole = std::string(name) == "nonzero", is_top = std::string(name) == "topk";
    const at::ScalarType dtype = is_whole ? at::kLong : at::kFloat;
    const Tensor base = at::zeros({4, 7}, dtype).to(kXla), view = base.select(0, 1);
    const auto run = [&](const Tensor& out) {
      OpCall op = call(name, is_top ? "values" : "out", out);
      if (is_top) op.set_tensor("indices", &indices);
      if (is_top) op.set_int("k", 2);
      if (!is_top && !is_whole) op.set_tensor("other", &row);
      op.run();
    };
    assert_true(says(message_of([&] { run(view); }), "output with shape [7] doesn't match"));
    assert_true(base.to(at::kCPU).equal(at::zeros({4, 7}, dtype)));
    assert_true(view.to(at::kCPU).equal(at::zeros({7}, dtype)));
    const Tensor own = at::zeros({7}, dtype).to(kXla);
    run(own);
    const Tensor part = at::zeros_like(base.to(at::kCPU)).to(kXla).slice(0, 0, own.size(0));
    const Tensor fitting = part.slice(1, 0, own.size(1));
    if (fitting.sizes() != own.sizes()) continue;
    run(fitting);
    assert_true(fitting.to(at::kCPU).equal(own.to(at::kCPU)));
  }
}

// Kernels swap rows by pivots without a look at them: one of 0 in a trial would be the row before
// the first, and what lies there in memory.
void test_places_in_trials(void**) {
  const at::TensorOptions meta = at::TensorOptions().device(at::kMeta);
  const Tensor square = at::empty({2, 2}, meta), places = at::empty({2}, meta.dtype(at::kInt));
  const auto trial_of = [](const char* name, const torch::jit::Stack& given, int number) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    return trial_arguments(op.schema(), given, number, TrialSizes::kGiven);
  };
  for (const int number : {0, 1}) {
    const auto solve = trial_of("aten::linalg_lu_solve", {square, places, square}, number);
    assert_true(solve[0].toTensor().equal(at::full({2, 2}, number)));
    assert_true(solve[1].toTensor().equal(at::ones({2}, at::kInt)));
    const auto take = trial_of("aten::take", {square, places}, number);
    assert_true(take[1].toTensor().equal(at::zeros({2}, at::kInt)));
  }
}

void test_solutions_by_pivots(void**) {
  for (const int64_t size : {1, 3}) {
    const Tensor square = at::eye(size).mul(2), pivots = at::arange(1, size + 1, at::kInt);
    const Tensor sides = at::ones({size, 2});
    const std::vector<Case> cases = {
        {"lu_solve",
         [&](at::Device device) {
           return at::linalg_lu_solve(square.to(device), pivots.to(device), sides.to(device));
         }},
        {"ldl_solve",
         [&](at::Device device) {
           return at::linalg_ldl_solve(square.to(device), pivots.to(device), sides.to(device));
         }},
    };
    check_equal(cases);
  }
}

// Quotients and functions of integers are of the default dtype, which a program may change between
// two calls.
void test_default_dtypes(void**) {
  const auto before = c10::get_default_dtype();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kFloat}) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
    check_equal({{"quotient", [](at::Device d) { return whole(at::kLong, d) / 2; }},
                 {"sine", [](at::Device d) { return at::sin(whole(at::kLong, d)); }}});
  }
  c10::set_default_dtype(before);
}

void test_other_sizes_in_place(void**) {
  const auto counted = [](at::Device d) { return at::arange(12.0f).view({3, 4}).to(d); };
  check_equal({{"resize_",
                [&](at::Device d) {
                  return counted(d).resize_({2, 5});
                }},
               {"resize_ to as many",
                [&](at::Device d) {
                  return counted(d).resize_({2, 6});
                }},
               {"write behind it",
                [&](at::Device d) {
                  const Tensor x = counted(d), row = x.select(0, 0);
                  x.resize_({2, 5}).add_(1);
                  return row;
                }},
               {"lstsq", [](at::Device d) {
                  const Tensor tall = at::arange(8.0f).view({4, 2}).to(d), sides = at::ones({4, 1});
                  return std::get<1>(at::linalg_lstsq(tall, sides.to(d), c10::nullopt, "gelsd"));
                }}});
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes_and_dtypes_are_those_of_the_cpu),
      cmocka_unit_test(test_writes_that_are_composed),
      cmocka_unit_test(test_dtypes_are_checked_when_recorded),
      cmocka_unit_test(test_dtypes_beside_sizes_are_checked_when_recorded),
      cmocka_unit_test(test_shapes_are_checked_when_recorded),
      cmocka_unit_test(test_channels_are_shuffled),
      cmocka_unit_test(test_results_of_other_sizes),
      cmocka_unit_test(test_results_of_other_dtypes),
      cmocka_unit_test(test_indices_and_masks_are_checked_when_recorded),
      cmocka_unit_test(test_extremes_of_one_element),
      cmocka_unit_test(test_places_in_trials),
      cmocka_unit_test(test_numbers_are_checked_when_recorded),
      cmocka_unit_test(test_default_dtypes),
      cmocka_unit_test(test_other_sizes_in_place),
      cmocka_unit_test(test_solutions_by_pivots),
      cmocka_unit_test(test_shapes_without_kernels_of_python),
      cmocka_unit_test(test_integers_have_no_history),
      cmocka_unit_test(test_writes_of_other_shapes_are_rejected),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
