// The recorded device through the header: tensors moved, metrics, texts, rejections.
#include <string>
#include <thread>
#include <vector>

#include "support/device.h"
#include "support/pjrt.h"
#include "support/sanitized.h"
#include "support/tensor.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Tensor moved(const Tensor& x, nxd_device_t device) {
  Tensor out;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), device, out.out()));
  return out;
}

template <class Get>
std::string text_by(Get&& get) {
  size_t needed = 0;
  NXD_TEST_OK(get(nullptr, 0, &needed));
  std::string buffer(needed, '\0');
  NXD_TEST_OK(get(buffer.data(), buffer.size(), &needed));
  buffer.pop_back();
  return buffer;
}

void test_tensors_move_and_are_computed_with(void**) {
  const Tensor x = wave({3, 4}, NXD_DTYPE_F32, 1);
  const Tensor there = moved(x, NXD_DEVICE_XLA);
  nxd_device_t device = NXD_DEVICE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_device(there.get(), &device));
  assert_int_equal(device, NXD_DEVICE_XLA);
  NXD_TEST_OK(nxd_device_reset_metrics());
  const Tensor sum = op("sum", {{"self", op("relu", {{"self", there}})}});
  NXD_TEST_OK(nxd_mark_step(1));
  NXD_TEST_CLOSE("sum", moved(sum, NXD_DEVICE_CPU),
                 op("sum", {{"self", op("relu", {{"self", x}})}}), 1e-6);
  assert_int_equal(metrics().steps, 1);
  assert_int_equal(metrics().executions, 1);
  assert_int_equal(metrics().implicit_syncs, 0);
  // x, and the sum, which alone is held.
  assert_int_equal(metrics().argument_bytes, 48);
  assert_int_equal(metrics().result_bytes, 4);
  // Each has a time if it was done, whether graphs are compiled here, loaded or replayed.
  const nxd_device_metrics_t m = metrics();
  assert_true(m.execute_seconds > 0);
  assert_int_equal(m.compile_seconds > 0, m.compiles > 0);
  assert_int_equal(m.load_seconds > 0, m.loads > 0);
  assert_true(step_graph(NXD_GRAPH_FORMAT_TEXT) ==
              "%1 f32[3, 4] = aten::relu(f32[3, 4]) of %0\n"
              "%2 f32[] = aten::sum(f32[3, 4]) of %1\n");
  assert_true(step_graph(NXD_GRAPH_FORMAT_DOT) ==
              "digraph step {\n"
              "  node [shape=box];\n"
              "  in0 [shape=ellipse, label=\"%0 f32[3, 4]\"];\n"
              "  n0 [label=\"%1 f32[3, 4]\\naten::relu(f32[3, 4])\"];\n"
              "  in0 -> n0 [label=\"%0\"];\n"
              "  n1 [label=\"%2 f32[]\\naten::sum(f32[3, 4])\"];\n"
              "  n0 -> n1 [label=\"%1\"];\n"
              "}\n");
  assert_true(step_graph(NXD_GRAPH_FORMAT_STABLEHLO).find("\"stablehlo.maximum\"(%arg0, ") !=
              std::string::npos);
  const std::string report = text_by(nxd_device_get_report);
  for (const char* wanted : {"\nexecutions 1\n", "\nargument_bytes 48\n", "\nresult_bytes 4\n"}) {
    if (report.find(wanted) == std::string::npos) fail_msg("no %s in %s", wanted, report.c_str());
  }
  // In place, from and to the host.
  const std::vector<float> twos(12, 2.0F);
  std::vector<float> back(12);
  NXD_TEST_OK(nxd_tensor_copy_from_host(there.get(), twos.data(), 48));
  NXD_TEST_OK(nxd_tensor_copy_to_host(there.get(), back.data(), 48));
  assert_true(back == twos);
  Tensor zeros;
  const int64_t shape[] = {2, 2};
  NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_XLA, zeros.out()));
  assert_true(op("sum", {{"self", zeros}}).item() == 0);
  assert_int_equal(metrics().fallbacks, 0);
}

// By moves: a loss on the CPU of a leaf on the device, and one of a leaf on the CPU.
void test_gradients_go_from_device_to_device(void**) {
  const Tensor here = wave({3}, NXD_DTYPE_F32, 1);
  const Tensor wanted = op("mul", "Scalar", {{"self", here}, {"other", 2.0}});
  for (const nxd_device_t device : {NXD_DEVICE_XLA, NXD_DEVICE_CPU}) {
    const Tensor x = moved(here, device);
    NXD_TEST_OK(nxd_tensor_set_requires_grad(x.get(), 1));
    const auto loss = [&] {
      const Tensor there = moved(x, NXD_DEVICE_XLA);
      return moved(op("sum", {{"self", op("mul", "Tensor", {{"self", there}, {"other", there}})}}),
                   NXD_DEVICE_CPU);
    };
    backward(loss());
    NXD_TEST_CLOSE("accumulated", moved(x.grad(), NXD_DEVICE_CPU), wanted, 1e-6);
    const Tensor of = loss();
    nxd_tensor_t *output = of.get(), *input = x.get();
    Tensor found;
    NXD_TEST_OK(nxd_grad(&output, nullptr, 1, &input, 1, 0, found.out()));
    NXD_TEST_CLOSE("given", moved(found, NXD_DEVICE_CPU), wanted, 1e-6);
  }
}

nxd_status_t read_pending(void* user_data) {
  const Tensor doubled =
      op("mul", "Scalar", {{"self", *static_cast<Tensor*>(user_data)}, {"other", 2.0}});
  doubled.item();
  return NXD_OK;
}

// The innermost function of the header asks for a value.
void test_implicit_syncs_are_counted_by_call_site(void**) {
  const Tensor x = moved(wave({1}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  const auto doubled = [&] { return op("mul", "Scalar", {{"self", x}, {"other", 2.0}}); };
  float back = 0;
  NXD_TEST_OK(nxd_device_reset_metrics());
  doubled().item();
  NXD_TEST_OK(nxd_tensor_copy_to_host(doubled().get(), &back, sizeof back));
  Tensor given = moved(wave({1}, NXD_DTYPE_F32, 2), NXD_DEVICE_XLA);
  NXD_TEST_OK(nxd_add_step_closure(read_pending, &given, nullptr));
  NXD_TEST_OK(nxd_mark_step(1));
  assert_int_equal(metrics().implicit_syncs, 3);
  const std::string report = text_by(nxd_device_get_report);
  for (const char* wanted : {"\nimplicit_sync_at nxd_tensor_get_item aten::item 2\n",
                             "\nimplicit_sync_at nxd_tensor_copy_to_host "}) {
    if (report.find(wanted) == std::string::npos) fail_msg("no %s in %s", wanted, report.c_str());
  }
  NXD_TEST_OK(nxd_device_reset_metrics());
  assert_true(text_by(nxd_device_get_report).find("implicit_sync_at") == std::string::npos);
}

// A closure that writes its number down, reads a value, and may fail or add another one.
struct Closure {
  std::vector<int>* calls;
  int number;
  nxd_tensor_t* reads = nullptr;
  double seen = 0;
  nxd_status_t status = NXD_OK;
  Closure* adds = nullptr;
  int destroyed = 0;
};

nxd_status_t run_closure(void* user_data);

void destroy_closure(void* user_data) { ++static_cast<Closure*>(user_data)->destroyed; }

void add(Closure& closure) {
  NXD_TEST_OK(nxd_add_step_closure(run_closure, &closure, destroy_closure));
}

nxd_status_t run_closure(void* user_data) {
  auto& self = *static_cast<Closure*>(user_data);
  self.calls->push_back(self.number);
  if (self.reads) NXD_TEST_OK(nxd_tensor_get_item(self.reads, &self.seen));
  if (self.adds) add(*self.adds);
  return self.status;
}

void test_closures_run_in_order_after_the_graph(void**) {
  const Tensor x = moved(wave({3}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  const Tensor sum = op("sum", {{"self", x}});
  std::vector<int> calls;
  Closure third{&calls, 3}, second{&calls, 2}, first{&calls, 1};
  first.reads = sum.get();
  first.adds = &third;
  NXD_TEST_OK(nxd_device_reset_metrics());
  add(first);
  add(second);
  assert_true(calls.empty());
  NXD_TEST_OK(nxd_mark_step(1));
  assert_true((calls == std::vector<int>{1, 2}));
  assert_true(first.seen == sum.item());
  assert_int_equal(metrics().executions, 1);
  assert_int_equal(metrics().implicit_syncs, 0);
  assert_int_equal(first.destroyed + second.destroyed, 2);
  assert_int_equal(third.destroyed, 0);
  // The one that a closure has added comes next, though nothing is recorded.
  NXD_TEST_OK(nxd_mark_step(1));
  assert_true((calls == std::vector<int>{1, 2, 3}));
  assert_int_equal(third.destroyed, 1);
  NXD_TEST_OK(nxd_mark_step(1));
  assert_int_equal(calls.size(), 3);
  assert_int_equal(metrics().steps, 1);
}

void test_closures_that_fail(void**) {
  std::vector<int> calls;
  Closure first{&calls, 1}, second{&calls, 2};
  first.status = NXD_ERROR_USER;
  add(first);
  add(second);
  assert_int_equal(nxd_mark_step(1), NXD_ERROR_USER);
  assert_true(std::string(nxd_last_error()).find("step closure") != std::string::npos);
  assert_true(calls == std::vector<int>{1});
  assert_int_equal(first.destroyed + second.destroyed, 2);
  // A graph that fails: an index that is out of range.
  const Tensor table = moved(wave({6, 4}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  const int64_t far = 100, shape[] = {1};
  Tensor ids;
  NXD_TEST_OK(nxd_tensor_from_data(&far, sizeof far, shape, 1, NXD_DTYPE_I64, ids.out()));
  const Tensor lost = op("take", {{"self", table}, {"index", moved(ids, NXD_DEVICE_XLA)}});
  add(second);
  assert_int_not_equal(nxd_mark_step(1), NXD_OK);
  assert_true(calls == std::vector<int>{1});
  assert_int_equal(second.destroyed, 2);
  NXD_TEST_OK(nxd_mark_step(1));
  // A thread that ends without another step.
  std::thread([&] { add(second); }).join();
  assert_int_equal(second.destroyed, 3);
  assert_true(calls == std::vector<int>{1});
}

// A read in the middle of a step does not hide its graph.
void test_a_cut_step_has_its_largest_graph(void**) {
  const Tensor x = moved(wave({5}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  const Tensor sum = op("sum", {{"self", op("relu", {{"self", op("exp", {{"self", x}})}})}});
  NXD_TEST_OK(nxd_device_reset_metrics());
  static_cast<void>(sum.item());
  assert_int_equal(metrics().steps, 0);
  const Tensor twice = op("neg", {{"self", sum}});
  NXD_TEST_OK(nxd_mark_step(1));
  assert_int_equal(metrics().steps, 1);
  assert_int_equal(metrics().executions, 2);
  assert_true(step_graph(NXD_GRAPH_FORMAT_TEXT).find("aten::exp") != std::string::npos);
}

// A view to the sizes that a tensor has is a node of the graph and nothing in the program: ranks
// have the same program then, and other places of its numbers in their graphs.
void test_a_rank_with_a_node_more(void**) {
  for (int viewing = 0; viewing < 2; ++viewing) {
    nxd_test_run_ranks(
        2, 2,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          Tensor scaled;
          {
            Tensor x = moved(from_doubles({1.0 + rank, 2}, {2}, NXD_DTYPE_F32), NXD_DEVICE_XLA);
            if (rank == *static_cast<int*>(user_data)) {
              x = op("view", "", {{"self", x}, {"size", std::vector<int64_t>{2}}});
            }
            Tensor sum;
            NXD_TEST_OK(nxd_reduce_from_tensor_region(ctx, x.get(), sum.out()));
            scaled = op("add", "Tensor", {{"self", sum}, {"other", sum}, {"alpha", 0.25}});
          }
          NXD_TEST_OK(nxd_mark_step(1));
          NXD_TEST_CHECK((values(scaled) == std::vector<double>{3.75, 5}));
        },
        &viewing);
  }
}

// A trial with zeros would divide by them.
void test_quotients_of_integers_are_recorded(void**) {
  const Tensor x = op("arange", {{"end", 7}}), there = moved(x, NXD_DEVICE_XLA);
  NXD_TEST_OK(nxd_device_reset_metrics());
  const Tensor by_number = op("floor_divide", "Scalar", {{"self", there}, {"other", -2}});
  const Tensor divisors = op("add", "Scalar", {{"self", there}, {"other", 1}});
  const Tensor by_tensor = op("floor_divide", {{"self", by_number}, {"other", divisors}});
  NXD_TEST_OK(nxd_mark_step(1));
  assert_int_equal(metrics().fallbacks, 0);
  assert_int_equal(metrics().executions, 1);
  const Tensor wanted = op("floor_divide", "Scalar", {{"self", x}, {"other", -2}});
  NXD_TEST_CLOSE("by a number", moved(by_number, NXD_DEVICE_CPU), wanted, 0);
  NXD_TEST_CLOSE("by a tensor", moved(by_tensor, NXD_DEVICE_CPU),
                 op("floor_divide", {{"self", wanted}, {"other", moved(divisors, NXD_DEVICE_CPU)}}),
                 0);
}

// More than a process can address: the step says so, and names the operator where it is replayed.
void test_a_step_without_memory(void**) {
  if (kSanitized) return;  // its allocator ends the process
  const Tensor x = moved(wave({4}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  {
    const Tensor large =
        op("repeat", {{"self", x}, {"repeats", std::vector<int64_t>{int64_t{1} << 45}}});
    assert_int_equal(nxd_mark_step(1), NXD_ERROR_OUT_OF_MEMORY);
    const std::string message = nxd_last_error();
    assert_true(message.find("aten::repeat(f32[4], ") != std::string::npos ||
                message.find("Out of memory allocating") != std::string::npos);
  }
  assert_true(std::isfinite(op("sum", {{"self", x}}).item()));
}

void test_bad_calls(void**) {
  const Tensor x = moved(wave({2}, NXD_DTYPE_F32, 1), NXD_DEVICE_XLA);
  Tensor out;
  assert_int_equal(nxd_tensor_to_device(nullptr, NXD_DEVICE_XLA, out.out()),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_tensor_to_device(x.get(), NXD_DEVICE_XLA, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_tensor_to_device(x.get(), 17, out.out()), NXD_ERROR_INVALID_ARGUMENT);
  NXD_TEST_REFUSED(nxd_tensor_to_device(x.get(), NXD_DEVICE_NEURON, out.out()),
                   NXD_ERROR_UNSUPPORTED, "Neuron's plug-in runs NXD_DEVICE_XLA");
  void* data = nullptr;
  assert_int_equal(nxd_tensor_get_data(x.get(), &data), NXD_ERROR_UNSUPPORTED);
  DLManagedTensor* managed = nullptr;
  assert_int_equal(nxd_tensor_to_dlpack(x.get(), &managed), NXD_ERROR_UNSUPPORTED);
  assert_int_equal(nxd_mark_step(2), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_device_get_metrics(nullptr), NXD_ERROR_INVALID_ARGUMENT);
  nxd_device_metrics_t unset = {};
  assert_int_equal(nxd_device_get_metrics(&unset), NXD_ERROR_ABI_MISMATCH);
  // The first struct ended before the loads.
  nxd_device_metrics_t first = {};
  first.struct_size = offsetof(nxd_device_metrics_t, loads);
  first.argument_bytes = 99;
  NXD_TEST_OK(nxd_device_get_metrics(&first));
  assert_true(first.executions > 0 && first.argument_bytes == 99);
  size_t needed = 0;
  char small[2];
  assert_int_equal(nxd_device_get_report(small, 2, &needed), NXD_ERROR_INVALID_ARGUMENT);
  assert_true(needed > 2);
  assert_int_equal(nxd_device_get_report(nullptr, 9, &needed), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_device_get_step_graph(NXD_GRAPH_FORMAT_TEXT, nullptr, 0, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_device_get_step_graph(3, nullptr, 0, &needed), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(nxd_add_step_closure(nullptr, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors_move_and_are_computed_with),
      cmocka_unit_test(test_gradients_go_from_device_to_device),
      cmocka_unit_test(test_implicit_syncs_are_counted_by_call_site),
      cmocka_unit_test(test_closures_run_in_order_after_the_graph),
      cmocka_unit_test(test_closures_that_fail),
      cmocka_unit_test(test_a_cut_step_has_its_largest_graph),
      cmocka_unit_test(test_a_rank_with_a_node_more),
      cmocka_unit_test(test_quotients_of_integers_are_recorded),
      cmocka_unit_test(test_a_step_without_memory),
      cmocka_unit_test(test_bad_calls),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
