// Networks by hand, in f64, for tests of pipelines: cut into any number of stages, they compute the
// same bits.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "nxd.h"
#include "support/buffer_model.h"
#include "support/handles.h"

namespace nxd_test {

using Pp = std::unique_ptr<nxd_pp_t, Destroyer<nxd_pp_destroy>>;
using PpSchedule = std::unique_ptr<nxd_pp_schedule_t, Destroyer<nxd_pp_schedule_destroy>>;

// A rank's stages, as callbacks see them.
class StageCode {
 public:
  virtual ~StageCode() = default;
  virtual nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* out,
                               double* loss) = 0;
  // grad_in: null when only the parameters' gradients are asked for.
  virtual nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const* in,
                                DLTensor* const* grad_out, DLTensor* const* grad_in,
                                bool weights) = 0;

  nxd_pp_stage_callbacks_t callbacks(bool splits) {
    nxd_pp_stage_callbacks_t c{};
    c.struct_size = sizeof c;
    c.user_data = this;
    c.forward = [](const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* out,
                   double* loss, void* self) {
      return static_cast<StageCode*>(self)->forward(*call, in, out, loss);
    };
    c.backward = [](const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* grad_out,
                    DLTensor* const* grad_in, void* self) {
      return static_cast<StageCode*>(self)->backward(*call, in, grad_out, grad_in, true);
    };
    if (!splits) return c;
    c.backward_input = [](const nxd_pp_call_t* call, DLTensor* const* in, DLTensor* const* grad_out,
                          DLTensor* const* grad_in, void* self) {
      return static_cast<StageCode*>(self)->backward(*call, in, grad_out, grad_in, false);
    };
    c.backward_weight = [](const nxd_pp_call_t* call, DLTensor* const* in,
                           DLTensor* const* grad_out, void* self) {
      return static_cast<StageCode*>(self)->backward(*call, in, grad_out, nullptr, true);
    };
    return c;
  }
};

// How many stages there are, and which of a network's layers one has.
struct Cut {
  int ranks = 1, chunks = 1, microbatches = 1;
  int stages() const { return ranks * chunks; }
  int first(int stage, int layers) const { return stage * layers / stages(); }
};

// The values at the boundaries of a rank's stages, as nxd_pp_create_callbacks takes them.
// values_before(layer) gives those that a layer takes.
struct Boundaries {
  std::vector<nxd_pp_value_t> inputs, outputs;
  std::vector<size_t> n_inputs, n_outputs;

  template <class ValuesBefore>
  Boundaries(const Cut& cut, int rank, int layers, const ValuesBefore& values_before) {
    for (int chunk = 0; chunk < cut.chunks; ++chunk) {
      const int stage = chunk * cut.ranks + rank;
      const auto add = [&](int at, std::vector<nxd_pp_value_t>& to, std::vector<size_t>& counts) {
        const std::vector<nxd_pp_value_t> values =
            at == 0 || at == layers ? std::vector<nxd_pp_value_t>() : values_before(at);
        to.insert(to.end(), values.begin(), values.end());
        counts.push_back(values.size());
      };
      add(cut.first(stage, layers), inputs, n_inputs);
      add(cut.first(stage + 1, layers), outputs, n_outputs);
    }
  }

  nxd_status_t create(nxd_context_t* ctx, const nxd_pp_callbacks_options_t& options,
                      const nxd_pp_stage_callbacks_t& callbacks, Pp& out) const {
    nxd_pp_t* pp = nullptr;
    const nxd_status_t status =
        nxd_pp_create_callbacks(ctx, &options, inputs.data(), n_inputs.data(), outputs.data(),
                                n_outputs.data(), &callbacks, &pp);
    out.reset(pp);
    return status;
  }
};

inline nxd_status_t make_parallel(nxd_context_t* ctx, int pipeline) {
  nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
  options.pipeline_parallel_size = pipeline;
  return nxd_init_model_parallel(ctx, &options);
}

// Eight layers. Layer 3 adds rows of a table by integers that travel with the values, layer 5 has
// no parameters, and what layer 1 gives is added again before layer 6. A boundary has two to four
// values: of floats, of integers, and without elements.
class SkipNet : public StageCode {
 public:
  static constexpr int kLayers = 8, kRows = 3, kWidth = 5, kKinds = 4;
  static constexpr int kCount = kRows * kWidth, kWeights = kWidth * kWidth;
  static constexpr size_t kParameters = static_cast<size_t>(kLayers * kWeights + kKinds * kWidth);

  explicit SkipNet(const Cut& cut) : grads(kParameters), cut_(cut) {
    for (size_t i = 0; i < kParameters; ++i) params[i] = 0.6 * wave(static_cast<int64_t>(i), 3);
  }

  static std::vector<nxd_pp_value_t> values_before(int layer) {
    static const std::array<int64_t, 2> kShape{kRows, kWidth}, kEmpty{0, 3};
    static const std::array<int64_t, 1> kIds{kRows};
    std::vector<nxd_pp_value_t> values{{"h", kShape.data(), 2, NXD_DTYPE_F64, 1, 0}};
    if (has_skip(layer)) values.push_back({"skip", kShape.data(), 2, NXD_DTYPE_F64, 1, 0});
    values.push_back({"ids", kIds.data(), 1, NXD_DTYPE_I64, 0, 0});
    if (layer % 2 == 0) values.push_back({"nothing", kEmpty.data(), 2, NXD_DTYPE_F32, 1, 0});
    return values;
  }

  nxd_status_t forward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* out,
                       double* loss) override {
    const int end = cut_.first(call.stage + 1, kLayers);
    const State last = run(call, in).back();
    if (end == kLayers) {
      *loss = loss_of(last, nullptr);
      return NXD_OK;
    }
    int i = 0;
    std::memcpy(out[i++]->data, last.h.data(), sizeof last.h);
    if (has_skip(end)) std::memcpy(out[i++]->data, last.skip.data(), sizeof last.skip);
    std::memcpy(out[i]->data, last.ids.data(), sizeof last.ids);
    return NXD_OK;
  }

  nxd_status_t backward(const nxd_pp_call_t& call, DLTensor* const* in, DLTensor* const* grad_out,
                        DLTensor* const* grad_in, bool weights) override {
    const int begin = cut_.first(call.stage, kLayers), end = cut_.first(call.stage + 1, kLayers);
    const std::vector<State> states = run(call, in);
    Row dh{}, dskip{};
    if (end == kLayers) {
      static_cast<void>(loss_of(states.back(), &dh));
      for (double& d : dh) d *= call.loss_weight;
    } else {
      std::memcpy(dh.data(), grad_out[0]->data, sizeof dh);
      if (has_skip(end)) std::memcpy(dskip.data(), grad_out[1]->data, sizeof dskip);
    }
    for (int layer = end - 1; layer >= begin; --layer) {
      const auto at = static_cast<size_t>(layer - begin);
      back(layer, states[at], states[at + 1], dh, dskip, weights);
    }
    if (weights) note(call);
    if (!grad_in || begin == 0) return NXD_OK;
    std::memcpy(grad_in[0]->data, dh.data(), sizeof dh);
    if (has_skip(begin)) std::memcpy(grad_in[1]->data, dskip.data(), sizeof dskip);
    return NXD_OK;
  }

  // In each of so many runs every chunk added all microbatches, and knew the last of them.
  bool knew_the_last(int runs) const {
    for (size_t chunk = 0; chunk < static_cast<size_t>(cut_.chunks); ++chunk) {
      if (told_[chunk] != runs || added_[chunk] != runs * cut_.microbatches) return false;
    }
    return !told_early_;
  }

  std::array<double, kParameters> params{};
  std::vector<double> grads;

 private:
  using Row = std::array<double, kCount>;
  struct State {
    Row h{}, skip{};
    std::array<int64_t, kRows> ids{};
  };

  static bool has_skip(int layer) { return layer >= 2 && layer <= 6; }
  static size_t at_weight(int layer) { return static_cast<size_t>(layer * kWeights); }

  // The states before each of a stage's layers, and after the last.
  std::vector<State> run(const nxd_pp_call_t& call, DLTensor* const* in) const {
    const int begin = cut_.first(call.stage, kLayers), end = cut_.first(call.stage + 1, kLayers);
    std::vector<State> states(1);
    State& s = states[0];
    if (begin == 0) {
      for (size_t i = 0; i < s.h.size(); ++i) {
        s.h[i] = wave(static_cast<int64_t>(i) + 31 * call.microbatch, 1);
      }
      for (int r = 0; r < kRows; ++r) {
        s.ids[static_cast<size_t>(r)] = (call.microbatch + 2 * r) % kKinds;
      }
    } else {
      int i = 0;
      std::memcpy(s.h.data(), in[i++]->data, sizeof s.h);
      if (has_skip(begin)) std::memcpy(s.skip.data(), in[i++]->data, sizeof s.skip);
      std::memcpy(s.ids.data(), in[i]->data, sizeof s.ids);
    }
    for (int layer = begin; layer < end; ++layer) states.push_back(step(layer, states.back()));
    return states;
  }

  // The row that a layer's weights are applied to.
  Row operand(int layer, const State& in) const {
    Row u = in.h;
    for (size_t i = 0; i < u.size(); ++i) {
      const auto id = static_cast<size_t>(in.ids[i / kWidth]);
      if (layer == 3) u[i] += params[at_weight(kLayers) + id * kWidth + i % kWidth];
      if (layer == 6) u[i] += in.skip[i];
    }
    return u;
  }

  State step(int layer, const State& in) const {
    State out = in;
    const Row u = operand(layer, in);
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t o = 0; o < kWidth; ++o) {
        double z = 0;
        for (size_t i = 0; i < kWidth; ++i) {
          z += params[at_weight(layer) + o * kWidth + i] * u[r * kWidth + i];
        }
        out.h[r * kWidth + o] = layer == 5 ? u[r * kWidth + o] * u[r * kWidth + o] : std::tanh(z);
      }
    }
    if (layer == 1) out.skip = out.h;
    return out;
  }

  void back(int layer, const State& in, const State& out, Row& dh, Row& dskip, bool weights) {
    const Row u = operand(layer, in);
    Row du{};
    if (layer == 1) {
      for (size_t i = 0; i < dh.size(); ++i) dh[i] += dskip[i];
    }
    for (size_t i = 0; layer == 5 && i < dh.size(); ++i) du[i] = 2 * u[i] * dh[i];
    for (size_t r = 0; layer != 5 && r < kRows; ++r) {
      for (size_t o = 0; o < kWidth; ++o) {
        const double y = out.h[r * kWidth + o], dz = dh[r * kWidth + o] * (1 - y * y);
        for (size_t i = 0; i < kWidth; ++i) {
          const size_t w = at_weight(layer) + o * kWidth + i;
          du[r * kWidth + i] += params[w] * dz;
          if (weights) grads[w] += dz * u[r * kWidth + i];
        }
      }
    }
    if (layer == 6) dskip = du;
    for (size_t i = 0; layer == 3 && weights && i < du.size(); ++i) {
      const auto id = static_cast<size_t>(in.ids[i / kWidth]);
      grads[at_weight(kLayers) + id * kWidth + i % kWidth] += du[i];
    }
    dh = du;
  }

  static double loss_of(const State& last, Row* gradient) {
    double sum = 0;
    for (size_t i = 0; i < last.h.size(); ++i) {
      const double error = last.h[i] - 0.1 * static_cast<double>(last.ids[i / kWidth]);
      sum += error * error;
      if (gradient) (*gradient)[i] = 2 * error / kCount;
    }
    return sum / kCount;
  }

  void note(const nxd_pp_call_t& call) {
    const auto chunk = static_cast<size_t>(call.chunk);
    ++added_[chunk];
    told_[chunk] += call.last;
    if (call.last && added_[chunk] % cut_.microbatches != 0) told_early_ = true;
  }

  const Cut cut_;
  std::array<int, 8> added_{}, told_{};
  bool told_early_ = false;
};

}  // namespace nxd_test
