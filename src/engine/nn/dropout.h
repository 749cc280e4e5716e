#pragma once

#include "engine/nn/mappings.h"
#include "engine/nn/module.h"

namespace nxd {

// Dropout whose bits depend on (seed, site, global index, step, microbatch) only: nothing is kept
// for the backward but the mask, and no layout changes it.
class Dropout : public Module {
 public:
  // shard_dim: dimension of the input that is split over the tensor-parallel ranks; -1: none.
  Dropout(std::shared_ptr<Context> context, double p, const std::string& site, int shard_dim);

  void set_site(const std::string& path) override { site_ = path; }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  double p_;
  std::string site_;
  int shard_dim_;
};

}  // namespace nxd
