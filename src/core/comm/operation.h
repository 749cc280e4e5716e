#pragma once

#include <cstdint>

namespace nxd {

enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
  kReject  // of a call that has no operation
};
const char* operation_name(Operation operation) noexcept;
// The operation of a name; kReject for null and names that none has.
Operation operation_named(const char* name) noexcept;

constexpr int kTagLimit = 65535;  // of messages

inline bool is_message(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}

}  // namespace nxd
