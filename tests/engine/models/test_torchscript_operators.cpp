// Operators in modules of TorchScript files that newer releases of PyTorch write and older ones of
// libtorch cannot read: values and gradients of scaled_dot_product_attention by its definition, in
// all forms, its dropout by kernels as by plain operators; and rms_norm. Operators in tasks that
// the code forks.
#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

// The name is known to libtorch once a file has been loaded.
void make_known() {
  const File any(function("Any", "x * 1.0"));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    load(ctx, any.path);
    return 0;
  });
}

struct Case {
  const char* name;
  std::vector<int64_t> q, k, v;
  const char* mask;  // "", "bool", "added"
  const char* rest;  // of the call
  bool causal, grouped;
  double scale;  // 0: the default
};

const Case kCases[] = {
    {"plain", {2, 3, 5, 8}, {2, 3, 7, 8}, {2, 3, 7, 8}, "", "None, 0.0, False", false, false, 0},
    {"causal", {2, 3, 6, 8}, {2, 3, 6, 8}, {2, 3, 6, 8}, "", "None, 0.0, True", true, false, 0},
    {"fewer queries, causal",
     {2, 3, 4, 8},
     {2, 3, 6, 8},
     {2, 3, 6, 8},
     "",
     "None, 0.0, True",
     true,
     false,
     0},
    {"scale",
     {1, 2, 5, 8},
     {1, 2, 5, 8},
     {1, 2, 5, 8},
     "",
     "None, 0.0, False, scale=0.5",
     false,
     false,
     0.5},
    {"grouped",
     {2, 6, 5, 8},
     {2, 2, 5, 8},
     {2, 2, 5, 8},
     "",
     "None, 0.0, True, scale=None, enable_gqa=True",
     true,
     true,
     0},
    {"grouped, masked",
     {2, 6, 5, 8},
     {2, 2, 5, 8},
     {2, 2, 5, 8},
     "added",
     "mask, 0.0, False, scale=None, enable_gqa=True",
     false,
     true,
     0},
    {"other values",
     {2, 3, 5, 8},
     {2, 3, 7, 8},
     {2, 3, 7, 4},
     "",
     "None, 0.0, False",
     false,
     false,
     0},
    {"three dimensions", {3, 5, 8}, {3, 7, 8}, {3, 7, 8}, "", "None, 0.0, False", false, false, 0},
    {"bool mask",
     {2, 3, 5, 8},
     {2, 3, 7, 8},
     {2, 3, 7, 8},
     "bool",
     "mask > 0.0, 0.0, False",
     false,
     false,
     0},
    {"added mask",
     {2, 3, 5, 8},
     {2, 3, 7, 8},
     {2, 3, 7, 8},
     "added",
     "mask, 0.0, False",
     false,
     false,
     0},
};

// A module with q, k, v and a mask that learns as parameters, so that their gradients are found.
jit::Module module_of(const Case& c, at::ScalarType dtype, const std::string& rest,
                      const at::Tensor& mask) {
  jit::Module made("__torch__.Attend");
  int64_t phase = 0;
  for (const auto& [name, sizes] :
       {std::pair<const char*, std::vector<int64_t>>{"q", c.q}, {"k", c.k}, {"v", c.v}}) {
    made.register_parameter(name, numbers(sizes, phase += 5, dtype).requires_grad_(), false);
  }
  if (mask.requires_grad()) {
    made.register_parameter("mask", mask, false);
  } else {
    made.register_buffer("mask", mask);
  }
  made.define(
      "\ndef forward(self, x: Tensor) -> Tensor:\n  mask = self.mask\n  y = "
      "torch.scaled_dot_product_attention(self.q, self.k, self.v, " +
      rest + ")\n  return torch.sum(y * torch.cos(y))\n");
  return made;
}

jit::Module module_of(const Case& c, at::ScalarType dtype, const std::string& rest) {
  return module_of(c, dtype, rest,
                   numbers({c.q[c.q.size() - 2], c.k[c.k.size() - 2]}, 3, dtype).requires_grad_());
}

// The definition, in f64.
Named by_definition(const Case& c, double* loss) {
  at::Tensor q = numbers(c.q, 5).requires_grad_(), k = numbers(c.k, 10).requires_grad_(),
             v = numbers(c.v, 15).requires_grad_(),
             mask = numbers({c.q[c.q.size() - 2], c.k[c.k.size() - 2]}, 3).requires_grad_();
  const auto heads = [&](const at::Tensor& x) {
    return c.grouped ? at::repeat_interleave(x, c.q[1] / c.k[1], 1) : x;
  };
  const double scale = c.scale ? c.scale : 1 / std::sqrt(static_cast<double>(c.q.back()));
  at::Tensor scores = at::matmul(q, heads(k).transpose(-2, -1)) * scale;
  const std::string kind = c.mask;
  const at::Tensor sees = c.causal ? at::ones_like(mask).tril() : (mask > 0).to(at::kDouble);
  if (kind == "added") scores = scores + mask;
  at::Tensor weights = at::exp(scores);
  if (c.causal || kind == "bool") weights = weights * sees.detach();
  const at::Tensor y = at::matmul(weights / weights.sum({-1}, true), heads(v));
  const at::Tensor sum = at::sum(y * at::cos(y));
  sum.backward();
  *loss = sum.item<double>();
  Named gradients;
  for (const auto& [name, of] : {std::pair<const char*, at::Tensor>{"q", q}, {"k", k}, {"v", v}}) {
    gradients[name] = values_of(of.grad());
  }
  if (kind == "added") gradients["mask"] = values_of(mask.grad());
  return gradients;
}

struct Result {
  double loss;
  Named gradients;
};

Result trained(const File& file, int64_t step = 0) {
  Result result{};
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    NXD_TEST_OK(nxd_context_set_step(ctx, step, 0));
    const Tensor x = rows(0, 1);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
    const Tensor loss(out);
    backward_of(loss);
    result = {item(loss.get()), whole_gradients(model.get())};
    return 0;
  });
  return result;
}

void as_defined(void**) {
  for (const Case& c : kCases) {
    double loss = 0;
    const Named wanted = by_definition(c, &loss);
    for (const bool wide : {true, false}) {
      const File file(module_of(c, wide ? at::kDouble : at::kFloat, c.rest));
      const Result got = trained(file);
      const double tolerance = wide ? 1e-12 : 2e-5;
      check_loss(c.name, got.loss, loss, tolerance);
      for (const auto& [name, of] : wanted) {
        const auto found = got.gradients.find(name);
        if (found == got.gradients.end()) fail_msg("%s: no gradient of %s", c.name, name.c_str());
        check_named(std::string(c.name) + ": " + name, {*found}, {{name, of}}, tolerance);
      }
    }
  }
}

// Kernels and plain operators drop the same weights; another step drops others, and p 1 all.
void dropout(void**) {
  for (const Case& c : {kCases[0], kCases[1], kCases[4]}) {
    std::string rest = c.rest;
    rest.replace(rest.find("0.0"), 3, "0.3");
    const File wide(module_of(c, at::kDouble, rest)), narrow(module_of(c, at::kFloat, rest));
    const Result by_operators = trained(wide), by_kernels = trained(narrow);
    check_loss(c.name, by_kernels.loss, by_operators.loss, 2e-5);
    check_named(c.name, by_kernels.gradients, by_operators.gradients, 2e-5);
    assert_true(trained(wide).loss == by_operators.loss);
    assert_true(trained(wide, 1).loss != by_operators.loss);
    assert_true(std::abs(trained(narrow, 1).loss / trained(wide, 1).loss - 1) < 2e-5);
    double kept = 0;
    by_definition(c, &kept);
    assert_true(std::abs(by_operators.loss / kept - 1) > 1e-3);
    rest.replace(rest.find("0.3"), 3, "1.0");
    assert_true(trained(File(module_of(c, at::kFloat, rest))).loss == 0);
  }
}

// Kernels apply a mask that is a constant; operators one that learns. Its gradient aside, both are
// the same attention.
void masks_by_kernels(void**) {
  const at::Tensor triangle = at::ones({6, 6}, at::kBool).tril();
  at::Tensor keys = at::ones({2, 1, 1, 6}, at::kBool);
  keys[1][0][0].narrow(0, 4, 2).fill_(false);
  const Case c{"mask", {2, 3, 6, 8}, {2, 3, 6, 8}, {2, 3, 6, 8}, "", "", false, false, 0};
  for (const char* dropout : {"0.0", "0.3"}) {
    const std::string rest = std::string("mask, ") + dropout + ", False";
    for (const at::Tensor& keep : {triangle, keys, keys.logical_and(triangle)}) {
      const auto result_of = [&](const at::Tensor& mask) {
        Result out = trained(File(module_of(c, at::kFloat, rest, mask)));
        out.gradients.erase("mask");
        return out;
      };
      const at::Tensor added = at::zeros(keep.sizes()).masked_fill(keep.logical_not(), -INFINITY);
      const Result wanted = result_of(added.clone().requires_grad_());
      const Result got = result_of(added);
      check_loss("added", got.loss, wanted.loss, 2e-5);
      check_named("added", got.gradients, wanted.gradients, 2e-5);
      const Result as_bool = result_of(keep);
      check_loss("bool", as_bool.loss, got.loss, 0);
      check_named("bool", as_bool.gradients, got.gradients, 0);
    }
  }
}

// Attention of a block's own code, with a dropout that its code always asks for: stages and
// recomputation change nothing.
void in_any_layout(void**) {
  jit::Module made("__torch__.Net"), block("__torch__.Block");
  for (const char* name : {"q", "k", "v"}) {
    block.register_module(name, linear(name, 6, 6, at::kFloat));
  }
  block.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      q = self.q.forward(x).view([1, -1, 2, 3]).transpose(1, 2)
      k = self.k.forward(x).view([1, -1, 2, 3]).transpose(1, 2)
      v = self.v.forward(x).view([1, -1, 2, 3]).transpose(1, 2)
      y = torch.scaled_dot_product_attention(q, k, v, None, 0.2, True)
      return x + y.transpose(1, 2).reshape([-1, 6])
  )");
  made.register_module("block", block);
  made.register_module("last", linear("Last", 6, 6, at::kFloat));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      x = self.block.forward(self.block.forward(x))
      x = self.last.forward(x)
      return torch.mean(x * x)
  )");
  const File file(made);
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int, int) {
    std::vector<Tensor> batch;
    batch.push_back(rows(8 * step, 8, NXD_DTYPE_F32));
    return batch;
  };
  task.options.num_microbatches = 2;
  const PipelineRun plain = train_pipeline({}, task);
  const char *cuts[] = {"block.v"}, *recomputed[] = {"block"};
  task.options.pipeline_cuts = cuts;
  task.options.num_cuts = 1;
  task.recomputed.assign(recomputed, recomputed + 1);
  for (const bool recompute : {false, true}) {
    PipelineLayout stages;
    stages.pp = 2;
    stages.recompute = recompute;
    if (recompute) cuts[0] = "block";
    check_equal(stages, train_pipeline(stages, task), plain);
  }
}

void rms_norm(void**) {
  const auto module = [](at::ScalarType dtype, const std::string& rest) {
    jit::Module made("__torch__.Norm");
    made.register_parameter("x", numbers({3, 4, 6}, 2, dtype).requires_grad_(), false);
    made.register_parameter("weight", numbers({4, 6}, 4, dtype).requires_grad_(), false);
    made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  y = torch.rms_norm(self.x, " + rest +
                ")\n  return torch.sum(y * torch.cos(y))\n");
    return made;
  };
  struct Form {
    const char* rest;
    std::vector<int64_t> dims;
    double epsilon;  // 0: the dtype's
    bool weighted;
  };
  for (const Form& f : {Form{"[6]", {-1}, 0, false}, Form{"[6], None, 0.125", {-1}, 0.125, false},
                        Form{"[4, 6], self.weight, 1e-3", {-2, -1}, 1e-3, true}}) {
    for (const bool wide : {true, false}) {
      const at::Tensor x = numbers({3, 4, 6}, 2).requires_grad_(),
                       weight = numbers({4, 6}, 4).requires_grad_();
      const double epsilon = f.epsilon ? f.epsilon : wide ? 0x1p-52 : 0x1p-23;
      at::Tensor y = x / at::sqrt(at::mean(x * x, f.dims, true) + epsilon);
      if (f.weighted) y = y * weight;
      const at::Tensor sum = at::sum(y * at::cos(y));
      sum.backward();
      Result got = trained(File(module(wide ? at::kDouble : at::kFloat, f.rest)));
      check_loss(f.rest, got.loss, sum.item<double>(), wide ? 1e-12 : 1e-5);
      Named wanted{{"x", values_of(x.grad())}};
      if (f.weighted) wanted["weight"] = values_of(weight.grad());
      if (!f.weighted) got.gradients.erase("weight");
      check_named(f.rest, got.gradients, wanted, wide ? 1e-12 : 1e-5);
    }
  }
}

// Automatic casts leave the module as it is, in the kernels, too.
void as_written_under_casts(void**) {
  const File file(module_of(kCases[1], at::kFloat, kCases[1].rest));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 2);
    std::vector<double> losses;
    for (const nxd_dtype_t casts : {NXD_DTYPE_INVALID, NXD_DTYPE_BF16}) {
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      nxd_dtype_t before = NXD_DTYPE_INVALID;
      NXD_TEST_OK(nxd_set_autocast(casts, &before));
      const bool ran = NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
      NXD_TEST_OK(nxd_set_autocast(before, nullptr));
      if (ran) losses.push_back(item(Tensor(out).get()));
    }
    NXD_TEST_CHECK(losses.size() == 2 && losses[0] == losses[1]);
    return 0;
  });
}

// Gives the sum of its part, which it calls in a task that it forks. Only files have a word for
// that.
jit::Module forking(const jit::Module& part) {
  jit::Module made("__torch__.Outer");
  made.register_module("part", part);
  const auto task = std::make_shared<jit::Graph>(), whole = std::make_shared<jit::Graph>();
  const std::vector<jit::Value*> given{task->addInput("part")->setType(part.type()),
                                       task->addInput("x")};
  jit::Node* const call = task->insertNode(task->create(c10::prim::CallMethod, given));
  call->s_(c10::attr::name, "forward");
  task->registerOutput(call->output());
  jit::Value* const self = whole->addInput("self")->setType(made.type());
  jit::Value* const x = whole->addInput("x");
  const std::vector<jit::Value*> held{whole->insertGetAttr(self, "part"), x};
  jit::Node* const fork = whole->insertNode(whole->create(c10::prim::fork, held));
  fork->g_(c10::attr::Subgraph, task);
  fork->output()->setType(c10::FutureType::create(c10::TensorType::get()));
  jit::Value* const done = whole->insert(c10::aten::wait, {fork->output()});
  whole->registerOutput(whole->insert(c10::aten::sum, {done}));
  made.type()->addMethod(made._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*made.type()->name(), "forward"), whole));
  return made;
}

// The same, with no fork.
jit::Module calling(const jit::Module& part) {
  jit::Module made("__torch__.Outer");
  made.register_module("part", part);
  made.define(
      "\ndef forward(self, x: Tensor) -> Tensor:\n"
      "  return torch.sum(self.part.forward(x))\n");
  return made;
}

void check_forked(const jit::Module& part) {
  const File forked(forking(part)), plain(calling(part));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    std::vector<double> losses;
    std::vector<Named> gradients;
    for (const File* file : {&forked, &plain}) {
      const Module model = load(ctx, file->path);
      const Tensor x = rows(0, 4);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1))) return 0;
      const Tensor loss(out);
      losses.push_back(item(out));
      backward_of(loss);
      gradients.push_back(whole_gradients(model.get()));
    }
    check_loss("loss", losses[0], losses[1], 1e-12);
    check_named("gradients", gradients[0], gradients[1], 1e-12);
    return 0;
  });
}

void attention_in_a_task(void**) {
  jit::Module part("__torch__.Part");
  part.register_parameter("scale", numbers({6}, 1).requires_grad_(), false);
  part.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = x * self.scale
      return torch.scaled_dot_product_attention(y, y, y)
  )");
  check_forked(part);
}

void sparse_embedding_in_a_task(void**) {
  jit::Module part("__torch__.Part");
  part.register_parameter("table", numbers({5, 6}, 1).requires_grad_(), false);
  part.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      i = (torch.abs(x) * 4.0).to(4)
      return torch.pow(torch.embedding(self.table, i, -1, False, True), 2)
  )");
  check_forked(part);
}

// The library's own backward passes are not recorded: what is differentiated again would have no
// gradient of them.
void gradients_of_kernels(void**) {
  jit::Module made("__torch__.Penalty");
  made.register_parameter("scale", numbers({6}, 1, at::kFloat).requires_grad_(), false);
  made.define(R"(
    def forward(self, x: Tensor, again: bool) -> Tensor:
      q = torch.view(x * self.scale, [1, 1, -1, 6])
      y = torch.sum(torch.sin(torch.scaled_dot_product_attention(q, q, q)))
      grad = torch.autograd.grad([y], [q], None, True, again)[0]
      if grad is None:
        return y
      return torch.sum(torch.pow(grad, 2)) + y
  )");
  const File file(made);
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 4, NXD_DTYPE_F32);
    for (const bool again : {false, true}) {
      nxd_tensor_t *flag = nullptr, *out = nullptr;
      NXD_TEST_OK(nxd_tensor_from_data(&again, 1, nullptr, 0, NXD_DTYPE_BOOL, &flag));
      const Tensor own(flag);
      nxd_tensor_t* inputs[] = {x.get(), flag};
      const nxd_status_t status = nxd_module_forward(model.get(), inputs, 2, &out, 1);
      const Tensor loss(out);
      if (again) {
        NXD_TEST_REFUSED(status, NXD_ERROR_UNSUPPORTED, "cannot be differentiated again");
      } else {
        NXD_TEST_OK(status);
      }
    }
    return 0;
  });
}

void bad_calls(void**) {
  Case c = kCases[0];
  const File both(module_of(c, at::kFloat, "mask, 0.0, True"));
  const File often(module_of(c, at::kFloat, "None, 1.25, False"));
  const File heads(module_of(c, at::kFloat, "mask, 0.0, False", at::zeros({2, 5, 7})));
  c.k = c.v = {2, 3, 7, 4};
  const File unlike(module_of(c, at::kFloat, "None, 0.0, False"));
  c.q = {8};
  jit::Module vector("__torch__.Vector");
  vector.define(
      "\ndef forward(self, x: Tensor) -> Tensor:\n"
      "  return torch.scaled_dot_product_attention(x[0], x[0], x[0])\n");
  const File flat(vector);
  const File norm(function("Norm", "torch.rms_norm(x, [5])"));
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tensor x = rows(0, 2);
    nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
    for (const auto& [file, word] :
         {std::pair<const File*, const char*>{&both, "got both"},
          {&often, "probability from 0 to 1, got 1.25"},
          {&unlike, "TorchScript forward failed"},
          {&heads, "TorchScript forward failed"},
          {&norm, "5"},
          {&flat, "expected [..., sequence, features], got shape [6]"}}) {
      NXD_TEST_REFUSED(nxd_module_forward(load(ctx, file->path).get(), inputs, 1, &out, 1),
                       NXD_ERROR_INVALID_ARGUMENT, word);
    }
    return 0;
  });
}

}  // namespace

int main() {
  make_known();
  const CMUnitTest tests[] = {
      cmocka_unit_test(as_defined),
      cmocka_unit_test(dropout),
      cmocka_unit_test(masks_by_kernels),
      cmocka_unit_test(in_any_layout),
      cmocka_unit_test(rms_norm),
      cmocka_unit_test(as_written_under_casts),
      cmocka_unit_test(gradients_of_kernels),
      cmocka_unit_test(bad_calls),
      cmocka_unit_test(attention_in_a_task),
      cmocka_unit_test(sparse_embedding_in_a_task),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
