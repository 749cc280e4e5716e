// nxd/training.h: data parallelism and optimizers over modules, recomputation.
#include "capi/engine_handles.h"
#include "capi/optimizer_handles.h"
#include "capi/optimizer_options.h"
#include "capi/training_state_handles.h"
#include "engine/module/model.h"
#include "engine/module/recomputation.h"
#include "engine/training/finish_gradients.h"
#include "engine/training/local_module.h"
#include "engine/training/loss_weights.h"
#include "engine/training/model_state.h"
#include "engine/training/module_data_parallel.h"
#include "engine/training/module_parameters.h"

using namespace nxd;

namespace {

std::vector<std::string> layers_of(const Module& root) {
  const auto* model = dynamic_cast<const Model*>(&root);
  check_argument(model != nullptr, "num_names: expected at least 1, as ", root.class_name(),
                 " is no built-in model whose layers are known");
  return {model->transformer_layer_class()};
}

}  // namespace

nxd_status_t nxd_finish_grads(nxd_module_t* root, const nxd_finish_options_t* options,
                              double* out_norm) {
  return guard([&] {
    if (out_norm) *out_norm = 0;
    Module& self = unwrap(root, "root");
    const double norm = finish_gradients(self, read_finish(options));
    if (out_norm) *out_norm = norm;
  });
}

nxd_status_t nxd_ddp_create(nxd_module_t* root, const nxd_ddp_options_t* options,
                            nxd_ddp_t** out_ddp) {
  return guard([&] {
    clear_each(out_ddp);
    Module& self = unwrap(root, "root");
    const ResolvedDdpOptions known(options, out_ddp, self.context()->rank());
    auto handle = std::make_unique<nxd_ddp>();
    handle->owner = self.shared_from_this();
    handle->value =
        std::make_shared<ModuleDataParallel>(self.shared_from_this(), known.value, known.outcome);
    *out_ddp = handle.release();
  });
}

nxd_status_t nxd_optimizer_create_adamw(nxd_module_t* root, const nxd_adamw_options_t* options,
                                        nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    out = new_optimizer(module, std::make_shared<ModuleParameters>(module),
                        make_adamw_rule(read_adamw(options)));
  });
}

nxd_status_t nxd_optimizer_create_sgd(nxd_module_t* root, const nxd_sgd_options_t* options,
                                      nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    out = new_optimizer(module, std::make_shared<ModuleParameters>(module),
                        make_sgd_rule(read_sgd(options)));
  });
}

nxd_status_t nxd_optimizer_create_custom(nxd_module_t* root,
                                         const nxd_custom_optimizer_options_t* options,
                                         nxd_optimizer_t** out_optimizer) {
  return guard([&] {
    auto& out = output(out_optimizer, "out_optimizer");
    const auto module = unwrap(root, "root").shared_from_this();
    out = new_custom_optimizer(module, std::make_shared<ModuleParameters>(module), options);
  });
}

nxd_status_t nxd_training_state_add_module(nxd_training_state_t* state, const char* name,
                                           nxd_module_t* root) {
  return guard([&] {
    TrainingState& self = unwrap(state);
    const auto module = unwrap(root, "root").shared_from_this();
    check_argument(module->context() == self.context(),
                   "root: expected a module of the training state's context, got another's");
    self.add_file(
        TrainingState::FileKind::kParameters, unwrap_text(name, "name"),
        [module](Context& context) { return snapshot_parameters(*module, context); },
        [module](const std::string& path) { load_safetensors(*module, path, true).check(path); });
  });
}

nxd_status_t nxd_loss_weights(nxd_context_t* ctx, nxd_tensor_t* const* labels, size_t num_labels,
                              int64_t ignore_index, int32_t shifted, double* out_weights) {
  return guard([&] {
    const Outcome room =
        Outcome::of(-1, [&] { clear_outputs(out_weights, num_labels, "out_weights"); });
    const auto& context = unwrap(ctx, "ctx");
    std::vector<at::Tensor> given;
    const Outcome outcome = Outcome::of(context->rank(), [&] {
      room.rethrow();
      given = unwrap_tensors(labels, num_labels, "labels");
      flag(shifted, "shifted");
    });
    const std::vector<double> weights =
        loss_weights(*context, given, ignore_index, shifted == 1, outcome);
    for (size_t i = 0; i < num_labels; ++i) out_weights[i] = weights[i];
  });
}

nxd_status_t nxd_apply_checkpoint(nxd_module_t* root, const char* const* names, size_t num_names,
                                  int32_t on) {
  return guard([&] {
    // A layer of another stage is a name that all ranks know.
    Module& self = full_model(unwrap(root, "root"));
    const std::vector<std::string> chosen = unwrap_texts(names, num_names, "names");
    flag(on, "on");
    set_recomputation(self, num_names == 0 ? layers_of(self) : chosen, on == 1);
  });
}
