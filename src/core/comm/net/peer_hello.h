#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/comm/net/secret.h"

namespace nxd {

// The hello of two ranks before a connection carries a group's messages. The rank that connects
// says hello. The one that listens answers and proves itself, and the first proves itself in turn.
// One byte then says that it is welcome, since a rank that unauthenticated peers flood may close a
// rank's connection before. This has no I/O.
//
// A rank's address in the store comes with a token, random for each. With the job's secret the keys
// are made of both. Without one the token alone is the key: it keeps out processes that cannot
// read the store.
struct PeerHello {
  char magic[8] = {'n', 'x', 'd', 'p', 'e', 'e', 'r', '2'};
  int32_t from = -1, to = -1;  // world ranks
  Nonce nonce{};
  uint32_t purpose_size = 0;  // of what the connection is for, which follows

  bool is_well_formed() const;
};
static_assert(sizeof(PeerHello) == 52);

struct PeerAnswer {
  Nonce nonce{};
  Proof proof{};
};

constexpr size_t kPurposeLimit = 512;

// A rank's address as the others find it in the store. With the job's secret it is proved by it: a
// store may be open to strangers, who could else put a relay of their own between two ranks, with
// the token of the rank behind it.
struct PeerAddress {
  std::string host, port, token;
  std::string proof;  // in hexadecimal digits; "" without a secret

  void prove_by(const Secret& secret, int rank) { proof = expected_proof(secret, rank); }
  bool is_proved_by(const Secret& secret, int rank) const;
  bool has_secret() const { return !proof.empty(); }

  std::string encode() const;
  static std::optional<PeerAddress> decode(const std::string& text);
  static std::string make_token();

 private:
  std::string expected_proof(const Secret& secret, int rank) const;
};

Key peer_key(const std::optional<Secret>& secret, const std::string& token);

// The hello is the whole of it, with the purpose.
PeerAnswer answer_to(const Key& key, std::string_view hello);
// The proof of the connecting rank; nothing when the answer does not prove its end.
std::optional<Proof> check_answer(const Key& key, std::string_view hello, const PeerAnswer& answer);
Proof expected_of_caller(const Key& key, std::string_view hello, const PeerAnswer& answer);

}  // namespace nxd
