// What a trace records, and what it refuses.
#include <unistd.h>

#include "capi/engine/unwrap.h"
#include "engine/inside/callback_support.h"
#include "engine/nn/caller_parameter.h"

#include "support/check.h"

using namespace nxd_test;
using nxd::TraceOptions;

namespace {

// Runs a function with a context of one rank; what it throws is a failure.
void on_one_rank(const std::function<void(nxd_context_t*)>& function) {
  const int before = nxd_test_failures();
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    try {
      function(ctx);
    } catch (const std::exception& error) {
      nxd_test_fail(__FILE__, __LINE__, "%s", error.what());
    }
    return 0;
  });
  assert_int_equal(nxd_test_failures(), before);
}

at::Tensor rows(int64_t n, int64_t features) {
  return at::arange(n * features, at::kFloat).view({n, features});
}

Graph trace_of(const Module& module, const Tensors& inputs, const TraceOptions& options = {},
               size_t n_outputs = 1) {
  return nxd::trace(module->value, inputs, n_outputs, options);
}

// A root with one child of class Block, called "block", whose forward is the function.
struct Tree {
  Module root, block;
};
Tree make_tree(nxd_context_t* ctx, Forward forward) {
  Tree tree{make_module(ctx, "Root",
                        [](nxd_module_t* self, const Tensors& in) {
                          return call_child(self, "block", in);
                        }),
            make_module(ctx, "Block", std::move(forward))};
  add_child(tree.root, "block", tree.block);
  add_child(tree.block, "inner", make_module(ctx, "Inner", [](nxd_module_t*, const Tensors& in) {
              return Tensors{in[0].sin()};
            }));
  return tree;
}

void check_text(const Graph& graph, const std::string& want) {
  const std::string got = graph.to_text();
  if (got != want) {
    nxd_test_fail(__FILE__, __LINE__, "expected:\n%s\ngot:\n%s", want.c_str(), got.c_str());
  }
}

void test_text(void**) {
  on_one_rank([](nxd_context_t* ctx) {
    const at::Tensor scale = at::full({3}, 0.5F);
    const Tree tree = make_tree(ctx, [scale](nxd_module_t* self, const Tensors& in) {
      const at::Tensor weight = parameter_of(self, "weight");
      at::Tensor x = at::matmul(in[0], weight.t()) * scale;
      x.add_(1);
      const at::Tensor parts = at::cat({x, call_child(self, "inner", {x})[0]}, -1);
      const float values[] = {1, 2, 3, 4};
      nxd_tensor_t* made = nullptr;
      const int64_t size = 4;
      nxd::check_callback(
          nxd_tensor_from_data(values, sizeof values, &size, 1, NXD_DTYPE_F32, &made), "from_data");
      const at::NoGradGuard no_grad;
      return Tensors{at::index_select(parts, 1, at::tensor({0, 1, 3, 5})) + Tensor(made)->value};
    });
    add_parameter(tree.block, "weight", {3, 2});
    const Graph graph = trace_of(tree.root, {rows(2, 2), {}}, {{}, {}, {"x", "left_out"}});
    check_text(graph, R"(inputs: x, left_out
x: f32[2, 2] = input 0
)");
  });
}

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
