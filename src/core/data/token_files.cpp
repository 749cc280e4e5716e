#include "core/data/token_files.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/base/hash.h"

namespace nxd {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// A sample with all its ids fits in memory, and sums of offsets fit in 64 bits.
constexpr int64_t kLongestSequence = int64_t{1} << 40;

nxd_token_format_t format_of_name(const std::string& path) {
  if (path.ends_with(".txt")) return NXD_TOKEN_FORMAT_BYTES;
  return path.ends_with(".u32") ? NXD_TOKEN_FORMAT_UINT32 : NXD_TOKEN_FORMAT_UINT16;
}

int64_t token_bytes(nxd_token_format_t format) {
  switch (format) {
    case NXD_TOKEN_FORMAT_BYTES: return 1;
    case NXD_TOKEN_FORMAT_UINT16: return 2;
    default: return 4;
  }
}

// All files have one. A file whose name tells of another would be read as ids that it does not
// have, such as pairs of bytes of a text.
nxd_token_format_t token_format(nxd_token_format_t given, const std::vector<std::string>& paths) {
  if (given != NXD_TOKEN_FORMAT_DEFAULT) return given;
  const nxd_token_format_t first = format_of_name(paths.front());
  for (const std::string& path : paths) {
    const nxd_token_format_t format = format_of_name(path);
    check_argument(format == first, "paths: expected names of one format, or options.format, got ",
                   paths.front(), ", ids of ", token_bytes(first), " bytes by its name, and ", path,
                   ", of ", token_bytes(format));
  }
  return first;
}

TokenFiles::Options checked(TokenFiles::Options o, const std::vector<std::string>& paths) {
  check_argument(!paths.empty(), "num_paths: expected at least 1, got 0");
  check_argument(o.format >= NXD_TOKEN_FORMAT_DEFAULT && o.format <= NXD_TOKEN_FORMAT_BYTES,
                 "format: expected an NXD_TOKEN_FORMAT_*, got ", o.format);
  check_argument(o.sequence_length >= 1 && o.sequence_length <= kLongestSequence,
                 "sequence_length: expected 1 to 2^40, got ", o.sequence_length);
  check_argument(o.vocab_size >= 0, "vocab_size: expected at least 0, got ", o.vocab_size);
  o.format = token_format(o.format, paths);
  return o;
}

}  // namespace

TokenFiles::TokenFiles(const std::vector<std::string>& paths, const Options& options)
    : options_(checked(options, paths)), id_bytes_(token_bytes(options_.format)), first_{0} {
  files_.reserve(paths.size());
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    first_.push_back(first_.back() + samples_of(files_.back()));
  }
}

int64_t TokenFiles::samples_of(const InputFile& file) const {
  const auto size = static_cast<int64_t>(file.size());
  if (size % id_bytes_ != 0)
    fail(NXD_ERROR_CORRUPT, file.path(), ": expected ids of ", id_bytes_, " bytes, got ", size,
         " bytes");
  const int64_t tokens = size / id_bytes_;
  if (tokens < sample_tokens())
    fail(NXD_ERROR_CORRUPT, file.path(), ": expected at least one sample of ", sample_tokens(),
         " tokens, got ", tokens);
  return (tokens - sample_tokens()) / options_.sequence_length + 1;
}

uint32_t TokenFiles::digest() const {
  Hash hash;
  for (const InputFile& file : files_) hash.add(file.size());
  return hash.folded();
}

void TokenFiles::read(int64_t sample, int64_t* out) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), sample);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  check_internal(sample >= 0 && file < files_.size(), "no sample ", sample);
  const int64_t token = (sample - first_[file]) * options_.sequence_length;
  switch (id_bytes_) {
    case 1: return read_ids<uint8_t>(files_[file], token, out);
    case 2: return read_ids<uint16_t>(files_[file], token, out);
    default: return read_ids<uint32_t>(files_[file], token, out);
  }
}

template <class Id>
void TokenFiles::read_ids(const InputFile& file, int64_t token, int64_t* out) const {
  const auto count = static_cast<size_t>(sample_tokens());
  std::vector<Id> ids(count);
  file.read(static_cast<uint64_t>(token) * sizeof(Id), ids.data(), count * sizeof(Id));
  const int64_t end =
      options_.vocab_size != 0 ? options_.vocab_size : std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < count; ++i) {
    out[i] = ids[i];
    if (out[i] >= end)
      fail(NXD_ERROR_CORRUPT, file.path(), ": token ", token + static_cast<int64_t>(i),
           ": expected an id below the vocabulary's ", end, ", got ", out[i]);
  }
}

}  // namespace nxd
