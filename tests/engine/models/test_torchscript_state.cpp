// TorchScript modules as objects: modes of the file, submodules of two names, tensors that share
// memory, statistics of batches; and objects, indices, states and devices in their code.
// Before the rest, which defines fail().
#include "capi/engine_handles.h"

#include <torch/csrc/jit/serialization/import.h>

#include "core/base/log.h"
#include "engine/models/torchscript_casts.h"
#include "engine/module/module_tree.h"

#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

std::vector<double> run(nxd_module_t* module, const Tensor& x) {
  nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
  if (!NXD_TEST_OK(nxd_module_forward(module, inputs, 1, &out, 1))) return {};
  return values(Tensor(out).get());
}

at::Tensor tensor_of(const Tensor& x) { return numbers_of(values(x.get())).reshape({-1, 6}); }

jit::Module with_mode(const char* name, bool training) {
  jit::Module made(std::string("__torch__.") + name);
  made.register_attribute("training", c10::BoolType::get(), training);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return x * (2.0 if self.training else 3.0)
  )");
  return made;
}

// A part that was in evaluation mode in the file is so here.
void modes_of_the_file(void**) {
  jit::Module chain("__torch__.Chain");
  chain.register_attribute("training", c10::BoolType::get(), true);
  chain.register_module("on", with_mode("On", true));
  chain.register_module("off", with_mode("Off", false));
  chain.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return self.off.forward(self.on.forward(x))
  )");
  const File file(chain);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 2);
    const std::string saved = file.directory.path() + "/again.pt";
    check_values("modes", run(model.get(), x), values_of(tensor_of(x) * 6), 1e-12);
    NXD_TEST_OK(nxd_model_save_torchscript(model.get(), saved.c_str()));
    check_values("saved modes", run(load(ctx, saved).get(), x), values_of(tensor_of(x) * 6), 1e-12);
    NXD_TEST_OK(nxd_module_set_training(model.get(), 1));
    check_values("training", run(model.get(), x), values_of(tensor_of(x) * 4), 1e-12);
    NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
    check_values("evaluation", run(model.get(), x), values_of(tensor_of(x) * 9), 1e-12);
    return 0;
  });
}

// Code that drops, and code that asks for the mode otherwise: ranks whose last forwards were in two
// modes hear of it.
void modes_of_ranks(void**) {
  const auto with = [](const char* body) {
    jit::Module made = linear("Mode", 6, 6, at::kDouble);
    made.register_attribute("training", c10::BoolType::get(), true);
    made.define(std::string("\ndef loss(self, x: Tensor) -> Tensor:\n  return ") + body + "\n");
    jit::Module root("__torch__.Root");
    root.register_module("inner", made);
    root.define(R"(
      def forward(self, x: Tensor) -> Tensor:
        return torch.sum(self.inner.loss(x))
    )");
    return root;
  };
  const File drops(with("torch.dropout(self.forward(x), 0.5, self.training)")),
      branches(with("self.forward(x) * (2.0 if self.training else 3.0)"));
  for (const File* file : {&drops, &branches}) {
    nxd_test_run_ranks(
        2, 1,
        [](nxd_context_t* ctx, int rank, int, void* path) {
          const Module model = load(ctx, *static_cast<const std::string*>(path));
          const Tensor x = rows(0, 2);
          for (const bool alike : {false, true}) {
            NXD_TEST_OK(nxd_module_set_training(model.get(), rank == 0 || alike ? 1 : 0));
            nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
            if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return;
            backward_of(Tensor(out));
            const nxd_status_t status = nxd_finish_grads(model.get(), nullptr, nullptr);
            if (alike) {
              NXD_TEST_OK(status);
            } else {
              NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, "mode of the last forward");
            }
          }
        },
        const_cast<std::string*>(&file->path));
  }
}

// Gives its running mean, which it assigns.
jit::Module averaging() {
  jit::Module made("__torch__.Averaging");
  made.register_buffer("mean", at::zeros({6}, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      self.mean = self.mean * 0.5 + torch.mean(x.detach(), [0])
      return x + self.mean
  )");
  return made;
}

jit::Module twice() {
  jit::Module made("__torch__.Twice");
  const jit::Module part = averaging();
  made.register_module("inner", linear("Inner", 6, 6, at::kDouble));
  made.register_module("first", part);
  made.register_module("second", part);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.mean(torch.tanh(self.second.forward(self.inner.forward(self.first.forward(x)))))
  )");
  return made;
}

// One submodule of two names: a call by the one finds what a call by the other has assigned.
void submodules_of_two_names(void**) {
  const File file(twice());
  const std::string weights = file.directory.path() + "/weights.safetensors";
  jit::Module own = jit::load(file.path);
  std::vector<std::vector<double>> want;
  for (int call = 0; call < 3; ++call) {
    want.push_back(values_of(own.forward({tensor_of(rows(0, 4))}).toTensor()));
  }
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 4);
    for (int call = 0; call < 2; ++call) {
      check_values("call", run(model.get(), x), want[static_cast<size_t>(call)], 1e-12);
    }
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), weights.c_str()));
    const Module again = load(ctx, file.path);
    NXD_TEST_OK(nxd_module_load_safetensors(again.get(), weights.c_str(), 1, nullptr));
    check_values("loaded", run(again.get(), x), want[2], 1e-12);
    return 0;
  });
}

jit::Module two_linears() {
  jit::Module made("__torch__.TwoLinears");
  made.register_module("first", linear("First", 6, 6, at::kDouble));
  made.register_module("second", linear("Second", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = self.second.forward(torch.tanh(self.first.forward(x)))
      return torch.mean(y * y) + torch.mean(self.first.weight)
  )");
  return made;
}

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;

// The tensors that the model's parameters have, by name, which this does not keep.
std::map<std::string, Weak> values_now(nxd_module_t* model) {
  std::map<std::string, Weak> out;
  for (const nxd::NamedParameter& entry : nxd::named_parameters(*model->value)) {
    out.emplace(entry.name, Weak(entry.parameter->tensor().getIntrusivePtr()));
  }
  return out;
}

// Nothing keeps values that a parameter does not have any more: cut away, or cast.
void values_that_have_gone(void**) {
  const File file(two_linears());
  PipelineLayout two;
  two.pp = 2;
  on_pipeline_ranks(two, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path), whole = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    NXD_TEST_CHECK(run(model.get(), batch[0]).size() == 1);
    const auto before = values_now(model.get());
    const Pipeline pp = make_two_stages(model.get(), batch, "first", 1);
    if (!pp) return;
    double loss = NAN;
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
    for (const auto& [name, value] : before) {
      const bool is_own = name == "first.weight" || (name[0] == 'f') == (rank == 0);
      NXD_TEST_CHECK(value.expired() == !is_own);
    }
    NXD_TEST_CHECK(run(whole.get(), batch[0]).size() == 1);
    const auto wide = values_now(whole.get());
    NXD_TEST_OK(nxd_module_cast(whole.get(), NXD_DTYPE_F32));
    for (const auto& [name, value] : wide) NXD_TEST_CHECK(value.expired());
  });
}

// Each stage has a copy of a buffer that both write to. No rank goes on with one of two.
void buffers_of_two_stages(void**) {
  const File file(twice());
  on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    const Pipeline pp = make_two_stages(model.get(), batch, "inner", 2);
    if (!pp) return;
    const auto given = handles(batch);
    NXD_TEST_OK(nxd_pp_run_train(pp.get(), given.data(), 1, nullptr));
    NXD_TEST_REFUSED(nxd_pp_run_eval(pp.get(), given.data(), 1, nullptr, nullptr, 0),
                     NXD_ERROR_INVALID_STATE, "buffer first.mean");
  });
}

// A batch norm writes its statistics once where its forward is made again.
void statistics_of_batches(void**) {
  jit::Module made("__torch__.Norm");
  made.register_parameter("weight", numbers({6}, 1).requires_grad_(), false);
  made.register_buffer("mean", at::zeros({6}, at::kDouble));
  made.register_buffer("var", at::ones({6}, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = torch.batch_norm(x * self.weight, None, None, self.mean, self.var, True, 0.1, 1e-5, False)
      return torch.sum(y * torch.cos(y))
  )");
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    std::vector<std::vector<double>> means;
    for (const int on : {0, 1}) {
      const Module model = load(ctx, file.path);
      const char* const name = "Norm";
      NXD_TEST_OK(nxd_apply_checkpoint(model.get(), &name, 1, on));
      const Tensor x = rows(0, 4);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
      backward_of(Tensor(out));
      NXD_TEST_OK(nxd_module_share_buffer(model.get(), "mean", &out));
      means.push_back(values(Tensor(out).get()));
    }
    NXD_TEST_CHECK(means[0] == means[1]);
    return 0;
  });
}

// Weights that share memory, but not as one tensor under two names.
void other_views(void**) {
  const at::Tensor weight = numbers({6, 6}, 1);
  jit::Module made = linear("Views", 6, 6, at::kDouble);
  made.register_parameter("all", weight.requires_grad_(), false);
  made.register_parameter("turned", weight.detach().t().requires_grad_(), false);
  jit::Module apart("__torch__.Apart");
  apart.register_parameter("top", weight.detach().narrow(0, 0, 3).requires_grad_(), false);
  apart.register_parameter("rest", weight.detach().narrow(0, 3, 3).requires_grad_(), false);
  apart.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.matmul(x[:, :3], self.top) + torch.matmul(x[:, 3:], self.rest)
  )");
  const File file(made), parts(apart);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    nxd_module_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, file.path.c_str(), &out),
                     NXD_ERROR_UNSUPPORTED, "share that of all");
    const Module model = load(ctx, parts.path);
    const Tensor x = rows(0, 2);
    check_values("parts", run(model.get(), x), values_of(at::matmul(tensor_of(x), weight)), 1e-12);
    return 0;
  });
}

// Buffers and attributes that share a parameter's memory would not follow it.
void views_of_parameters(void**) {
  const c10::TypePtr one = c10::TensorType::get();
  const auto with = [](const std::function<void(jit::Module&, const at::Tensor&)>& add) {
    jit::Module made("__torch__.Views");
    const at::Tensor whole = numbers({6, 7}, 1);
    const at::Tensor weight = whole.narrow(1, 0, 6);
    made.register_parameter("weight", weight.detach().requires_grad_(), false);
    add(made, whole);
    made.define(R"(
      def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight)
    )");
    return made;
  };
  const File buffer(with([](jit::Module& made, const at::Tensor& whole) {
    made.register_buffer("own", whole.narrow(1, 0, 6));
  }));
  const File column(with([](jit::Module& made, const at::Tensor& whole) {
    made.register_buffer("own", whole.select(1, 5));
  }));
  const File turned(with([&](jit::Module& made, const at::Tensor& whole) {
    made.register_attribute("own", one, whole.narrow(1, 0, 6).t());
  }));
  const File list(with([](jit::Module& made, const at::Tensor& whole) {
    made.register_attribute("own", c10::ListType::ofTensors(),
                            c10::List<at::Tensor>({whole.select(0, 1)}));
  }));
  const File tuple(with([&](jit::Module& made, const at::Tensor& whole) {
    made.register_attribute("own", c10::TupleType::create({one}),
                            c10::ivalue::Tuple::create(whole.select(0, 1)));
  }));
  // Between the rows of the weight.
  const File apart(with([](jit::Module& made, const at::Tensor& whole) {
    made.register_buffer("own", whole.select(1, 6));
  }));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    nxd_module_t* out = nullptr;
    for (const File* file : {&buffer, &column, &turned, &list, &tuple}) {
      const bool is_buffer = file == &buffer || file == &column;
      NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, file->path.c_str(), &out),
                       NXD_ERROR_UNSUPPORTED, is_buffer ? "buffer own: " : "attribute own: ");
      NXD_TEST_CHECK(std::string(nxd_last_error()).find("share that of weight") !=
                     std::string::npos);
    }
    const Module model = load(ctx, apart.path);
    NXD_TEST_CHECK(!run(model.get(), rows(0, 2)).empty());
    return 0;
  });
}

// A file that is written has views where the module has them, and the module keeps its own.
void views_that_are_saved(void**) {
  jit::Module made("__torch__.Counts");
  const at::Tensor counts = at::zeros({6}, at::kDouble);
  made.register_parameter("weight", numbers({6}, 1).requires_grad_(), false);
  made.register_buffer("counts", counts);
  made.register_buffer("same", counts);
  made.register_attribute("half", c10::TensorType::get(), counts.narrow(0, 3, 3));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      self.counts.add_(1.0)
      return torch.cat([self.half + self.same[0], x[0] * self.weight])
  )");
  const File file(made);
  const std::string saved = file.directory.path() + "/again.pt";
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 1);
    NXD_TEST_CHECK(run(model.get(), x)[0] == 2);
    NXD_TEST_OK(nxd_model_save_torchscript(model.get(), saved.c_str()));
    NXD_TEST_CHECK(run(model.get(), x)[0] == 4);
    const Module again = load(ctx, saved);
    NXD_TEST_CHECK(run(again.get(), x)[0] == 4 && run(again.get(), x)[2] == 6);
    // The recorded device has no views.
    NXD_TEST_REFUSED(nxd_move_model_to_device(model.get(), NXD_DEVICE_XLA), NXD_ERROR_UNSUPPORTED,
                     "an attribute and the buffer counts");
    NXD_TEST_CHECK(run(model.get(), x)[0] == 6);
    return 0;
  });
}

// A cast gives a buffer other memory, which the attribute would not see. One that it leaves alone
// keeps its own.
void views_that_are_cast(void**) {
  const auto with = [](at::ScalarType dtype) {
    jit::Module made("__torch__.Counts");
    const at::Tensor counts = at::zeros({6}, dtype);
    made.register_parameter("weight", numbers({6}, 1).requires_grad_(), false);
    made.register_buffer("counts", counts);
    made.register_attribute("half", c10::TensorType::get(), counts.narrow(0, 3, 3));
    made.define(R"(
      def forward(self, x: Tensor) -> Tensor:
        self.counts.add_(1)
        return self.half + x[0, :3] * self.weight[:3] * 0
    )");
    return made;
  };
  const File floats(with(at::kDouble)), whole_numbers(with(at::kLong));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tensor x = rows(0, 1), narrow = rows(0, 1, NXD_DTYPE_F32);
    const Module model = load(ctx, floats.path);
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F64));
    NXD_TEST_REFUSED(nxd_module_cast(model.get(), NXD_DTYPE_F32), NXD_ERROR_UNSUPPORTED,
                     "an attribute and the buffer counts");
    NXD_TEST_CHECK(run(model.get(), x)[0] == 1);
    const Module other = load(ctx, whole_numbers.path);
    NXD_TEST_OK(nxd_module_cast(other.get(), NXD_DTYPE_F32));
    NXD_TEST_CHECK(run(other.get(), narrow)[0] == 1);
    return 0;
  });
}

// An object that the code makes and changes, as "with torch.no_grad()" does.
void make_object(jit::Module& module) {
  const auto unit = module._ivalue()->compilation_unit();
  const auto type = c10::ClassType::create(c10::QualifiedName("__torch__.Guard"), unit);
  type->addAttribute("before", c10::BoolType::get());
  unit->register_type(type);
  const auto graph = jit::toGraphFunction(module.get_method("forward").function()).graph();
  const jit::WithInsertPoint at(*graph->nodes().begin());
  jit::Value* const object = graph->insertNode(graph->createObject(type))->output();
  graph->insertNode(graph->createSetAttr(object, "before", graph->insertConstant(true)));
}

// A root that indexes, calls a recurrent layer with no state, runs one itself, changes an object of
// its own, has complex numbers, and reads a mask that it makes where its input is, as PyTorch's
// transformers do.
jit::Module of_many_forms() {
  jit::Module made("__torch__.Forms"), memory("__torch__.Memory");
  memory.register_attribute("training", c10::BoolType::get(), true);
  memory.register_parameter("w", numbers({24, 6}, 1).requires_grad_(), false);
  memory.register_parameter("u", numbers({24, 6}, 2).requires_grad_(), false);
  memory.define(R"(
    def forward__0(self, x: Tensor,
                   state: Optional[Tuple[Tensor, Tensor]]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
      if state is None:
        zeros = torch.zeros([1, x.size(0), 6], dtype=x.dtype)
        state = (zeros, zeros)
      y, h, c = torch.lstm(x.unsqueeze(1), [state[0], state[1]], [self.w, self.u], False, 1,
                           0.0, self.training, False, True)
      return (y.squeeze(1), (h, c))
  )");
  made.register_attribute("training", c10::BoolType::get(), true);
  made.register_module("first", linear("First", 6, 6, at::kDouble));
  made.register_module("memory", memory);
  made.register_module("last", linear("Last", 6, 6, at::kDouble));
  made.register_parameter("w", numbers({18, 6}, 3).requires_grad_(), false);
  made.register_parameter("u", numbers({18, 6}, 4).requires_grad_(), false);
  made.register_parameter("rows", numbers({3, 6}, 5).requires_grad_(), false);
  made.register_buffer("table", numbers({3, 6}, 6));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      a = self.first.forward(x)
      i = (torch.abs(x[:, 0]) * 1000.0).to(4) % 3
      b = a + self.rows[i] * self.table[i]
      b[:, i] = b[:, i] * 0.5
      b[a > 0.3] = 0.25
      c, _ = self.memory.forward__0(b, None)
      d, _ = torch.gru(c.unsqueeze(1), torch.zeros([1, x.size(0), 6], dtype=x.dtype),
                       [self.w, self.u], False, 1, 0.0, self.training, False, True)
      e = torch.real(torch.fft_fft(d.squeeze(1)))
      seen = torch.tril(torch.ones([6, 6], dtype=x.dtype, device=x.device))
      if torch.equal(seen, torch.tril(torch.ones([6, 6], dtype=x.dtype))):
        e = torch.matmul(e, seen)
      return torch.mean(torch.pow(self.last.forward(e) + c, 2))
  )");
  make_object(made);
  return made;
}

// Stages give what libtorch gives.
void cut_between_any_code(void**) {
  const File file(of_many_forms());
  const Wanted wanted = run_by_libtorch(file.path, 4);
  for (const char* cut : {"first", "memory"}) {
    on_pipeline_ranks({1, 2, 1}, [&](nxd_context_t* ctx, int rank) {
      const Module model = load(ctx, file.path);
      std::vector<Tensor> batch;
      batch.push_back(rows(0, 4));
      const Pipeline pp = make_two_stages(model.get(), batch, cut, 1);
      if (!pp) return;
      double loss = NAN;
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &loss));
      if (rank == 1) check_loss(cut, loss, wanted.loss, 1e-12);
      for (const auto& [name, gradient] : whole_gradients(local_module(pp.get()))) {
        check_values(name, gradient, wanted.gradients.at(name), 1e-12);
      }
    });
  }
}

// A device that the code names, by the argument of an operator that has one in any case.
void named_devices(void**) {
  for (const char* code : {"x.to(x.device)", "x.to(x.device, x.dtype)", "x.to('cpu').to(x.device)",
                           "torch.zeros([4, 6], device=x.device, dtype=x.dtype) + x"}) {
    const File file(function("Net", code));
    on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
      const Module model = load(ctx, file.path);
      const Tensor x = rows(0, 4);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
      check_values(code, values(Tensor(out).get()), values(x.get()), 0);
      return 0;
    });
  }
}

// A module that gives complex numbers has gradients when it is recomputed, too.
void recomputed_complex_numbers(void**) {
  jit::Module made("__torch__.Net"), inner("__torch__.Waves");
  inner.register_parameter("scale", numbers({6}, 1).requires_grad_(), false);
  inner.define(
      "\ndef forward(self, x: Tensor) -> Tensor:\n  return torch.fft_fft(x * self.scale)\n");
  made.register_module("inner", inner);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return torch.mean(torch.pow(torch.real(self.inner.forward(x)), 2))
  )");
  const File file(made);
  const Wanted wanted = run_by_libtorch(file.path, 4);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const char* names[] = {"inner"};
    NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 1, 1));
    const Tensor x = rows(0, 4);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
    backward_of(Tensor(out));
    check_named("gradient", whole_gradients(model.get()), wanted.gradients, 1e-12);
    return 0;
  });
}

// Regions of automatic casts have no effect, of which a file's load tells.
void casts_in_code(void**) {
  jit::Module made("__torch__.Net"), inner = function("Inner", "x * 2.0");
  const auto unit = inner._ivalue()->compilation_unit();
  const auto type = c10::ClassType::create(
      c10::QualifiedName("__torch__.torch.amp.autocast_mode.autocast"), unit);
  const auto graph = jit::toGraphFunction(inner.get_method("forward").function()).graph();
  const jit::WithInsertPoint at(*graph->nodes().begin());
  jit::Value* const object = graph->insertNode(graph->createObject(type))->output();
  made.register_module("inner", inner);
  static std::vector<std::string> warnings;
  nxd::set_log_callback([](nxd_log_level_t, const char* line, void*) { warnings.push_back(line); },
                        nullptr, nullptr);
  nxd::warn_of_casts(made);
  NXD_TEST_CHECK(warnings.empty());
  graph->insertNode(graph->create(c10::prim::Enter, {object}));
  nxd::warn_of_casts(made);
  nxd::set_log_callback(nullptr, nullptr, nullptr);
  NXD_TEST_CHECK(warnings.size() == 1 &&
                 warnings[0].find("Inner: torch.autocast in its code") != std::string::npos);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(modes_of_the_file),     cmocka_unit_test(submodules_of_two_names),
      cmocka_unit_test(values_that_have_gone), cmocka_unit_test(buffers_of_two_stages),
      cmocka_unit_test(statistics_of_batches), cmocka_unit_test(other_views),
      cmocka_unit_test(cut_between_any_code),  cmocka_unit_test(named_devices),
      cmocka_unit_test(casts_in_code),         cmocka_unit_test(recomputed_complex_numbers),
      cmocka_unit_test(views_of_parameters),   cmocka_unit_test(views_that_are_saved),
      cmocka_unit_test(views_that_are_cast),   cmocka_unit_test(modes_of_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
