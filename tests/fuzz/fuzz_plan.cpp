// The planner's structs: the input is a model, a machine, a layout and a search, byte for byte but
// for struct_size. Sizes that no caller means are kept out, as they only take time.
#include "core/planner/layout_plan.h"
#include "core/planner/plan_machine.h"
#include "core/planner/plan_model.h"
#include "fuzz.h"

namespace {

// A field is more often small, its default or an edge than any number.
template <class T>
void draw(nxd_fuzz::Input& in, T& field) {
  const int which = in.byte();
  if (which < 160) {
    field = static_cast<T>(which % 40);
  } else if (which < 240) {
    field = static_cast<T>(1 << (which % 20));
  } else {
    field = static_cast<T>(in.number<int64_t>());
  }
}

template <class... Fields>
void draw_all(nxd_fuzz::Input& in, Fields&... fields) {
  (draw(in, fields), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  nxd_plan_model_t model = NXD_PLAN_MODEL_INIT;
  nxd_plan_machine_t machine = NXD_PLAN_MACHINE_INIT;
  nxd_plan_layout_t layout = NXD_PLAN_LAYOUT_INIT;
  nxd_plan_search_options_t search = NXD_PLAN_SEARCH_OPTIONS_INIT;
  draw_all(in, model.hidden_size, model.num_layers, model.num_heads, model.num_kv_heads,
           model.head_dim, model.intermediate_size, model.vocab_size, model.max_positions,
           model.gated_mlp, model.attention_bias, model.mlp_bias, model.norm_bias,
           model.tied_embeddings, model.num_token_types);
  draw_all(in, layout.tensor_parallel_size, layout.pipeline_parallel_size,
           layout.data_parallel_size, layout.virtual_size, layout.schedule, layout.num_microbatches,
           layout.microbatch_size, layout.sequence_length, layout.dtype, layout.zero_stage,
           layout.sequence_parallel, layout.recompute, layout.partition);
  draw_all(in, search.world_size, search.sequence_length, search.batch_size, search.dtype,
           search.max_virtual_size, machine.ranks_per_host, machine.memory_bytes);
  for (double* figure :
       {&machine.gemm_rate_f32, &machine.gemm_rate_bf16, &machine.attention_share_f32,
        &machine.attention_share_bf16, &machine.memory_bandwidth, &machine.host_bandwidth,
        &machine.host_latency, &machine.link_bandwidth, &machine.link_latency}) {
    *figure = in.left() > 0 ? in.real() : 0;
  }
  draw_all(in, model.sliding_window, model.num_window_layers);
  nxd_plan_prediction_t prediction{};
  prediction.struct_size = sizeof prediction;
  nxd_status_t status = nxd_plan_predict(&model, &machine, &layout, &prediction);
  nxd_fuzz::expect(status == NXD_OK || nxd_fuzz::is_rejection(status), "status of a prediction",
                   nxd_last_error());
  if (status != NXD_OK) {
    nxd_fuzz::expect(prediction.total_bytes == 0, "a prediction that failed says something");
  }
  if (search.world_size > 64 || model.num_layers > 32 || search.batch_size > 128) return 0;
  nxd_plan_layout_t layouts[3] = {};
  nxd_plan_prediction_t predictions[3] = {};
  for (int i = 0; i < 3; ++i) {
    layouts[i].struct_size = sizeof layouts[i];
    predictions[i].struct_size = sizeof predictions[i];
  }
  size_t count = 0;
  status = nxd_plan_search(&model, &machine, &search, layouts, predictions, 3, &count);
  nxd_fuzz::expect(status == NXD_OK || nxd_fuzz::is_rejection(status), "status of a search",
                   nxd_last_error());
  for (size_t i = 0; i < count; ++i) {
    const nxd_status_t again = nxd_plan_predict(&model, &machine, &layouts[i], &prediction);
    nxd_fuzz::expect(again == NXD_OK, "a layout that was found is refused", nxd_last_error());
  }
  return 0;
}
