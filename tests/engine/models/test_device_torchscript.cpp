// Modules of TorchScript files on the recorded device train as they do on the CPU: losses,
// gradients, parameters and buffers; a step is one graph. They move there and back, and their state
// is saved from there.
#include <torch/csrc/jit/serialization/import.h>

#include "capi/pipeline_support.h"
#include "support/device.h"
#include "support/pjrt.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr int kSteps = 5;

// A batch norm of PyTorch: it counts its batches, and its operator writes to the running
// statistics.
jit::Module batch_norm() {
  jit::Module made("__torch__.BatchNorm");
  made.register_parameter("weight", (numbers({8}, 3, at::kFloat) + 1).requires_grad_(), false);
  made.register_parameter("bias", numbers({8}, 5, at::kFloat).requires_grad_(), false);
  made.register_buffer("running_mean", at::zeros({8}));
  made.register_buffer("running_var", at::ones({8}));
  made.register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  made.register_attribute("training", c10::BoolType::get(), true);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      if self.training:
        self.num_batches_tracked.add_(1)
      return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
                              self.training, 0.1, 1e-5, True)
  )");
  return made;
}

// Its code makes tensors on the CPU, and on no device that it names; has constants, and
// tensors that are neither parameters nor buffers; writes in place, drops and draws; and changes
// views in place.
jit::Module net() {
  jit::Module made("__torch__.Net"), head("__torch__.Head");
  made.register_module("first", linear("First", 6, 8, at::kFloat));
  made.register_module("second", linear("Second", 8, 8, at::kFloat));
  made.register_module("norm", batch_norm());
  made.register_module("drop", function("Drop", "torch.dropout(x, 0.25, self.training)"));
  made.register_attribute("shift", c10::TensorType::get(), numbers({8}, 7, at::kFloat));
  made.register_attribute("scales", c10::ListType::ofTensors(),
                          c10::List<at::Tensor>({numbers({8}, 9, at::kFloat) + 1}));
  head.register_module("last", linear("Last", 8, 6, at::kFloat));
  head.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      noise = torch.empty([x.size(0), 1], dtype=x.dtype, device="cpu").normal_(1.0, 0.1)
      y = self.last.forward(x * noise)
      y = y.to("cpu") + torch.zeros([6], dtype=x.dtype)
      y[:, 1:].mul_(0.5)
      torch.sigmoid_(torch.t(y)[2:])
      return y.cpu() + torch.arange(6, dtype=x.dtype, device="cpu") * 0.01
  )");
  made.register_module("head", head);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = self.first.forward(x) * self.scales[0] + self.shift
      y.transpose_(0, 1)
      y = torch.elu(self.norm.forward(torch.t(y)))
      torch.relu_(torch.view(y, [-1, 2, 8]))
      y = torch.relu_(self.second.forward(torch.view(y, [-1, 2, 8])))
      y = torch.view(y, [-1, 8])
      y = self.drop.forward(y) * torch.tensor([1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 0.5])
      return torch.mean(torch.pow(self.head.forward(y), 2))
  )");
  return made;
}

Tensor batch(int step, nxd_device_t device) {
  const Tensor x = rows(8 * step, 8, NXD_DTYPE_F32);
  nxd_tensor_t* there = nullptr;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), device, &there));
  return Tensor(there);
}

Named buffers_of(nxd_module_t* model) {
  Named out;
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"}) {
    nxd_tensor_t *buffer = nullptr, *there = nullptr;
    const std::string path = std::string("norm.") + name;
    NXD_TEST_OK(nxd_module_share_buffer(model, path.c_str(), &buffer));
    const Tensor own(buffer);
    NXD_TEST_OK(nxd_tensor_to_device(own.get(), NXD_DEVICE_CPU, &there));
    const Tensor here(there);
    if (path.find("num") == std::string::npos) {
      out[path] = values(here.get());
    } else {
      int64_t count = 0;
      NXD_TEST_OK(nxd_tensor_copy_to_host(here.get(), &count, sizeof count));
      out[path] = {static_cast<double>(count)};
    }
  }
  return out;
}

// A bias before a batch norm has a gradient of 0 but for rounding, of which AdamW would make steps.
Optimizer make_sgd(nxd_module_t* model) {
  nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
  options.learning_rate = 0.05;
  options.momentum = 0.9;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(model, &options, &out));
  return Optimizer(out);
}

struct Trained {
  std::vector<double> losses;
  Named gradients, parameters, buffers;
};

void train_step(nxd_context_t* ctx, nxd_module_t* model, nxd_optimizer_t* optimizer, int step,
                nxd_device_t device, Trained& out) {
  NXD_TEST_OK(nxd_context_set_step(ctx, step, 0));
  NXD_TEST_OK(nxd_module_zero_grad(model));
  const Tensor x = batch(step, device);
  nxd_tensor_t *inputs[] = {x.get()}, *given = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(model, inputs, 1, &given, 1))) return;
  const Tensor loss(given);
  backward_of(loss);
  NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
  NXD_TEST_OK(nxd_mark_step(1));
  out.losses.push_back(item(loss.get()));
}

void finish(nxd_module_t* model, Trained& out) {
  out.gradients = whole_gradients(model);
  out.parameters = whole_parameters(model);
  out.buffers = buffers_of(model);
}

enum class Form { kPlain, kRecomputed };

Trained train(nxd_context_t* ctx, const File& file, Form form, nxd_device_t device) {
  Trained out;
  const Module model = load(ctx, file.path);
  NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
  const char* names[] = {"norm", "drop", "head"};
  if (form == Form::kRecomputed) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 3, 1));
  const Optimizer sgd = make_sgd(model.get());
  for (int step = 0; step < kSteps; ++step) {
    train_step(ctx, model.get(), sgd.get(), step, device, out);
  }
  finish(model.get(), out);
  return out;
}

void check_same(const Trained& got, const Trained& want) {
  NXD_TEST_CHECK(got.losses.size() == want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    check_loss("loss", got.losses[i], want.losses[i], 1e-5);
  }
  check_named("gradient", got.gradients, want.gradients, 1e-5, 1e-7);
  check_named("parameter", got.parameters, want.parameters, 1e-5);
  check_named("buffer", got.buffers, want.buffers, 1e-5);
}

void as_on_the_cpu(void**) {
  const File file(net());
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    for (const Form form : {Form::kPlain, Form::kRecomputed}) {
      const Trained want = train(ctx, file, form, NXD_DEVICE_CPU);
      NXD_TEST_CHECK(want.losses.front() != want.losses.back());
      NXD_TEST_CHECK(want.buffers.at("norm.num_batches_tracked")[0] == kSteps);
      NXD_TEST_OK(nxd_device_reset_metrics());
      check_same(train(ctx, file, form, NXD_DEVICE_XLA), want);
      const nxd_device_metrics_t m = metrics();
      // Another graph runs as the parameters and gradients are read.
      NXD_TEST_CHECK(m.fallbacks == 0 && m.steps == kSteps);
      NXD_TEST_CHECK(m.executions <= kSteps + 1 && m.compiles + m.loads <= 3);
    }
    return 0;
  });
}

// Steps on the CPU, on the device and on the CPU again are steps on the CPU. Files that are written
// from the device are those of the module as it is.
void there_and_back(void**) {
  const File file(net());
  const std::string saved = file.directory.path() + "/trained.pt";
  const std::string state = file.directory.path() + "/state.safetensors";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Trained want = train(ctx, file, Form::kPlain, NXD_DEVICE_CPU);
    Trained got;
    const Module model = load(ctx, file.path);
    const Optimizer sgd = make_sgd(model.get());
    for (int step = 0; step < kSteps; ++step) {
      const nxd_device_t device = step == 1 || step == 2 ? NXD_DEVICE_XLA : NXD_DEVICE_CPU;
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
      train_step(ctx, model.get(), sgd.get(), step, device, got);
      if (step != 2) continue;
      NXD_TEST_OK(nxd_model_save_torchscript(model.get(), saved.c_str()));
      NXD_TEST_OK(nxd_module_save_safetensors(model.get(), state.c_str()));
      const Module from_code = load(ctx, saved), from_state = load(ctx, file.path);
      NXD_TEST_OK(nxd_move_model_to_device(from_state.get(), NXD_DEVICE_XLA));
      NXD_TEST_OK(nxd_module_load_safetensors(from_state.get(), state.c_str(), 1, nullptr));
      for (const Module* read : {&from_code, &from_state}) {
        check_named("saved", whole_parameters(read->get()), whole_parameters(model.get()), 0);
        check_named("saved", buffers_of(read->get()), buffers_of(model.get()), 0);
      }
    }
    finish(model.get(), got);
    check_same(got, want);
    return 0;
  });
}

// A module on the device takes inputs from there, and evaluates by its running statistics.
void evaluated(void**) {
  const File file(net());
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
    std::vector<double> losses;
    for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
      const Tensor x = batch(1, device);
      const Tensor elsewhere = batch(1, device == NXD_DEVICE_CPU ? NXD_DEVICE_XLA : NXD_DEVICE_CPU);
      nxd_tensor_t *inputs[] = {x.get()}, *wrong[] = {elsewhere.get()}, *out = nullptr;
      NXD_TEST_REFUSED(
          nxd_module_forward(model.get(), wrong, 1, &out, 1), NXD_ERROR_INVALID_ARGUMENT,
          device == NXD_DEVICE_CPU ? "expected a tensor on cpu, got one of shape [8, 6] "
                                     "on xla"
                                   : "expected a tensor on xla");
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
      losses.push_back(item(Tensor(out).get()));
      NXD_TEST_CHECK(buffers_of(model.get()).at("norm.num_batches_tracked")[0] == 0);
    }
    check_loss("evaluated", losses[1], losses[0], 1e-5);
    return 0;
  });
}

// The norm of a gradient, which the code asks for, and what it takes its inputs from.
jit::Module penalty() {
  jit::Module made("__torch__.Penalty");
  made.register_module("first", linear("First", 6, 8, at::kFloat));
  made.register_module("last", linear("Last", 8, 1, at::kFloat));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      z = torch.requires_grad_(x * 2.0, True)
      y = self.last.forward(torch.tanh(self.first.forward(z)))
      grad = torch.autograd.grad([torch.sum(y)], [z], None, None, True)[0]
      if grad is None:
        return torch.mean(y)
      return torch.mean(torch.pow(torch.norm(grad, 2, 1) - 1.0, 2)) + torch.mean(y)
  )");
  return made;
}

void gradients_of_gradients(void**) {
  const File file(penalty());
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    std::vector<double> losses;
    std::vector<Named> gradients;
    for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
      const Module model = load(ctx, file.path);
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
      const Tensor x = batch(1, device);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
      const Tensor loss(out);
      NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
      losses.push_back(item(out));
      gradients.push_back(whole_gradients(model.get()));
    }
    check_loss("penalty", losses[1], losses[0], 1e-5);
    check_named("gradients", gradients[1], gradients[0], 1e-5);
    return 0;
  });
}

// The code accumulates gradients itself, in its own tensors and in the model's parameters: of
// tensors on the device, and of one that has left it.
void backward_in_the_code(void**) {
  jit::Module made("__torch__.Accumulates");
  made.register_module("first", linear("First", 6, 8, at::kFloat));
  made.define(R"(
    def forward(self, x: Tensor, again: bool) -> Tensor:
      z = torch.requires_grad_(torch.detach(x * 2.0), True)
      torch.sum(torch.tanh(self.first.forward(z))).backward(None, None, again)
      torch.sin(z).backward(torch.ones_like(x))
      torch.autograd.backward([torch.sum(z * z), torch.sum(torch.sin(z))])
      weights: List[Optional[Tensor]] = [torch.ones_like(x), None]
      torch.autograd.backward([torch.sinh(z), torch.sum(z)], weights)
      torch.sum(torch.cos(z)).cpu().backward()
      by_code = torch.autograd.grad([torch.sum(torch.exp(z)).cpu()], [z])[0]
      grad = z.grad
      assert grad is not None and by_code is not None
      return torch.mean(self.first.forward(x)) + torch.sum(grad) + torch.sum(by_code)
  )");
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    std::vector<double> losses;
    std::vector<Named> gradients;
    for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
      const Module model = load(ctx, file.path);
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
      const Tensor x = batch(1, device);
      nxd_tensor_t *inputs[] = {x.get(), nullptr}, *out = nullptr;
      for (const bool again : {true, false}) {
        NXD_TEST_OK(nxd_tensor_from_data(&again, 1, nullptr, 0, NXD_DTYPE_BOOL, &inputs[1]));
        const Tensor flag(inputs[1]);
        if (again && device == NXD_DEVICE_CPU) continue;
        const nxd_status_t status = nxd_module_forward(model.get(), inputs, 2, &out, 1);
        if (again) NXD_TEST_REFUSED(status, NXD_ERROR_UNSUPPORTED, "backward: create_graph");
        if (!again && !NXD_TEST_OK(status)) return 0;
      }
      const Tensor loss(out);
      NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
      losses.push_back(item(out));
      gradients.push_back(whole_gradients(model.get()));
    }
    check_loss("accumulated", losses[1], losses[0], 1e-5);
    check_named("gradients", gradients[1], gradients[0], 1e-5);
    return 0;
  });
}

// A batch norm that counts nothing, called by both of two stages.
jit::Module norm_of_two_stages() {
  jit::Module made("__torch__.Shared"), norm("__torch__.Norm");
  norm.register_buffer("running_mean", at::zeros({6}));
  norm.register_buffer("running_var", at::ones({6}));
  norm.register_attribute("training", c10::BoolType::get(), true);
  norm.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.batch_norm(x, None, None, self.running_mean, self.running_var, self.training,
                              0.1, 1e-5, False)
  )");
  made.register_module("norm", norm);
  made.register_module("inner", linear("Inner", 6, 6, at::kFloat));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.mean(torch.tanh(self.norm.forward(self.inner.forward(self.norm.forward(x)))))
  )");
  return made;
}

// Runs that only read the statistics are good. One that writes to them, on each rank to a copy, is
// the last one.
void statistics_of_two_stages(void**) {
  const File file(norm_of_two_stages());
  for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
      const Module model = load(ctx, file.path);
      NXD_TEST_OK(nxd_move_model_to_device(model.get(), device));
      std::vector<Tensor> inputs;
      inputs.push_back(batch(0, device));
      const Pipeline pp = make_two_stages(model.get(), inputs, "inner", 2);
      if (!pp) return;
      const auto given = handles(inputs);
      for (int run = 0; run < 2; ++run) {
        NXD_TEST_OK(nxd_pp_run_eval(pp.get(), given.data(), 1, nullptr, nullptr, 0));
      }
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), given.data(), 1, nullptr));
      NXD_TEST_REFUSED(nxd_pp_run_train(pp.get(), given.data(), 1, nullptr),
                       NXD_ERROR_INVALID_STATE, "buffer norm.running_mean");
    });
  }
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  if (!getenv("NXD_XLA_BACKEND")) setenv("NXD_XLA_BACKEND", "replay", 1);
  const CMUnitTest tests[] = {cmocka_unit_test(as_on_the_cpu),
                              cmocka_unit_test(there_and_back),
                              cmocka_unit_test(evaluated),
                              cmocka_unit_test(gradients_of_gradients),
                              cmocka_unit_test(backward_in_the_code),
                              cmocka_unit_test(statistics_of_two_stages)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
