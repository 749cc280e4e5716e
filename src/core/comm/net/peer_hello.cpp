#include "core/comm/net/peer_hello.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

// In the place of the proof.
const char* const kOpen = "open";

Proof prove_listener(const Key& key, std::string_view hello, const Nonce& nonce) {
  return prove(key, "listening rank", {hello, view_of(nonce)});
}

}  // namespace

bool PeerHello::is_well_formed() const {
  return std::memcmp(magic, PeerHello().magic, sizeof magic) == 0 && purpose_size <= kPurposeLimit;
}

std::string PeerAddress::encode() const {
  return text(host, " ", port, " ", token, " ", has_secret() ? proof : kOpen);
}

std::optional<PeerAddress> PeerAddress::decode(const std::string& text) {
  PeerAddress out;
  std::string proof, more;
  TextReader in(text);
  in >> out.host >> out.port >> out.token >> proof;
  check_stream(in);
  if (!in || in >> more || out.token.empty()) return std::nullopt;
  if (proof == kOpen) return out;
  if (proof.size() != 2 * sizeof(Proof)) return std::nullopt;
  out.proof = std::move(proof);
  return out;
}

std::string PeerAddress::expected_proof(const Secret& secret, int rank) const {
  const Key key = secret.key("addresses of ranks");
  return hex_of(prove(key, "rank " + std::to_string(rank), {host, port, token}));
}

bool PeerAddress::is_proved_by(const Secret& secret, int rank) const {
  return is_same(proof, expected_proof(secret, rank));
}

std::string PeerAddress::make_token() { return Secret::random().text().substr(0, 32); }

Key peer_key(const std::optional<Secret>& secret, const std::string& token) {
  return (secret ? *secret : Secret(token)).key("rank " + token);
}

PeerAnswer answer_to(const Key& key, std::string_view hello) {
  PeerAnswer answer;
  answer.nonce = make_nonce();
  answer.proof = prove_listener(key, hello, answer.nonce);
  return answer;
}

std::optional<Proof> check_answer(const Key& key, std::string_view hello,
                                  const PeerAnswer& answer) {
  if (!is_same(answer.proof, prove_listener(key, hello, answer.nonce))) return std::nullopt;
  return expected_of_caller(key, hello, answer);
}

Proof expected_of_caller(const Key& key, std::string_view hello, const PeerAnswer& answer) {
  return prove(key, "connecting rank", {hello, view_of(answer.nonce)});
}

}  // namespace nxd
