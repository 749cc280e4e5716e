/** @file
 * Layers.
 *
 * Layers are modules over the tensor-parallel group of the context, which must be initialised. With
 * sequence_parallel, activations between layers are slices of dimension sequence_dim, equal on all
 * ranks; the default dimension is 0, for inputs of shape [sequence, batch, hidden].
 * Linear weights are stored [out_features, in_features]; Y = X W^T + b. */
#ifndef NXD_LAYERS_H
#define NXD_LAYERS_H

#include "module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of nxd_layer_create_parallel_embedding. */
typedef struct nxd_embedding_options {
  size_t struct_size;
  const char* name;  /**< canonical name of the layer for its initial weights; NULL: "" */
  nxd_dtype_t dtype; /**< of the weight: F32 (0), F64, BF16 */
  nxd_device_t device;
  nxd_init_t init;         /**< DEFAULT: normal(0, 1) */
  int32_t has_padding_idx; /**< 1: padding_idx gets no gradient, and starts as zeros */
  double init_a;
  double init_b;
  int64_t padding_idx;
  int32_t shard_across_embedding; /**< 1: embedding_dim is split instead of the vocabulary */
  int32_t sequence_parallel;      /**< 1: the output is scattered along sequence_dim */
  int32_t sequence_dim;           /**< of the output */
  int32_t reserved;
} nxd_embedding_options_t;

#define NXD_EMBEDDING_OPTIONS_INIT                                                             \
  {                                                                                            \
    sizeof(nxd_embedding_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, NXD_INIT_DEFAULT, 0, \
        0.0, 0.0, 0, 0, 0, 0, 0                                                                \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_embedding_options_init(nxd_embedding_options_t* options, size_t size);

/** [local] Embedding table split over the tensor-parallel ranks.
 *
 *  Forward: ids [...], I64, the same on all ranks -> [..., embedding_dim]. Ids outside of the table
 *  are INVALID_ARGUMENT on every rank.
 *  @param num_embeddings  rows; must divide by the group's size (embedding_dim with
 *                         shard_across_embedding).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_parallel_embedding(nxd_context_t* ctx, int64_t num_embeddings,
                                                         int64_t embedding_dim,
                                                         const nxd_embedding_options_t* options,
                                                         nxd_module_t** out_module);

/** Options of the linear layers. */
typedef struct nxd_linear_options {
  size_t struct_size;
  const char* name;  /**< canonical name of the layer for its initial weights; NULL: "" */
  nxd_dtype_t dtype; /**< of weight and bias: F32 (0), F64, BF16 */
  nxd_device_t device;
  nxd_toggle_t bias;          /**< default on */
  nxd_toggle_t gather_output; /**< column only; default on, off with sequence_parallel */
  nxd_toggle_t reduce_output; /**< row only; default on; off: the partial sums are the output */
  int32_t
      input_is_parallel; /**< row only; 1: the input is split along its last dimension already */
  int32_t sequence_parallel;
  int32_t sequence_dim;
  int32_t skip_bias_add;      /**< 1: a second output gives the bias, which is not added */
  int32_t keep_master_weight; /**< 1: nxd_module_get_master_weight gives the whole initial weight */
  int32_t stride;  /**< 0: 1; blocks per rank of the split dimension, for fused weights; above 1
                        without gather_output, and with input_is_parallel */
  nxd_init_t init; /**< DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too */
  double init_a;
  double init_b;
  int32_t pad; /**< column and row; 1: features that the ranks do not divide are split all the same,
                  with zeros behind the last, as by nxd_pad_model; 0: they must divide */
  int32_t reserved;
} nxd_linear_options_t;

#define NXD_LINEAR_OPTIONS_INIT                                                                   \
  {                                                                                               \
    sizeof(nxd_linear_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        NXD_INIT_DEFAULT, 0.0, 0.0, 0, 0                                                          \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_linear_options_init(nxd_linear_options_t* options, size_t size);

/** [local] Linear layer whose output features are split over the tensor-parallel ranks.
 *
 *  Forward: x [..., in_features], replicated (or a slice of sequence_dim with sequence_parallel)
 *  -> [..., out_features / tp], or [..., out_features] with gather_output. With pad the division is
 *  rounded up, and so is that of a row-parallel layer.
 *  @return NXD_OK; INVALID_ARGUMENT (out_features does not divide; gather_output together with
 *          sequence_parallel or a stride above 1); INVALID_STATE (model parallel not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_column_parallel_linear(nxd_context_t* ctx,
                                                             int64_t in_features,
                                                             int64_t out_features,
                                                             const nxd_linear_options_t* options,
                                                             nxd_module_t** out_module);

/** [local] Linear layer whose input features are split over the tensor-parallel ranks.
 *
 *  Forward: x [..., in_features / tp] with input_is_parallel, else [..., in_features], which is
 *  split -> [..., out_features], summed over ranks in f32 or wider, or this rank's slice of the sum
 *  along sequence_dim with sequence_parallel.
 *  @return NXD_OK; INVALID_ARGUMENT (in_features does not divide; sequence_parallel or a stride
 *          above 1 without input_is_parallel; sequence_parallel without reduce_output);
 *          INVALID_STATE.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_row_parallel_linear(nxd_context_t* ctx, int64_t in_features,
                                                          int64_t out_features,
                                                          const nxd_linear_options_t* options,
                                                          nxd_module_t** out_module);

/** [local] Linear layer that each rank has all of, for products that are too small to split.
 *
 *  Forward: x [..., in_features] -> [..., out_features]. With sequence_parallel x is a slice, and
 *  nxd_finish_grads sums the parameters' gradients over the ranks.
 *  @param options  those of the parallel layers, of which the fields that say how the layer is
 *                  split are passed over; keep_master_weight is rejected.
 *  @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (model parallel not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_linear(nxd_context_t* ctx, int64_t in_features,
                                             int64_t out_features,
                                             const nxd_linear_options_t* options,
                                             nxd_module_t** out_module);

/** [local] The whole initial weight of a layer made with keep_master_weight; borrowed.
 *  @return NXD_OK; INVALID_STATE (not kept).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_module_get_master_weight(nxd_module_t* module, nxd_tensor_t** out_weight);

/** Options of the norms. */
typedef struct nxd_norm_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  double eps;          /**< 0: 1e-5 */
  nxd_toggle_t affine; /**< default on: a weight (and a bias, LayerNorm) */
  nxd_toggle_t bias;   /**< LayerNorm only; default on */
  int32_t
      sequence_parallel; /**< 1: inputs are slices, and the gradients of its parameters partial */
  int32_t reserved;
} nxd_norm_options_t;

#define NXD_NORM_OPTIONS_INIT \
  { sizeof(nxd_norm_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0.0, 0, 0, 0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_norm_options_init(nxd_norm_options_t* options, size_t size);

/** [local] Layer normalisation over the last dimension (Ba et al. 2016).
 *
 *  Forward: x [..., size], and optionally a residual to add to it first -> the normalised sum and,
 *  when two outputs are asked for, the sum. The weight starts as ones, the bias as zeros.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_layer_norm(nxd_context_t* ctx, int64_t size,
                                                 const nxd_norm_options_t* options,
                                                 nxd_module_t** out_module);

/** [local] Root-mean-square normalisation over the last dimension (Zhang and Sennrich 2019).
 *
 *  Forward: as nxd_layer_create_layer_norm's, computed in f32 or wider. The weight starts as ones.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_rms_norm(nxd_context_t* ctx, int64_t size,
                                               const nxd_norm_options_t* options,
                                               nxd_module_t** out_module);

/** Scaling of rotary frequencies, as in Hugging Face configurations. */
typedef int32_t nxd_rope_t;
enum {
  NXD_ROPE_INVALID = -1,
  NXD_ROPE_DEFAULT = 0,
  NXD_ROPE_LINEAR = 1,
  NXD_ROPE_DYNAMIC = 2, /**< NTK-aware, by the length of the input */
  NXD_ROPE_YARN = 3,    /**< Peng et al. 2023 */
  NXD_ROPE_LLAMA3 = 4
};

/** Rotary position embedding (Su et al. 2021): pairs are the two halves of a head. */
typedef struct nxd_rope_options {
  size_t struct_size;
  nxd_rope_t type;
  int32_t rotary_dim;                       /**< leading features that turn; 0: the whole head */
  double theta;                             /**< 0: 10000 */
  double factor;                            /**< of LINEAR, DYNAMIC, YARN and LLAMA3; 0: 1 */
  double low_freq_factor;                   /**< LLAMA3; 0: 1 */
  double high_freq_factor;                  /**< LLAMA3; 0: 4 */
  double beta_fast;                         /**< YARN; 0: 32 */
  double beta_slow;                         /**< YARN; 0: 1 */
  double attention_factor;                  /**< YARN; 0: 0.1 ln(factor) + 1, at least 1 */
  int64_t original_max_position_embeddings; /**< DYNAMIC, YARN, LLAMA3: more than 0 */
} nxd_rope_options_t;

#define NXD_ROPE_OPTIONS_INIT \
  { sizeof(nxd_rope_options_t), NXD_ROPE_DEFAULT, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_rope_options_init(nxd_rope_options_t* options, size_t size);

/** [local] Rotates query or key heads by their position.
 *
 *  Forward: x [batch, sequence, heads, head_dim] -> the same shape. Positions count from 0.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_rotary_embedding(nxd_context_t* ctx, int64_t head_dim,
                                                       const nxd_rope_options_t* options,
                                                       nxd_module_t** out_module);

/** Options of nxd_layer_create_attention. */
typedef struct nxd_attention_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  int64_t num_kv_heads;           /**< 0: num_heads */
  int64_t head_dim;               /**< 0: hidden_size / num_heads */
  const nxd_rope_options_t* rope; /**< NULL: no rotary embedding; copied */
  nxd_toggle_t causal;            /**< default on */
  nxd_toggle_t qkv_bias;          /**< default off */
  nxd_toggle_t output_bias;       /**< default off */
  int32_t sequence_parallel;
  nxd_init_t init; /**< DEFAULT: as the linear layers */
  int32_t reserved;
  double init_a;
  double init_b;
} nxd_attention_options_t;

#define NXD_ATTENTION_OPTIONS_INIT                                                                \
  {                                                                                               \
    sizeof(nxd_attention_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, NULL, 0, 0, 0, 0, \
        NXD_INIT_DEFAULT, 0, 0.0, 0.0                                                             \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_attention_options_init(nxd_attention_options_t* options, size_t size);

/** [local] Self-attention with grouped key and value heads (Ainslie et al. 2023), heads split over
 *  the tensor-parallel ranks.
 *
 *  Parameters q_proj, k_proj, v_proj, o_proj. With fewer key heads than ranks, each is held by
 *  several ranks and its gradients are summed by nxd_finish_grads.
 *  Forward: x [batch, sequence, hidden], or a slice of [sequence, batch, hidden] with
 *  sequence_parallel; optionally a key mask [batch, sequence] of integers or BOOL, 0 where a
 *  position is padding -> the shape of x. All ranks have the same mask, which is not compared.
 *  Infinities and NaN at padding may reach other positions: x is finite there too.
 *  @param num_heads  at least the least multiple of num_kv_heads that is no less than the group's
 *                    size: each rank has a head. Ranks have nearly equal numbers of key heads with
 *                    all their queries; with fewer key heads than ranks, nearly equal numbers of
 *                    the queries of one.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_attention(nxd_context_t* ctx, int64_t hidden_size,
                                                int64_t num_heads,
                                                const nxd_attention_options_t* options,
                                                nxd_module_t** out_module);

/** The weights of queries, keys and values. */
typedef int32_t nxd_qkv_fusion_t;
enum {
  NXD_QKV_INVALID = -1,
  NXD_QKV_SEPARATE = 0, /**< q_proj, k_proj and v_proj, three weights */
  NXD_QKV_BY_PART = 1,  /**< one weight: all queries, then all keys, then all values */
  NXD_QKV_BY_HEAD = 2   /**< one weight: of each key head its queries, its key and its value */
};

/** Options of nxd_layer_create_qkv_linear. */
typedef struct nxd_qkv_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  int64_t num_kv_heads; /**< 0: num_heads */
  int64_t head_dim;     /**< 0: hidden_size / num_heads */
  nxd_qkv_fusion_t fusion;
  nxd_toggle_t bias; /**< default on */
  int32_t sequence_parallel;
  nxd_init_t init; /**< DEFAULT: as the linear layers */
  double init_a;
  double init_b;
} nxd_qkv_options_t;

#define NXD_QKV_OPTIONS_INIT                                                                      \
  {                                                                                               \
    sizeof(nxd_qkv_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, NXD_QKV_SEPARATE, 0, 0, \
        NXD_INIT_DEFAULT, 0.0, 0.0                                                                \
  }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_qkv_options_init(nxd_qkv_options_t* options, size_t size);

/** [local] Queries, keys and values for attention, heads split over the tensor-parallel ranks.
 *
 *  Weights are [features, hidden_size]: the separate ones have num_heads * head_dim features, or
 *  num_kv_heads * head_dim; a fused one has all of them, as GPT-2's (BY_PART) and GPT-NeoX's
 *  (BY_HEAD). With fewer key heads than ranks, which is for separate weights alone, each is held by
 *  several ranks, and its gradients are summed by nxd_finish_grads.
 *
 *  Forward: x [.., hidden_size], replicated, or with sequence_parallel a slice of dimension 0 ->
 *  up to three outputs: queries [.., heads of this rank, head_dim], keys and values
 *  [.., key heads of this rank, head_dim].
 *  @param num_heads  at least the least multiple of num_kv_heads that is no less than the group's
 *                    size: each rank has a head. Ranks have nearly equal numbers of key heads with
 *                    all their queries; with fewer key heads than ranks, nearly equal numbers of
 *                    the queries of one.
 *  @return NXD_OK; INVALID_ARGUMENT (also key heads that ranks would share in a fused weight);
 *          INVALID_STATE (model parallel not initialised).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_qkv_linear(nxd_context_t* ctx, int64_t hidden_size,
                                                 int64_t num_heads,
                                                 const nxd_qkv_options_t* options,
                                                 nxd_module_t** out_module);

/** Activation of a gated MLP. */
typedef int32_t nxd_activation_t;
enum {
  NXD_ACTIVATION_INVALID = -1,
  NXD_ACTIVATION_SILU = 0,
  NXD_ACTIVATION_GELU = 1,
  NXD_ACTIVATION_GELU_TANH = 2,
  NXD_ACTIVATION_RELU = 3
};

/** Options of nxd_layer_create_gated_mlp. */
typedef struct nxd_mlp_options {
  size_t struct_size;
  const char* name;
  nxd_dtype_t dtype;
  nxd_device_t device;
  nxd_activation_t activation;
  nxd_toggle_t bias;         /**< default off */
  int32_t sequence_parallel; /**< 1: x is a slice of dimension 0 */
  nxd_init_t init;           /**< DEFAULT: as the linear layers */
  double init_a;
  double init_b;
} nxd_mlp_options_t;

#define NXD_MLP_OPTIONS_INIT \
  { sizeof(nxd_mlp_options_t), NULL, NXD_DTYPE_F32, NXD_DEVICE_CPU, 0, 0, 0, 0, 0.0, 0.0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_mlp_options_init(nxd_mlp_options_t* options, size_t size);

/** [local] down_proj(activation(gate_proj(x)) * up_proj(x)), split over the tensor-parallel ranks
 *  (Shazeer 2020).
 *
 *  Forward: x [..., hidden] -> [..., hidden].
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_gated_mlp(nxd_context_t* ctx, int64_t hidden_size,
                                                int64_t intermediate_size,
                                                const nxd_mlp_options_t* options,
                                                nxd_module_t** out_module);

/** [local] Dropout whose bits depend on the seed, the layer's name, the global index of each
 *  element, the step and the microbatch, and on nothing else.
 *
 *  Forward: x, any shape -> the same shape. In training, elements are zeroed with probability p and
 *  the others scaled by 1 / (1 - p); in evaluation x itself.
 *  @param name       canonical name of the site; sites with one name draw the same bits.
 *                    nxd_module_initialize replaces it by the module's path.
 *  @param shard_dim  dimension of x that is split over the tensor-parallel ranks, so that each rank
 *                    drops its own part of the whole; -1: x is replicated and dropped alike.
 *  @return NXD_OK; INVALID_ARGUMENT (p not in [0, 1)).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_layer_create_dropout(nxd_context_t* ctx, double p, const char* name,
                                              int32_t shard_dim, nxd_module_t** out_module);

/** [local] Heads that are to be added to num_heads for a multiple of tp_degree.
 *  @param[out] out_extra  0 where it is one already.
 *  @return NXD_OK; INVALID_ARGUMENT (num_heads or tp_degree below 1, or a sum beyond INT64_MAX).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_get_number_of_extra_heads(int64_t num_heads, int32_t tp_degree,
                                                   int64_t* out_extra);

/** Called for each module that nxd_pad_model visits, children before their parent, so that what a
 *  caller's forward knows of its heads can follow. The module's parameters are not padded yet. */
typedef nxd_status_t (*nxd_pad_hook_fn)(nxd_module_t* module, int64_t num_heads,
                                        int64_t num_padded_heads, void* user_data);

/** [collective: tensor-parallel group] Has the column- and row-parallel layers of a tree share
 *  whole heads, where the ranks do not divide num_heads: as if heads of zeros followed the last
 *  one, up to a multiple of tp_degree.
 *
 *  The features that a layer splits grow by num_padded_heads / num_heads, and each rank has an
 *  equal part of them: with 3 heads of 4 features on two ranks, 8 features each, of which the last
 *  4 are padding. So outputs of column-parallel layers that are split, and inputs of row-parallel
 *  ones, have features of num_padded_heads / tp whole heads on each rank; whole ones are as they
 *  were. Padding is zero, has no gradient, changes no output, and is in no file:
 *  nxd_parameter_get_global_shape and what is saved stay as they were, and any layout loads it.
 *
 *  Parameters keep their handles, values, hooks and groups; their gradients are forgotten. Values
 *  move between ranks, one parameter at a time; a failure leaves all as they were. It comes before
 *  optimizers, ddps and pipelines are made. Calling it again with the same numbers changes nothing.
 *
 *  Only layers below the caller's modules and below nxd_module_create_sequential are padded. Other
 *  modules of the library, such as attention, a gated MLP and built-in models, share heads and
 *  features that ranks do not divide by themselves, and are passed over.
 *  @param tp_degree  ranks that num_heads is to be padded for; the padded heads must divide by the
 *                    ranks of this layout too.
 *  @param wrapped_classes  class names; only modules of these and what is below them are padded.
 *                    NULL with num_wrapped_classes 0: all of the tree.
 *  @param hook       may be NULL. A status other than NXD_OK ends the call on all ranks before any
 *                    parameter is padded.
 *  @return NXD_OK; INVALID_ARGUMENT (a layer whose features do not grow to a whole number or do not
 *          divide by the ranks; nothing to pad; a class that no module has; a parameter that is
 *          tied to one which is not padded; ranks that differ); UNSUPPORTED (a QKV layer, whose
 *          heads need no padding, among the layers to pad); INVALID_STATE (a ddp has a parameter;
 *          nxd_pp_create has cut the model; parameters are PARTIAL); TIMEOUT; PEER_LOST. All ranks
 *          fail alike.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_pad_model(nxd_module_t* root, int32_t tp_degree, int64_t num_heads,
                                   const char* const* wrapped_classes, size_t num_wrapped_classes,
                                   nxd_pad_hook_fn hook, void* user_data);

#ifdef __cplusplus
}
#endif

#endif /* NXD_LAYERS_H */
