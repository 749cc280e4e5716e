#ifndef NETWORK_H
#define NETWORK_H

#include <nxd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x -> mean squared error of down(gelu(up(x))) to a target: `up` is split by columns, `down` by
 * rows. */
typedef struct {
  nxd_module_t *root, *up, *down;
} network;

nxd_status_t network_create(nxd_context_t* ctx, int features, int hidden, network* out);
void network_destroy(network* n);

#ifdef __cplusplus
}
#endif

#endif
