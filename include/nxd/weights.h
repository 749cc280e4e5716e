/** @file
 * Weights of layers over buffers: which part of a weight a rank holds, its initial values, and
 * copies between whole weights, safetensors files and ranks' parts.
 *
 * A whole weight is the array that a model on one rank would have; a rank's shard of it is an array
 * that the caller owns. Both are DLTensors as in tensor_parallel.h, with any strides. Ranks are
 * those of the context's tensor-parallel group. */
#ifndef NXD_WEIGHTS_H
#define NXD_WEIGHTS_H

#include "dlpack.h"
#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Distribution of initial weights. */
typedef int32_t nxd_init_t;
enum {
  NXD_INIT_INVALID = -1,
  NXD_INIT_DEFAULT = 0,        /**< of the layer: see its comment */
  NXD_INIT_NORMAL = 1,         /**< mean a, standard deviation b */
  NXD_INIT_UNIFORM = 2,        /**< from a to b */
  NXD_INIT_CONSTANT = 3,       /**< a */
  NXD_INIT_KAIMING_UNIFORM = 4 /**< He et al. 2015: bound sqrt(6 / ((1 + a^2) fan_in)) */
};

/** The part of a whole weight that a rank holds. Ranks have parts of one dimension, of equal sizes,
 *  in the ranks' order. */
typedef struct nxd_shard_options {
  size_t struct_size;
  int64_t size;      /**< of dim in the whole weight; 0: the shards' sizes together. Where these
                          exceed it, the last ranks have padding, which is zeros */
  int32_t has_dim;   /**< 1: ranks have parts of dim; 0: each rank has the whole weight, and the
                          other fields are 0 */
  int32_t dim;       /**< from the end when negative */
  int32_t num_fused; /**< weights of one size that lie one after another along dim, such as those
                          of gate and up projection, of each of which a rank has its part; 0: 1.
                          Without padding and num_heads */
  int32_t num_heads; /**< dim is so many heads; where there are fewer than ranks, several ranks
                          have the same one. 0: of no concern */
} nxd_shard_options_t;

#define NXD_SHARD_OPTIONS_INIT \
  { sizeof(nxd_shard_options_t), 0, 0, 0, 0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_shard_options_init(nxd_shard_options_t* options, size_t size);

/** [local] Fills a shard with its part of the whole weight's initial values. These depend on the
 *  context's seed, the name and the element's index in the whole weight (Philox4x32-10, Salmon et
 *  al. 2011), and are those of a parameter of that canonical name in a model of libnxd: no number
 *  of ranks changes a bit of them. Values of 16-bit floats are those of F32, rounded.
 *
 *  @param name   of the weight, such as "model.layers.0.mlp.up_proj.weight".
 *  @param init   not DEFAULT. The fan_in of KAIMING_UNIFORM is the product of the whole weight's
 *                sizes but the first. A layer of an embedding takes the first instead, its number
 *                of rows.
 *  @param shard  F32, F64, BF16 or F16, of at least one dimension where has_dim.
 *  @return NXD_OK; INVALID_ARGUMENT (shapes, dtypes, options; on all ranks a distribution with
 *          values beyond the range of the shard's dtype); INVALID_STATE (no
 *          nxd_init_model_parallel, finalized); UNSUPPORTED (context- or expert-parallel ranks);
 *          OUT_OF_MEMORY.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_shard_initialize(nxd_context_t* ctx, const char* name, nxd_init_t init,
                                          double a, double b, const nxd_shard_options_t* options,
                                          DLTensor* shard);

/** [local] Copies this rank's part of a whole weight.
 *  @param full   any dtype.
 *  @param shard  of the dtype of full.
 *  @return as nxd_shard_initialize; the size of options is 0, or that of full.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_shard_set_full(nxd_context_t* ctx, const DLTensor* full,
                                        const nxd_shard_options_t* options, DLTensor* shard);

/** [collective: tensor-parallel group] Puts the whole weight together from all ranks' shards, on
 *  every rank. Where ranks hold the same heads, or the same weight, the first one's counts.
 *  @param shard  any dtype, of equal sizes on all ranks, which are compared.
 *  @param full   of the dtype of shard.
 *  @return as nxd_shard_set_full, on all ranks, without any change of full; TIMEOUT; PEER_LOST.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_shard_gather_full(nxd_context_t* ctx, const DLTensor* shard,
                                           const nxd_shard_options_t* options, DLTensor* full);

/** [local] Reads this rank's part of a tensor, and no other bytes of it, from safetensors.
 *
 *  @param path   a .safetensors file, or a directory with model.safetensors or
 *                model.safetensors.index.json; with both the file is read.
 *  @param name   of the tensor.
 *  @param shard  any dtype that the stored one can be converted to: floats among one another, else
 *                the same. After a failure its values are undefined.
 *  @return as nxd_shard_initialize; INVALID_ARGUMENT also for a name that is not there; IO;
 *          CORRUPT; UNSUPPORTED (a stored dtype that is not computed with, or not known).
 *  @since 0.1 */
NXD_API nxd_status_t nxd_shard_load_safetensors(nxd_context_t* ctx, const char* path,
                                                const char* name,
                                                const nxd_shard_options_t* options,
                                                DLTensor* shard);

#ifdef __cplusplus
}
#endif

#endif /* NXD_WEIGHTS_H */
