#include "core/comm/collective_call.h"

#include <cstring>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/comm/reduction.h"

namespace nxd {
namespace {

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
}

bool is_reducible(nxd_dtype_t dtype) {
  return dtype_is_float(dtype) || dtype == NXD_DTYPE_I32 || dtype == NXD_DTYPE_I64;
}

std::string reduce_refusal(const CollectiveCall& call) {
  if (!is_reducible(call.dtype)) {
    return text("dtype: expected f32, f64, bf16, f16, i32 or i64, got ", dtype_name(call.dtype));
  }
  if (call.reduce < NXD_REDUCE_SUM || call.reduce > NXD_REDUCE_PROD) {
    return text("reduce: expected an NXD_REDUCE_*, got ", call.reduce);
  }
  if (call.reduce == NXD_REDUCE_AVG && !dtype_is_float(call.dtype)) {
    return text("reduce: expected floats for NXD_REDUCE_AVG, got ", dtype_name(call.dtype));
  }
  return "";
}

}  // namespace

std::string CollectiveCall::refusal(int size) const {
  if (operation == Operation::kBarrier) return "";
  if (!is_dtype(dtype)) {
    return text("dtype: expected an NXD_DTYPE_*, got ", dtype);
  }
  if (reduces(operation)) {
    if (const std::string reason = reduce_refusal(*this); !reason.empty()) return reason;
  }
  if (count > kBufferLimit / dtype_size(dtype) / static_cast<size_t>(size)) {
    return text("count: ", count, " elements of each of ", size, " ranks do not fit in memory");
  }
  if (operation == Operation::kBroadcast && (root < 0 || root >= size)) {
    return text("root: expected a rank of the group, 0 to ", size - 1, ", got ", root);
  }
  if (count == 0) return "";
  if (operation != Operation::kBroadcast && !send) return "send: expected a pointer, got NULL";
  if (!recv) {
    return text(operation == Operation::kBroadcast ? "buffer" : "recv",
                ": expected a pointer, got NULL");
  }
  if (operation == Operation::kAllToAll && send == recv) {
    return "recv: expected a buffer apart from send, got the same";
  }
  return "";
}

size_t CollectiveCall::bytes(size_t times) const {
  if (!is_dtype(dtype)) return 0;
  return count * times * dtype_size(dtype);
}

CallHeader CollectiveCall::header(uint64_t sequence) const {
  CallHeader header;
  header.sequence = sequence;
  header.operation = operation;
  header.count = count;
  header.dtype = static_cast<int8_t>(dtype);
  header.reduce = static_cast<int8_t>(reduces(operation) ? reduce : NXD_REDUCE_INVALID);
  header.root = root;
  return header;
}

std::string message_refusal(const void* buffer, size_t count, nxd_dtype_t dtype) {
  if (!is_dtype(dtype)) {
    return text("dtype: expected an NXD_DTYPE_*, got ", dtype);
  }
  if (count > kBufferLimit / dtype_size(dtype)) {
    return text("count: ", count, " elements do not fit in memory");
  }
  return count > 0 && !buffer ? "buffer: expected a pointer, got NULL" : "";
}

void check_peer(const GroupMonitor& monitor, const char* argument, int peer, int rank, int size,
                int tag) {
  if (peer < 0 || peer >= size || peer == rank) {
    throw monitor.error(
        NXD_ERROR_INVALID_ARGUMENT, monitor.world_rank(),
        text(argument, ": expected another rank of the group, 0 to ", size - 1, ", got ", peer));
  }
  if (tag < 0 || tag > kTagLimit) {
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, monitor.world_rank(),
                        text("tag: expected 0 to ", kTagLimit, ", got ", tag));
  }
}

void run_alone(const CollectiveCall& call) {
  const bool copies = call.operation != Operation::kBarrier &&
                      call.operation != Operation::kBroadcast && call.send != call.recv;
  if (copies && call.count > 0) {
    std::memmove(call.recv, call.send, call.count * dtype_size(call.dtype));
  }
}

}  // namespace nxd
