#include "core/comm/call.h"

#include <cstdint>
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

std::string reduction_rejection(const Call& call) {
  if (!is_reducible(call.dtype)) {
    return text("dtype: expected f32, f64, bf16, f16, i32 or i64, got ", dtype_name(call.dtype));
  }
  if (call.reduce < NXD_REDUCE_SUM || call.reduce > NXD_REDUCE_PROD) {
    return text("reduce: expected an NXD_REDUCE_*, got ", call.reduce);
  }
  if (call.reduce == NXD_REDUCE_AVG && !dtype_is_float(call.dtype)) {
    return text("reduce: expected floats for NXD_REDUCE_AVG, got ", dtype_name(call.dtype));
  }
  return {};
}

std::string message_rejection(const Call& call) {
  if (call.count > kBufferLimit / dtype_size(call.dtype)) {
    return text("count: ", call.count, " elements do not fit in memory");
  }
  const void* buffer = call.operation == Operation::kSend ? call.send : call.recv;
  return call.count > 0 && !buffer ? "buffer: expected a pointer, got NULL" : std::string();
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a), b_begin = reinterpret_cast<uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

// Buffers may share memory where the call is in place. Else one would be written while the peers,
// or this rank, still need what was in it.
std::string overlap_rejection(const Call& call, int rank, int size) {
  const size_t part = call.bytes(), own = static_cast<size_t>(rank) * part;
  const auto parts = static_cast<size_t>(size);
  size_t sent = part, received = part;
  const void *here = call.recv, *in_place = call.send;
  const char* allowed = "send itself";
  switch (call.operation) {
    case Operation::kAllReduce: break;
    case Operation::kAllGather:
      received *= parts;
      here = static_cast<const char*>(call.recv) + own;
      allowed = "one whose own part is send";
      break;
    case Operation::kReduceScatter:
      sent *= parts;
      in_place = static_cast<const char*>(call.send) + own;
      allowed = "send's own part";
      break;
    case Operation::kAllToAll:
      sent = received *= parts;
      in_place = nullptr;
      break;
    default: return {};
  }
  if (here == in_place || !overlap(call.send, sent, call.recv, received)) return {};
  return text("receive: expected a buffer apart from send", in_place ? ", or " : "",
              in_place ? allowed : "", ", got one that overlaps it");
}

std::string collective_rejection(const Call& call, int rank, int size) {
  if (reduces(call.operation)) {
    if (std::string reason = reduction_rejection(call); !reason.empty()) return reason;
  }
  if (call.count > kBufferLimit / dtype_size(call.dtype) / static_cast<size_t>(size)) {
    return text("count: ", call.count, " elements of each of ", size,
                " ranks do not fit in memory");
  }
  const bool broadcasts = call.operation == Operation::kBroadcast;
  if (broadcasts && (call.peer < 0 || call.peer >= size)) {
    return text("root: expected a rank of the group, 0 to ", size - 1, ", got ", call.peer);
  }
  if (call.count == 0) return {};
  if (!broadcasts && !call.send) return "send: expected a pointer, got NULL";
  if (!call.recv) return text(broadcasts ? "buffer" : "receive", ": expected a pointer, got NULL");
  return overlap_rejection(call, rank, size);
}

}  // namespace

std::string Call::rejection(int rank, int size) const {
  if (!rejected.empty()) return rejected;
  if (operation == Operation::kBarrier) return {};
  if (!is_dtype(dtype)) return text("dtype: expected an NXD_DTYPE_*, got ", dtype);
  return is_message() ? message_rejection(*this) : collective_rejection(*this, rank, size);
}

void Call::check_peer(const GroupMonitor& monitor, int rank, int size) const {
  if (peer < 0 || peer >= size || peer == rank) {
    const char* argument = !rejected.empty()               ? "peer"
                           : operation == Operation::kSend ? "to"
                                                           : "from";
    throw monitor.error(
        NXD_ERROR_INVALID_ARGUMENT, monitor.world_rank(),
        text(argument, ": expected another rank of the group, 0 to ", size - 1, ", got ", peer));
  }
  if (tag < 0 || tag > kTagLimit) {
    throw monitor.error(NXD_ERROR_INVALID_ARGUMENT, monitor.world_rank(),
                        text("tag: expected 0 to ", kTagLimit, ", got ", tag));
  }
}

Call Call::rejected_for(const std::string& why) const {
  Call call = *this;
  call.send = call.recv = nullptr;
  call.count = 0;
  call.rejected = is_message() ? why : text(name(), ": ", why);
  return call;
}

size_t Call::bytes(size_t times) const {
  return is_dtype(dtype) ? count * times * dtype_size(dtype) : 0;
}

CallHeader Call::header(uint64_t sequence) const {
  CallHeader header;
  header.sequence = sequence;
  header.operation = operation;
  header.count = count;
  header.dtype = static_cast<int8_t>(dtype);
  header.reduce = static_cast<int8_t>(reduces(operation) ? reduce : NXD_REDUCE_INVALID);
  header.root = operation == Operation::kBroadcast ? peer : -1;
  header.key = key;
  return header;
}

FlightRecord::Operation Call::record() const {
  FlightRecord::Operation record;
  static_assert(sizeof record.name == kOperationName);
  if (label) {
    std::strncpy(record.name, label, sizeof record.name - 1);
  } else {
    std::memcpy(record.name, name(), sizeof record.name);
  }
  record.is_message = is_message();
  record.dtype = dtype;
  record.count = count;
  record.peer = peer;
  return record;
}

void run_alone(const Call& call) {
  const bool copies = call.operation != Operation::kBarrier &&
                      call.operation != Operation::kBroadcast && call.send != call.recv;
  if (copies && call.count > 0) std::memmove(call.recv, call.send, call.bytes());
}

}  // namespace nxd
