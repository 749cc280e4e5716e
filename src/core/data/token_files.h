#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/file.h"

namespace nxd {

// Files of token ids, cut into samples. Reading is safe from several threads, and fails where a
// file was cut short since: nothing is mapped, so no SIGBUS can come of it.
class TokenFiles {
 public:
  struct Options {
    nxd_token_format_t format = NXD_TOKEN_FORMAT_DEFAULT;
    int64_t sequence_length = 0;
    // A sample has the token behind its sequence, too.
    bool next_labels = false;
    int64_t vocab_size = 0;  // 0: any id is one
  };
  // INVALID_ARGUMENT for options out of range, IO, CORRUPT.
  TokenFiles(const std::vector<std::string>& paths, const Options& options);

  int64_t samples() const { return first_.back(); }
  // Tokens of a sample.
  int64_t sample_tokens() const {
    return options_.sequence_length + (options_.next_labels ? 1 : 0);
  }
  // Hash of the sizes of all files, in their order.
  uint32_t digest() const;
  // The ids of a sample. CORRUPT for one out of the vocabulary.
  void read(int64_t sample, int64_t* out) const;

 private:
  int64_t samples_of(const InputFile& file) const;
  template <class Id>
  void read_ids(const InputFile& file, int64_t token, int64_t* out) const;

  Options options_;
  int64_t id_bytes_;
  std::vector<InputFile> files_;
  std::vector<int64_t> first_;  // sample of each file; at last their number
};

}  // namespace nxd
