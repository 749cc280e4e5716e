#pragma once

#include <cstdint>

// Wire protocol of torch's TCPStore (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). A request is
// one byte and its arguments; strings and values are preceded by their size in 64 bits. Numbers go
// in the host's order, so both ends must share it. Connections to torch 2.x start with VALIDATE;
// torch 1.x has no such request and numbers the others differently.
namespace nxd::tcp_store {

constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr uint64_t kSizeLimit = uint64_t{1} << 30;

enum Query : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kGetNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13
};

// The four requests our client makes, by protocol.
struct Dialect {
  bool validates;
  uint8_t set, get, add, check;
};
constexpr Dialect kTorch2{true, kSet, kGet, kAdd, kCheck};
constexpr Dialect kTorch1{false, 0, 2, 3, 4};

constexpr uint8_t kReady = 0, kNotReady = 1;
constexpr uint8_t kStopWaiting = 0, kWaitCanceled = 1;

}  // namespace nxd::tcp_store
