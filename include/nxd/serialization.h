/** @file
 * Tensors of the caller's, by name, and texts in one safetensors file, beside what modules and
 * optimizers save of themselves. The file appears complete or not at all. */
#ifndef NXD_SERIALIZATION_H
#define NXD_SERIALIZATION_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of nxd_save and nxd_serialization_save. */
typedef struct nxd_save_options {
  size_t struct_size;
  nxd_toggle_t master_only;  /**< default on; off: each rank writes, at a path of its own */
  int32_t each_host;         /**< 1: the first rank of each host writes; 0: that of the world */
  const char* const* keys;   /**< num_values names of texts; copied */
  const char* const* values; /**< num_values texts, such as {"1200"} */
  size_t num_values;
} nxd_save_options_t;

#define NXD_SAVE_OPTIONS_INIT \
  { sizeof(nxd_save_options_t), 0, 0, NULL, NULL, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_save_options_init(nxd_save_options_t* options, size_t size);

/** [collective: world] Writes tensors and texts as one file, once they are all in the host's
 *  memory: values of the recorded device, and dense copies of tensors that are not in C order. The
 *  ranks that write need that memory; nxd_serialization_save needs less.
 *
 *  All ranks return when all files are there. Every rank runs first what it has recorded.
 *  @param path     file; replaced when complete. That of this rank with master_only off, else the
 *                  same on all ranks.
 *  @param names    num_tensors names, each once; not "__metadata__".
 *  @param tensors  num_tensors; on the CPU or the recorded device. A rank that does not write
 *                  has its own checked, and left out.
 *  @return NXD_OK; INVALID_ARGUMENT (also one path for several ranks, or several for one file);
 *          UNSUPPORTED (a dtype that files cannot have); IO; OUT_OF_MEMORY; TIMEOUT; PEER_LOST.
 *          All ranks fail when one does, but for ctx NULL. A path whose file could not be written
 *          has what it had before, unless the message says that the new one is complete.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_save(nxd_context_t* ctx, const char* path, const char* const* names,
                              nxd_tensor_t* const* tensors, size_t num_tensors,
                              const nxd_save_options_t* options);

/** [collective: world] The same file, written tensor by tensor: no more than one of them is copied
 *  to the host's memory at a time.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_save(nxd_context_t* ctx, const char* path,
                                            const char* const* names, nxd_tensor_t* const* tensors,
                                            size_t num_tensors, const nxd_save_options_t* options);

/** An open file of tensors and texts. */
typedef struct nxd_serialization nxd_serialization_t;

/** [local] Opens a file of nxd_save, nxd_serialization_save, or any other safetensors. Its header
 *  is checked now; each tensor is read when it is asked for.
 *
 *  A file that is replaced meanwhile is still read as it was. One of more than 256 may have to be
 *  opened again, and another in its place is CORRUPT then.
 *  @param path  as of nxd_module_load_safetensors.
 *  @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (a dtype that is not known); IO; CORRUPT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_load(const char* path,
                                            nxd_serialization_t** out_serialization);

/** [local] Number of tensors.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_get_count(nxd_serialization_t* serialization,
                                                 size_t* out_count);

/** [local] Name of a tensor by index, in alphabetical order; borrowed.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_get_name(nxd_serialization_t* serialization, size_t index,
                                                const char** out_name);

/** [local] Reads a tensor.
 *  @param device  CPU or XLA.
 *  @param[out] out_tensor  of the file's shape and dtype; the caller destroys it.
 *  @return NXD_OK; INVALID_ARGUMENT (no such tensor: near names are in the message; another
 *          device); UNSUPPORTED (a dtype that this library does not compute with); IO; CORRUPT.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_create_tensor(nxd_serialization_t* serialization,
                                                     const char* name, nxd_device_t device,
                                                     nxd_tensor_t** out_tensor);

/** [local] Number of texts.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_get_value_count(nxd_serialization_t* serialization,
                                                       size_t* out_count);

/** [local] A text by index, in alphabetical order of the keys; both borrowed, either may be NULL.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_serialization_get_value(nxd_serialization_t* serialization, size_t index,
                                                 const char** out_key, const char** out_value);

/** [local] Closes the file. Tensors that were read stay.
 *  @since 0.1 */
NXD_API void nxd_serialization_destroy(nxd_serialization_t* serialization);

#ifdef __cplusplus
}
#endif

#endif /* NXD_SERIALIZATION_H */
