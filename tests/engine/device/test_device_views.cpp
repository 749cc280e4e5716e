// Views on the recorded device, and gradients that are asked for and taken back: programs of a few
// steps give the values, gradients and errors that they give on the CPU.
#include <ATen/ATen.h>

#include <torch/version.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/gradients.h"
#include "engine/ops/op_call.h"
#include "engine/stablehlo/device_backend.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

void add_one(const Tensor& x) {
  OpCall op("add_", "Scalar");
  op.set_tensor("self", &x);
  op.set_int("other", 1);
  op.run();
}

Tensor square_of(const Tensor& x) {
  OpCall op("mul", "Tensor");
  op.set_tensor("self", &x);
  op.set_tensor("other", &x);
  op.run();
  return op.tensor_result(0);
}

// A leaf whose gradient is taken back after a view of it was made.
struct Pair {
  Tensor leaf, view;
};

struct View {
  const char* name;
  std::function<Tensor(const Tensor&)> of;
};

struct Step {
  const char* name;
  std::function<void(Pair&)> run;
};

const std::vector<View>& views() {
  static const std::vector<View> all = {
      {"select", [](const Tensor& x) { return x.select(0, 0); }},
      {"view of a view", [](const Tensor& x) { return x.t().slice(0, 0, 2); }},
      {"one of several", [](const Tensor& x) { return x.unbind(0)[0]; }},
  };
  return all;
}

void add_one_unrecorded(const Tensor& x) {
  const at::NoGradGuard no_grad;
  add_one(x);
}

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"write the leaf", [](Pair& p) { add_one(p.leaf); }},
      {"write the view", [](Pair& p) { add_one(p.view); }},
      {"write the view unrecorded", [](Pair& p) { add_one_unrecorded(p.view); }},
      {"use the view", [](Pair& p) { run_backward({square_of(p.view).sum()}, {Tensor()}, false); }},
      {"differentiate the view",
       [](Pair& p) { run_backward({p.view}, {at::ones_like(p.view)}, true); }},
      {"ask the view for a gradient", [](Pair& p) { grad_of(p.view); }},
      {"on", [](Pair& p) { set_requires_grad(p.leaf, true); }},
      {"off", [](Pair& p) { set_requires_grad(p.leaf, false); }},
  };
  return all;
}

// The CPU makes all views again by their strides, and names their functions after that.
std::string without_function(const std::string& message) {
  return message.substr(0, message.find("got the result of"));
}

std::string outcome_of(const Step& step, Pair& pair) {
  try {
    step.run(pair);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return without_function(error.what());
  }
  return text(pair.leaf.requires_grad(), pair.view.requires_grad());
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || a.detach().to(at::kCPU).equal(b.detach().to(at::kCPU));
}

Pair made(const View& view, at::Device device) {
  const Tensor leaf =
      at::arange(6, at::kFloat).view({2, 3}).clone().to(device).requires_grad_(true);
  Pair pair{leaf, view.of(leaf)};
  set_requires_grad(pair.leaf, false);
  return pair;
}

// False where the device gives something else than the CPU.
bool check_program(const View& view, const std::vector<const Step*>& program) {
  Pair here = made(view, at::kCPU), there = made(view, at::Device(at::kXLA, 0));
  std::string shown = view.name;
  for (const Step* step : program) {
    shown += text("; ", step->name);
    const std::string wanted = outcome_of(*step, here), found = outcome_of(*step, there);
    if (wanted == found) continue;
    std::printf("%s: \"%s\", on the CPU \"%s\"\n", shown.c_str(), found.c_str(), wanted.c_str());
    return false;
  }
  const bool equal = same_values(here.leaf, there.leaf) && same_values(here.view, there.view) &&
                     same_values(here.leaf.grad(), there.leaf.grad());
  if (!equal) std::printf("%s: other values or gradients\n", shown.c_str());
  return equal;
}

void test_gradients_that_are_taken_back(void**) {
  bool all_equal = true;
  for (const View& view : views()) {
    for (const Step& first : {steps()[0], steps()[1], steps()[2]}) {
      for (const Step& second : steps()) {
        all_equal = check_program(view, {&first, &second}) && all_equal;
        if (&view != &views()[0]) continue;
        for (const Step& third : steps()) {
          all_equal = check_program(view, {&first, &second, &third}) && all_equal;
        }
      }
    }
  }
  assert_true(all_equal);
}

// A view whose shape is changed in place, then written to, wholly or in part: the leaf's gradient.
using Change = std::function<void(Tensor&)>;

Tensor gradient_after(at::Device device, const View& view, const Change& reshape,
                      const Change& write) {
  const Tensor leaf =
      at::arange(1, 7, at::kFloat).view({2, 1, 3}).clone().to(device).requires_grad_(true);
  const Tensor base = leaf * 1.5;
  Tensor part = view.of(base);
  reshape(part);
  write(part);
  run_backward({(base * base).sum() + (part * part * part).sum()}, {Tensor()}, false);
  return leaf.grad().to(at::kCPU);
}

void test_shapes_changed_in_place(void**) {
  const std::vector<View> parts = {
      {"slice", [](const Tensor& x) { return x.slice(2, 1, 3); }},
      {"alias", [](const Tensor& x) { return x.slice(0, 0, 2); }},
      {"transpose", [](const Tensor& x) { return x.transpose(0, 2); }},
  };
  const std::vector<Change> reshapes = {
      [](Tensor& x) { x.transpose_(0, 2); }, [](Tensor& x) { x.unsqueeze_(0); },
      [](Tensor& x) { x.squeeze_(); },       [](Tensor& x) { x.squeeze_(1); },
      [](Tensor& x) { x.squeeze_(1).t_(); }, [](Tensor& x) { x.swapaxes_(0, 2).unsqueeze_(-1); },
      [](Tensor& x) { x.swapdims_(1, 2); },
  };
  const std::vector<Change> writes = {
      [](Tensor&) {},
      [](Tensor& x) { x.mul_(2); },
      [](Tensor& x) { x.select(0, 0).fill_(0.5); },
      [](Tensor& x) { x.select(-1, 0).mul_(3); },
  };
  for (const View& part : parts) {
    for (size_t i = 0; i < reshapes.size(); ++i) {
      for (size_t j = 0; j < writes.size(); ++j) {
        const Tensor wanted = gradient_after(at::kCPU, part, reshapes[i], writes[j]);
        try {
          const Tensor found =
              gradient_after(at::Device(at::kXLA, 0), part, reshapes[i], writes[j]);
          if (!found.equal(wanted)) fail_msg("%s, change %zu, write %zu", part.name, i, j);
        } catch (const c10::Error& error) {  // of releases whose views cannot be added to
          if (!std::strstr(error.what(), "modified inplace")) throw;
          assert_true(TORCH_VERSION_MAJOR >= 2);
        }
      }
    }
  }
}

// Some operators save their result when they write in place, and their argument when they do not.
struct SavingWrite {
  const char *name, *overload;
  std::function<void(OpCall&, at::Device)> give = [](OpCall&, at::Device) {};  // what is not self
};

Tensor other_of(at::Device device) {
  return at::tensor({1.0f, -3.0f, -0.5f, 2.0f, -1.0f, 0.75f}).view({3, 2}).to(device, at::kDouble);
}

void give_other(OpCall& op, at::Device device) {
  const Tensor other = other_of(device);
  op.set_tensor("other", &other);
}

// Rows that are reduced into others.
void give_rows(OpCall& op, at::Device device, const char* source, const Tensor& index) {
  const Tensor src = other_of(device), places = index.to(device);
  op.set_int("dim", 0);
  op.set_tensor("index", &places);
  op.set_tensor(source, &src);
  op.set_string("reduce", "amax");
}

const std::vector<SavingWrite>& saving_writes() {
  static const std::vector<SavingWrite> all = {
      {"hardtanh_", ""},
      {"leaky_relu_", ""},
      {"elu_", ""},
      {"relu_", ""},
      {"rrelu_", ""},
      {"rrelu_with_noise_", "",
       [](OpCall& op, at::Device device) {
         const Tensor noise = at::empty({3, 2}, at::kDouble).to(device);
         op.set_tensor("noise", &noise);
       }},
      {"exp_", ""},
      {"copysign_", "Tensor", give_other},
      {"copysign_", "Scalar", [](OpCall& op, at::Device) { op.set_double("other", -1); }},
      {"float_power_", "Tensor",
       [](OpCall& op, at::Device device) {
         const Tensor exponent = at::full({3, 2}, 2.0).to(device).requires_grad_(true);
         op.set_tensor("exponent", &exponent);
       }},
      {"hypot_", "", give_other},
      {"scatter_reduce_", "two",
       [](OpCall& op, at::Device device) {
         give_rows(op, device, "src", at::tensor({0, 1, 1, 0, 2, 2}, at::kLong).view({3, 2}));
       }},
      {"index_reduce_", "",
       [](OpCall& op, at::Device device) {
         give_rows(op, device, "source", at::tensor({0, 2, 0}, at::kLong));
       }},
  };
  return all;
}

const std::vector<View>& views_of_rows() {
  static const std::vector<View> all = {
      {"view",
       [](const Tensor& x) {
         return x.view({6, 2}).slice(0, 0, 3);
       }},
      {"transpose", [](const Tensor& x) { return x.slice(1, 0, 3).t(); }},
      {"slice",
       [](const Tensor& x) {
         return x.view({4, 3}).slice(0, 1, 4).slice(1, 0, 2);
       }},
  };
  return all;
}

Tensor gradient_through(at::Device device, const View& view, const SavingWrite& write) {
  const Tensor x = at::tensor({-1.5f, -0.25f, 0.5f, 2.0f, 1.25f, -3.0f, 0.125f, -0.75f, 1.0f, -2.0f,
                               0.875f, -0.625f})
                       .view({2, 6})
                       .to(device, at::kDouble)
                       .requires_grad_(true);
  const Tensor base = x * 2, written = view.of(base);
  OpCall op(write.name, write.overload);
  op.set_tensor("self", &written);
  write.give(op, device);
  op.run();
  run_backward({(written * other_of(device)).sum() + base.sum()}, {Tensor()}, false);
  return x.grad().to(at::kCPU);
}

void test_gradients_of_views_that_are_written(void**) {
  int failures = 0;
  for (const SavingWrite& write : saving_writes()) {
    for (const View& view : views_of_rows()) {
      const Tensor wanted = gradient_through(at::kCPU, view, write);
      std::string found;
      try {
        if (at::allclose(gradient_through(at::Device(at::kXLA, 0), view, write), wanted)) continue;
        found = "another gradient";
      } catch (const std::exception& error) {
        found = error.what();
      }
      print_error("%s of a %s: %.200s\n", write.name, view.name, found.c_str());
      ++failures;
    }
  }
  assert_int_equal(failures, 0);
}

void test_float_power_writes_to_doubles_alone(void**) {
  const Tensor x = at::ones({2, 3}).to(at::Device(at::kXLA, 0)).requires_grad_(true);
  const Tensor view = (x * 2).t();
  OpCall power("float_power_", "Scalar");
  power.set_tensor("self", &view);
  power.set_double("exponent", 2);
  std::string message;
  try {
    power.run();
  } catch (const std::exception& error) {
    message = error.what();
  }
  assert_true(message.find("requires dtype Double") != std::string::npos);
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients_that_are_taken_back),
      cmocka_unit_test(test_shapes_changed_in_place),
      cmocka_unit_test(test_gradients_of_views_that_are_written),
      cmocka_unit_test(test_float_power_writes_to_doubles_alone),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
