#pragma once

#include <optional>

#include "core/base/philox.h"
#include "core/layout/shard_spec.h"
#include "engine/layers/layer_context.h"

namespace nxd {

// Dropout whose bits depend on (seed, site, global index, step, microbatch) only: nothing is kept
// for the backward but the mask, and no layout changes it.
class Dropout : public Module {
 public:
  // shard_dim: dimension of the input that is split over the tensor-parallel ranks; -1: none.
  // transposed: the input's first two dimensions are the other way round than the one that elements
  // are numbered by and shard_dim counts in, as [sequence, batch, ...] is.
  Dropout(const LayerContext& at, double p, int shard_dim, bool transposed = false);

  // A part of the split dimension that is no equal one: of so many indices these.
  void set_share(ShardSpec::Range own, int64_t extent) { share_ = Share{own, extent}; }

  // Factors of this rank's part, of these sizes: 0 or 1 / (1 - p). On the recorded device they are
  // drawn when the graph runs, with the step and microbatch of now.
  at::Tensor factors(at::IntArrayRef sizes, const at::TensorOptions& options) const;
  // Where they are drawn, for kernels that draw them themselves: site_words_of that.
  at::Tensor site_words(const at::TensorOptions& options) const;

  void set_site(const std::string& path) override { site_ = path; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;
  double keep_probability() const { return 1.0 - p_; }
  // True if a forward changes its input at all: not in evaluation. Notes the mode.
  bool drops();

 private:
  ShardSpec shard_of(std::vector<int64_t> part) const;
  // 1 for each element that is kept, else 0.
  at::Tensor kept(at::IntArrayRef sizes, const at::TensorOptions& options) const;
  double scale() const { return 1.0 / keep_probability(); }

  double p_;
  std::string site_;
  int shard_dim_;
  bool transposed_;
  struct Share {
    ShardSpec::Range own;
    int64_t extent;
  };
  std::optional<Share> share_;
};

// The site of a name for the context's step and microbatch.
RandomSite dropout_site_of_now(const Context& context, const std::string& name);

// The key and the draw of a site, i64 [2], as kernels take them.
at::Tensor site_words_of(const RandomSite& site);

// Factors of a whole array of these sizes: 1 / (1 - p) or, with probability p from 0 to 1, 0. On
// the recorded device they are drawn when the graph runs.
at::Tensor dropout_factors(const RandomSite& site, std::vector<int64_t> sizes, double p,
                           const at::TensorOptions& options);

// Adds a dropout of activations as they lie between a model's layers: [batch, sequence, features],
// or with sequence parallelism slices of [sequence, batch, features].
std::shared_ptr<Dropout> add_activation_dropout(Module& parent, const LayerContext& at,
                                                const std::string& name, double p);

}  // namespace nxd
