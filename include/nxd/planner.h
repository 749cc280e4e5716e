/** @file
 * Planning: the cost of a layout, from counts alone. Nothing runs, and no rank needs to exist. */
#ifndef NXD_PLANNER_H
#define NXD_PLANNER_H

#include "pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sizes of a decoder that predicts the next token, or of a BERT for pre-training.
 *  nxd_plan_model_from_config fills it. */
typedef struct nxd_plan_model {
  size_t struct_size;
  int64_t hidden_size;
  int64_t num_layers; /**< at most 1024 */
  int64_t num_heads;
  int64_t num_kv_heads; /**< 0: num_heads */
  int64_t head_dim;     /**< 0: hidden_size / num_heads */
  int64_t intermediate_size;
  int64_t vocab_size;
  int64_t max_positions; /**< rows of a table of positions that is learned; 0: there is none */
  int32_t gated_mlp;     /**< 1: three matrices, as Llama's; 0: two, as GPT-2's */
  int32_t attention_bias, mlp_bias, norm_bias; /**< 1: layers of that sort have biases;
                                                    attention_bias 2: those of queries, keys and
                                                    values alone, as Qwen2's */
  int32_t tied_embeddings;                     /**< 1: the head's weight is the embedding's */
  int32_t num_token_types;   /**< rows of a BERT's table of token types; 0: a decoder */
  int64_t sliding_window;    /**< keys that a query sees at most; 0: all before it. Not of a BERT */
  int64_t num_window_layers; /**< layers that have the window; 0: all. They count as their mean */
} nxd_plan_model_t;

#define NXD_PLAN_MODEL_INIT \
  { sizeof(nxd_plan_model_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** [local] Fills model with zeros. Only sizes that say so have defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_model_init(nxd_plan_model_t* model, size_t size);

/** [local] Reads the sizes of a Hugging Face configuration of a family that nxd_model_create
 *  knows.
 *
 *  @param config_json  text of config.json.
 *  @param[in,out] out_model  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range); UNSUPPORTED
 *          (model_type).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_model_from_config(const char* config_json,
                                                nxd_plan_model_t* out_model);

/** Figures of a machine, per rank while all ranks work. Floating-point operations and bytes are per
 *  second, latencies in seconds. The defaults are round figures of one core of a small host: they
 *  serve to compare layouts, not to predict times. */
typedef struct nxd_plan_machine {
  size_t struct_size;
  int32_t ranks_per_host;      /**< 0: all ranks are on one host */
  int32_t reserved;            /**< 0 */
  uint64_t memory_bytes;       /**< of a rank, for what is predicted; 0: no bound */
  double gemm_rate_f32;        /**< of nxd_measure_gemm_peak; 0: 100e9 */
  double gemm_rate_bf16;       /**< 0: 200e9 */
  double attention_share_f32;  /**< of these, what attention's products reach; 0: 0.68 */
  double attention_share_bf16; /**< 0: 0.64 */
  double memory_bandwidth;     /**< read and written, of arrays that fit no cache; 0: 20e9 */
  double host_bandwidth;       /**< received from ranks of the same host; 0: 20e9 */
  double host_latency;         /**< 0: 1e-6 */
  double link_bandwidth;       /**< of a host to all others, in one direction; 0: 1.25e9 */
  double link_latency;         /**< 0: 50e-6 */
} nxd_plan_machine_t;

#define NXD_PLAN_MACHINE_INIT \
  { sizeof(nxd_plan_machine_t), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/** [local] Fills machine with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_machine_init(nxd_plan_machine_t* machine, size_t size);

/** How a model would be trained with AdamW. */
typedef struct nxd_plan_layout {
  size_t struct_size;
  int32_t tensor_parallel_size;    /**< 0: 1 */
  int32_t pipeline_parallel_size;  /**< 0: 1 */
  int32_t data_parallel_size;      /**< 0: 1 */
  int32_t virtual_size;            /**< chunks of each rank; 0: 1 */
  nxd_pp_schedule_kind_t schedule; /**< not INFERENCE */
  int32_t num_microbatches;        /**< of each data-parallel rank; 0: 1 */
  int32_t microbatch_size;         /**< sequences; 0: 1 */
  int32_t sequence_length;         /**< tokens; at least 1 */
  nxd_dtype_t dtype;               /**< of parameters: F32, or BF16 with F32 masters */
  int32_t zero_stage;              /**< 0 or 1 */
  int32_t sequence_parallel;       /**< 1: between layers each rank has a slice */
  int32_t recompute;               /**< 1: every layer keeps its input alone */
  nxd_pp_partition_t partition;    /**< DEFAULT: EVEN */
  int32_t reserved;                /**< 0 */
} nxd_plan_layout_t;

#define NXD_PLAN_LAYOUT_INIT                                                                      \
  {                                                                                               \
    sizeof(nxd_plan_layout_t), 0, 0, 0, 0, NXD_PP_SCHEDULE_DEFAULT, 0, 0, 0, NXD_DTYPE_F32, 0, 0, \
        0, NXD_PP_PARTITION_DEFAULT, 0                                                            \
  }

/** [local] Fills layout with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_layout_init(nxd_plan_layout_t* layout, size_t size);

/** Estimated cost of a layout. Times are seconds of one step. */
typedef struct nxd_plan_prediction {
  size_t struct_size;
  double step_seconds;
  double tokens_per_second; /**< of all ranks */
  double gemm_share;        /**< of the ranks' GEMM peaks, by the operations of
                               nxd_model_get_step_flops */
  double bubble_share;      /**< of the pipeline, by nxd_pp_schedule_get_report */
  double pipeline_seconds;  /**< until the last rank has made its last task */

  /* The next fields describe the rank that computes longest. */
  int32_t busiest_rank; /**< of the world; the first of those that are alike */
  int32_t fits;         /**< 1: total_bytes is at most the machine's memory_bytes */
  double gemm_seconds;
  double attention_seconds;
  double elementwise_seconds;
  double tensor_parallel_seconds; /**< collectives of layers */
  double transfer_seconds;        /**< one value or gradient to the next stage, the slowest */
  double data_parallel_seconds;   /**< reduction of gradients and gathering of parameters */
  double exposed_seconds;         /**< of these, those in which nothing else is done */
  double optimizer_seconds;

  /* The next fields describe the rank that keeps most, with the most that it keeps at once. */
  int32_t fullest_rank;
  int32_t reserved;
  uint64_t parameter_bytes;
  uint64_t grad_bytes;
  uint64_t optimizer_bytes;
  uint64_t activation_bytes;
  uint64_t buffer_bytes; /**< received values, gradients of activations, workspaces, and what the
                              memory pool holds beyond what is asked of it */
  uint64_t total_bytes;
} nxd_plan_prediction_t;

/** [local] Predicts a layout, with the schedules that pipelines run and the rules by which they
 *  are cut. docs/planner.md says how, and how far off it is.
 *
 *  @param machine  NULL: all defaults.
 *  @param[in,out] out_prediction  struct_size set by the caller; the rest is filled.
 *  @return NXD_OK; INVALID_ARGUMENT (a size that is missing or out of range, more ranks than a size
 *          has parts for).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_predict(const nxd_plan_model_t* model,
                                      const nxd_plan_machine_t* machine,
                                      const nxd_plan_layout_t* layout,
                                      nxd_plan_prediction_t* out_prediction);

/** Bounds of the layouts that nxd_plan_search looks for. */
typedef struct nxd_plan_search_options {
  size_t struct_size;
  int32_t world_size;       /**< 1 to 65536 ranks */
  int32_t sequence_length;  /**< tokens */
  int64_t batch_size;       /**< sequences of a step, of all ranks together */
  nxd_dtype_t dtype;        /**< F32 or BF16 */
  int32_t max_virtual_size; /**< 0: 4 */
} nxd_plan_search_options_t;

#define NXD_PLAN_SEARCH_OPTIONS_INIT \
  { sizeof(nxd_plan_search_options_t), 0, 0, 0, NXD_DTYPE_F32, 0 }

/** [local] Fills options with defaults; sizes have none.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_search_options_init(nxd_plan_search_options_t* options, size_t size);

/** [local] Finds the fastest layouts that fit, best first; of equally fast ones, those that need
 *  less memory come first. It tries all schedules and both kinds of partition, with and without
 *  ZeRO, sequence parallelism and recomputation.
 *
 *  @param layouts  of length cap, at least 1, struct_size of each first set by the caller; or NULL.
 *  @param predictions  likewise.
 *  @param[out] out_count  how many were filled: at most cap.
 *  @return NXD_OK; INVALID_ARGUMENT (a size out of range; no layout suits the model; or none
 *          fits: the message gives the one that needs least).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_plan_search(const nxd_plan_model_t* model,
                                     const nxd_plan_machine_t* machine,
                                     const nxd_plan_search_options_t* options,
                                     nxd_plan_layout_t* layouts, nxd_plan_prediction_t* predictions,
                                     size_t cap, size_t* out_count);

#ifdef __cplusplus
}
#endif

#endif /* NXD_PLANNER_H */
