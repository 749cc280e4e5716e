// Changes that a forward of a TorchScript module makes to buffers, buffers that share memory,
// counters and lists. Each is changed once for each call, whether the call is recomputed or is a
// stage's, and is saved by a rank that has it. Gradients of embeddings are dense.
#include <torch/csrc/jit/serialization/import.h>

#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

at::Tensor tensor_of(const Tensor& x) { return numbers_of(values(x.get())).reshape({-1, 6}); }

// Keeps a running mean in place, as a batch norm does. It has no parameters.
jit::Module averaging() {
  jit::Module made("__torch__.Averaging");
  made.register_buffer("mean", at::zeros({6}, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      self.mean.mul_(0.5).add_(torch.mean(x.detach(), [0]))
      return x + self.mean
  )");
  return made;
}

// Two modules without parameters below one that is not called: the cut comes between them.
jit::Module grouped() {
  jit::Module made("__torch__.Grouped"), group("__torch__.Group");
  group.register_module("first", averaging());
  group.register_module("second", averaging());
  group.register_module("unused", averaging());
  made.register_module("group", group);
  made.register_module("inner", linear("Inner", 6, 6, at::kDouble));
  made.register_buffer("scale", at::ones({6}, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = self.inner.forward(self.group.first.forward(x))
      return torch.mean(torch.tanh(self.group.second.forward(y * self.scale)))
  )");
  return made;
}

// A file of stages has each buffer as the stage that writes to it left it, and those that no stage
// uses.
void saved_by_their_stages(void**) {
  jit::Module own = grouped();
  own.attr("group").toModule().attr("unused").toModule().attr("mean").toTensor().fill_(7);
  const File file(own);
  const std::string weights = file.directory.path() + "/weights.safetensors";
  jit::Module whole = jit::load(file.path);
  for (int part = 0; part < 2; ++part) whole.forward({tensor_of(rows(2 * part, 2))});
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    const Pipeline pp = make_two_stages(model.get(), batch, "inner", 2);
    if (!pp) return;
    const auto given = handles(batch);
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), given.data(), 1, nullptr));
    NXD_TEST_OK(nxd_module_save_safetensors(local_module(pp.get()), weights.c_str()));
    const Module again = load(ctx, file.path);
    NXD_TEST_OK(nxd_module_load_safetensors(again.get(), weights.c_str(), 1, nullptr));
    for (const auto& buffer : whole.named_buffers(true)) {
      nxd_tensor_t* out = nullptr;
      if (!NXD_TEST_OK(nxd_module_share_buffer(again.get(), buffer.name.c_str(), &out))) continue;
      check_values(buffer.name, values(Tensor(out).get()), values_of(buffer.value), 1e-12);
    }
  });
}

// The losses of two calls and of a third. Gradients of the first two: of calls that are recomputed
// after both of them. Others would find what the second has written, so theirs come at once.
struct Calls {
  std::vector<double> losses;
  Named gradients;
};

Calls run_calls(nxd_context_t* ctx, const File& file, bool recomputed) {
  const Module model = load(ctx, file.path);
  const char* const name = "inner";
  NXD_TEST_OK(nxd_apply_checkpoint(model.get(), &name, 1, recomputed ? 1 : 0));
  Calls calls;
  std::vector<Tensor> kept;
  for (int call = 0; call < 3; ++call) {
    if (call == 2 && recomputed) {
      for (const Tensor& loss : kept) backward_of(loss);
    }
    const Tensor x = rows(4 * call, 4);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return calls;
    kept.emplace_back(out);
    calls.losses.push_back(item(out));
    if (call < 2 && !recomputed) backward_of(kept.back());
  }
  calls.gradients = whole_gradients(model.get());
  return calls;
}

void check_recomputed(const jit::Module& inner) {
  jit::Module made("__torch__.Outer");
  made.register_module("inner", inner);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.sum(torch.pow(self.inner.forward(x), 2))
  )");
  const File file(made);
  jit::Module own = jit::load(file.path);
  std::vector<double> losses;
  for (int call = 0; call < 3; ++call) {
    losses.push_back(own.forward({tensor_of(rows(4 * call, 4))}).toTensor().item<double>());
  }
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Calls want = run_calls(ctx, file, false), got = run_calls(ctx, file, true);
    check_values("losses", want.losses, losses, 1e-12);
    check_values("recomputed losses", got.losses, losses, 1e-12);
    check_named("gradients", got.gradients, want.gradients, 1e-12);
    return 0;
  });
}

// The second of two modules reads what the first has written: they have one tensor.
void buffers_of_one_memory(void**) {
  const at::Tensor mean = at::zeros({6}, at::kDouble);
  jit::Module first("__torch__.First"), second("__torch__.Second"), made("__torch__.Both");
  first.register_buffer("mean", mean);
  second.register_buffer("mean", mean);
  first.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      self.mean.mul_(0.5).add_(torch.mean(x.detach(), [0]))
      return x
  )");
  second.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return x * self.mean
  )");
  made.register_module("layer", linear("Layer", 6, 6, at::kDouble));
  made.register_module("first", first);
  made.register_module("second", second);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return self.second.forward(self.first.forward(self.layer.forward(x)))
  )");
  check_recomputed(made);
}

// One tensor it is still after the module was cast.
void one_memory_after_a_cast(void**) {
  const at::Tensor mean = at::zeros({6}, at::kDouble);
  jit::Module made("__torch__.Both"), other("__torch__.Other");
  made.register_buffer("mean", mean);
  other.register_buffer("mean", mean);
  made.register_module("other", other);
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F32));
    nxd_tensor_t *one = nullptr, *two = nullptr;
    NXD_TEST_OK(nxd_module_share_buffer(model.get(), "mean", &one));
    NXD_TEST_OK(nxd_module_share_buffer(model.get(), "other.mean", &two));
    const Tensor first(one), second(two);
    void *at = nullptr, *there = nullptr;
    NXD_TEST_OK(nxd_tensor_get_data(one, &at));
    NXD_TEST_OK(nxd_tensor_get_data(two, &there));
    NXD_TEST_CHECK(at && at == there);
    return 0;
  });
}

// A count, a list, a tensor and a dictionary, which are no buffers.
void counters_and_lists(void**) {
  jit::Module made("__torch__.Counting");
  made.register_attribute("count", c10::IntType::get(), int64_t{0});
  made.register_attribute("history", c10::ListType::ofFloats(), c10::List<double>({1.0}));
  made.register_attribute("shift", c10::TensorType::get(), at::ones({6}, at::kDouble));
  made.register_attribute("by_name",
                          c10::DictType::create(c10::StringType::get(), c10::IntType::get()),
                          c10::Dict<std::string, int64_t>());
  made.register_module("layer", linear("Layer", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      self.count = self.count + 1
      self.history.append(float(self.count) * 0.5)
      self.shift.add_(1.0)
      self.by_name["calls"] = self.count
      scale = self.history[-1] + float(self.by_name["calls"])
      return self.layer.forward(x) * scale + self.shift
  )");
  check_recomputed(made);
}

// Each microbatch's forward lengthens the list, counts or adds; the trace does not.
void check_in_stages(const std::string& changes) {
  jit::Module made("__torch__.Listing");
  made.register_attribute("history", c10::ListType::ofFloats(), c10::List<double>({1.0}));
  made.register_attribute("count", c10::IntType::get(), int64_t{0});
  made.register_attribute("shift", c10::TensorType::get(), at::ones({6}, at::kDouble));
  made.register_module("layer", linear("Layer", 6, 6, at::kDouble));
  made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  " + changes +
              "\n  scale = self.history[-1] + float(self.count)\n" +
              "  return torch.mean(torch.pow(self.layer.forward(x) * scale + self.shift, 2))\n");
  const File file(made);
  jit::Module own = jit::load(file.path);
  std::vector<double> want;
  for (int run = 0; run < 2; ++run) {
    double sum = 0;
    for (int part = 0; part < 2; ++part) {
      sum += own.forward({tensor_of(rows(2 * part, 2))}).toTensor().item<double>();
    }
    want.push_back(sum / 2);
  }
  on_pipeline_ranks({1, 1, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 2;
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    const Pipeline pp = make_pipeline(model.get(), batch, options);
    if (!pp) return;
    for (const double expected : want) {
      double loss = 0;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
      check_loss("a run", loss, expected, 1e-12);
    }
  });
}

// A module with several parameters of one shape, called by two stages: each rank's copies of one
// parameter stay copies of that.
void parameters_of_two_stages(void**) {
  jit::Module made("__torch__.Outer"), part("__torch__.Part");
  std::string sum = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string name = "p" + std::to_string(i);
    part.register_parameter(name, numbers({6}, i).requires_grad_(), false);
    sum = "torch.tanh(" + sum + " * self." + name + " + " + std::to_string(i) + ".0)";
  }
  part.define("\ndef forward(self, x: Tensor) -> Tensor:\n  return " + sum + "\n");
  made.register_module("part", part);
  made.register_module("inner", linear("Inner", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.sum(self.part.forward(self.inner.forward(self.part.forward(x))))
  )");
  const File file(made);
  jit::Module whole = jit::load(file.path);
  whole.forward({tensor_of(rows(0, 4))}).toTensor().backward();
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    const Pipeline pp = make_two_stages(model.get(), batch, "inner", 1);
    if (!pp) return;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, nullptr));
    const Named values = whole_parameters(local_module(pp.get()));
    const Named gradients = whole_gradients(local_module(pp.get()));
    for (const auto& each : whole.named_parameters(true)) {
      if (values.count(each.name) == 0) continue;
      check_values(each.name, values.at(each.name), values_of(each.value), 1e-12);
      check_values(each.name, gradients.at(each.name), values_of(each.value.grad()), 1e-12);
    }
  });
}

void lists_of_stages(void**) { check_in_stages("self.history.append(self.history[-1] + 1.0)"); }
void counters_of_stages(void**) { check_in_stages("self.count = self.count + 1"); }

void tensors_of_stages(void**) {
  check_in_stages("self.shift.add_(1.0)");
  check_in_stages("self.shift.view(2, 3)[1] += 1.0");
}

// Gradients that the file asks to be sparse are dense, and train as those do.
void sparse_embeddings(void**) {
  std::vector<Named> gradients, parameters;
  for (const char* sparse : {"False", "True"}) {
    jit::Module made("__torch__.Sparse");
    made.register_parameter("table", numbers({5, 6}, 1).requires_grad_(), false);
    made.register_parameter("bag", numbers({5, 6}, 2).requires_grad_(), false);
    made.define(std::string("\ndef forward(self, x: Tensor) -> Tensor:\n") +
                "  i = (torch.abs(x) * 4.0).to(4)\n" +
                "  y = torch.embedding(self.table, i, -1, False, " + sparse + ")\n" +
                "  z = torch.embedding_bag(self.bag, i.view(-1), i.view(-1)[:1] * 0, False, 0, " +
                sparse + ", None)[0]\n" +
                "  return torch.sum(torch.pow(y, 2)) + torch.sum(z * z)\n");
    const File file(made);
    on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
      const Module model = load(ctx, file.path);
      nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
      options.learning_rate = 0.1;
      options.momentum = 0.9;
      nxd_optimizer_t* out = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_sgd(model.get(), &options, &out));
      const Optimizer sgd(out);
      for (int step = 0; step < 2; ++step) {
        NXD_TEST_OK(nxd_module_zero_grad(model.get()));
        const Tensor x = rows(step, 4);
        nxd_tensor_t *inputs[] = {x.get()}, *loss = nullptr;
        if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &loss, 1))) return 0;
        backward_of(Tensor(loss));
        NXD_TEST_OK(nxd_optimizer_step(sgd.get(), nullptr, nullptr));
      }
      gradients.push_back(whole_gradients(model.get()));
      parameters.push_back(whole_parameters(model.get()));
      return 0;
    });
  }
  if (parameters.size() != 2) return;
  check_named("gradients", gradients[1], gradients[0], 1e-12);
  check_named("parameters", parameters[1], parameters[0], 1e-12);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(saved_by_their_stages),   cmocka_unit_test(buffers_of_one_memory),
      cmocka_unit_test(one_memory_after_a_cast), cmocka_unit_test(counters_and_lists),
      cmocka_unit_test(lists_of_stages),         cmocka_unit_test(counters_of_stages),
      cmocka_unit_test(sparse_embeddings),       cmocka_unit_test(parameters_of_two_stages),
      cmocka_unit_test(tensors_of_stages),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
