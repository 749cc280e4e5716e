#ifndef ROD_H
#define ROD_H

#include <nxd.h>

/* This rank's piece of a rod: cells 1 to n, between two that its neighbours own. */
typedef struct {
  nxd_group_t* group;
  int32_t rank, ranks;
  int n;
  double *now, *next;
} rod;

/* A rod of `cells` cells, cold but for its left end, which stays at 1; cells divide by the ranks.
 */
nxd_status_t rod_create(rod* r, nxd_group_t* group, int cells);
/* One step of heat along the rod; *out_change is the largest change of a cell, of all ranks. */
nxd_status_t rod_step(rod* r, double* out_change);
/* Heat of the whole rod. */
nxd_status_t rod_total(rod* r, double* out_total);
void rod_destroy(rod* r);

#endif
