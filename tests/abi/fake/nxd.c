#include "nxd.h"

nxd_status_t nxd_thing_move(nxd_box_t* box, nxd_place_t* place, int64_t steps) {
  (void)box;
  (void)place;
  return steps > 0 ? NXD_OK : NXD_ERROR_EMPTY;
}
