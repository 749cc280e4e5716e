#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

// All have one width, so that a record of each call copies a name without looking for its end.
inline constexpr size_t kOperationName = 24;
inline constexpr char kOperationNames[][kOperationName] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all",
    "barrier",    "send",       "receive",        "call"};

constexpr const char* operation_name(Operation operation) noexcept {
  return kOperationNames[std::min(static_cast<size_t>(operation),
                                  static_cast<size_t>(Operation::kReject))];
}

// The operation of a name; kReject for null and names that none has.
inline Operation operation_named(const char* name) noexcept {
  for (int i = 0; name && i < static_cast<int>(Operation::kReject); ++i) {
    const auto operation = static_cast<Operation>(i);
    if (std::strcmp(name, operation_name(operation)) == 0) return operation;
  }
  return Operation::kReject;
}

constexpr int kTagLimit = 65535;  // of messages

inline bool is_message(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}

}  // namespace nxd
