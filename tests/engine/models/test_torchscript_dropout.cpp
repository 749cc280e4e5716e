// Dropout in modules of TorchScript files: the bits of the library's own layer, others at each call
// of a forward, the same ones when it is run again, recomputed, or cut into stages.
#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

jit::Module dropping(const std::string& code) { return function("Drop", code); }

Tensor ones(std::vector<int64_t> shape) {
  const at::Tensor data = at::ones(shape, at::kDouble);
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data_ptr(), data.nbytes(), shape.data(),
                                   static_cast<int32_t>(shape.size()), NXD_DTYPE_F64, &out));
  return Tensor(out);
}

Tensor run(nxd_module_t* module, const Tensor& x) {
  nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
  NXD_TEST_OK(nxd_module_forward(module, inputs, 1, &out, 1));
  return Tensor(out);
}

void set_step(nxd_context_t* ctx, int64_t step) { NXD_TEST_OK(nxd_context_set_step(ctx, step, 0)); }

// As the layer of the library draws that has the same path; in evaluation nothing is dropped.
void as_the_layer_draws(void**) {
  jit::Module made("__torch__.Net");
  made.register_module("drop", dropping("torch.dropout(x, 0.25, self.training)"));
  made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  return self.drop.forward(x)\n");
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    nxd_module_t* layer = nullptr;
    NXD_TEST_OK(nxd_layer_create_dropout(ctx, 0.25, "drop", -1, &layer));
    const Module wanted(layer);
    const Tensor x = ones({40, 25});
    for (const int64_t step : {0, 1, 7}) {
      set_step(ctx, step);
      const std::vector<double> got = values(run(model.get(), x).get());
      NXD_TEST_CHECK(got == values(run(wanted.get(), x).get()));
      double kept = 0;
      for (const double value : got) {
        NXD_TEST_CHECK(value == 0 || value == 1 / 0.75);
        kept += value != 0;
      }
      NXD_TEST_CHECK(std::abs(kept / 1000 - 0.75) < 5 * std::sqrt(0.75 * 0.25 / 1000));
    }
    NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
    NXD_TEST_CHECK(values(run(model.get(), x).get()) == values(x.get()));
    return 0;
  });
}

// All forms: in place, whole channels, probabilities 0 and 1, a mode that is a constant.
void forms(void**) {
  const File in_place(dropping("torch.dropout_(x + 0.0, 0.5, self.training)"));
  const File plain(dropping("torch.dropout(x, 0.5, self.training)"));
  const File channels(dropping("torch.feature_dropout(x, 0.5, self.training)"));
  const File always(dropping("torch.dropout(x, 0.5, True)"));
  const File all(dropping("torch.dropout(x, 1.0, self.training)"));
  const File none(dropping("torch.dropout(x, 0.0, self.training)"));
  const File wrong(dropping("torch.dropout(x, 1.5, self.training)"));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tensor x = ones({6, 20, 4});
    const auto of = [&](const File& file) {
      return values(run(load(ctx, file.path).get(), x).get());
    };
    const std::vector<double> dropped = of(plain);
    NXD_TEST_CHECK(of(in_place) == dropped && of(always) == dropped);
    NXD_TEST_CHECK(of(all) == std::vector<double>(480, 0) && of(none) == values(x.get()));
    const std::vector<double> rows = of(channels);
    double kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      NXD_TEST_CHECK(rows[i] == rows[i - i % 4] && (rows[i] == 0 || rows[i] == 2));
      kept += rows[i] / 8;
    }
    NXD_TEST_CHECK(kept > 30 && kept < 90);
    const Module constant = load(ctx, always.path);
    NXD_TEST_OK(nxd_module_set_training(constant.get(), 0));
    NXD_TEST_CHECK(values(run(constant.get(), x).get()) == dropped);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    NXD_TEST_REFUSED(nxd_module_forward(load(ctx, wrong.path).get(), inputs, 1, &out, 1),
                     NXD_ERROR_INVALID_ARGUMENT, "probability from 0 to 1, got 1.5");
    const Tensor flat = ones({6});
    nxd_tensor_t* short_inputs[] = {flat.get()};
    NXD_TEST_REFUSED(nxd_module_forward(load(ctx, channels.path).get(), short_inputs, 1, &out, 1),
                     NXD_ERROR_INVALID_ARGUMENT, "at least 2 dimensions");
    return 0;
  });
}

// One dropout that is called twice, a block with one that is called twice, one of the root's own in
// a loop: no two calls of a forward draw the same bits, and each forward of a step does.
jit::Module many_times() {
  jit::Module made("__torch__.Many"), block("__torch__.Block");
  block.register_module("linear", linear("Inner", 6, 6, at::kDouble));
  block.register_module("drop", dropping("torch.dropout(x, 0.5, self.training)"));
  block.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      return self.drop.forward(self.linear.forward(x))
  )");
  made.register_module("first", linear("First", 6, 6, at::kDouble));
  made.register_module("drop", dropping("torch.dropout(x, 0.5, self.training)"));
  made.register_module("block", block);
  made.register_module("last", linear("Last", 6, 6, at::kDouble));
  made.register_attribute("training", c10::BoolType::get(), true);
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      x = self.drop.forward(self.first.forward(x))
      x = self.block.forward(x) + x
      for i in range(2):
        x = torch.dropout(x, 0.25, self.training) + 0.5
      x = self.block.forward(x) + x
      x = self.drop.forward(self.last.forward(x))
      return torch.mean(x * x)
  )");
  return made;
}

void each_call_its_own(void**) {
  jit::Module twice("__torch__.Twice"), block("__torch__.Block");
  block.register_module("drop", dropping("torch.dropout(x, 0.5, self.training)"));
  block.define("\ndef forward(self, x: Tensor) -> Tensor:\n  return self.drop.forward(x)\n");
  twice.register_module("drop", dropping("torch.dropout(x, 0.5, self.training)"));
  twice.register_module("block", block);
  twice.register_attribute("training", c10::BoolType::get(), true);
  twice.define(R"(
    def forward(self, x: Tensor) -> List[Tensor]:
      all = [self.drop.forward(x), self.drop.forward(x), self.block.forward(x),
             self.block.forward(x)]
      for i in range(2):
        all.append(torch.dropout(x, 0.5, self.training))
      return all
  )");
  const File file(twice);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = ones({8, 16});
    std::vector<std::vector<double>> drawn;
    for (const int step : {0, 0, 1}) {
      set_step(ctx, step);
      nxd_tensor_t *inputs[] = {x.get()}, *outputs[6] = {};
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, outputs, 6))) return 0;
      for (nxd_tensor_t* output : outputs) drawn.push_back(values(Tensor(output).get()));
    }
    for (size_t i = 0; i < drawn.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const bool again = i >= 6 && i < 12 && j + 6 == i;
        NXD_TEST_CHECK((drawn[i] == drawn[j]) == again);
      }
    }
    return 0;
  });
}

// Recomputation draws what was drawn: losses and gradients have the same bits.
void recomputed(void**) {
  const File file(many_times());
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    std::vector<double> losses;
    std::vector<Named> gradients;
    for (const bool again : {false, true}) {
      const Module model = load(ctx, file.path);
      const char* names[] = {"drop", "block"};
      if (again) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 2, 1));
      const Tensor loss = run(model.get(), rows(0, 4));
      backward_of(loss);
      losses.push_back(item(loss.get()));
      gradients.push_back(whole_gradients(model.get()));
    }
    NXD_TEST_CHECK(losses[0] == losses[1] && gradients[0].size() == 6);
    check_named("gradient", gradients[1], gradients[0], 0);
    return 0;
  });
}

// A stage draws what the whole would: of a module that other stages call, too, and of the root's
// own.
void in_any_layout(void**) {
  const File file(many_times());
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    std::vector<Tensor> batch;
    batch.push_back(rows(8 * step + dp_rank * (8 / dp), 8 / dp));
    return batch;
  };
  task.options.num_microbatches = 4;
  const PipelineRun plain = train_pipeline({}, task);
  assert_true(plain.losses.front() != plain.losses.back());
  const char* cuts[] = {"last"};
  const char* recomputed[] = {"block", "drop"};
  task.options.pipeline_cuts = cuts;
  task.options.num_cuts = 1;
  for (const bool recompute : {false, true}) {
    PipelineLayout stages;
    stages.pp = 2;
    stages.recompute = recompute;
    task.recomputed.assign(recomputed, recomputed + 2);
    check_equal(stages, train_pipeline(stages, task), plain);
  }
}

// The loss of a model at a step, in a mode: called as it is, or by a pipeline of so many stages
// that was made in a mode of its own.
double loss_of(const File& file, int stages, int made_in, int mode) {
  PipelineLayout layout;
  layout.pp = std::max(stages, 1);
  double loss = 0;
  std::mutex mutex;
  on_pipeline_ranks(layout, [&](nxd_context_t* ctx, int rank) {
    const Module model = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    Pipeline pp;
    NXD_TEST_OK(nxd_module_set_training(model.get(), made_in));
    if (stages > 0) {
      nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
      const char* cuts[] = {"last"};
      options.pipeline_cuts = cuts;
      options.num_cuts = stages > 1;
      options.num_microbatches = 1;
      options.broadcast_and_average_loss = 1;
      pp = make_pipeline(model.get(), batch, options);
    }
    set_step(ctx, 5);
    NXD_TEST_OK(nxd_module_set_training(model.get(), mode));
    double own = 0;
    if (pp) {
      NXD_TEST_OK(nxd_pp_run_train(pp.get(), handles(batch).data(), 1, &own));
    } else {
      own = item(run(model.get(), batch[0]).get());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (rank == 0) loss = own;
  });
  return loss;
}

// Stages drop as a call of the whole does, and follow the mode of now, whichever they were made in.
void as_the_whole_in_any_mode(void**) {
  const File file(many_times());
  for (const int mode : {0, 1}) {
    const double wanted = loss_of(file, 0, mode, mode);
    for (const int made_in : {0, 1}) {
      for (const int stages : {1, 2}) {
        const double loss = loss_of(file, stages, made_in, mode);
        if (loss != wanted) {
          fail_msg("%d stages made in mode %d, in mode %d: expected %.17g, got %.17g", stages,
                   made_in, mode, wanted, loss);
        }
      }
    }
  }
  assert_true(loss_of(file, 0, 0, 0) != loss_of(file, 0, 1, 1));
}

// Two recurrent layers, as one operator with a dropout between them, or one by one.
jit::Module recurrent(const std::string& cell, bool bidirectional, bool at_once) {
  jit::Module made("__torch__.Recurrent");
  made.register_attribute("training", c10::BoolType::get(), true);
  const int64_t gates = cell == "lstm"  ? 4
                        : cell == "gru" ? 3
                                        : 1,
                directions = bidirectional ? 2 : 1;
  std::string layers[2];
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      for (const char* kind : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
        const std::string name = kind + std::to_string(layer) + std::to_string(direction);
        const int64_t in = std::string(kind) != "w_ih" ? 5 : layer == 0 ? 6 : 5 * directions;
        const at::Tensor value = kind[0] == 'w' ? numbers({gates * 5, in}, layer + direction)
                                                : numbers({gates * 5}, layer - direction);
        made.register_parameter(name, value.clone().requires_grad_(), false);
        layers[layer] += (layers[layer].empty() ? "self." : ", self.") + name;
      }
    }
  }
  const std::string flags = bidirectional ? "True, True" : "False, True";
  const auto run = [&](const std::string& parameters, const char* count, const char* p) {
    return "torch." + cell + "(x, " + (cell == "lstm" ? "[h, h]" : "h") + ", [" + parameters +
           "], True, " + count + ", " + p + ", self.training, " + flags + ")[0]";
  };
  const std::string h = "  h = torch.full([n, x.size(0), 5], 0.25, dtype=x.dtype)\n";
  std::string code = "\ndef forward(self, x: Tensor) -> Tensor:\n";
  if (at_once) {
    code += "  n = " + std::to_string(2 * directions) + "\n" + h;
    code += "  x = " + run(layers[0] + ", " + layers[1], "2", "0.5") + "\n";
  } else {
    code += "  n = " + std::to_string(directions) + "\n" + h;
    code += "  x = " + run(layers[0], "1", "0.0") + "\n";
    code += "  x = torch.dropout(x, 0.5, self.training)\n";
    code += "  x = " + run(layers[1], "1", "0.0") + "\n";
  }
  made.define(code + "  return torch.mean(x * x)\n");
  return made;
}

void between_recurrent_layers(void**) {
  for (const char* cell : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) {
    for (const bool bidirectional : {false, true}) {
      const File at_once(recurrent(cell, bidirectional, true)),
          one_by_one(recurrent(cell, bidirectional, false));
      on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
        const at::Tensor data = numbers({3, 4, 6}, 2);
        const int64_t shape[] = {3, 4, 6};
        nxd_tensor_t* in = nullptr;
        NXD_TEST_OK(
            nxd_tensor_from_data(data.data_ptr(), data.nbytes(), shape, 3, NXD_DTYPE_F64, &in));
        const Tensor x(in);
        for (const int training : {1, 0}) {
          std::vector<double> losses;
          std::vector<Named> gradients;
          for (const File* file : {&at_once, &one_by_one}) {
            const Module model = load(ctx, file->path);
            NXD_TEST_OK(nxd_module_set_training(model.get(), training));
            const Tensor loss = run(model.get(), x);
            backward_of(loss);
            losses.push_back(item(loss.get()));
            gradients.push_back(whole_gradients(model.get()));
          }
          NXD_TEST_CHECK(losses[0] == losses[1]);
          check_named(cell, gradients[0], gradients[1], 1e-15);
        }
        return 0;
      });
    }
  }
}

// A recurrent layer over packed sequences, of 3 and 2 rows.
jit::Module packed(const char* p) {
  jit::Module made("__torch__.Packed");
  made.register_attribute("training", c10::BoolType::get(), true);
  for (const char* name : {"a", "b", "c", "d"}) {
    made.register_parameter(name, numbers({24, 6}, 1).requires_grad_(), false);
  }
  made.define(std::string(R"(
    def forward(self, x: Tensor) -> Tensor:
      h = torch.zeros([2, 3, 6], dtype=x.dtype)
      return torch.lstm(x.reshape([6, 6])[0:5], torch.tensor([3, 2]), [h, h],
                        [self.a, self.b, self.c, self.d], False, 2, )") +
              p + ", self.training, False)[0]\n");
  return made;
}

// Operators that drop by libtorch's numbers work in evaluation alone.
void others_are_refused(void**) {
  const File alpha(dropping("torch.alpha_dropout(x, 0.5, self.training)"));
  const File rows_of_many(packed("0.5")), undropped(packed("0.0"));
  const File kept(dropping("torch.alpha_dropout(x, 0.0, self.training)"));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tensor x = ones({3, 2, 6});
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    for (const auto& [file, name] : {std::pair<const File*, const char*>{&alpha, "alpha_dropout"},
                                     {&rows_of_many, "aten::lstm"}}) {
      const Module model = load(ctx, file->path);
      NXD_TEST_REFUSED(nxd_module_forward(model.get(), inputs, 1, &out, 1), NXD_ERROR_UNSUPPORTED,
                       name);
      NXD_TEST_OK(nxd_module_set_training(model.get(), 0));
      NXD_TEST_CHECK(!values(run(model.get(), x).get()).empty());
    }
    NXD_TEST_CHECK(values(run(load(ctx, undropped.path).get(), x).get()).size() == 30);
    NXD_TEST_CHECK(values(run(load(ctx, kept.path).get(), x).get()) == values(x.get()));
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(as_the_layer_draws),
      cmocka_unit_test(forms),
      cmocka_unit_test(each_call_its_own),
      cmocka_unit_test(recomputed),
      cmocka_unit_test(in_any_layout),
      cmocka_unit_test(as_the_whole_in_any_mode),
      cmocka_unit_test(between_recurrent_layers),
      cmocka_unit_test(others_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
