#pragma once

#include <cstddef>
#include <cstdint>

#include "core/comm/net/secret.h"

// Wire protocol of torch's TCPStore (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). A request is
// one byte and its arguments; strings and values are preceded by their size in 64 bits. Numbers go
// in the host's order, so both ends must share it. Connections to torch 2.x start with VALIDATE;
// torch 1.x has no such request and numbers the others differently.
namespace nxd::tcp_store {

constexpr uint32_t kMagic = 0x3C85F7CE;

// Bounds of one request. torch's own server takes values of 8 MiB.
constexpr uint64_t kValueLimit = uint64_t{64} << 20;
constexpr uint64_t kKeyLimit = uint64_t{64} << 10;
constexpr uint64_t kCountLimit = uint64_t{1} << 17;  // keys
constexpr uint64_t kRequestLimit = 2 * kValueLimit + (uint64_t{1} << 20);

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
  kPing = 13,
  // libnxd's own, which torch's servers answer by closing the connection.
  kHello = 'n',
  kProve = 'p',
  kCheckedAdd = 'a',
  kCheckedSet = 's'
};

// The requests our client makes, by protocol.
struct Dialect {
  bool validates;
  uint8_t set, get, add, check;
  bool has_outcomes;  // of set and add
};
constexpr Dialect kOurs{true, kCheckedSet, kGet, kCheckedAdd, kCheck, true};
constexpr Dialect kTorch2{true, kSet, kGet, kAdd, kCheck, false};
constexpr Dialect kTorch1{false, 0, 2, 3, 4, false};

constexpr uint8_t kReady = 0, kNotReady = 1;
constexpr uint8_t kStopWaiting = 0, kWaitCanceled = 1;
// Outcomes of kCheckedSet and kCheckedAdd. A sum follows kDone of the latter, the start of the
// value kNoInteger; and the bytes that all values take, and may take, kNoRoom.
constexpr uint8_t kDone = 0, kNoInteger = 1, kNoRoom = 2;

// Follows the one byte of a hello. With that byte it reads as the size of a key that no server of
// torch 1.x can allocate: it drops the connection and goes on.
struct Hello {
  char magic[7] = {'x', 'd', 's', 't', 'o', 'r', '2'};
  uint8_t has_secret = 0;
  Nonce nonce{};
};

// Answers to a hello. After kChallenge come the server's nonce and its proof; the client sends
// kProve and its own proof, and hears kWelcome.
constexpr uint8_t kOpenStore = 0;    // the store has no secret
constexpr uint8_t kWantsSecret = 1;  // and the client has none
constexpr uint8_t kChallenge = 2;
constexpr uint8_t kWelcome = 3;

struct Challenge {
  Nonce nonce{};
  Proof proof{};
};

// The proof of either end, by the whole hello and the server's nonce.
inline Proof prove_server(const Key& key, const Hello& hello, const Nonce& nonce) {
  return prove(key, "store", {view_of(hello), view_of(nonce)});
}
inline Proof prove_client(const Key& key, const Hello& hello, const Nonce& nonce) {
  return prove(key, "client", {view_of(hello), view_of(nonce)});
}

}  // namespace nxd::tcp_store
