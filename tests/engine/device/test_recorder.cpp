// Operators on the recorded device against the same operators on the CPU, and what is recorded: one
// program, run on both.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "engine/autograd/gradients.h"
#include "engine/device/device_metrics.h"
#include "engine/device/device_tensor.h"
#include "engine/device/foreign_reader.h"
#include "engine/device/graph_text.h"
#include "engine/device/recorder.h"
#include "engine/device/recording.h"
#include "engine/stablehlo/device_backend.h"

#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd;
using at::Tensor;

const at::Device kCpu(at::kCPU);
const at::Device kXla(at::kXLA, 0);

Tensor values(const std::vector<int64_t>& sizes, uint64_t seed, at::Device device) {
  at::manual_seed(seed);
  return at::randn(sizes).to(device);
}

Tensor ids(const std::vector<int64_t>& sizes, int64_t below, at::Device device) {
  at::manual_seed(9);
  return at::randint(0, below, sizes, at::kLong).to(device);
}

struct Case {
  const char* name;
  std::function<Tensor(at::Device)> run;
  int fallbacks = 0;
};

Tensor gradient_of(const Tensor& loss, const Tensor& leaf) {
  run_backward({loss}, {Tensor()}, false);
  return leaf.grad().detach();
}

const std::vector<Case>& cases() {
  using D = at::Device;
  static const std::vector<Case> all = {
      {"select add_",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         x.select(1, 0).add_(1);
         return x;
       }},
      {"slice copy_",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         x.slice(0, 1, 3).copy_(values({2, 5}, 8, d));
         return x;
       }},
      {"copy_ from the host",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         x.copy_(at::ones({4, 5}));
         return x * 2;
       }},
      {"detach shares writes",
       [](D d) {
         const auto x = values({4}, 7, d), y = x.detach(), z = x.view({2, 2}).detach();
         auto w = y.detach();
         w.add_(1);
         z.select(0, 1).mul_(3);
         return x + 2 * y + 4 * z.view({4});
       }},
      {"detached views of a base that is written to",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         const auto rows = x.slice(0, 1, 3).detach(), column = x.select(1, 2);
         x.add_(1);
         return rows * column.detach().slice(0, 1, 3).unsqueeze(1);
       }},
      {"zero_ and add_",
       [](D d) {
         auto x = values({4}, 7, d);
         x.zero_();
         x.add_(2);
         return x;
       }},
      {"factories",
       [](D d) {
         const auto o = at::TensorOptions(d);
         return at::full({3}, 2.5, o) + at::arange(3, o) + at::zeros({3}, o) + at::eye(3, o).sum(0);
       }},
      {"tril triu",
       [](D d) {
         return at::tril(values({5, 5}, 7, d)) + at::triu(values({5, 5}, 8, d), 1);
       }},
      {"where",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         return at::where(x > 0, x, x * 0.1);
       }},
      {"index_select gather",
       [](D d) {
         auto x = values({6, 5}, 7, d);
         return x.index_select(0, ids({3}, 6, d)) + x.gather(1, ids({6, 5}, 5, d)).slice(0, 0, 3);
       }},
      {"index",
       [](D d) {
         return values({6, 5}, 7, d).index({ids({3}, 6, d)});
       }},
      {"index_put_",
       [](D d) {
         auto x = values({6, 5}, 7, d);
         x.index_put_({ids({3}, 6, d)}, values({3, 5}, 3, d));
         return x;
       }},
      {"fill_ of an expanded view",
       [](D d) {
         auto x = values({3, 1}, 7, d), y = values({4}, 7, d);
         x.slice(0, 1).expand({2, 4}).fill_(2.5);
         y.expand({2, 3, 4}).slice(2, 1, 3).zero_();
         return x + y;
       }},
      {"writes to one copy of an expanded view",
       [](D d) {
         auto x = values({3, 1}, 7, d), y = values({4}, 7, d), z = values({2, 1, 3}, 7, d);
         z.fill_(NAN);
         x.expand({3, 4}).select(1, 3).fill_(2.5);
         y.expand({2, 3, 4}).select(0, 1).select(0, 2).slice(0, 1, 3).mul_(3);
         z.expand({4, 2, 5, 3}).select(0, 3).select(1, 4).select(1, 0).zero_();
         return x + y + z.nan_to_num(7).sum();
       }},
      {"a write of no elements to an expanded view",
       [](D d) {
         auto x = values({1}, 7, d);
         x.expand({0}).add_(1);
         return x;
       }},
      {"writes by windows",
       [](D d) {
         auto x = values({3, 8}, 7, d), y = values({5}, 7, d);
         x.unfold(1, 2, 3).mul_(10);
         y.unfold(0, 3, 1).fill_(0.5);
         return x.sum() + x + y.sum();
       }},
      {"trace",
       [](D d) {
         return values({4, 5}, 7, d).trace();
       }},
      {"group norm of a transposed tensor",
       [](D d) {
         return at::group_norm(values({2, 5, 4}, 7, d).transpose(1, 2), 2);
       }},
      {"logical_and_ logical_or_ logical_xor_ logical_not_",
       [](D d) {
         auto x = values({4, 5}, 7, d), y = values({5}, 7, d);
         auto a = x > 0.5, b = x > 1.5, c = x > 0.1;
         return a.logical_and_(y > 0.25).to(at::kFloat) + b.logical_or_(y > 2).to(at::kFloat) +
                c.logical_xor_(y > 1).logical_not_().to(at::kFloat);
       }},
      {"gradient of clamp",
       [](D d) {
         auto x = values({4, 5}, 7, d).requires_grad_(true);
         return gradient_of(at::clamp(x, -0.5, 0.5).square().sum(), x);
       }},
      {"gradient of a broadcast target",
       [](D d) {
         auto target = values({}, 7, d).requires_grad_(true);
         return gradient_of(at::mse_loss(values({3, 4}, 8, d), target), target);
       }},
      {"scatter_add",
       [](D d) {
         return values({6, 5}, 7, d).scatter_add(1, ids({6, 5}, 5, d), values({6, 5}, 2, d));
       }},
      {"cumsum",
       [](D d) {
         return values({4, 5}, 7, d).cumsum(1);
       }},
      {"argmax",
       [](D d) {
         return values({4, 5}, 7, d).argmax(-1).to(at::kFloat);
       }},
      {"topk",
       [](D d) {
         return std::get<0>(values({4, 8}, 7, d).topk(2));
       }},
      {"max of a dimension",
       [](D d) {
         return std::get<0>(values({4, 8}, 7, d).max(1));
       }},
      {"var",
       [](D d) {
         return values({4, 8}, 7, d).var(1);
       }},
      {"logsumexp",
       [](D d) {
         return values({4, 8}, 7, d).logsumexp({1});
       }},
      {"baddbmm",
       [](D d) {
         return at::baddbmm(values({2, 3, 5}, 1, d), values({2, 3, 4}, 2, d),
                            values({2, 4, 5}, 3, d));
       }},
      {"chunk cat",
       [](D d) {
         auto c = values({4, 6}, 7, d).chunk(3, 1);
         return at::cat({c[2], c[0]}, 1);
       }},
      {"unbind stack",
       [](D d) {
         auto c = values({3, 6}, 7, d).unbind(0);
         return at::stack({c[2], c[0]});
       }},
      {"layer_norm",
       [](D d) {
         return at::layer_norm(values({2, 8}, 7, d), {8});
       }},
      {"embedding",
       [](D d) {
         return at::embedding(values({6, 4}, 7, d), ids({2, 3}, 6, d));
       }},
      {"gradient of norm and embedding",
       [](D d) {
         auto w = values({6, 4}, 7, d).requires_grad_(true);
         return gradient_of(at::layer_norm(at::embedding(w, ids({2, 3}, 6, d)), {4}).pow(3).sum(),
                            w);
       }},
      {"randn with a seed",
       [](D d) {
         at::manual_seed(5);
         return at::randn({4}, at::TensorOptions(d)) + at::rand({4}, at::TensorOptions(d));
       }},
      {"dropout with a seed",
       [](D d) {
         auto x = values({64}, 7, d);
         at::manual_seed(5);
         at::randn({3}, at::TensorOptions(d));  // dropped, and drawn all the same
         return std::get<0>(at::native_dropout(x, 0.5, true));
       }},
      {"transposed product",
       [](D d) {
         auto x = values({4, 5}, 7, d);
         return at::mm(x.t(), x).view({25}).slice(0, 3, 20, 2) * 2;
       }},
      {"as_strided",
       [](D d) {
         return values({4, 5}, 7, d).as_strided({3, 2}, {2, 1}, 1);
       }},
      {"as_strided of a view in its base's order",
       [](D d) {
         return values({4, 5}, 7, d).view({2, 10}).unsqueeze(0).as_strided({3, 2}, {2, 1}, 1);
       }},
      {"as_strided of a dense copy of a view",
       [](D d) {
         return values({4, 5}, 7, d)
             .t()
             .clone(at::MemoryFormat::Contiguous)
             .as_strided({3, 2}, {2, 1}, 1);
       }},
      {"gradient of an MLP",
       [](D d) {
         auto w = values({5, 5}, 7, d).requires_grad_(true);
         return gradient_of(at::gelu(at::linear(values({3, 5}, 4, d), w)).pow(2).mean(), w);
       }},
      {"gradient of a cross entropy",
       [](D d) {
         auto w = values({5, 7}, 7, d).requires_grad_(true);
         return gradient_of(at::cross_entropy_loss(at::mm(values({6, 5}, 4, d), w), ids({6}, 7, d)),
                            w);
       }},
      {"gradient of a mean squared error",
       [](D d) {
         auto w = values({5, 7}, 7, d).requires_grad_(true);
         return gradient_of(at::mse_loss(at::mm(values({6, 5}, 4, d), w), values({6, 7}, 3, d)), w);
       }},
      {"gradient of views",
       [](D d) {
         auto w = values({4, 6}, 7, d).requires_grad_(true);
         return gradient_of((w.slice(1, 1, 5).t() * 3).select(0, 2).sum(), w);
       }},
      {"gradients add up",
       [](D d) {
         auto w = values({5, 5}, 7, d).requires_grad_(true);
         for (int i = 0; i < 2; ++i) {
           run_backward({at::linear(values({3, 5}, 4, d), w).sum()}, {Tensor()}, false);
           Recording::current()->mark_step(true);
         }
         return w.grad().detach();
       }},
      {"masked_select",
       [](D d) {
         auto x = values({3, 6}, 7, d);
         return x.masked_select(x > 0);
       },
       1},
      {"nonzero",
       [](D d) {
         return (values({3, 6}, 7, d) > 0).nonzero().to(at::kFloat);
       },
       1},
  };
  return all;
}

void test_operators_equal_those_on_the_cpu(void**) {
  bool all_recorded = true;
  for (const Case& c : cases()) {
    const Tensor expected = c.run(kCpu);
    device_metrics::reset();
    const Tensor got = c.run(kXla).to(at::kCPU);
    const bool same = expected.sizes() == got.sizes() && at::allclose(expected, got, 1e-5, 1e-6);
    if (!same) std::printf("%s differs\n", c.name);
    assert_true(same);
    const auto fallbacks = static_cast<int>(device_metrics::counts().fallbacks);
    if (fallbacks != c.fallbacks) {
      std::printf("%s: %d fallbacks\n%s", c.name, fallbacks, device_metrics::report().c_str());
    }
    all_recorded = all_recorded && fallbacks == c.fallbacks;
  }
  assert_true(all_recorded);
}

// One step of w -= rate * gradient; a scalar that is another each time.
void step(Tensor& w, const Tensor& x, double rate) {
  const Tensor loss = at::tanh(at::linear(x, w)).pow(2).mean();
  run_backward({loss}, {Tensor()}, false);
  {
    const at::NoGradGuard no_grad;
    w.sub_(w.grad(), rate);
  }
  w.mutable_grad().reset();
  if (is_recorded(w)) Recording::current()->mark_step(true);
}

void test_a_step_is_one_graph_whatever_its_scalars(void**) {
  Tensor eager = values({4, 4}, 1, kCpu).requires_grad_(true);
  Tensor w = values({4, 4}, 1, kCpu).to(kXla).requires_grad_(true);
  const Tensor x = values({8, 4}, 2, kCpu), given = x.to(kXla);
  device_metrics::reset();
  for (int i = 0; i < 20; ++i) {
    step(eager, x, 0.01 * (i + 1));
    step(w, given, 0.01 * (i + 1));
  }
  const auto counts = device_metrics::counts();
  assert_int_equal(counts.executions, 20);
  assert_true(counts.compiles + counts.loads <= 2);
  assert_int_equal(counts.compiles + counts.loads + counts.cache_hits, 20);
  assert_int_equal(counts.implicit_syncs, 0);
  assert_int_equal(counts.fallbacks, 0);
  assert_true(at::allclose(eager.detach(), w.detach().to(at::kCPU), 1e-5, 1e-6));
  assert_true(GraphText(Recording::current()->step_graph()).lines().find("aten::tanh(f32[8, 4])") !=
              std::string::npos);
}

// The graphs differ in one place alone.
void test_other_graphs_are_compiled(void**) {
  // A program may come from the disk.
  const auto made = [] {
    const auto counts = device_metrics::counts();
    return counts.compiles + counts.loads;
  };
  const auto compiles = [&](const std::function<Tensor()>& run) {
    const auto before = made();
    const Tensor result = run();
    Recording::current()->mark_step(true);
    return made() - before;
  };
  const Tensor x = values({3, 3}, 1, kXla), y = values({3, 3}, 2, kXla);
  const auto call_of = [](const char* attributes, std::vector<int64_t> sizes,
                          const std::vector<Tensor>& inputs) {
    RecordedCall call{"test::zeros"};
    call.attributes = attributes;
    call.results = {at::empty(sizes, at::TensorOptions(at::kMeta))};
    call.function = [sizes](const std::vector<Tensor>&) {
      return std::vector<Tensor>{at::zeros(sizes)};
    };
    return record_call(std::move(call), inputs)[0];
  };
  const std::vector<std::function<Tensor()>> programs = {
      [&] { return call_of("one", {3}, {x}); },
      [&] { return call_of("another", {3}, {x}); },
      [&] { return call_of("one", {4}, {x}); },
      [&] {
        return call_of("one", {3}, {x, y});
      },
      [&] {
        return call_of("one", {3}, {Tensor(), x});
      },
      [&] { return at::softmax(x, 0); },
      [&] { return at::softmax(x, 1); },
      [&] { return x.sum({0}, false); },
      [&] { return x.sum({0}, true); },
      [&] { return x.sum({0}, false, at::kDouble); },
      [&] { return x - y * x; },
      [&] { return x - y * y; },
      [&] { return x + 1; },
      [&] { return x.to(at::kLong) + 1; },
      [&] { return x.to(at::kLong) + 1.5; },
      [&] {
        return at::cat({x, y});
      },
      [&] {
        return at::cat({x, y, x});
      },
      [&] { return at::arange(3, at::TensorOptions(kXla)); },
      [&] { return at::arange(4, at::TensorOptions(kXla)); },
  };
  for (const auto& program : programs) {
    assert_int_equal(compiles(program), 1);
    assert_int_equal(compiles(program), 0);
  }
}

void test_reads_are_counted_by_operator(void**) {
  device_metrics::reset();
  const Tensor x = values({3}, 1, kXla) * 2;
  const double first = x.select(0, 0).item<double>();
  assert_true(first == values({3}, 1, kCpu)[0].item<double>() * 2);
  static_cast<void>((x + 1).to(at::kCPU));
  static_cast<void>(x.to(at::kCPU));  // known by now
  assert_int_equal(device_metrics::counts().implicit_syncs, 2);
  const std::string report = device_metrics::report();
  assert_true(report.find("implicit_sync aten::item 1\n") != std::string::npos);
  assert_true(report.find("implicit_sync aten::_to_copy 1\n") != std::string::npos);
}

// Through libtorch, from a library that knows nothing of this one.
void test_reads_of_foreign_code_are_counted_by_its_function(void**) {
  device_metrics::reset();
  for (int i = 0; i < 2; ++i) {
    assert_true(read_beside_libnxd((values({3}, 1, kXla) * 0).sum()) == 1);
  }
  const std::string report = device_metrics::report();
  const char* const wanted = "implicit_sync_at read_beside_libnxd aten::item 2\n";
  if (report.find(wanted) == std::string::npos) fail_msg("no %s in %s", wanted, report.c_str());
}

// Four calls, one of which has a result that is dropped, one of which depends on another.
void test_effects_run_in_program_order(void**) {
  std::vector<int> order;
  const auto effect = [&](const Tensor& x, int tag) {
    RecordedCall call{"test::effect"};
    call.is_effect = true;
    call.results = {at::empty(x.sizes(), at::TensorOptions(at::kMeta))};
    call.function = [&order, tag](const std::vector<Tensor>& in) {
      order.push_back(tag);
      return std::vector<Tensor>{in[0] * 2};
    };
    return record_call(std::move(call), {x})[0];
  };
  const Tensor x = values({4}, 1, kXla);
  Tensor last;
  {
    const Tensor first = effect(x, 1);
    effect(x, 2);
    last = effect(first, 3);
    effect(x + 1, 4);
  }
  assert_true(order.empty());
  Recording::current()->mark_step(true);
  assert_true((order == std::vector<int>{1, 2, 3, 4}));
  assert_true(at::allclose(last.to(at::kCPU), values({4}, 1, kCpu) * 4));
  order.clear();
  Recording::current()->mark_step(true);
  assert_true(order.empty());
}

void test_host_memory_is_copied_when_recorded(void**) {
  Tensor scale = at::scalar_tensor(2.0);
  Tensor x = at::ones({3});
  const Tensor moved = x.to(kXla);
  const Tensor y = moved * scale;
  scale.fill_(100);
  x.fill_(100);
  assert_true(at::equal(y.to(at::kCPU), at::full({3}, 2.0)));
  Tensor back = y.to(at::kCPU);
  back.fill_(7);
  assert_true(at::equal(y.to(at::kCPU), at::full({3}, 2.0)));
}

void test_errors_come_when_recorded_or_name_the_call(void**) {
  const Tensor x = values({3, 4}, 1, kXla);
  bool thrown = false;
  try {
    static_cast<void>(at::mm(x, x));
  } catch (const c10::Error&) {
    thrown = true;
  }
  assert_true(thrown);
  thrown = false;
  try {
    static_cast<void>(x + at::ones({3, 4}));
  } catch (const std::exception& error) {
    thrown = std::string(error.what()).find("on device xla:0") != std::string::npos;
  }
  assert_true(thrown);
  // An index that is out of range shows when the graph runs: the tensor is lost, the thread goes
  // on.
  const Tensor lost =
      at::index_put(values({6, 4}, 7, kXla), {ids({2}, 6, kXla) + 100}, values({2, 4}, 7, kXla));
  thrown = false;
  try {
    Recording::current()->mark_step(true);
  } catch (const std::exception& error) {
    thrown = std::string(error.what()).find("aten::index_put") != std::string::npos;
  }
  assert_true(thrown);
  thrown = false;
  try {
    static_cast<void>(lost.to(at::kCPU));
  } catch (const std::exception& error) {
    thrown = std::string(error.what()).find("failed") != std::string::npos;
  }
  assert_true(thrown);
  assert_true(at::allclose((x + 1).to(at::kCPU), values({3, 4}, 1, kCpu) + 1));
}

// The device has values, not memory: strides over a view's memory would find other elements.
void test_as_strided_of_a_reordered_view_is_rejected(void**) {
  const Tensor x = values({4, 5}, 1, kXla);
  const Tensor views[] = {x.t(), x.t().unsqueeze(0), x.slice(0, 1, 3), x.select(1, 2)};
  // The second time their values are known.
  for (int round = 0; round < 2; ++round) {
    for (const Tensor& view : views) {
      bool thrown = false;
      try {
        static_cast<void>(view.as_strided({2}, {1}, 0));
      } catch (const std::exception& error) {
        thrown = std::string(error.what()).find("clone it first") != std::string::npos;
      }
      assert_true(thrown);
    }
    Recording::current()->mark_step(true);
  }
}

void test_threads_record_apart(void**) {
  const Tensor x = values({3}, 1, kXla);
  Tensor there;
  std::thread other([&] {
    there = x + 1;
    Recording::current()->mark_step(true);
    there = there * 2;
  });
  other.join();
  const auto before = device_metrics::counts().executions;
  Recording::current()->mark_step(true);
  assert_int_equal(device_metrics::counts().executions, before);
  assert_true(at::allclose((there + x).to(at::kCPU),
                           (values({3}, 1, kCpu) + 1) * 2 + values({3}, 1, kCpu)));
}

// Taken apart without recursion.
void test_long_chains(void**) {
  Tensor x = values({1}, 1, kXla);
  for (int i = 0; i < 100000; ++i) x = x + 1;
  x.reset();
  Recording::current()->mark_step(true);
}

int set_up(void**) {
  use_xla_device();
  return 0;
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators_equal_those_on_the_cpu),
      cmocka_unit_test(test_a_step_is_one_graph_whatever_its_scalars),
      cmocka_unit_test(test_other_graphs_are_compiled),
      cmocka_unit_test(test_reads_are_counted_by_operator),
      cmocka_unit_test(test_reads_of_foreign_code_are_counted_by_its_function),
      cmocka_unit_test(test_effects_run_in_program_order),
      cmocka_unit_test(test_host_memory_is_copied_when_recorded),
      cmocka_unit_test(test_errors_come_when_recorded_or_name_the_call),
      cmocka_unit_test(test_as_strided_of_a_reordered_view_is_rejected),
      cmocka_unit_test(test_threads_record_apart),
      cmocka_unit_test(test_long_chains),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
