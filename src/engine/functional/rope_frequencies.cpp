#include "engine/functional/rope_frequencies.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace nxd {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

// The options with every default in place, checked.
struct Resolved {
  nxd_rope_t type;
  int64_t dim;
  double theta, factor, low, high, fast, slow, attention_factor, original;
};

double or_default(double value, double fallback, const char* name) {
  check_argument(std::isfinite(value) && value >= 0, name, ": expected a positive number, got ",
                 value);
  return value == 0 ? fallback : value;
}

Resolved resolve(const nxd_rope_options_t& options, int64_t head_dim) {
  check_argument(options.type >= NXD_ROPE_DEFAULT && options.type <= NXD_ROPE_LLAMA3,
                 "rope.type: expected an NXD_ROPE_*, got ", options.type);
  const int64_t dim = options.rotary_dim == 0 ? head_dim : options.rotary_dim;
  check_argument(dim > 0 && dim % 2 == 0 && dim <= head_dim,
                 "rope.rotary_dim: expected an even number of 2 to ", head_dim,
                 " (the head's features), got ", dim);
  Resolved r{};
  r.type = options.type;
  r.dim = dim;
  r.theta = or_default(options.theta, 10000, "rope.theta");
  r.factor = or_default(options.factor, 1, "rope.factor");
  r.low = or_default(options.low_freq_factor, 1, "rope.low_freq_factor");
  r.high = or_default(options.high_freq_factor, 4, "rope.high_freq_factor");
  r.fast = or_default(options.beta_fast, 32, "rope.beta_fast");
  r.slow = or_default(options.beta_slow, 1, "rope.beta_slow");
  const double paper = r.factor > 1 ? 0.1 * std::log(r.factor) + 1 : 1;
  r.attention_factor = or_default(options.attention_factor, paper, "rope.attention_factor");
  const bool needs_original =
      r.type == NXD_ROPE_DYNAMIC || r.type == NXD_ROPE_YARN || r.type == NXD_ROPE_LLAMA3;
  check_argument(!needs_original || options.original_max_position_embeddings > 0,
                 "rope.original_max_position_embeddings: expected a positive number for this type, "
                 "got ",
                 options.original_max_position_embeddings);
  r.original = static_cast<double>(options.original_max_position_embeddings);
  check_argument(r.type != NXD_ROPE_DYNAMIC || dim > 2,
                 "rope.rotary_dim: expected more than 2 features for DYNAMIC, got ", dim);
  check_argument(r.type != NXD_ROPE_YARN || r.theta > 1,
                 "rope.theta: expected more than 1 for YARN, got ", r.theta);
  check_argument(r.type != NXD_ROPE_LLAMA3 || r.high > r.low,
                 "rope.high_freq_factor: expected more than low_freq_factor (", r.low, "), got ",
                 r.high);
  return r;
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
double dynamic_theta(const Resolved& r, int64_t sequence_length) {
  const double length = std::max(static_cast<double>(sequence_length), r.original);
  const double stretch = r.factor * length / r.original - (r.factor - 1);
  const auto dim = static_cast<double>(r.dim);
  return r.theta * std::pow(stretch, dim / (dim - 2));
}

// Peng et al. 2023, "YaRN": features that turn more than beta_fast times over the trained length
// keep their frequency, those that turn less than beta_slow times are interpolated, and a linear
// ramp over the feature's index joins the two.
void blend_yarn(const Resolved& r, std::vector<double>& frequencies) {
  const auto dim = static_cast<double>(r.dim);
  const auto index_of_turns = [&](double turns) {
    return dim * std::log(r.original / (turns * kTwoPi)) / (2 * std::log(r.theta));
  };
  const double begin = std::max(std::floor(index_of_turns(r.fast)), 0.0);
  double end = std::min(std::ceil(index_of_turns(r.slow)), dim - 1);
  if (begin == end) end += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - begin) / (end - begin), 0.0, 1.0);
    frequencies[i] *= ramp / r.factor + (1 - ramp);
  }
}

// Llama 3.1: by wavelength against the trained length; between the two bounds the divided and the
// kept frequency are mixed.
void blend_llama3(const Resolved& r, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = r.original * frequency / kTwoPi;
    const double keep = std::clamp((turns - r.low) / (r.high - r.low), 0.0, 1.0);
    frequency *= (1 - keep) / r.factor + keep;
  }
}

}  // namespace

RopeTable rope_frequencies(const nxd_rope_options_t& options, int64_t head_dim,
                           int64_t sequence_length) {
  const Resolved r = resolve(options, head_dim);
  RopeTable table;
  const double theta = r.type == NXD_ROPE_DYNAMIC ? dynamic_theta(r, sequence_length) : r.theta;
  table.inverse_frequencies = geometric(theta, r.dim);
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
