#include "engine/models/model_factory.h"

#include "core/checkpoint/file.h"
#include "core/model/common_fields.h"
#include "engine/models/bert.h"
#include "engine/models/gpt2.h"
#include "engine/models/gpt_neox.h"
#include "engine/models/llama.h"
#include "engine/training/local_module.h"
#include "engine/training/model_state.h"

namespace nxd {
namespace {

// A config.json is a few kilobytes; more than this is another file.
constexpr uint64_t kConfigLimit = 16U << 20U;

}  // namespace

std::shared_ptr<Model> create_model(const LayerContext& at, const std::string& config_json) {
  switch (model_type_of(config_json)) {
    case ModelType::kLlama:
      return std::make_shared<LlamaForCausalLM>(at, LlamaConfig::parse(config_json));
    case ModelType::kGptNeox:
      return std::make_shared<GptNeoxForCausalLM>(at, GptNeoxConfig::parse(config_json));
    case ModelType::kBert:
      return std::make_shared<BertForPreTraining>(at, BertConfig::parse(config_json));
    default: return std::make_shared<Gpt2LmHeadModel>(at, Gpt2Config::parse(config_json));
  }
}

std::shared_ptr<Model> model_from_pretrained(const LayerContext& at, const std::string& directory) {
  check_argument(
      !at.device.is_meta(),
      "options.device: expected one that holds the values of the files, got the meta device, "
      "by NXD_DEVICE_META or nxd_set_deferred_init");
  const std::string path = directory + "/config.json";
  const std::string config = read_text(path, kConfigLimit);
  std::shared_ptr<Model> model;
  try {
    model = create_model(at, config);
  } catch (const Error& error) {
    throw Error(error.status(), path + ": " + error.what(), error.context());
  }
  load_safetensors(*model, directory, true).check(directory);
  return model;
}

double step_flops(const Module& module, int64_t batch, int64_t sequence) {
  // A stage's part of a model has the operations of all ranks, as the model has.
  const auto* model = dynamic_cast<const Model*>(&full_model(module));
  check_argument(model != nullptr, "model: expected a built-in model's root, got a ",
                 module.class_name());
  check_argument(batch > 0, "batch: expected a positive number, got ", batch);
  check_argument(sequence > 0, "sequence: expected a positive number, got ", sequence);
  return model->step_flops(batch, sequence);
}

}  // namespace nxd
