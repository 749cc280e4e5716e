#pragma once

#include <memory>
#include <string>

#include "engine/layers/layer_context.h"
#include "engine/module/model.h"

namespace nxd {

// Builds the model that a Hugging Face configuration describes. UNSUPPORTED for a model_type that
// is not known.
std::shared_ptr<Model> create_model(const LayerContext& at, const std::string& config_json);

// The same from a directory's config.json, with the weights of its safetensors.
std::shared_ptr<Model> model_from_pretrained(const LayerContext& at, const std::string& directory);

// See nxd_model_get_step_flops. INVALID_ARGUMENT for a module that is no built-in model.
double step_flops(const Module& module, int64_t batch, int64_t sequence);

}  // namespace nxd
