// Section 4 of nxd.h: collectives. Arguments are checked by the group, which must tell its peers.
#include "capi/handles.h"
#include "core/base/last_error.h"

using namespace nxd;

nxd_status_t nxd_all_reduce(nxd_group_t* group, const void* send, void* recv, size_t count,
                            nxd_dtype_t dtype, nxd_reduce_t reduce) {
  return guard([&] { unwrap(group).all_reduce(send, recv, count, dtype, reduce); });
}

nxd_status_t nxd_all_gather(nxd_group_t* group, const void* send, void* recv, size_t count,
                            nxd_dtype_t dtype) {
  return guard([&] { unwrap(group).all_gather(send, recv, count, dtype); });
}

nxd_status_t nxd_reduce_scatter(nxd_group_t* group, const void* send, void* recv, size_t count,
                                nxd_dtype_t dtype, nxd_reduce_t reduce) {
  return guard([&] { unwrap(group).reduce_scatter(send, recv, count, dtype, reduce); });
}

nxd_status_t nxd_broadcast(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                           int32_t root) {
  return guard([&] { unwrap(group).broadcast(buffer, count, dtype, root); });
}

nxd_status_t nxd_all_to_all(nxd_group_t* group, const void* send, void* recv, size_t count,
                            nxd_dtype_t dtype) {
  return guard([&] { unwrap(group).all_to_all(send, recv, count, dtype); });
}

nxd_status_t nxd_send(nxd_group_t* group, const void* buffer, size_t count, nxd_dtype_t dtype,
                      int32_t to, int32_t tag) {
  return guard([&] { unwrap(group).send(buffer, count, dtype, to, tag); });
}

nxd_status_t nxd_receive(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                         int32_t from, int32_t tag) {
  return guard([&] { unwrap(group).receive(buffer, count, dtype, from, tag); });
}

nxd_status_t nxd_barrier(nxd_group_t* group) {
  return guard([&] { unwrap(group).barrier(); });
}
