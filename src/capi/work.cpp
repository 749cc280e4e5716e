// nxd/work.h: asynchronous calls and their works. Arguments other than handles are checked by the
// group, which must tell its peers.
#include "capi/handles.h"
#include "core/base/callback_thread.h"
#include "core/base/last_error.h"

using namespace nxd;

namespace {

nxd_status_t start(nxd_group_t* group, const Call& call, nxd_work_t** out_work) {
  return guard([&] {
    if (out_work) *out_work = nullptr;
    ProcessGroup& g = nxd::unwrap(group);
    if (!out_work) g.start(call.rejected_for("out_work: expected a pointer, got NULL"));
    auto& out = output(out_work, "out_work");
    auto handle = std::make_unique<nxd_work>();
    handle->value = g.start(call);
    out = handle.release();
  });
}

Call rejected_call(const char* operation, int32_t peer, int32_t tag) {
  Call call{operation_named(operation)};
  call.peer = peer;
  call.tag = tag;
  return call;
}

// Outlives the handle, which a callback may destroy.
std::shared_ptr<Work> shared(nxd_work_t* work) {
  nxd::unwrap(work);
  return work->value;
}

const char* or_none(const char* reason) {
  return reason && *reason ? reason : "no reason was given";
}

}  // namespace

nxd_status_t nxd_all_reduce_async(nxd_group_t* group, const void* send, void* receive, size_t count,
                                  nxd_dtype_t dtype, nxd_reduce_t reduce, nxd_work_t** out_work) {
  return start(group, Call::all_reduce(send, receive, count, dtype, reduce), out_work);
}

nxd_status_t nxd_all_gather_async(nxd_group_t* group, const void* send, void* receive, size_t count,
                                  nxd_dtype_t dtype, nxd_work_t** out_work) {
  return start(group, Call::all_gather(send, receive, count, dtype), out_work);
}

nxd_status_t nxd_reduce_scatter_async(nxd_group_t* group, const void* send, void* receive,
                                      size_t count, nxd_dtype_t dtype, nxd_reduce_t reduce,
                                      nxd_work_t** out_work) {
  return start(group, Call::reduce_scatter(send, receive, count, dtype, reduce), out_work);
}

nxd_status_t nxd_broadcast_async(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                                 int32_t root, nxd_work_t** out_work) {
  return start(group, Call::broadcast(buffer, count, dtype, root), out_work);
}

nxd_status_t nxd_all_to_all_async(nxd_group_t* group, const void* send, void* receive, size_t count,
                                  nxd_dtype_t dtype, nxd_work_t** out_work) {
  return start(group, Call::all_to_all(send, receive, count, dtype), out_work);
}

nxd_status_t nxd_send_async(nxd_group_t* group, const void* buffer, size_t count, nxd_dtype_t dtype,
                            int32_t to, int32_t tag, nxd_work_t** out_work) {
  return start(group, Call::send_to(buffer, count, dtype, to, tag), out_work);
}

nxd_status_t nxd_receive_async(nxd_group_t* group, void* buffer, size_t count, nxd_dtype_t dtype,
                               int32_t from, int32_t tag, nxd_work_t** out_work) {
  return start(group, Call::receive_from(buffer, count, dtype, from, tag), out_work);
}

nxd_status_t nxd_barrier_async(nxd_group_t* group, nxd_work_t** out_work) {
  return start(group, Call::barrier(), out_work);
}

nxd_status_t nxd_group_reject(nxd_group_t* group, const char* operation, int32_t peer, int32_t tag,
                              const char* reason) {
  return guard([&] {
    unwrap(group).reject(rejected_call(operation, peer, tag), or_none(reason));
    fail(NXD_ERROR_INTERNAL, "a call that was rejected has succeeded");
  });
}

nxd_status_t nxd_group_reject_async(nxd_group_t* group, const char* operation, int32_t peer,
                                    int32_t tag, const char* reason, nxd_work_t** out_work) {
  return guard([&] {
    if (out_work) *out_work = nullptr;
    const Call call = rejected_call(operation, peer, tag);
    auto handle = std::make_unique<nxd_work>();
    handle->value = unwrap(group).start(call.rejected_for(or_none(reason)));
    auto& out = output(out_work, "out_work");
    out = handle.release();
  });
}

nxd_status_t nxd_work_test(nxd_work_t* work, int32_t* out_done) {
  return guard([&] {
    auto& out = output(out_done, "out_done");
    out = unwrap(work).is_done() ? 1 : 0;
  });
}

nxd_status_t nxd_work_wait(nxd_work_t* work, int64_t timeout_ms) {
  return guard([&] { unwrap(work).wait(timeout_ms); });
}

nxd_status_t nxd_work_set_callback(nxd_work_t* work, nxd_work_callback_t callback,
                                   void* user_data) {
  return guard([&] {
    check_argument(callback, "callback: expected a function, got NULL");
    const auto kept = shared(work);
    kept->set_callback([callback, user_data, signals = CallbackSignals()](nxd_status_t status) {
      const ProgramsCallback programs(signals);
      const CallersFloatEnvironment environment;
      callback(user_data, status);
    });
  });
}

nxd_status_t nxd_work_get_descriptor(nxd_work_t* work, int32_t* out_descriptor) {
  return guard([&] {
    auto& out = output(out_descriptor, "out_descriptor");
    out = unwrap(work).descriptor();
  });
}

nxd_status_t nxd_work_cancel(nxd_work_t* work) {
  return guard([&] { shared(work)->cancel(); });
}

nxd_status_t nxd_work_get_error_info(nxd_work_t* work, nxd_error_info_t* out_info) {
  return guard([&] {
    output_error_info(out_info, [&](auto& info) { unwrap(work).fill_error_info(info); });
  });
}

void nxd_work_destroy(nxd_work_t* work) {
  const Uncancelled whole_call;
  if (work) work->value->release();
  delete work;
}
