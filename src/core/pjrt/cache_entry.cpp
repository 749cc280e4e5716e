#include "core/pjrt/cache_entry.h"

#include <charconv>

#include "core/checkpoint/digest.h"

namespace nxd {
namespace {

// "MAGIC DIGEST STATUS KEY_SIZE CONTENT_SIZE\n", key, content. The digest is of all behind it.
constexpr std::string_view kCacheEntryMagic = "nxd-compiled-1 ";

// A number up to the end character, which is taken off too.
std::optional<int64_t> take_number(std::string_view& bytes, char end) {
  int64_t number = 0;
  const auto result = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
  const auto length = static_cast<size_t>(result.ptr - bytes.data());
  if (result.ec != std::errc() || length == bytes.size() || bytes[length] != end) {
    return std::nullopt;
  }
  bytes.remove_prefix(length + 1);
  return number;
}

}  // namespace

std::string write_cache_entry(const CacheEntry& entry) {
  const std::string rest =
      text(entry.status, ' ', entry.key.size(), ' ', entry.content.size(), '\n', entry.key) +
      entry.content;
  return text(kCacheEntryMagic, Digest().add(rest).hex(), ' ') + rest;
}

std::optional<CacheEntry> read_cache_entry(std::string_view bytes) {
  if (!bytes.starts_with(kCacheEntryMagic)) return std::nullopt;
  bytes.remove_prefix(kCacheEntryMagic.size());
  if (bytes.size() <= kDigestDigits || bytes[kDigestDigits] != ' ') return std::nullopt;
  const std::string_view digest = bytes.substr(0, kDigestDigits);
  bytes.remove_prefix(kDigestDigits + 1);
  if (Digest().add(bytes).hex() != digest) return std::nullopt;

  const auto status = take_number(bytes, ' ');
  const auto key_size = take_number(bytes, ' ');
  const auto content_size = take_number(bytes, '\n');
  if (!status || !key_size || !content_size) return std::nullopt;
  const bool is_status = *status == NXD_OK || (*status >= INT32_MIN && *status <= INT32_MAX &&
                                               is_error(static_cast<nxd_status_t>(*status)));
  const auto size = static_cast<int64_t>(bytes.size());
  if (!is_status || *key_size < 0 || *key_size > size || *content_size != size - *key_size) {
    return std::nullopt;
  }
  const auto split = static_cast<size_t>(*key_size);
  return CacheEntry{std::string(bytes.substr(0, split)), static_cast<nxd_status_t>(*status),
                    std::string(bytes.substr(split))};
}

}  // namespace nxd
