// Parts of a model on the ranks of a pipeline, made by hand: they are named, stepped, saved and
// loaded as the undivided model is, on two stages of two tensor-parallel ranks in two copies.
// Before the rest, which defines fail().
#include "capi/engine_handles.h"
#include "capi/handles.h"

#include "engine/microbatch_run.h"

#include <ATen/core/grad_mode.h>

#include "engine/training/local_module.h"
#include "engine/training/model_state.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;

constexpr int kLayers = 4;

struct Shape {
  int tp = 1, pp = 1, dp = 1;
  int stage = -1;  // of ZeRO; -1: no ddp
  int size() const { return tp * pp * dp; }
};

std::string model_config(bool tied) {
  Setting setting;
  setting.tied = tied;
  return config_of(setting);
}

// Runs fn on ranks of a layout with stages.
template <class Function>
void on_stages(const Shape& shape, Function fn) {
  struct Shared {
    const Shape& shape;
    Function& fn;
  } shared{shape, fn};
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  options.seed = 21;
  nxd_test_run_ranks_with(
      &options, shape.size(), 0,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        auto* s = static_cast<Shared*>(user_data);
        nxd_parallel_options_t parallel = NXD_PARALLEL_OPTIONS_INIT;
        parallel.tensor_parallel_size = s->shape.tp;
        parallel.pipeline_parallel_size = s->shape.pp;
        if (!NXD_TEST_OK(nxd_init_model_parallel(ctx, &parallel))) return;
        s->fn(ctx, rank);
        NXD_TEST_OK(nxd_destroy_model_parallel(ctx));
      },
      &shared);
}

int stage_of(nxd_context_t* ctx) {
  int32_t rank = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_PIPELINE, &rank));
  return rank;
}

// A whole model, and this rank's part of it.
struct Part {
  Module whole, local;

  nxd_module_t* root() const { return local ? local.get() : whole.get(); }
};

bool is_local(const std::string& name, int stage) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (name.rfind(prefix, 0) == 0) return (layer >= kLayers / 2) == (stage == 1);
  }
  return (name.rfind("model.embed", 0) == 0) == (stage == 0);
}

// Two stages; with keep_others parameters of the other stage keep their values.
Part make_part(nxd_context_t* ctx, const Shape& shape, bool tied, bool keep_others,
               nxd_device_t device = NXD_DEVICE_CPU) {
  nxd_model_options_t options = NXD_MODEL_OPTIONS_INIT;
  options.device = device;
  nxd_module_t* model = nullptr;
  NXD_TEST_OK(nxd_model_create(ctx, model_config(tied).c_str(), &options, &model));
  Part part{Module(model), nullptr};
  if (shape.pp == 1) return part;
  const int stage = stage_of(ctx);
  std::vector<std::shared_ptr<nxd::Parameter>> own;
  for (const auto& [name, parameter, is_alias] : nxd::all_parameter_names(*model->value)) {
    if (is_local(name, stage)) own.push_back(parameter);
  }
  for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*model->value)) {
    const bool kept = std::find(own.begin(), own.end(), parameter) != own.end();
    if (kept && tied && stage == 1 && name == "model.embed_tokens.weight") {
      parameter->set_counts_in_norm(false);
    }
    if (!kept && !keep_others) parameter->release();
  }
  part.local.reset(new nxd_module{nxd::LocalModule::create(model->value, own, {})});
  return part;
}

std::vector<std::string> names_of(nxd_module_t* root) {
  std::vector<std::string> names;
  for_each_parameter(root,
                     [&](nxd_parameter_t*, const std::string& name) { names.push_back(name); });
  return names;
}

void test_names(void**) {
  on_stages({1, 2, 1}, [](nxd_context_t* ctx, int stage) {
    const Part part = make_part(ctx, {1, 2, 1}, true, false);
    const std::vector<std::string> names = names_of(part.root());
    NXD_TEST_CHECK(names.size() == (stage == 0 ? 19 : 20));
    // The tied table has its owner's name in both, and its other name too.
    NXD_TEST_CHECK(names[0] == "model.embed_tokens.weight");
    const nxd::Module& local = *part.local->value;
    NXD_TEST_CHECK(nxd::find_parameter(local, "lm_head.weight") ==
                   nxd::find_parameter(*part.whole->value, "model.embed_tokens.weight"));
    for (const std::string& name : names) {
      NXD_TEST_CHECK(nxd::find_parameter(local, name) ==
                     nxd::find_parameter(*part.whole->value, name));
      NXD_TEST_CHECK(nxd::find_parameter(local, name)->canonical_name() == name);
      NXD_TEST_CHECK(nxd::find_parameter(local, name)->has_value());
    }
    NXD_TEST_CHECK(local.class_name() == "LlamaForCausalLM");
    const std::string layer = stage == 0 ? "model.layers.1" : "model.layers.2";
    NXD_TEST_CHECK(nxd::find_module(part.local->value, layer) ==
                   nxd::find_module(part.whole->value, layer));
    NXD_TEST_CHECK(nxd::find_module(part.local->value, "model.layers") !=
                   nxd::find_module(part.whole->value, "model.layers"));
    nxd_module_t* found = nullptr;
    NXD_TEST_REFUSED(nxd_module_find_module(part.local.get(), "model.layers.7", &found),
                     NXD_ERROR_INVALID_ARGUMENT, "model.layers.7");
    nxd_tensor_t* out = nullptr;
    NXD_TEST_REFUSED(nxd_module_forward(part.local.get(), nullptr, 0, &out, 1),
                     NXD_ERROR_UNSUPPORTED, "cannot be run itself");
  });
  on_stages({}, [](nxd_context_t* ctx, int) {
    const Part part = make_part(ctx, {}, false, true), other = make_part(ctx, {}, false, true);
    const auto stranger = nxd::find_parameter(*other.whole->value, "model.norm.weight");
    const auto refused = [&](const std::vector<std::shared_ptr<nxd::Parameter>>& parameters,
                             const std::vector<std::string>& paths) {
      try {
        nxd::LocalModule::create(part.whole->value, parameters, paths);
        return false;
      } catch (const nxd::Error& error) {
        return error.status() == NXD_ERROR_INVALID_ARGUMENT;
      }
    };
    NXD_TEST_CHECK(refused({stranger}, {}) && refused({}, {"model.layer.0"}));
    const auto empty = nxd::LocalModule::create(part.whole->value, {}, {"model.layers.1.mlp"});
    NXD_TEST_CHECK(nxd::find_module(empty, "model.layers.1.mlp")->class_name() == "GatedMLP");
    NXD_TEST_CHECK(nxd::find_module(empty, "model.layers")->children().size() == 1);
    NXD_TEST_CHECK(nxd::named_parameters(*empty).empty());
  });
}

// A stage's part knows the layers of all stages: each rank may name the same ones.
void test_recomputation(void**) {
  on_stages({1, 2, 1}, [](nxd_context_t* ctx, int stage) {
    const Part part = make_part(ctx, {1, 2, 1}, true, false);
    const auto flagged = [&](const std::string& path) {
      return nxd::find_module(part.local->value, path)->recomputes();
    };
    const int first = stage * kLayers / 2;
    const std::string own = "model.layers." + std::to_string(first);
    const std::string next = "model.layers." + std::to_string(first + 1);
    NXD_TEST_OK(nxd_apply_checkpoint(part.root(), nullptr, 0, 1));
    NXD_TEST_CHECK(flagged(own) && flagged(next) && !flagged("model.layers"));
    const char *layer = "model.layers.0", *unknown = "model.layers.7";
    NXD_TEST_OK(nxd_apply_checkpoint(part.root(), &layer, 1, 0));
    NXD_TEST_CHECK(flagged(own) == (stage != 0) && flagged(next));
    NXD_TEST_REFUSED(nxd_apply_checkpoint(part.root(), &unknown, 1, 1), NXD_ERROR_INVALID_ARGUMENT,
                     "model.layers.7");
  });
}

// Written in stages and read whole, and the other way round: the same file, byte for byte.
void test_parameters_file(void**) {
  for (const bool tied : {false, true}) {
    const TempDir directory;
    const std::string staged = directory.path() + "/staged.safetensors";
    const std::string whole = directory.path() + "/whole.safetensors";
    on_stages({1, 1, 1}, [&](nxd_context_t* ctx, int) {
      const Part part = make_part(ctx, {}, tied, true);
      NXD_TEST_OK(nxd_module_save_safetensors(part.root(), whole.c_str()));
    });
    const Shape shape{2, 2, 2};
    on_stages(shape, [&](nxd_context_t* ctx, int) {
      const Part part = make_part(ctx, shape, tied, false);
      NXD_TEST_OK(nxd_module_save_safetensors(part.root(), staged.c_str()));
    });
    assert_true(read_file(staged) == read_file(whole));
    // Into parts without values, from other values.
    on_stages(shape, [&](nxd_context_t* ctx, int) {
      const Part want = make_part(ctx, shape, tied, false);
      const Part part = make_part(ctx, shape, tied, false, NXD_DEVICE_META);
      nxd_load_report_t* report = nullptr;
      NXD_TEST_OK(nxd_module_load_safetensors(part.root(), whole.c_str(), 1, &report));
      NXD_TEST_CHECK(report->value.matches());
      nxd_load_report_destroy(report);
      NXD_TEST_CHECK(whole_parameters(part.root()) == whole_parameters(want.root()));
      for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*part.whole->value)) {
        const bool own = whole_parameters(part.root()).count(name) != 0;
        NXD_TEST_CHECK(parameter->has_value() == own);
      }
    });
  }
}

// All stages report the same missing and surplus tensors of a file.
void test_mismatches(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/tied.safetensors";
  on_stages({}, [&](nxd_context_t* ctx, int) {
    const Part part = make_part(ctx, {}, true, true);
    NXD_TEST_OK(nxd_module_save_safetensors(part.root(), path.c_str()));
  });
  const Shape shape{1, 2, 1};
  on_stages(shape, [&](nxd_context_t* ctx, int) {
    const Part part = make_part(ctx, shape, false, false);  // not tied: has a head
    const Named before = whole_parameters(part.root());
    nxd_load_report_t* report = nullptr;
    NXD_TEST_REFUSED(nxd_module_load_safetensors(part.root(), path.c_str(), 1, &report),
                     NXD_ERROR_INVALID_ARGUMENT, "1 missing: lm_head.weight");
    NXD_TEST_CHECK(report->value.missing == std::vector<std::string>{"lm_head.weight"});
    NXD_TEST_CHECK(report->value.unexpected.empty());
    nxd_load_report_destroy(report);
    NXD_TEST_CHECK(whole_parameters(part.root()) == before);
  });
}

void test_save_refusals(void**) {
  const Shape shape{2, 2, 1};
  on_stages(shape, [&](nxd_context_t* ctx, int rank) {
    const Part part = make_part(ctx, shape, false, false);
    NXD_TEST_REFUSED(nxd_module_save_safetensors(part.root(), "/nowhere/x.safetensors"),
                     NXD_ERROR_IO, "rank 0 could not write: /nowhere/x.safetensors");
    NXD_TEST_REFUSED(nxd_module_save_safetensors(part.root(), rank == 3 ? nullptr : "x"),
                     NXD_ERROR_INVALID_ARGUMENT, rank == 3 ? "path: expected" : "rank 3 rejected");
    if (rank == 2) NXD_TEST_OK(nxd_move_model_to_device(part.root(), NXD_DEVICE_META));
    NXD_TEST_REFUSED(nxd_module_save_safetensors(part.root(), "x"), NXD_ERROR_INVALID_ARGUMENT,
                     rank == 2 ? "no values" : "rank 2 rejected");
  });
}

// Training steps on gradients of the whole model, which every rank computes.
struct Trainer {
  Trainer(nxd_context_t* ctx, const Shape& layout, bool tied)
      : context(ctx), shape(layout), part(make_part(ctx, layout, tied, true)) {
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.learning_rate = 1e-3;
    options.weight_decay = 0.1;
    nxd_optimizer_t* handle = nullptr;
    if (shape.stage >= 0) {
      nxd_ddp_options_t ddp_options = NXD_DDP_OPTIONS_INIT;
      ddp_options.zero_stage = shape.stage;
      ddp_options.bucket_bytes = 20000;
      NXD_TEST_OK(nxd_ddp_create(part.root(), &ddp_options, &ddp));
      NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &options, &handle));
    } else {
      NXD_TEST_OK(nxd_optimizer_create_adamw(part.root(), &options, &handle));
    }
    optimizer.reset(handle);
  }
  ~Trainer() {
    optimizer.reset();
    nxd_ddp_destroy(ddp);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Every copy has the same batch. Gives the norm.
  double step(int microbatch, double max_norm = 0) {
    prepare(microbatch);
    return update(max_norm);
  }

  void prepare(int microbatch) {
    const Setting setting;
    NXD_TEST_OK(nxd_module_zero_grad(part.whole.get()));
    NXD_TEST_OK(nxd_context_set_step(context, 0, 0));
    const int64_t vocabulary = nlohmann::json::parse(model_config(false))["vocab_size"];
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < 2 * kLength; ++i) {
      tokens.push_back((i * i * 17 + 31 * microbatch + 7 * i) % vocabulary);
    }
    const Tensor ids = make_i64(tokens, {2, kLength});
    nxd_tensor_t *inputs[] = {ids.get(), ids.get()}, *out = nullptr;
    NXD_TEST_OK(nxd_module_forward(part.whole.get(), inputs, 2, &out, 1));
    const Tensor loss(out);
    NXD_TEST_OK(nxd_backward(&out, nullptr, 1, 0));
  }

  double update(double max_norm) {
    nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
    finish.max_norm = max_norm;
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), &finish, &report));
    return report.norm;
  }

  nxd_context_t* context;
  Shape shape;
  Part part;
  nxd_ddp_t* ddp = nullptr;
  Optimizer optimizer;
};

struct Stepped {
  double norm = 0;
  Named first, second;  // parameters after a step, and after one more from the state
};

// One step; its state saved; one more step, from the state of another run.
Stepped run_steps(const Shape& shape, bool tied, const std::string& save, const std::string& load) {
  Stepped result;
  std::mutex mutex;
  on_stages(shape, [&](nxd_context_t* ctx, int) {
    Trainer trainer(ctx, shape, tied);
    const double norm = trainer.step(0);
    const Named first = whole_parameters(trainer.part.root());
    NXD_TEST_OK(nxd_optimizer_save(trainer.optimizer.get(), save.c_str()));
    if (!load.empty()) NXD_TEST_OK(nxd_optimizer_load(trainer.optimizer.get(), load.c_str()));
    // Values of the other stage are not stepped, so that gradients are those of the first step.
    for (const auto& [name, parameter, is_alias] :
         nxd::named_parameters(*trainer.part.whole->value)) {
      const at::NoGradGuard no_grad;
      parameter->tensor().fill_(0.01);
    }
    trainer.step(1);
    const Named second = whole_parameters(trainer.part.root());
    const std::lock_guard<std::mutex> lock(mutex);
    result.norm = norm;
    for (const auto& [name, values] : first) result.first[name] = values;
    for (const auto& [name, values] : second) result.second[name] = values;
  });
  return result;
}

void test_steps(void**) {
  const TempDir directory;
  for (const bool tied : {false, true}) {
    for (const int stage : {-1, 0, 1}) {
      const std::string whole = directory.path() + "/whole", staged = directory.path() + "/staged";
      const std::string again = directory.path() + "/again";
      const Stepped want = run_steps({2, 1, 2, stage}, tied, whole, "");
      const Stepped got = run_steps({2, 2, 2, stage}, tied, staged, whole);
      // The state of the stages is that of the whole, in one file.
      assert_true(read_file(staged) == read_file(whole));
      check_loss("norm", got.norm, want.norm, 1e-12);
      assert_true(got.first == want.first && got.second == want.second);
      const Stepped back = run_steps({2, 1, 2, stage}, tied, again, staged);
      assert_true(back.second == want.second);
    }
  }
}

// Collectives that this rank has begun, by axis. A record has the last 64 of each.
std::vector<std::vector<nxd::FlightRecord::Operation>> calls_of(nxd_context_t* ctx) {
  std::vector<std::vector<nxd::FlightRecord::Operation>> calls;
  for (const nxd_axis_t axis :
       {NXD_AXIS_WORLD, NXD_AXIS_TENSOR, NXD_AXIS_PIPELINE, NXD_AXIS_DATA}) {
    calls.push_back(ctx->value->parallel()->group(axis)->record().operations);
  }
  return calls;
}

// On a layout whose axes all exceed one: the agreement, the norm, and with ZeRO-1 two barriers
// around the values that peers write. Gradients and parameters are f32, and other calls are not.
void test_small_calls(void**) {
  for (const int stage : {-1, 0, 1}) {
    const Shape shape{2, 2, 2, stage};
    on_stages(shape, [&](nxd_context_t* ctx, int) {
      Trainer trainer(ctx, shape, false);
      trainer.prepare(0);
      const auto before = calls_of(ctx);
      trainer.update(1.0);
      const auto after = calls_of(ctx);
      size_t small = 0;
      for (size_t axis = 0; axis < after.size(); ++axis) {
        for (const auto& call : after[axis]) {
          const bool is_new = before[axis].empty() || call.sequence > before[axis].back().sequence;
          if (is_new && !call.is_message && call.dtype != NXD_DTYPE_F32) ++small;
        }
      }
      NXD_TEST_CHECK(small >= 2 && small <= (stage == 1 ? 4 : 2));
    });
  }
}

// Clipping by the norm of the whole, also without an optimizer.
void test_clipping(void**) {
  std::vector<double> norms;
  std::vector<Named> finals;
  std::mutex mutex;
  for (const Shape& shape : {Shape{2, 1, 1}, Shape{2, 2, 1}}) {
    Named merged;
    double norm = 0;
    on_stages(shape, [&](nxd_context_t* ctx, int) {
      Trainer trainer(ctx, shape, true);
      const double own = trainer.step(0, 0.01);
      double again = 0;
      NXD_TEST_OK(nxd_finish_grads(trainer.part.root(), nullptr, &again));
      NXD_TEST_CHECK(std::fabs(again - own) <= 1e-6 * own);
      const Named parameters = whole_parameters(trainer.part.root());
      const std::lock_guard<std::mutex> lock(mutex);
      norm = own;
      for (const auto& [name, values] : parameters) merged[name] = values;
    });
    norms.push_back(norm);
    finals.push_back(merged);
  }
  assert_true(norms[0] > 0.02);
  check_loss("norm", norms[1], norms[0], 1e-12);
  check_named("clipped", finals[1], finals[0], 1e-6);
}

// Patterns of groups mean the whole model's names; so do states of a file.
void test_names_of_model(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  const Shape shape{1, 2, 1};
  on_stages(shape, [&](nxd_context_t* ctx, int) {
    Trainer trainer(ctx, shape, false);
    const char *head[] = {"lm_head*"}, *nobody[] = {"lm_haed*"};
    int32_t group = -1;
    NXD_TEST_OK(nxd_optimizer_add_group(trainer.optimizer.get(), head, 1, &group));
    NXD_TEST_CHECK(group == 1);
    NXD_TEST_REFUSED(nxd_optimizer_add_group(trainer.optimizer.get(), nobody, 1, &group),
                     NXD_ERROR_INVALID_ARGUMENT, "matches none of 39 parameters");
    trainer.step(0);
    NXD_TEST_OK(nxd_optimizer_save(trainer.optimizer.get(), path.c_str()));
    NXD_TEST_REFUSED(nxd_optimizer_save(trainer.optimizer.get(), "/nowhere/state"), NXD_ERROR_IO,
                     "rank 0 could not write");
  });
  on_stages(shape, [&](nxd_context_t* ctx, int) {
    Trainer tied(ctx, shape, true);
    NXD_TEST_REFUSED(nxd_optimizer_load(tied.optimizer.get(), path.c_str()),
                     NXD_ERROR_INVALID_ARGUMENT, "lm_head.weight belongs to no parameter");
  });
}

// A stage whose modules have no parameters takes part in everything.
void test_empty_stage(void**) {
  const TempDir directory;
  const std::string state = directory.path() + "/state", model = directory.path() + "/model";
  const Shape shape{1, 2, 2};
  on_stages(shape, [&](nxd_context_t* ctx, int) {
    Part part = make_part(ctx, {}, false, true);
    const int stage = stage_of(ctx);
    std::vector<std::shared_ptr<nxd::Parameter>> own;
    for (const auto& [name, parameter, is_alias] : nxd::named_parameters(*part.whole->value)) {
      if (stage == 0) own.push_back(parameter);
    }
    const std::vector<std::string> paths{"model.norm"};
    part.local.reset(new nxd_module{nxd::LocalModule::create(part.whole->value, own, paths)});
    run_backward(part.whole.get(), LlamaOracle());
    nxd_ddp_t* ddp = nullptr;
    nxd_optimizer_t* optimizer = nullptr;
    NXD_TEST_OK(nxd_ddp_create(part.root(), nullptr, &ddp));
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &options, &optimizer));
    nxd_step_report_t report = {};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, &report));
    NXD_TEST_CHECK(report.norm > 0 && !report.skipped);
    NXD_TEST_OK(nxd_optimizer_save(optimizer, state.c_str()));
    NXD_TEST_OK(nxd_optimizer_load(optimizer, state.c_str()));
    NXD_TEST_OK(nxd_module_save_safetensors(part.root(), model.c_str()));
    // Other copies do not wait for the one that writes.
    int32_t copy = 0;
    NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &copy));
    if (copy == 0) {
      NXD_TEST_OK(nxd_module_load_safetensors(part.root(), model.c_str(), 1, nullptr));
    }
    nxd_optimizer_destroy(optimizer);
    nxd_ddp_destroy(ddp);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_names),           cmocka_unit_test(test_recomputation),
      cmocka_unit_test(test_parameters_file), cmocka_unit_test(test_mismatches),
      cmocka_unit_test(test_save_refusals),   cmocka_unit_test(test_steps),
      cmocka_unit_test(test_clipping),        cmocka_unit_test(test_names_of_model),
      cmocka_unit_test(test_empty_stage),     cmocka_unit_test(test_small_calls),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
