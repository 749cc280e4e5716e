#include "core/model/rope_frequencies.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace nxd {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

void check_positive(double value, const char* name) {
  check_argument(std::isfinite(value) && value > 0, name, ": expected a positive number, got ",
                 value);
}

// The options checked, with the defaults that depend on others.
RopeOptions resolve(RopeOptions r, int64_t head_dim) {
  check_argument(r.type >= NXD_ROPE_DEFAULT && r.type <= NXD_ROPE_LLAMA3,
                 "rope.type: expected an NXD_ROPE_*, got ", r.type);
  if (r.rotary_dim == 0) r.rotary_dim = head_dim;
  check_argument(r.rotary_dim > 0 && r.rotary_dim % 2 == 0 && r.rotary_dim <= head_dim,
                 "rope.rotary_dim: expected an even number of 2 to ", head_dim,
                 " (the head's features), got ", r.rotary_dim);
  check_positive(r.theta, "rope.theta");
  check_positive(r.factor, "rope.factor");
  check_positive(r.low_freq_factor, "rope.low_freq_factor");
  check_positive(r.high_freq_factor, "rope.high_freq_factor");
  check_positive(r.beta_fast, "rope.beta_fast");
  check_positive(r.beta_slow, "rope.beta_slow");
  if (r.attention_factor == 0) {
    r.attention_factor = r.factor > 1 ? 0.1 * std::log(r.factor) + 1 : 1;
  }
  check_positive(r.attention_factor, "rope.attention_factor");
  const bool needs_original =
      r.type == NXD_ROPE_DYNAMIC || r.type == NXD_ROPE_YARN || r.type == NXD_ROPE_LLAMA3;
  check_argument(!needs_original || r.original_max_position_embeddings > 0,
                 "rope.original_max_position_embeddings: expected a positive number for this type, "
                 "got ",
                 r.original_max_position_embeddings);
  check_argument(r.type != NXD_ROPE_DYNAMIC || r.rotary_dim > 2,
                 "rope.rotary_dim: expected more than 2 features for DYNAMIC, got ", r.rotary_dim);
  check_argument(r.type != NXD_ROPE_YARN || r.theta > 1,
                 "rope.theta: expected more than 1 for YARN, got ", r.theta);
  check_argument(r.type != NXD_ROPE_LLAMA3 || r.high_freq_factor > r.low_freq_factor,
                 "rope.high_freq_factor: expected more than low_freq_factor (", r.low_freq_factor,
                 "), got ", r.high_freq_factor);
  return r;
}

double original_of(const RopeOptions& r) {
  return static_cast<double>(r.original_max_position_embeddings);
}

std::vector<double> geometric(double theta, int64_t dim) {
  std::vector<double> out(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  }
  return out;
}

// The base grows with the length of the input beyond the trained one ("NTK-aware", by the authors
// of the method's public posts; Peng et al. 2023, appendix).
double dynamic_theta(const RopeOptions& r, int64_t sequence_length) {
  const double length = std::max(static_cast<double>(sequence_length), original_of(r));
  const double stretch = r.factor * length / original_of(r) - (r.factor - 1);
  const auto dim = static_cast<double>(r.rotary_dim);
  return r.theta * std::pow(stretch, dim / (dim - 2));
}

// Peng et al. 2023, "YaRN": features that turn more than beta_fast times over the trained length
// keep their frequency, those that turn less than beta_slow times are interpolated, and a linear
// ramp over the feature's index joins the two.
void blend_yarn(const RopeOptions& r, std::vector<double>& frequencies) {
  const auto dim = static_cast<double>(r.rotary_dim);
  const auto index_of_turns = [&](double turns) {
    return dim * std::log(original_of(r) / (turns * kTwoPi)) / (2 * std::log(r.theta));
  };
  double begin = index_of_turns(r.beta_fast), end = index_of_turns(r.beta_slow);
  if (r.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, dim - 1);
  if (begin == end) end += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - begin) / (end - begin), 0.0, 1.0);
    frequencies[i] *= ramp / r.factor + (1 - ramp);
  }
}

// Llama 3.1: by wavelength against the trained length; between the two bounds the divided and the
// kept frequency are mixed.
void blend_llama3(const RopeOptions& r, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = original_of(r) * frequency / kTwoPi;
    const double keep = std::clamp(
        (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor), 0.0, 1.0);
    frequency *= (1 - keep) / r.factor + keep;
  }
}

}  // namespace

RopeTable rope_frequencies(const RopeOptions& options, int64_t head_dim, int64_t sequence_length) {
  const RopeOptions r = resolve(options, head_dim);
  RopeTable table;
  const double theta = r.type == NXD_ROPE_DYNAMIC ? dynamic_theta(r, sequence_length) : r.theta;
  table.inverse_frequencies = geometric(theta, r.rotary_dim);
  if (r.type == NXD_ROPE_LINEAR) {
    for (double& frequency : table.inverse_frequencies) frequency /= r.factor;
  }
  if (r.type == NXD_ROPE_YARN) {
    blend_yarn(r, table.inverse_frequencies);
    table.attention_scaling = r.attention_factor;
  }
  if (r.type == NXD_ROPE_LLAMA3) blend_llama3(r, table.inverse_frequencies);
  return table;
}

CosSin cos_sin(const RopeTable& table, int64_t first, int64_t positions) {
  check_argument(first >= 0 && positions >= 0,
                 "positions: expected numbers of at least 0, got first ", first, ", count ",
                 positions);
  CosSin out;
  out.positions = positions;
  out.width = static_cast<int64_t>(table.inverse_frequencies.size());
  const size_t size = static_cast<size_t>(positions) * table.inverse_frequencies.size();
  out.cos.reserve(size);
  out.sin.reserve(size);
  for (int64_t p = first; p < first + positions; ++p) {
    for (const double frequency : table.inverse_frequencies) {
      const double angle = static_cast<double>(p) * frequency;
      out.cos.push_back(std::cos(angle) * table.attention_scaling);
      out.sin.push_back(std::sin(angle) * table.attention_scaling);
    }
  }
  return out;
}

}  // namespace nxd
