// Modules of TorchScript files: values, losses and gradients are those of libtorch's own run of the
// file; one that calls submodules trains in any layout as on one rank, and is written back; files
// and forwards that cannot work are refused by name.
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <fstream>

#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// As nn.Sequential: the forward passes its input on from child to child.
jit::Module chain(at::ScalarType dtype = at::kDouble, const char* bend = "torch.tanh(x)") {
  jit::Module made("__torch__.Chain");
  made.register_module("first", linear("First", 6, 8, dtype));
  made.register_module("bend", function("Bend", bend));
  made.register_module("second", linear("Second", 8, 6, dtype));
  made.register_module("loss", function("Loss", "torch.mean(x * x)"));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      x = self.first.forward(x)
      x = self.bend.forward(x)
      x = self.second.forward(x)
      return self.loss.forward(x)
  )");
  return made;
}

void as_libtorch_runs_it(void**) {
  const File file(chain());
  const Wanted wanted = run_by_libtorch(file.path, 4);
  const jit::Module own = jit::load(file.path);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    Named want;
    for (const auto& entry : own.named_parameters()) want[entry.name] = values_of(entry.value);
    NXD_TEST_CHECK(want.size() == 4 && whole_parameters(model.get()) == want);
    const char* name = nullptr;
    nxd_module_t* first = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), "first", &first));
    NXD_TEST_OK(nxd_module_get_class_name(first, &name));
    NXD_TEST_CHECK(std::string(name) == "First");
    for (int run = 0; run < 3; ++run) {  // libtorch would compile the later ones
      const Tensor x = rows(0, 4);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      NXD_TEST_OK(nxd_module_zero_grad(model.get()));
      if (run == 2) {
        const char* names[] = {"first", "bend", "second"};
        NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 3, 1));
      }
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
      const Tensor loss(out);
      backward_of(loss);
      check_loss("loss", item(loss.get()), wanted.loss, rounding());
      check_named("gradient", whole_gradients(model.get()), wanted.gradients, rounding());
    }
    return 0;
  });
}

// Stages, copies and ZeRO-1 change nothing; a cut lies between two children of the chain. A stage
// may begin with a module that writes to its input.
void in_any_layout(void**) {
  const File file(chain(at::kDouble, "torch.tanh_(x)"));
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    std::vector<Tensor> batch;
    batch.push_back(rows(8 * step + dp_rank * (8 / dp), 8 / dp));
    return batch;
  };
  task.options.num_microbatches = 2;
  const PipelineRun plain = train_pipeline({}, task);
  assert_true(plain.losses.front() > plain.losses.back());
  PipelineLayout replicated;
  replicated.tp = 2;
  check_equal(replicated, train_pipeline(replicated, task), plain);
  task.options.num_cuts = 1;
  for (const char* cut : {"first", "bend"}) {
    task.options.pipeline_cuts = &cut;
    PipelineLayout two_stages;
    two_stages.pp = 2;
    check_equal(two_stages, train_pipeline(two_stages, task), plain);
  }
  const char* behind_bend = "bend";
  task.options.pipeline_cuts = &behind_bend;
  task.learning_rate /= 2;  // gradients of two copies are summed
  for (const bool zero1 : {false, true}) {
    PipelineLayout copies;
    copies.pp = 2;
    copies.dp = 2;
    copies.zero1 = zero1;
    const PipelineRun run = train_pipeline(copies, task);
    for (size_t i = 0; i < plain.losses.size(); ++i) {
      check_loss(copies.name().c_str(), run.losses[i], plain.losses[i], 1e-9);
    }
    check_named(copies.name(), run.final, plain.final, 1e-9);
  }
}

// Values cross several cuts: the first block's output is added behind the third, the parameter
// stands outside of any submodule, the last input is used at the end alone. A block takes and gives
// tuples, another is called by a method of the root, one in a branch; a flag is no tensor, so that
// its block is a part of the root.
jit::Module skipping() {
  jit::Module made("__torch__.Skipping");
  made.register_module("first", linear("A", 6, 8, at::kDouble));
  made.register_module("second", linear("B", 8, 8, at::kDouble));
  jit::Module split("__torch__.Split");
  split.register_module("inner", linear("C", 8, 8, at::kDouble));
  split.define(R"(
    def forward(self, x: Tensor, more: Optional[Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
      y = self.inner.forward(x)
      if more is not None:
        y = y + more
      return (y, (torch.tanh(y), x * 0.5))
  )");
  made.register_module("split", split);
  jit::Module flagged("__torch__.Flagged");
  flagged.register_parameter("weight", numbers({8}, 3).requires_grad_(), false);
  flagged.define(R"(
    def forward(self, x: Tensor, twice: bool) -> Tensor:
      y = x * self.weight
      return y * self.weight if twice else y
  )");
  made.register_module("flagged", flagged);
  made.register_module("last", linear("D", 8, 6, at::kDouble));
  made.register_parameter("scale", numbers({8}, 2).requires_grad_(), false);
  made.define(R"(
    def mixed(self, x: Tensor, skip: Tensor) -> Tensor:
      return self.last.forward(x) + skip

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
      a = self.first.forward(x)
      b = torch.tanh(a)
      if x.size(1) == 6:
        b = self.second.forward(b)
      c, (d, e) = self.split.forward(b, a)
      f = self.flagged.forward(d * self.scale, True) + e + a
      g = self.mixed(f, x)
      return torch.mean((g - target) * (g - target)) + torch.mean(c * c)
  )");
  return made;
}

std::vector<Tensor> rows_and_target(int64_t first, int64_t count) {
  std::vector<Tensor> batch;
  batch.push_back(rows(first, count));
  batch.push_back(rows(first + 100, count));
  return batch;
}

void submodules_of_any_code(void**) {
  const File file(skipping());
  jit::Module module = jit::load(file.path);
  const std::vector<Tensor> batch = rows_and_target(0, 4);
  std::vector<c10::IValue> given;
  for (const Tensor& each : batch) given.push_back(numbers_of(values(each.get())).reshape({4, 6}));
  const at::Tensor wanted = module.forward(given).toTensor();
  wanted.backward();
  Named gradients;
  for (const auto& entry : module.named_parameters()) {
    gradients[entry.name] = values_of(entry.value.grad());
  }
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    for (const bool recomputed : {false, true}) {
      const char* names[] = {"second", "split"};
      if (recomputed) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 2, 1));
      nxd_tensor_t* out = nullptr;
      NXD_TEST_OK(nxd_module_zero_grad(model.get()));
      NXD_TEST_OK(nxd_module_forward(model.get(), handles(batch).data(), 2, &out, 1));
      const Tensor loss(out);
      backward_of(loss);
      check_loss("loss", item(loss.get()), wanted.item<double>(), rounding());
      check_named("gradient", whole_gradients(model.get()), gradients, rounding());
    }
    return 0;
  });
}

// Any of its submodules may end a stage.
void cut_anywhere(void**) {
  const File file(skipping());
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    return rows_and_target(8 * step + dp_rank * (8 / dp), 8 / dp);
  };
  task.options.num_microbatches = 4;
  check_cuts(
      task,
      {{"first"}, {"split"}, {"first", "second", "split"}, {"second", "split.inner", "last"}});
}

// Trained here, and read by libtorch: what it computes is what was computed here.
void written_back(void**) {
  const File file(chain(at::kFloat));
  const std::string saved = file.directory.path() + "/trained.pt";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Optimizer adamw = make_adamw(model.get());
    const Tensor x = rows(0, 4, NXD_DTYPE_F32);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
    Tensor loss(out);
    backward_of(loss);
    NXD_TEST_OK(nxd_optimizer_step(adamw.get(), nullptr, nullptr));
    NXD_TEST_OK(nxd_model_save_torchscript(model.get(), saved.c_str()));
    out = nullptr;
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
    loss = Tensor(out);
    jit::Module read = jit::load(saved);
    const at::Tensor input = numbers_of(values(x.get())).to(at::kFloat).reshape({4, 6});
    NXD_TEST_CHECK(read.forward({input}).toTensor().item<float>() ==
                   static_cast<float>(item(loss.get())));
    NXD_TEST_CHECK(read.attr("first").toModule().attr("weight").toTensor().requires_grad());
    // A cast here is one there.
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_BF16));
    NXD_TEST_OK(nxd_model_save_torchscript(model.get(), saved.c_str()));
    NXD_TEST_CHECK(
        jit::load(saved).attr("second").toModule().attr("bias").toTensor().scalar_type() ==
        at::kBFloat16);
    return 0;
  });
}

std::vector<double> mean_of(nxd_module_t* root) {
  nxd_tensor_t* mean = nullptr;
  NXD_TEST_OK(nxd_module_share_buffer(root, "mean", &mean));
  return values(Tensor(mean).get());
}

// Empty where there is none.
std::vector<double> grad_of(nxd_module_t* root, const char* name) {
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t* grad = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(root, name, &parameter));
  NXD_TEST_OK(nxd_parameter_gather_full_grad(parameter, &grad));
  return grad ? values(Tensor(grad).get()) : std::vector<double>();
}

// One tensor under two names, a buffer that the forward changes, outputs in a tuple, an input that
// may be left out.
void parts_of_modules(void**) {
  jit::Module made("__torch__.Parts");
  const at::Tensor shared = numbers({6, 6}, 1).requires_grad_();
  jit::Module left("__torch__.Left"), right("__torch__.Right");
  left.register_parameter("weight", shared, false);
  right.register_parameter("weight", shared, false);
  made.register_module("left", left);
  made.register_module("right", right);
  made.register_buffer("mean", at::zeros({6}, at::kDouble));
  made.register_parameter("frozen", numbers({6}, 5), false);
  made.define(R"(
    def forward(self, x: Tensor, y: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
      self.mean.add_(torch.mean(x.detach(), [0]))
      z = torch.matmul(torch.matmul(x, self.left.weight), self.right.weight) + self.frozen
      if y is not None:
        z = z + y
      return (torch.sum(z), z)
  )");
  const File file(made);
  const std::string weights = file.directory.path() + "/weights.safetensors";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    size_t count = 0;
    NXD_TEST_OK(nxd_module_get_parameter_count(model.get(), &count));
    NXD_TEST_CHECK(count == 2);
    const Tensor x = rows(0, 3), y = rows(3, 3);
    nxd_tensor_t *inputs[] = {x.get(), y.get()}, *outputs[3] = {};
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, outputs, 1));
    const Tensor without(outputs[0]);
    NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 2, outputs, 2));
    const Tensor with(outputs[0]), z(outputs[1]);
    NXD_TEST_CHECK(values(z.get()).size() == 18 && item(with.get()) != item(without.get()));
    backward_of(with);
    NXD_TEST_CHECK(norm(grad_of(model.get(), "left.weight")) > 0);
    NXD_TEST_CHECK(grad_of(model.get(), "right.weight") == grad_of(model.get(), "left.weight"));
    NXD_TEST_CHECK(grad_of(model.get(), "frozen").empty());
    const std::vector<double> twice = mean_of(model.get());
    NXD_TEST_CHECK(norm(twice) > 0);
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), weights.c_str()));
    const Module again = load(ctx, file.path);
    NXD_TEST_OK(nxd_module_load_safetensors(again.get(), weights.c_str(), 1, nullptr));
    NXD_TEST_CHECK(mean_of(again.get()) == twice);
    for (const size_t wrong : {size_t{0}, size_t{3}}) {
      nxd_tensor_t *many[] = {x.get(), y.get(), y.get()}, *out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(model.get(), many, wrong, &out, 1),
                       NXD_ERROR_INVALID_ARGUMENT, "expected 1 to 2 inputs");
    }
    NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 1, outputs, 3),
                     NXD_ERROR_INVALID_ARGUMENT, "gives 2 outputs");
    return 0;
  });
}

// Outputs of a dictionary come in the order in which the forward has put them in.
// None among them is no output.
void dictionaries(void**) {
  jit::Module made("__torch__.Dictionary");
  made.register_module("part", linear("Part", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tuple[Optional[Tensor], Dict[str, Tuple[Tensor, List[Tensor]]]]:
      y = self.part.forward(x)
      return None, {"z": (torch.sum(y), [y]), "a": (y + 1.0, [x, y + 2.0])}
  )");
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 2);
    nxd_tensor_t *inputs[] = {x.get()}, *outputs[6] = {};
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, outputs, 5))) return 0;
    std::vector<std::vector<double>> got;
    for (int i = 0; i < 5; ++i) got.push_back(values(Tensor(outputs[i]).get()));
    NXD_TEST_CHECK(got[0].size() == 1 && got[3] == values(x.get()));
    for (size_t i = 0; i < got[1].size(); ++i) {
      NXD_TEST_CHECK(got[2][i] == got[1][i] + 1 && got[4][i] == got[1][i] + 2);
    }
    NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 1, outputs, 6),
                     NXD_ERROR_INVALID_ARGUMENT, "gives 5 outputs");
    return 0;
  });
}

// A recurrent layer of PyTorch computes with a list of its weights, which are its parameters, too.
enum class Held { kNowhere, kInList, kInTuple };
jit::Module with_held_weights(Held held, int64_t phase = 1) {
  jit::Module made("__torch__.Held" + std::to_string(phase));
  const at::Tensor weight = numbers({6, 6}, phase).requires_grad_();
  const at::Tensor bias = numbers({6}, phase + 1).requires_grad_();
  made.register_parameter("weight", weight, false);
  made.register_parameter("bias", bias, false);
  const c10::TypePtr one = c10::TensorType::get();
  if (held == Held::kInList) {
    made.register_attribute("all", c10::ListType::ofTensors(),
                            c10::List<at::Tensor>({weight, bias}));
  } else if (held == Held::kInTuple) {
    made.register_attribute("all", c10::TupleType::create({one, one}),
                            c10::ivalue::Tuple::create(weight, bias));
  }
  const std::string used =
      held == Held::kNowhere ? "self.weight, self.bias" : "self.all[0], self.all[1]";
  made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  y = torch.linear(x, " + used +
              ") + self.bias\n  return torch.mean(y * y)\n");
  return made;
}

void parameters_in_lists(void**) {
  const File plain(with_held_weights(Held::kNowhere)), file(with_held_weights(Held::kInList)),
      tuple(with_held_weights(Held::kInTuple));
  const std::string trained = file.directory.path() + "/trained.pt";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tensor x = rows(0, 4);
    const auto train = [&](nxd_module_t* model) {
      const Optimizer adamw = make_adamw(model);
      std::vector<double> losses;
      for (int step = 0; step < 4; ++step) {
        nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
        NXD_TEST_OK(nxd_module_forward(model, inputs, 1, &out, 1));
        const Tensor loss(out);
        losses.push_back(item(loss.get()));
        NXD_TEST_OK(nxd_module_zero_grad(model));
        backward_of(loss);
        NXD_TEST_OK(nxd_optimizer_step(adamw.get(), nullptr, nullptr));
      }
      return losses;
    };
    const Module model = load(ctx, file.path), wanted = load(ctx, plain.path);
    NXD_TEST_CHECK(train(model.get()) == train(wanted.get()));
    // A file that is written has them once, too.
    NXD_TEST_OK(nxd_model_save_torchscript(model.get(), trained.c_str()));
    const Module again = load(ctx, trained);
    NXD_TEST_CHECK(train(again.get()) == train(wanted.get()));
    nxd_module_t* none = nullptr;
    NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, tuple.path.c_str(), &none),
                     NXD_ERROR_UNSUPPORTED, "attribute all");
    return 0;
  });
}

// A list has the parameter that its place in the module is tied to.
void ties_of_held_parameters(void**) {
  jit::Module two("__torch__.Two");
  two.register_module("first", with_held_weights(Held::kInList, 1));
  two.register_module("second", with_held_weights(Held::kInList, 5));
  two.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return self.first.forward(x) - self.second.forward(x)
  )");
  const File file(two);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 4);
    for (const bool tied : {false, true}) {
      if (tied) {
        NXD_TEST_OK(nxd_module_tie(model.get(), "first.weight", "second.weight"));
        NXD_TEST_OK(nxd_module_tie(model.get(), "first.bias", "second.bias"));
      }
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
      NXD_TEST_CHECK((item(Tensor(out).get()) == 0) == tied);
    }
    return 0;
  });
}

void refused(void**) {
  const File noise(function("Noise", "x + torch.randperm(6).to(x.dtype)"));
  const File halves(linear("Half", 6, 6, at::kHalf));
  jit::Module complex = linear("Complex", 6, 6, at::kDouble);
  complex.register_buffer("turns", at::zeros({3}, at::kComplexDouble));
  const File turns(complex);
  const File raising(function("Raise", "torch.matmul(x, torch.ones([7, 7], dtype=x.dtype))"));
  jit::Module flag("__torch__.Flag");
  flag.define("\ndef forward(self, x: Tensor, twice: bool = False) -> Tensor:\n  return x * 2.0\n");
  const File flagged(flag);
  const std::string text = noise.directory.path() + "/text.pt";
  std::ofstream(text) << "no archive";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT, unsupported = NXD_ERROR_UNSUPPORTED;
    nxd_module_t* out = nullptr;
    const auto open = [&](const std::string& path) {
      return nxd_model_from_torchscript(ctx, path.c_str(), &out);
    };
    NXD_TEST_REFUSED(nxd_model_from_torchscript(nullptr, text.c_str(), &out), argument, "ctx");
    NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, nullptr, &out), argument, "path");
    NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, text.c_str(), nullptr), argument, "out_");
    NXD_TEST_REFUSED(open(text + "x"), NXD_ERROR_IO, "text.ptx");
    NXD_TEST_REFUSED(open(text), argument, "torch.jit.save");
    NXD_TEST_CHECK(std::string(nxd_last_error()).find("frame #") == std::string::npos);
    NXD_TEST_REFUSED(open(halves.path), unsupported, "parameter weight");
    NXD_TEST_REFUSED(open(turns.path), unsupported, "buffer turns: expected dense real numbers");
    NXD_TEST_REFUSED(open(noise.path), unsupported, "randperm");
    const Tensor x = rows(0, 2);
    nxd_tensor_t *inputs[] = {x.get()}, *y = nullptr;
    const Module raises = load(ctx, raising.path);
    NXD_TEST_REFUSED(nxd_module_forward(raises.get(), inputs, 1, &y, 1), argument,
                     "TorchScript forward failed");
    const Module takes_flag = load(ctx, flagged.path);
    nxd_tensor_t* both[] = {x.get(), x.get()};
    NXD_TEST_REFUSED(
        nxd_module_forward(takes_flag.get(), both, 2, &y, 1), argument,
        "Flag: input 1: the forward's twice is of type bool; expected a tensor without "
        "dimensions on the CPU, of BOOL");
    NXD_TEST_REFUSED(nxd_model_save_torchscript(raises.get(), nullptr), argument, "path");
    NXD_TEST_REFUSED(nxd_model_save_torchscript(nullptr, text.c_str()), argument, "root");
    NXD_TEST_OK(nxd_module_create(ctx, "Own", nullptr, nullptr, nullptr, &out));
    const Module own(out);
    NXD_TEST_REFUSED(nxd_model_save_torchscript(own.get(), text.c_str()), argument, "Own");
    NXD_TEST_REFUSED(nxd_model_save_torchscript(raises.get(), "/nowhere/x.pt"), NXD_ERROR_IO,
                     "nowhere");
    // The code finds nothing that its file does not have.
    const int64_t shape[] = {2};
    nxd_module_t* const closed = takes_flag.get();
    NXD_TEST_REFUSED(nxd_module_add_child(closed, "more", own.get()), argument, "Flag: nothing is");
    NXD_TEST_REFUSED(nxd_module_add_parameter(closed, "more", shape, 1, nullptr, nullptr), argument,
                     "Flag: nothing is");
    NXD_TEST_REFUSED(nxd_module_add_buffer(closed, "more", x.get(), 1), argument,
                     "Flag: nothing is");
    NXD_TEST_OK(nxd_module_add_child(own.get(), "part", closed));
    NXD_TEST_OK(nxd_module_forward(closed, inputs, 1, &y, 1));
    nxd_tensor_destroy(y);
    return 0;
  });
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(as_libtorch_runs_it),
                              cmocka_unit_test(in_any_layout),
                              cmocka_unit_test(submodules_of_any_code),
                              cmocka_unit_test(cut_anywhere),
                              cmocka_unit_test(written_back),
                              cmocka_unit_test(parts_of_modules),
                              cmocka_unit_test(dictionaries),
                              cmocka_unit_test(parameters_in_lists),
                              cmocka_unit_test(ties_of_held_parameters),
                              cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
