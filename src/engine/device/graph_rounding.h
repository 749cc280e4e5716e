#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/philox.h"
#include "engine/device/recorded_node.h"

namespace nxd {

// Stochastic rounding to bf16 in the replay of one graph (NEURON_RT_STOCHASTIC_ROUNDING_EN). Every
// operator is computed in f32, and its results are rounded. The bits follow from the seed, the
// graph's number among those of its thread, the place of the result among those that are rounded,
// and the place of the element: ranks that replay equal graphs round copies alike.
class GraphRounding {
 public:
  // Numbers for the graphs of a thread. A graph that its rank alone has, such as one of a value for
  // a log, has no collective: those with effects are counted, and others from the last of them on.
  class Numbers {
   public:
    void count(bool has_effects) {
      effects_ += has_effects ? 1 : 0;
      others_ = has_effects ? 0 : others_ + 1;
    }

   private:
    friend class GraphRounding;
    int64_t effects_ = 0;
    int64_t others_ = 0;
  };

  // The seed that the environment says; none where it does not ask for such rounding.
  static std::optional<uint64_t> seed_of_environment();

  GraphRounding(uint64_t seed, const Numbers& graph);

  // False for one that gives nothing in bf16, and for views, random bits, values without inputs,
  // and functions of the library's own.
  static bool rounds(const RecordedNode& node);
  std::vector<at::Tensor> run(const RecordedNode& node, const std::vector<at::Tensor>& inputs);

 private:
  at::Tensor rounded(const at::Tensor& exact);

  const RandomSite site_;
  const int64_t graph_;
  int64_t next_ = 0;
};

}  // namespace nxd
