#include "nxd.h"

nxd_status_t nxd_box_create(const nxd_box_options_t* options, nxd_box_t** out_box) {
  (void)options;
  *out_box = NULL;
  return NXD_OK;
}

nxd_status_t nxd_box_look(nxd_box_t* box, nxd_look_fn look, void* user_data) {
  (void)box;
  return look(0, user_data);
}

void nxd_box_destroy(nxd_box_t* box) { (void)box; }
