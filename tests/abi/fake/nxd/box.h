/** @file
 * Boxes. */
#ifndef NXD_BOX_H
#define NXD_BOX_H

#include <stddef.h>
#include <stdint.h>

#define NXD_API __attribute__((visibility("default")))

#define NXD_ABI_VERSION 0

/** The outcome of a call. */
typedef int32_t nxd_status_t;
enum { NXD_OK = 0, NXD_ERROR_EMPTY = -1, NXD_ERROR_FULL = -2 };

/** A box. */
typedef struct nxd_box nxd_box_t;

/** Asked for each thing in a box. */
typedef nxd_status_t (*nxd_look_fn)(int32_t thing, void* user_data);

/** Options of nxd_box_create. */
typedef struct nxd_box_options {
  size_t struct_size;
  int32_t width;
  int32_t height;
  int32_t colour;
  int32_t reserved;
  double weight; /**< 0: weightless */
} nxd_box_options_t;

/** A place of unknown size. */
typedef struct nxd_place {
  int32_t x, y;
} nxd_place_t;

/** [local] Makes a box.
 *  @param[out] out_box  the caller destroys it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_box_create(const nxd_box_options_t* options, nxd_box_t** out_box);

/** [local] Shows what is in it.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_box_look(nxd_box_t* box, nxd_look_fn look, void* user_data);

/** [local] Throws it away.
 *  @since 0.1 */
NXD_API void nxd_box_destroy(nxd_box_t* box);

#endif
