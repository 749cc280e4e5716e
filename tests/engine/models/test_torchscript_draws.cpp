// Random numbers that the code of TorchScript modules asks for: the library's own by definition,
// the same ones when a forward is run again, recomputed or cut into stages.
#include "core/tensor_parallel/dropout_mask.h"

#include <functional>

#include "capi/pipeline_support.h"
#include "support/torchscript_file.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr uint64_t kSeed = 3;
constexpr int64_t kCount = 2000;

Tensor zeros(std::vector<int64_t> shape, nxd_dtype_t dtype) {
  const at::Tensor data = at::zeros(shape, dtype == NXD_DTYPE_F64 ? at::kDouble : at::kFloat);
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data_ptr(), data.nbytes(), shape.data(),
                                   static_cast<int32_t>(shape.size()), dtype, &out));
  return Tensor(out);
}

std::vector<double> run(nxd_module_t* module, const Tensor& x) {
  nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
  NXD_TEST_OK(nxd_module_forward(module, inputs, 1, &out, 1));
  return values(Tensor(out).get());
}

void set_step(nxd_context_t* ctx, int64_t step) { NXD_TEST_OK(nxd_context_set_step(ctx, step, 0)); }

using Definition = std::function<double(const nxd::RandomSite&, uint64_t)>;

// Each operator's values in f64 are the site's of the module's path, for the step.
void by_definition(void**) {
  const auto uniform = [](const nxd::RandomSite& site, uint64_t i) { return site.uniform(i); };
  const auto normal = [](const nxd::RandomSite& site, uint64_t i) { return site.normal(i); };
  const auto below = [](double p) {
    return [p](const nxd::RandomSite& site, uint64_t i) {
      uint8_t one = 0;
      site.fill_bernoulli(&one, i, 1, p);
      return static_cast<double>(one);
    };
  };
  const std::pair<const char*, Definition> forms[] = {
      {"torch.rand([2000], dtype=x.dtype)", uniform},
      {"torch.rand_like(x)", uniform},
      {"torch.rand_like(x, dtype=7)", uniform},
      {"torch.randn([2000], dtype=x.dtype)", normal},
      {"torch.randn_like(x)", normal},
      {"torch.empty_like(x).uniform_(-2.0, 3.0)",
       [](const nxd::RandomSite& site, uint64_t i) { return -2 + 5 * site.uniform(i); }},
      {"torch.empty_like(x).normal_(1.0, 0.5)",
       [](const nxd::RandomSite& site, uint64_t i) { return 1 + 0.5 * site.normal(i); }},
      {"x.new_empty([2000]).bernoulli_(0.25)", below(0.25)},
      {"torch.bernoulli(x, 0.25)", below(0.25)},
      {"torch.bernoulli(x + 0.25)",
       [](const nxd::RandomSite& site, uint64_t i) { return site.uniform(i) < 0.25 ? 1.0 : 0.0; }},
      {"torch.normal(1.0, 0.5, [2000], dtype=7)",
       [](const nxd::RandomSite& site, uint64_t i) { return 1 + 0.5 * site.normal(i); }},
      {"torch.randint(10, [2000]).to(x.dtype)",
       [](const nxd::RandomSite& site, uint64_t i) { return std::floor(10 * site.uniform(i)); }},
      {"torch.randint(-3, 10, [2000], dtype=3).to(x.dtype)",
       [](const nxd::RandomSite& site, uint64_t i) {
         return std::floor(13 * site.uniform(i)) - 3;
       }},
      {"torch.empty_like(x).exponential_(2.0)",
       [](const nxd::RandomSite& site, uint64_t i) { return -std::log1p(-site.uniform(i)) / 2; }},
  };
  for (const auto& [code, definition] : forms) {
    jit::Module made("__torch__.Net");
    made.register_module("noise", function("Noise", code));
    made.define("\ndef forward(self, x: Tensor) -> Tensor:\n  return self.noise.forward(x)\n");
    const File file(made);
    on_ranks<int>(Layout{2}, kSeed, [&, code = code, definition = definition](nxd_context_t* ctx) {
      const Module model = load(ctx, file.path);
      const Tensor x = zeros({kCount}, NXD_DTYPE_F64);
      for (const int training : {1, 0}) {
        NXD_TEST_OK(nxd_module_set_training(model.get(), training));
        for (const int64_t step : {0, 7}) {
          set_step(ctx, step);
          const nxd::RandomSite site = nxd::dropout_site(kSeed, "noise").at(step, 0);
          const std::vector<double> got = run(model.get(), x);
          for (size_t i = 0; i < got.size(); ++i) {
            const double want = definition(site, i);
            if (std::abs(got[i] - want) <= 1e-15 * std::abs(want)) continue;
            nxd_test_fail(__FILE__, __LINE__, "%s: element %zu: expected %.17g, got %.17g", code, i,
                          want, got[i]);
            break;
          }
        }
      }
      return 0;
    });
  }
}

// ScalarTypes by number: 4 is int64, 7 float64, 15 bfloat16. Narrow dtypes are rounded, and stay
// below the upper bound.
void narrow_dtypes(void**) {
  const File file(function("Noise", "torch.rand_like(x, dtype=15).to(7)"));
  on_ranks<int>(Layout{1}, kSeed, [&](nxd_context_t* ctx) {
    const std::vector<double> got =
        run(load(ctx, file.path).get(), zeros({100, 1000}, NXD_DTYPE_F32));
    double sum = 0;
    for (const double value : got) {
      NXD_TEST_CHECK(value >= 0 && value < 1);
      sum += value;
    }
    NXD_TEST_CHECK(std::abs(sum / 1e5 - 0.5) < 5 * std::sqrt(1 / 12e5));
    return 0;
  });
}

// Rows of a residual are left out in training, as torchvision's StochasticDepth has it, and noise
// is added; a block is called twice.
jit::Module with_stochastic_depth() {
  jit::Module made("__torch__.Deep"), block("__torch__.Block"), depth("__torch__.Depth");
  depth.register_attribute("training", c10::BoolType::get(), true);
  depth.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      if not self.training:
        return x
      noise = torch.empty([x.size(0), 1], dtype=x.dtype, layout=x.layout, device=x.device)
      noise = noise.bernoulli_(0.5)
      noise.div_(0.5)
      return x * noise
  )");
  block.register_module("linear", linear("Inner", 6, 6, at::kDouble));
  block.register_module("depth", depth);
  block.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      y = self.linear.forward(x)
      return x + self.depth.forward(y) + 0.1 * torch.randn_like(x)
  )");
  made.register_module("block", block);
  made.register_module("last", linear("Last", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      x = self.block.forward(self.block.forward(x))
      return torch.mean(torch.pow(self.last.forward(x), 2))
  )");
  return made;
}

void recomputed(void**) {
  const File file(with_stochastic_depth());
  on_ranks<int>(Layout{1}, kSeed, [&](nxd_context_t* ctx) {
    std::vector<Named> gradients;
    for (const bool again : {false, true}) {
      const Module model = load(ctx, file.path);
      const char* names[] = {"block"};
      if (again) NXD_TEST_OK(nxd_apply_checkpoint(model.get(), names, 1, 1));
      const Tensor x = rows(0, 4);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 1, &out, 1));
      backward_of(Tensor(out));
      gradients.push_back(whole_gradients(model.get()));
    }
    NXD_TEST_CHECK(gradients[0].size() == 4);
    check_named("gradient", gradients[1], gradients[0], 0);
    return 0;
  });
}

void in_any_layout(void**) {
  const File file(with_stochastic_depth());
  PipelineTask task;
  task.make = [&](nxd_context_t* ctx) { return load(ctx, file.path); };
  task.batch = [](int step, int dp_rank, int dp) {
    std::vector<Tensor> batch;
    batch.push_back(rows(8 * step + dp_rank * (8 / dp), 8 / dp));
    return batch;
  };
  task.options.num_microbatches = 4;
  const PipelineRun plain = train_pipeline({}, task);
  const char* cuts[] = {"last"};
  task.options.pipeline_cuts = cuts;
  task.options.num_cuts = 1;
  for (const bool recompute : {false, true}) {
    PipelineLayout stages;
    stages.pp = 2;
    stages.recompute = recompute;
    task.recomputed = {"block"};
    check_equal(stages, train_pipeline(stages, task), plain);
  }
}

// A table whose rows are drawn, by code that makes the numbers from nothing that it is given.
jit::Module drawing_rows() {
  jit::Module made("__torch__.Net");
  made.register_buffer("table", numbers({5, 6}, 1));
  made.register_module("inner", linear("Inner", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      picked = self.table[torch.randint(5, [4])]
      return torch.mean(torch.pow(self.inner.forward(x) + picked, 2))
  )");
  return made;
}

// A trace has no number that is drawn: each run of it draws its own, as the forward does.
void drawn_in_each_run(void**) {
  const File file(drawing_rows());
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module plain = load(ctx, file.path), cut = load(ctx, file.path);
    std::vector<Tensor> batch;
    batch.push_back(rows(0, 4));
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 1;
    const Pipeline pp = make_pipeline(cut.get(), batch, options);
    if (!pp) return;
    std::vector<double> losses;
    for (int64_t step = 0; step < 3; ++step) {
      set_step(ctx, step);
      losses.push_back(run(plain.get(), batch[0]).at(0));
      double loss = NAN;
      NXD_TEST_OK(nxd_pp_run_eval(pp.get(), handles(batch).data(), 1, &loss, nullptr, 0));
      check_loss("a step", loss, losses.back(), 0);
    }
    NXD_TEST_CHECK(losses[0] != losses[1] && losses[1] != losses[2]);
  });
}

// A layer that is left out by chance: a trace would leave it out for ever.
void choices_by_chance(void**) {
  jit::Module made("__torch__.Net");
  made.register_module("inner", linear("Inner", 6, 6, at::kDouble));
  made.define(R"(
    def forward(self, x: Tensor) -> Tensor:
      if float(torch.rand([1])) < 0.5:
        x = self.inner.forward(x)
      return torch.mean(x * x)
  )");
  const File file(made);
  on_pipeline_ranks({}, [&](nxd_context_t* ctx, int) {
    const Module model = load(ctx, file.path);
    const Tensor x = rows(0, 4);
    nxd_tensor_t* inputs[] = {x.get()};
    nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
    options.num_microbatches = 1;
    nxd_pp_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_pp_create(model.get(), inputs, 1, &options, &out), NXD_ERROR_UNSUPPORTED,
                     "the forward reads a value");
  });
}

void bad_parameters(void**) {
  const std::pair<const char*, const char*> forms[] = {
      {"torch.bernoulli(x, 1.5)", "bernoulli: expected a probability from 0 to 1, got 1.5"},
      {"torch.empty_like(x).uniform_(2.0, 1.0)", "expected from <= to, got 2 and 1"},
      {"torch.randint(4, 2, [3]).to(x.dtype)", "expected from <= to, got 4 and 2"},
      {"torch.empty_like(x).normal_(0.0, -1.0)", "a deviation of at least 0"},
      {"torch.empty_like(x).exponential_(0.0)", "a positive rate, got 0"},
      {"torch.zeros([3], dtype=4).bernoulli_(0.5)", "expected a float dtype, got i64"},
  };
  for (const auto& [code, message] : forms) {
    const File file(function("Noise", code));
    on_ranks<int>(Layout{1}, kSeed, [&, message = message](nxd_context_t* ctx) {
      const Tensor x = zeros({3}, NXD_DTYPE_F64);
      nxd_tensor_t *inputs[] = {x.get()}, *out = nullptr;
      NXD_TEST_REFUSED(nxd_module_forward(load(ctx, file.path).get(), inputs, 1, &out, 1),
                       NXD_ERROR_INVALID_ARGUMENT, message);
      return 0;
    });
  }
  // Others would be libtorch's own.
  const File other(function("Noise", "torch.randperm(3).to(x.dtype)"));
  on_ranks<int>(Layout{1}, kSeed, [&](nxd_context_t* ctx) {
    nxd_module_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_model_from_torchscript(ctx, other.path.c_str(), &out),
                     NXD_ERROR_UNSUPPORTED, "aten::randperm");
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(by_definition),     cmocka_unit_test(narrow_dtypes),
      cmocka_unit_test(recomputed),        cmocka_unit_test(in_any_layout),
      cmocka_unit_test(bad_parameters),    cmocka_unit_test(drawn_in_each_run),
      cmocka_unit_test(choices_by_chance),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
