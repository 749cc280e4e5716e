#include "rod.h"

#include <stdlib.h>

nxd_status_t rod_create(rod* r, nxd_group_t* group, int cells) {
  nxd_status_t status = nxd_group_get_rank(group, &r->rank);
  if (!status) status = nxd_group_get_size(group, &r->ranks);
  if (status) return status;
  r->group = group;
  r->n = cells / r->ranks;
  r->now = calloc((size_t)r->n + 2, sizeof *r->now);
  r->next = calloc((size_t)r->n + 2, sizeof *r->next);
  if (!r->now || !r->next) return NXD_ERROR_OUT_OF_MEMORY;
  if (r->rank == 0) r->now[0] = r->next[0] = 1;
  return NXD_OK;
}

/* Even ranks send first, so that neighbours do not wait for one another. */
static nxd_status_t swap(rod* r, double* own, double* other, int32_t peer) {
  nxd_status_t status = NXD_OK;
  if (peer < 0 || peer >= r->ranks) return NXD_OK;
  if (r->rank % 2 == 0) status = nxd_send(r->group, own, 1, NXD_DTYPE_F64, peer, 0);
  if (!status) status = nxd_receive(r->group, other, 1, NXD_DTYPE_F64, peer, 0);
  if (!status && r->rank % 2 == 1) status = nxd_send(r->group, own, 1, NXD_DTYPE_F64, peer, 0);
  return status;
}

nxd_status_t rod_step(rod* r, double* out_change) {
  double change = 0;
  nxd_status_t status = swap(r, &r->now[1], &r->now[0], r->rank - 1);
  if (!status) status = swap(r, &r->now[r->n], &r->now[r->n + 1], r->rank + 1);
  if (status) return status;
  for (int i = 1; i <= r->n; ++i) {
    r->next[i] = r->now[i] + 0.25 * (r->now[i - 1] - 2 * r->now[i] + r->now[i + 1]);
    const double d = r->next[i] > r->now[i] ? r->next[i] - r->now[i] : r->now[i] - r->next[i];
    if (d > change) change = d;
  }
  double* before = r->now;
  r->now = r->next;
  r->next = before;
  return nxd_all_reduce(r->group, &change, out_change, 1, NXD_DTYPE_F64, NXD_REDUCE_MAX);
}

nxd_status_t rod_total(rod* r, double* out_total) {
  double sum = 0;
  for (int i = 1; i <= r->n; ++i) sum += r->now[i];
  return nxd_all_reduce(r->group, &sum, out_total, 1, NXD_DTYPE_F64, NXD_REDUCE_SUM);
}

void rod_destroy(rod* r) {
  free(r->now);
  free(r->next);
}
