#pragma once

#include <cstdint>
#include <vector>

#include "nxd.h"

// Frequencies of the rotary position embedding (Su et al. 2021) and the ways of stretching them to
// longer sequences, as Hugging Face's configurations name them. Pure.
namespace nxd {

struct RopeOptions {
  nxd_rope_t type = NXD_ROPE_DEFAULT;
  int64_t rotary_dim = 0;  // leading features that turn; 0: the whole head
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         // YARN: its ramp begins and ends at whole features
  double attention_factor = 0;  // 0: 0.1 ln(factor) + 1
  int64_t original_max_position_embeddings = 0;
};

struct RopeTable {
  std::vector<double> inverse_frequencies;  // rotary_dim / 2 radians per position, descending
  double attention_scaling = 1;             // factor on cosines and sines
};

// sequence_length is that of the input; only DYNAMIC reads it. INVALID_ARGUMENT for an option out
// of range.
RopeTable rope_frequencies(const RopeOptions& options, int64_t head_dim, int64_t sequence_length);

// Cosines and sines of positions first, first + 1, ..., as rows of rotary_dim / 2 values, with the
// attention scaling applied. Computed in f64 and rounded once.
struct CosSin {
  std::vector<double> cos, sin;
  int64_t positions = 0, width = 0;
};
CosSin cos_sin(const RopeTable& table, int64_t first, int64_t positions);

}  // namespace nxd
