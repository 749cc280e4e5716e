// nxd/model_pipeline.h: pipelines of modules.
#include <algorithm>

#include "capi/engine_handles.h"
#include "capi/optimizer_handles.h"
#include "capi/pipeline_handles.h"
#include "core/base/buffer_limit.h"
#include "core/base/last_error.h"
#include "core/base/suggestions.h"
#include "engine/module/model.h"
#include "engine/training/module_pipeline.h"

using namespace nxd;

namespace {

const nxd_pp_options_t kPpDefaults = NXD_PP_OPTIONS_INIT;

ModulePipeline& unwrap_pipeline(nxd_pp_t* pp) {
  check_argument(pp, "pp: expected a pipeline, got NULL");
  check_state(pp->modules != nullptr,
              "pp: expected a pipeline of modules, which nxd_pp_create makes, got one over "
              "callbacks");
  return *pp->modules;
}

// For runs, which come to callbacks of the caller's: these may destroy the handle.
std::shared_ptr<ModulePipeline> hold(nxd_pp_t* pp) {
  unwrap_pipeline(pp);
  return pp->modules;
}

const char* name_at(const std::vector<std::string>& names, size_t index) {
  check_argument(index < names.size(), "index: expected less than ", names.size(), ", got ", index);
  return names[index].c_str();
}

std::vector<std::string> read_names(const char* const* names, size_t n, const char* what) {
  check_argument(names || n == 0, what, ": expected an array of ", n, ", got NULL");
  check_count(n, sizeof *names, what);
  std::vector<std::string> result;
  for (size_t i = 0; i < n; ++i) {
    check_argument(names[i] && *names[i], what, "[", i, "]: expected a name, got ",
                   names[i] ? "\"\"" : "NULL");
    result.emplace_back(names[i]);
  }
  return result;
}

void read_shape(ModulePipelineOptions& out, const nxd_pp_options_t& options, int ranks) {
  check_argument(options.num_microbatches >= 0, "num_microbatches: expected at least 1, got ",
                 options.num_microbatches);
  check_argument(options.virtual_size >= 0, "virtual_size: expected at least 1, got ",
                 options.virtual_size);
  out.shape = {ranks, std::max(options.virtual_size, 1), std::max(options.num_microbatches, 1)};
  check_argument(
      options.schedule >= NXD_PP_SCHEDULE_DEFAULT && options.schedule <= NXD_PP_SCHEDULE_INFERENCE,
      "schedule: expected an NXD_PP_SCHEDULE_*, got ", options.schedule);
  if (!options.custom_schedule) {
    check_argument(options.schedule != NXD_PP_SCHEDULE_INFERENCE,
                   "schedule: expected one of training, got NXD_PP_SCHEDULE_INFERENCE");
    out.schedule = std::make_shared<const Schedule>(Schedule::make(options.schedule, out.shape));
    return;
  }
  out.schedule = options.custom_schedule->value;
  const PipelineShape& got = out.schedule->shape();
  check_argument(got == out.shape, "custom_schedule: expected ", out.shape.ranks, " ranks, ",
                 out.shape.chunks, " chunks and ", out.shape.microbatches, " microbatches, got ",
                 got.ranks, ", ", got.chunks, " and ", got.microbatches);
  check_argument(out.schedule->has_backward(),
                 "custom_schedule: expected one of training, got forwards alone");
}

void read_cuts(ModulePipelineOptions& out, const nxd_pp_options_t& options, const Model* model) {
  check_argument(
      options.partition >= NXD_PP_PARTITION_DEFAULT && options.partition <= NXD_PP_PARTITION_COST,
      "partition: expected an NXD_PP_PARTITION_*, got ", options.partition);
  out.partition =
      options.partition == NXD_PP_PARTITION_DEFAULT ? NXD_PP_PARTITION_EVEN : options.partition;
  out.cuts = read_names(options.pipeline_cuts, options.num_cuts, "pipeline_cuts");
  if (options.transformer_layer_class) {
    out.layer_class = options.transformer_layer_class;
  } else if (model) {
    out.layer_class = model->transformer_layer_class();
  }
  const int stages = out.shape.stages();
  if (!out.cuts.empty()) {
    check_argument(options.partition == NXD_PP_PARTITION_DEFAULT,
                   "pipeline_cuts: cannot be given together with a partition that finds cuts");
    check_argument(out.cuts.size() + 1 == static_cast<size_t>(stages), "pipeline_cuts: expected ",
                   stages - 1, " for ", out.shape.ranks, " ranks with ", out.shape.chunks,
                   " chunks each, got ", out.cuts.size());
  } else {
    check_argument(stages == 1 || !out.layer_class.empty(),
                   "transformer_layer_class: expected the class of the layers to divide, or "
                   "pipeline_cuts, got neither");
  }
}

void collect_classes(const Module& module, std::vector<std::string>& out) {
  out.push_back(module.class_name());
  for (const auto& [name, child] : module.children()) collect_classes(*child, out);
}

void read_trace(ModulePipelineOptions& out, const nxd_pp_options_t& options, const Module& root,
                const Model* model, size_t n_inputs) {
  std::vector<std::string> classes;
  collect_classes(root, classes);
  for (const std::string& name :
       read_names(options.leaf_modules, options.num_leaf_modules, "leaf_modules")) {
    const bool is_class = std::find(classes.begin(), classes.end(), name) != classes.end();
    (is_class ? out.trace.leaf_classes : out.trace.leaf_paths).push_back(name);
  }
  if (!out.layer_class.empty()) out.trace.leaf_classes.push_back(out.layer_class);
  if (options.leaf_rule) {
    out.trace.leaf_rule = [rule = options.leaf_rule, data = options.leaf_rule_data](
                              Module& module, const std::string& path, bool is_leaf) {
      nxd_module_t* const asked = borrow_module(module);
      int32_t answer = is_leaf ? 1 : 0;
      CallbackWatch().run([&] { return rule(asked, path.c_str(), &answer, data); }, "leaf_rule");
      return flag(answer, "leaf_rule: is_leaf");
    };
  }
  auto& names = out.trace.input_names;
  names = read_names(options.input_names, options.num_input_names, "input_names");
  const bool given = !names.empty();
  if (!given && model) names = model->input_names();
  check_argument(given ? names.size() == n_inputs : true, "input_names: expected ", n_inputs,
                 ", as many as inputs, got ", names.size());
  if (given && model) {
    const std::vector<std::string> known = model->input_names();
    for (const std::string& name : names) {
      check_argument(std::find(known.begin(), known.end(), name) != known.end(),
                     "input_names: ", root.class_name(), " has no input \"", name, "\"",
                     Suggestions(name, known));
    }
  }
  while (names.size() < n_inputs) names.push_back(text("input_", names.size()));
  names.resize(n_inputs);
}

// Where the loss lies among the outputs: the trace knows what a path leads to.
void read_outputs(ModulePipelineOptions& out, const nxd_pp_options_t& options, const Module& root) {
  check_argument(options.num_outputs >= 0, "num_outputs: expected at least 1, got ",
                 options.num_outputs);
  out.num_outputs = static_cast<size_t>(std::max(options.num_outputs, 1));
  if (options.loss_path) {
    check_argument(*options.loss_path, "loss_path: expected the path of an output, got \"\"");
    check_argument(options.loss_output == 0, "loss_path: cannot be given together with a ",
                   "loss_output, got \"", options.loss_path, "\" and ", options.loss_output);
    out.loss_path = options.loss_path;
    if (options.num_outputs == 0 && root.counts_outputs()) out.num_outputs = Module::kAllOutputs;
    return;
  }
  check_argument(
      options.loss_output >= 0 && static_cast<size_t>(options.loss_output) < out.num_outputs,
      "loss_output: expected 0 to ", out.num_outputs - 1, ", got ", options.loss_output);
  out.loss_output = static_cast<size_t>(options.loss_output);
}

void read_loss(ModulePipelineOptions& out, const nxd_pp_options_t& options, const Model* model) {
  check_argument(options.loss >= NXD_PP_LOSS_DEFAULT && options.loss <= NXD_PP_LOSS_TOKENS,
                 "loss: expected an NXD_PP_LOSS_*, got ", options.loss);
  const auto& names = out.trace.input_names;
  const auto named = std::find(names.begin(), names.end(), "labels");
  const bool chosen = flag(options.has_labels_input, "has_labels_input");
  const bool has_labels = chosen || named != names.end();
  out.by_tokens = options.loss == NXD_PP_LOSS_TOKENS ||
                  (options.loss == NXD_PP_LOSS_DEFAULT && model && has_labels);
  if (out.by_tokens) {
    check_argument(has_labels,
                   "labels_input: expected the input that has the labels, for there is "
                   "none named \"labels\"");
    out.labels_input = chosen ? static_cast<size_t>(options.labels_input)
                              : static_cast<size_t>(named - names.begin());
    check_argument(out.labels_input < names.size(), "labels_input: expected 0 to ",
                   names.size() - 1, ", got ", options.labels_input);
  }
  out.ignore_index =
      flag(options.has_ignore_index, "has_ignore_index") ? options.ignore_index : -100;
  out.labels_shifted =
      flag(options.labels_shifted, "labels_shifted") || (model && !model->shifts_labels());
  out.share_loss = flag(options.broadcast_and_average_loss, "broadcast_and_average_loss");
  out.return_losses = flag(options.return_mb_loss, "return_mb_loss");
  check_argument(!out.share_loss || !out.return_losses,
                 "return_mb_loss: cannot be given together with broadcast_and_average_loss");
}

// INVALID_ARGUMENT for values that are none or contradict one another.
ModulePipelineOptions resolve(const Module& root, const nxd_pp_options_t& options,
                              size_t n_inputs) {
  const auto* model = dynamic_cast<const Model*>(&root);
  ModulePipelineOptions out;
  read_shape(out, options, root.context()->parallel()->size(NXD_AXIS_PIPELINE));
  read_cuts(out, options, model);
  read_trace(out, options, root, model, n_inputs);
  read_outputs(out, options, root);
  read_loss(out, options, model);
  out.keep_outputs = flag(options.keep_outputs, "keep_outputs");
  if (options.param_init) {
    out.param_init = [init = options.param_init, data = options.param_init_data](
                         Parameter& parameter, const std::string& name, at::Tensor& value) {
      nxd_parameter_t* const owner = borrow_parameter(parameter);
      nxd_tensor handle{value};
      CallbackWatch().run([&] { return init(owner, name.c_str(), &handle, data); }, "param_init");
    };
  }
  if (options.trace_file_path) out.trace_path = options.trace_file_path;
  return out;
}

// Options that could not be read say nothing.
bool asks_for_costs(const nxd_pp_options_t* options) noexcept {
  try {
    return read_options(options, kPpDefaults, "options").partition == NXD_PP_PARTITION_COST;
  } catch (...) {
    return false;
  }
}

Outcome room_for(nxd_tensor_t** outputs, size_t count) {
  return Outcome::of(-1, [&] { clear_outputs(outputs, count, "outputs"); });
}

// The inputs of a run in the forward's order. room: of one that evaluates, whether there is some
// for its outputs.
Module::Tensors read_inputs(const ModulePipeline& pipeline, nxd_tensor_t* const* inputs,
                            size_t count, const Outcome* room = nullptr) {
  const auto read = [&] {
    if (room) room->rethrow();
    return unwrap_tensors(inputs, count, "inputs");
  };
  return pipeline.read_inputs(read, /*training=*/!room);
}

Module::Tensors read_inputs(const ModulePipeline& pipeline, const char* const* names,
                            nxd_tensor_t* const* inputs, size_t count,
                            const Outcome* room = nullptr) {
  const auto read = [&] {
    if (room) room->rethrow();
    const std::vector<std::string> known = read_names(names, count, "names");
    return pipeline.by_name(known, unwrap_tensors(inputs, count, "inputs"));
  };
  return pipeline.read_inputs(read, /*training=*/!room);
}

}  // namespace

nxd_status_t nxd_pp_options_init(nxd_pp_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kPpDefaults, "options"); });
}

nxd_status_t nxd_pp_create(nxd_module_t* model, nxd_tensor_t* const* inputs, size_t num_inputs,
                           const nxd_pp_options_t* options, nxd_pp_t** out_pp) {
  return guard([&] {
    if (out_pp) *out_pp = nullptr;
    const std::shared_ptr<Module> root = unwrap(model, "model").shared_from_this();
    ModulePipelineOptions known;
    Module::Tensors examples;
    try {
      static_cast<void>(output(out_pp, "out_pp"));
      examples = unwrap_tensors(inputs, num_inputs, "inputs");
      known = resolve(*root, read_options(options, kPpDefaults, "options"), num_inputs);
    } catch (...) {
      ModulePipeline::reject(*root->context(), asks_for_costs(options));
      throw;
    }
    auto made = ModulePipeline::create(root, examples, std::move(known));
    Pipeline& its = made->pipeline();
    *out_pp = new nxd_pp(std::move(made), its);
  });
}

nxd_status_t nxd_pp_run_train(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                              double* out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    const std::shared_ptr<ModulePipeline> self = hold(pp);
    const double loss = self->run_train(read_inputs(*self, inputs, num_inputs));
    if (out_loss) *out_loss = loss;
  });
}

nxd_status_t nxd_pp_run_eval(nxd_pp_t* pp, nxd_tensor_t* const* inputs, size_t num_inputs,
                             double* out_loss, nxd_tensor_t** outputs, size_t num_outputs) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    const Outcome room = room_for(outputs, num_outputs);
    const std::shared_ptr<ModulePipeline> self = hold(pp);
    const auto given = read_inputs(*self, inputs, num_inputs, &room);
    const auto result = self->run_eval(given, num_outputs);
    if (num_outputs > 0) wrap_all(result.outputs, outputs);
    if (out_loss) *out_loss = result.loss;
  });
}

nxd_status_t nxd_pp_run_train_named(nxd_pp_t* pp, const char* const* names,
                                    nxd_tensor_t* const* inputs, size_t num_inputs,
                                    double* out_loss) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    const std::shared_ptr<ModulePipeline> self = hold(pp);
    const double loss = self->run_train(read_inputs(*self, names, inputs, num_inputs));
    if (out_loss) *out_loss = loss;
  });
}

nxd_status_t nxd_pp_run_eval_named(nxd_pp_t* pp, const char* const* names,
                                   nxd_tensor_t* const* inputs, size_t num_inputs, double* out_loss,
                                   nxd_tensor_t** outputs, size_t num_outputs) {
  return guard([&] {
    if (out_loss) *out_loss = 0;
    const Outcome room = room_for(outputs, num_outputs);
    const std::shared_ptr<ModulePipeline> self = hold(pp);
    const auto given = read_inputs(*self, names, inputs, num_inputs, &room);
    const auto result = self->run_eval(given, num_outputs);
    if (num_outputs > 0) wrap_all(result.outputs, outputs);
    if (out_loss) *out_loss = result.loss;
  });
}

nxd_status_t nxd_pp_get_losses(nxd_pp_t* pp, double* losses, size_t cap, size_t* out_count) {
  return guard([&] {
    output(out_count, "out_count");
    copy_list(unwrap_pipeline(pp).losses(), losses, cap, out_count, "losses");
  });
}

nxd_status_t nxd_pp_set_ddp(nxd_pp_t* pp, nxd_ddp_t* ddp) {
  return guard([&] {
    unwrap_pipeline(pp).set_ddp(ddp ? std::weak_ptr<DataParallel>(ddp->value)
                                    : std::weak_ptr<DataParallel>());
  });
}

nxd_status_t nxd_pp_get_output_count(nxd_pp_t* pp, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).output_paths().size();
  });
}

nxd_status_t nxd_pp_get_output_path(nxd_pp_t* pp, size_t index, const char** out_path) {
  return guard([&] {
    auto& out = output(out_path, "out_path");
    out = name_at(unwrap_pipeline(pp).output_paths(), index);
  });
}

nxd_status_t nxd_pp_get_local_module(nxd_pp_t* pp, nxd_module_t** out_module) {
  return guard([&] {
    auto& out = output(out_module, "out_module");
    out = borrow_module(*unwrap_pipeline(pp).local_module());
  });
}

nxd_status_t nxd_pp_get_local_module_count(nxd_pp_t* pp, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).local_module_names().size();
  });
}

nxd_status_t nxd_pp_get_local_module_name(nxd_pp_t* pp, size_t index, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).local_module_names(), index);
  });
}

nxd_status_t nxd_pp_get_cut_count(nxd_pp_t* pp, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).cuts().size();
  });
}

nxd_status_t nxd_pp_get_cut(nxd_pp_t* pp, size_t index, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).cuts(), index);
  });
}

nxd_status_t nxd_pp_get_graph_text(nxd_pp_t* pp, const char** out_text) {
  return guard([&] {
    auto& out = output(out_text, "out_text");
    out = unwrap_pipeline(pp).graph_text().c_str();
  });
}

nxd_status_t nxd_pp_get_unsplit_count(nxd_pp_t* pp, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = unwrap_pipeline(pp).unsplit().size();
  });
}

nxd_status_t nxd_pp_get_unsplit_name(nxd_pp_t* pp, size_t index, const char** out_name) {
  return guard([&] {
    auto& out = output(out_name, "out_name");
    out = name_at(unwrap_pipeline(pp).unsplit(), index);
  });
}
