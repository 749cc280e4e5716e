#include "core/comm/net/secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/comm/net/socket.h"

namespace nxd {
namespace {

static_assert(sizeof(Proof) == crypto_auth_hmacsha256_BYTES);

constexpr size_t kShortest = 16, kLongest = 4096;

void prepare() {
  static const bool is_ready = ::sodium_init() >= 0;
  check_internal(is_ready, "libsodium cannot be used");
}

void add(crypto_auth_hmacsha256_state& state, std::string_view bytes) {
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(bytes.data()),
                                bytes.size());
}

// Each part is preceded by its size, so that no two lists of parts are the same bytes.
std::array<unsigned char, 32> hash(std::string_view key,
                                   std::initializer_list<std::string_view> head,
                                   std::initializer_list<std::string_view> tail) {
  prepare();
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()),
                              key.size());
  for (const auto& parts : {head, tail}) {
    for (const std::string_view part : parts) {
      const uint64_t size = part.size();
      add(state, {reinterpret_cast<const char*>(&size), sizeof size});
      add(state, part);
    }
  }
  std::array<unsigned char, 32> out;
  crypto_auth_hmacsha256_final(&state, out.data());
  return out;
}

[[noreturn]] void fail_file(const std::string& path, const std::string& what) {
  fail(NXD_ERROR_INVALID_ARGUMENT, "environment variable NXD_SECRET_FILE: \"", path, "\": ", what);
}

std::string read_secret_file(const std::string& path) {
  // Not blocked by a pipe without a writer.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) fail_file(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_file(path, "expected a file");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail_file(path, "expected a file that only its owner may open (chmod 600)");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    fail_file(path, "expected a file of this user's or of root's");
  }
  std::string content(kLongest + 2, '\0');
  const ssize_t n = ::read(fd.get(), content.data(), content.size());
  if (n < 0) fail_file(path, std::strerror(errno));
  content.resize(static_cast<size_t>(n));
  return content.substr(0, content.find_first_of("\r\n"));
}

}  // namespace

std::optional<Secret> Secret::of_environment() {
  const auto given = env::get("NXD_SECRET");
  const auto path = env::get("NXD_SECRET_FILE");
  if (!given && !path) return std::nullopt;
  check_argument(!given || !path,
                 "environment: NXD_SECRET and NXD_SECRET_FILE are both set; expected one of them");
  std::string text = given ? *given : read_secret_file(*path);
  check_argument(text.size() >= kShortest && text.size() <= kLongest, "environment variable ",
                 given ? "NXD_SECRET" : "NXD_SECRET_FILE", ": expected a secret of ", kShortest,
                 " to ", kLongest, " bytes, such as `openssl rand -hex 32` makes, got one of ",
                 text.size());
  return Secret(std::move(text));
}

Secret Secret::random() { return Secret(hex_of(make_nonce())); }

Key Secret::key(std::string_view purpose) const { return hash(text_, {"key", purpose}, {}); }

std::optional<Key> store_key_of_environment() {
  if (env::open_store()) return std::nullopt;
  const auto secret = Secret::of_environment();
  if (!secret) return std::nullopt;
  return secret->store_key();
}

Nonce make_nonce() {
  prepare();
  Nonce nonce;
  ::randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof prove(const Key& key, std::string_view side,
            std::initializer_list<std::string_view> transcript) {
  return hash(view_of(key), {side}, transcript);
}

bool is_same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hex_of(const Proof& bytes) {
  char hex[2 * sizeof bytes + 1];
  ::sodium_bin2hex(hex, sizeof hex, bytes.data(), bytes.size());
  return hex;
}

}  // namespace nxd
