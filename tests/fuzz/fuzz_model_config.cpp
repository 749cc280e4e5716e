// A Hugging Face config.json, as the engine's models and the planner read it.
#include "core/model/bert_config.h"
#include "core/model/gpt2_config.h"
#include "core/model/gpt_neox_config.h"
#include "core/model/llama_config.h"
#include "core/planner/layout_plan.h"
#include "core/planner/plan_machine.h"
#include "core/planner/plan_model.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nxd_fuzz::expect;
  const std::string json(reinterpret_cast<const char*>(data), size);
  nxd_fuzz::parse([&] {
    const auto config = nxd::LlamaConfig::parse(json);
    expect(config.hidden > 0 && config.layers > 0 && config.heads % config.kv_heads == 0 &&
               config.head_dim % 2 == 0,
           "sizes of a Llama");
  });
  nxd_fuzz::parse([&] {
    const auto config = nxd::Gpt2Config::parse(json);
    expect(config.hidden > 0 && config.hidden % config.heads == 0, "sizes of a GPT-2");
  });
  nxd_fuzz::parse([&] {
    const auto config = nxd::GptNeoxConfig::parse(json);
    const int64_t turning = config.rope.rotary_dim;
    expect(turning > 0 && turning % 2 == 0 && turning <= config.head_dim, "heads of a GPT-NeoX");
  });
  nxd_fuzz::parse([&] {
    const auto config = nxd::BertConfig::parse(json);
    expect(config.hidden > 0 && config.token_types > 0, "sizes of a BERT");
  });
  nxd_fuzz::parse([&] {
    const nxd_plan_model_t filled = nxd::plan_model_of(nxd::sizes_of_config(json));
    const nxd::ModelSizes model = nxd::read_plan_model(filled);
    const nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
    const nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
    const auto plan = nxd::predict_layout(model, nxd::read_plan_machine(machine), layout);
    expect(plan.step_seconds > 0, "seconds of a step");
  });
  return 0;
}
