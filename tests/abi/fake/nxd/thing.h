/** @file
 * Things. */
#ifndef NXD_THING_H
#define NXD_THING_H

#include "box.h"

/** [collective: world] Moves a box.
 *  @since 0.1 */
NXD_API nxd_status_t nxd_thing_move(nxd_box_t* box, nxd_place_t* place, int64_t steps);

#endif
