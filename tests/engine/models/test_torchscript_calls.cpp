// Calls of submodules that take flags and numbers and give None, forwards that branch on their
// mode, and tensors that code makes of numbers and lists: run, recomputed and cut beside libtorch
// and a model in one piece.
#include <torch/csrc/jit/api/module.h>

#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// Gives a second tensor if told so, which depends on no parameter of another block.
jit::Module block(const std::string& name) {
  jit::Module made("__torch__." + name);
  made.register_attribute("training", c10::BoolType::get(), true);
  made.register_module("inner", linear(name + "Inner", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor, scale: float, index: int, extra: bool, shift: Optional[int]) -> Tuple[Tensor, Optional[Tensor]]:
      y = torch.tanh(self.inner.forward(x)) * scale * (index + 1)
      if self.training:
        y = y * 1.5
      if shift is not None:
        y = y + shift
      more: Optional[Tensor] = None
      if extra:
        more = torch.mean(y * y)
      return x + y, more
  )");
  return made;
}

// The mode decides how the last submodule is called.
jit::Module with_flags() {
  jit::Module made("__torch__.Flags");
  made.register_attribute("training", c10::BoolType::get(), true);
  made.register_module("first", block("A"));
  made.register_module("second", block("B"));
  made.register_module("third", block("C"));
  made.register_module("last", linear("D", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      a, one = self.first.forward(x, 0.5, 0, True, None)
      b, two = self.second.forward(a, 0.25, 1, False, 2)
      c, three = self.third.forward(b, 1.0 / x.size(1), x.dim(), x.size(1) == 6, None)
      y = self.last.forward(c) if self.training else self.last.forward(torch.tanh(c)) * 3.0
      loss = torch.mean(y * y)
      if one is not None:
        loss = loss + one
      if two is not None:
        loss = loss * 100.0
      if three is not None:
        loss = loss + three
      return loss
  )");
  return made;
}

std::vector<Tensor> one_batch(int64_t first, int64_t count) {
  std::vector<Tensor> batch;
  batch.push_back(rows(first, count));
  return batch;
}

double loss_of(nxd_module_t* model, const std::vector<Tensor>& batch, bool backward) {
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_module_forward(model, handles(batch).data(), batch.size(), &out, 1));
  const Tensor loss(out);
  if (backward) backward_of(loss);
  return item(loss.get());
}

void as_libtorch_runs_them(void**) {
  const File file(with_flags());
  jit::Module module = jit::load(file.path);
  const std::vector<Tensor> batch = one_batch(0, 4);
  const std::vector<c10::IValue> given{numbers_of(values(batch[0].get())).reshape({4, 6})};
  module.eval();
  const double evaluated = module.forward(given).toTensor().item<double>();
  module.train();
  const at::Tensor trained = module.forward(given).toTensor();
  trained.backward();
  Named gradients;
  for (const auto& entry : module.named_parameters()) {
    if (entry.value.grad().defined()) gradients[entry.name] = values_of(entry.value.grad());
  }
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    for (const bool recomputed : {false, true}) {
      const char* names[] = {"first", "third"};
      if (recomputed) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 2, 1));
      NXD_TEST_OK(nxd_module_zero_grad(model.get()));
      const double loss = loss_of(model.get(), batch, true);
      check_loss("training", loss, trained.item<double>(), rounding());
      check_named("gradient", whole_gradients(model.get()), gradients, 1e-12);
    }
    NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
    check_loss("evaluation", loss_of(model.get(), batch, false), evaluated, rounding());
    return 0;
  });
}

// Behind a block, and inside of one.
void cut_behind_flags(void**) {
  const File file(with_flags());
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    return one_batch(8 * step + dp_rank * (8 / dp), 8 / dp);
  };
  task.options.num_microbatches = 4;
  task.learning_rate = 0.01;
  check_cuts(task, {{"first"}, {"second.inner"}, {"first.inner", "second", "third"}});
}

// A pipeline runs what the mode of the run asks for, wherever the mode is set.
void modes_in_a_pipeline(void**) {
  const File file(with_flags());
  const std::vector<Tensor> batch = one_batch(0, 4);
  double trained = 0, evaluated = 0, partly = 0;
  const auto set_part = [](nxd_module_t* model, int32_t training) {
    nxd_module_t* part = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model, "first", &part));
    NXD_TEST_OK(nxd_module_set_training(part, training));
  };
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    trained = loss_of(model.get(), batch, false);
    set_part(model.get(), 0);
    partly = loss_of(model.get(), batch, false);
    NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
    evaluated = loss_of(model.get(), batch, false);
  });
  PipelineLayout two;
  two.pp = 2;
  on_pipeline_ranks(two, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path);
    const Pipeline pp = make_two_stages(model.get(), batch, "second", 1);
    if (!pp) return;
    const auto run = [&](auto function, double wanted) {
      double loss = NAN;
      NXD_TEST_OK(function(&loss));
      if (rank == 1) check_loss("loss", loss, wanted, rounding());
    };
    const auto train = [&](double* loss) {
      return nxd_pp_run_train(pp.get(), handles(batch).data(), 1, loss);
    };
    const auto evaluate = [&](double* loss) {
      return nxd_pp_run_eval(pp.get(), handles(batch).data(), 1, loss, nullptr, 0);
    };
    run(train, trained);
    run(evaluate, evaluated);
    run(train, trained);
    nxd_module_t* const local = local_module(pp.get());
    NXD_TEST_OK(nxd_module_set_training(local, 0));
    run(train, evaluated);
    NXD_TEST_OK(nxd_module_set_training(local, 1));
    run(train, trained);
    // On one rank alone: of the whole, and of a part that branches.
    double loss = NAN;
    if (rank == 1) NXD_TEST_OK(nxd_module_set_training(local, 0));
    NXD_TEST_REFUSED(train(&loss), NXD_ERROR_INVALID_ARGUMENT, "the model's mode");
    if (rank == 1) NXD_TEST_OK(nxd_module_set_training(local, 1));
    run(train, trained);
    if (rank == 1) set_part(model.get(), 0);
    NXD_TEST_REFUSED(train(&loss), NXD_ERROR_INVALID_ARGUMENT, "modes (training or evaluation)");
    if (rank == 0) set_part(model.get(), 0);
    run(train, partly);
    set_part(model.get(), 1);
    run(train, trained);
  });
}

// Each run of two stages has the loss that libtorch has, whose code keeps nothing between runs.
void check_in_two_stages(const char* name, const std::string& code) {
  jit::Module made("__torch__.Made");
  made.register_module("first", linear("First", 6, 6, at::kDouble));
  made.register_module("second", linear("Second", 6, 6, at::kDouble));
  made.define("\ndef forward(self, x: Tensor) -> Tensor:\n" + code);
  const File file(made);
  jit::Module own = jit::load(file.path);
  double want = 0;
  for (const int64_t part : {0, 2}) {
    const at::Tensor given = numbers_of(values(rows(part, 2).get())).reshape({2, 6});
    want += own.forward({given}).toTensor().item<double>() / 2;
  }
  const std::vector<Tensor> batch = one_batch(0, 4);
  PipelineLayout two;
  two.pp = 2;
  on_pipeline_ranks(two, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path);
    const Pipeline pp = make_two_stages(model.get(), batch, "first", 2);
    if (!pp) return;
    for (int run = 0; run < 3; ++run) {
      double loss = NAN;
      if (!NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss))) return;
      if (rank == 1) check_loss(name, loss, want, 1e-12);
    }
  });
}

constexpr const char* kBothLayers = "  y = self.second.forward(self.first.forward(x))\n";

void tensors_of_lists(void**) {
  for (const char* made : {"torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])",
                           "torch.as_tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])",
                           "torch.tensor([1, 2, 3, 4, 5, 6], dtype=7)"}) {
    check_in_two_stages(made,
                        kBothLayers + ("  return torch.mean(y * " + std::string(made)) + ")\n");
  }
  check_in_two_stages("indices",
                      std::string(kBothLayers) + "  return torch.mean(y[:, [0, 2, 4]])\n");
}

// Each run begins with the number, whatever the code adds to it.
void tensors_of_numbers(void**) {
  for (const char* number :
       {"torch.tensor(0.5)", "torch.tensor(x.size(1))", "torch.as_tensor(2)"}) {
    check_in_two_stages(number,
                        "  h = self.first.forward(x)\n  count = " + std::string(number) + R"(
  count *= 3
  total = )" + number + R"(.to(7, False, True)
  total += torch.mean(h)
  total += torch.mean(self.second.forward(h))
  return total + count
)");
  }
}

// Values of a trace are on no device.
void devices_of_tensors(void**) {
  for (const char* asked : {"h.device.type == \"cpu\"", "h.is_cpu", "not h.is_meta",
                            "h.device == torch.zeros([1]).device"}) {
    check_in_two_stages(asked, "  h = self.first.forward(x)\n  h = h + 1.0 if " +
                                   std::string(asked) + R"( else h + 2.0
  return torch.mean(self.second.forward(h.to(h.device)))
)");
  }
}

void reads_of_lists(void**) {
  jit::Module made("__torch__.Made");
  made.register_module("first", linear("First", 6, 6, at::kDouble));
  made.register_module("second", linear("Second", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      h = self.first.forward(x)
      known: List[float] = torch.arange(6, dtype=7).tolist()
      first: List[float] = h.detach()[0].tolist()
      return torch.mean(self.second.forward(h)) * (first[0] + known[1])
  )");
  const File file(made);
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    const std::vector<Tensor> batch = one_batch(0, 4);
    NXD_TEST_CHECK(std::isfinite(loss_of(model.get(), batch, true)));
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 1;
    nxd_pp_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(model.get(), handles(batch).data(), 1, &options, &out),
                     NXD_ERROR_UNSUPPORTED, "reads a value (tolist)");
  });
}

// A flag or a number from outside.
void numbers_as_tensors(void**) {
  const File file(block("Alone"));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 2);
    const double half = 0.5;
    const int64_t zero = 0;
    const unsigned char yes = 1;
    const auto number = [](const void* data, size_t bytes, nxd_dtype_t dtype) {
      nxd_tensor_t* out = nullptr;
      NXD_TEST_OK(nxd_tensor_from_data(data, bytes, nullptr, 0, dtype, &out));
      return Tensor(out);
    };
    const Tensor scale = number(&half, sizeof half, NXD_DTYPE_F64),
                 index = number(&zero, sizeof zero, NXD_DTYPE_I64),
                 extra = number(&yes, sizeof yes, NXD_DTYPE_BOOL);
    nxd_tensor_t *inputs[] = {x.get(), scale.get(), index.get(), extra.get(), nullptr},
                 *outputs[3] = {};
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 5, outputs, 2));
    const Tensor y(outputs[0]), more(outputs[1]);
    NXD_TEST_CHECK(more != nullptr && values(more.get()).size() == 1);
    inputs[3] = index.get();
    NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 5, outputs, 2),
                     NXD_ERROR_INVALID_ARGUMENT, "of BOOL for a flag");
    const unsigned char no = 0;
    const Tensor plain = number(&no, sizeof no, NXD_DTYPE_BOOL);
    inputs[3] = plain.get();
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 5, outputs, 2));
    const Tensor same(outputs[0]);
    NXD_TEST_CHECK(values(same.get()) == values(y.get()) && outputs[1] == nullptr);
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 5, outputs, 1));
    const Tensor alone(outputs[0]);
    NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 5, outputs, 3),
                     NXD_ERROR_INVALID_ARGUMENT, "gives 1 outputs");
    return 0;
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(as_libtorch_runs_them), cmocka_unit_test(cut_behind_flags),
      cmocka_unit_test(modes_in_a_pipeline),   cmocka_unit_test(numbers_as_tensors),
      cmocka_unit_test(tensors_of_lists),      cmocka_unit_test(tensors_of_numbers),
      cmocka_unit_test(devices_of_tensors),    cmocka_unit_test(reads_of_lists)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
