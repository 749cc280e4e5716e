/** @file
 * Batches for language models, from files of token ids or of text: every sample once an epoch over
 * all data-parallel ranks, in an order that no number of ranks changes, read ahead by a thread. */
#ifndef NXD_DATA_H
#define NXD_DATA_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The elements of token files, which have no header. */
typedef int32_t nxd_token_format_t;
enum {
  NXD_TOKEN_FORMAT_INVALID = -1,
  NXD_TOKEN_FORMAT_DEFAULT = 0, /**< BYTES where paths end in .txt, UINT32 where they end in
                                     .u32, else UINT16; paths of several are rejected */
  NXD_TOKEN_FORMAT_UINT16 = 1,  /**< ids of 16 bits, little-endian */
  NXD_TOKEN_FORMAT_UINT32 = 2,  /**< ids of 32 bits, little-endian */
  NXD_TOKEN_FORMAT_BYTES = 3    /**< text: each byte is an id from 0 to 255 */
};

/** Reads samples, which are sequences of token ids. */
typedef struct nxd_data_loader nxd_data_loader_t;

/** How a loader reads. All fields are the same on all ranks. */
typedef struct nxd_data_loader_options {
  size_t struct_size;
  int64_t vocab_size; /**< 0: ids are not checked. Else an id that is not below it is CORRUPT, when
                           it is read */
  uint64_t seed;      /**< of the order of samples; has_seed 0: the context's */
  int32_t has_seed;
  nxd_token_format_t format;
  nxd_toggle_t shuffle; /**< default on: each epoch has an order of its own, that of
                             nxd_sample_epoch for one rank; off: the order of the files */
  int32_t next_labels;  /**< 1: nxd_data_loader_next gives labels too, which are the ids one place
                             on. Models of libnxd want none: they shift their labels, which are
                             the ids themselves */
  int32_t prefetch;     /**< batches that are read ahead; 0: 2; at most 1024 */
  int32_t reserved;
} nxd_data_loader_options_t;

#define NXD_DATA_LOADER_OPTIONS_INIT \
  { sizeof(nxd_data_loader_options_t), 0, 0, 0, 0, 0, 0, 0, 0 }

/** [local] Fills options with defaults.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_options_init(nxd_data_loader_options_t* options, size_t size);

/** [collective: world] Opens files, and begins to read ahead.
 *
 *  A file is cut into samples of sequence_length tokens, one after another; tokens that are left at
 *  its end belong to none. With next_labels a sample has one more token, which is the first of the
 *  sample behind it.
 *
 *  Samples of one epoch follow those of the one before, and batches may begin in the one and end in
 *  the other: none is left out, and none is given twice. Rank r of the data-parallel group takes
 *  places r, r + ranks and so on, of the world's where nxd_init_model_parallel has not been called.
 *  Ranks of one place in it, such as tensor-parallel ones, get the same batches.
 *
 *  The files are read by offset, not mapped. They may be unlinked meanwhile; where one is cut
 *  short, reading it fails.
 *  @param paths  of files that have equal contents on all ranks, of which ranks compare the sizes
 *                alone; UTF-8. They stay open.
 *  @param batch_size       samples of a batch of one rank.
 *  @param sequence_length  tokens.
 *  @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT (a size that is no number of elements, too few
 *          tokens for one sample), on all ranks when it is so on one; INVALID_ARGUMENT also where
 *          options or the files' sizes differ.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_create(nxd_context_t* ctx, const char* const* paths,
                                            size_t num_paths, int64_t batch_size,
                                            int64_t sequence_length,
                                            const nxd_data_loader_options_t* options,
                                            nxd_data_loader_t** out_loader);

/** [local] Takes this rank's next batches. It may wait for the disk, and for no rank.
 *  @param ids     [batches, batch_size, sequence_length] in C order, of the caller's.
 *  @param labels  the same, NULL without next_labels.
 *  @param count   elements of each, which says how many batches there are: several at once are
 *                 those of as many calls.
 *  @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT (names the file and the token). After a failure
 *          the position is as before, and what ids and labels hold is undefined.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_next(nxd_data_loader_t* loader, int64_t* ids, int64_t* labels,
                                          size_t count);

/** [local] Samples of an epoch, over all ranks.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_get_sample_count(nxd_data_loader_t* loader,
                                                      int64_t* out_count);

/** [local] Samples that all ranks together have taken when each of them has taken as many batches
 *  as this one. It is what a checkpoint needs to keep.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_get_position(nxd_data_loader_t* loader, int64_t* out_position);

/** [local] Goes on behind so many samples: in the order that a loader over the same files, with the
 *  same seed and sequence_length, would have gone on, whatever its numbers of ranks and batch sizes
 *  were. Every rank sets the same position.
 *  @param position  0 to 2^53, of less than 2^39 epochs.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_data_loader_set_position(nxd_data_loader_t* loader, int64_t position);

/** [local] Ends the reading, and closes the files.
 *  @since 0.1 */
NXD_API void nxd_data_loader_destroy(nxd_data_loader_t* loader);

#ifdef __cplusplus
}
#endif

#endif /* NXD_DATA_H */
