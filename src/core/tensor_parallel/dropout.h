#pragma once

#include <string>

#include "core/agree/proposal.h"
#include "core/base/philox.h"
#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/group_calls.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// The training step and microbatch that bits are drawn for.
struct RandomPosition {
  int64_t step, microbatch;
};

struct DropoutOptions {
  double p = 0;
  std::optional<RandomPosition> position{};  // absent: the context's
  std::optional<int64_t> shard_dim{};        // absent: all ranks have the array
  bool transposed = false;
  CallerWorkspace workspace{};
};

// The bits of a dropout layer of this name; those of the modules of that name are the same.
RandomSite dropout_site(const Context& context, const std::string& name,
                        const std::optional<RandomPosition>& position);

// One call of a dropout, forward or backward: both are out = in times factors that bits give. A
// plan for run_layer().
class DropoutPlan {
 public:
  struct Names {
    const char *in, *out;
  };
  DropoutPlan(const ProcessGroup& group, const RandomSite& site, bool backward, const Array& in,
              const Array& out, const DropoutOptions& options);

  size_t workspace_bytes() const { return scratch_.workspace_bytes(); }
  void allocate() { scratch_.allocate(group_, options_.workspace); }
  static void propose(Proposal& proposal, const DropoutPlan* plan);
  int collectives() const { return 0; }
  void run(GroupCalls& calls) const;

 private:
  void check_memory() const;
  // This rank's part with the dimensions that elements are numbered in, and the one of these that
  // ranks have parts of; -1: none.
  Array::Shape numbered_shape() const;
  int numbered_dim() const;
  // The mask has a place for each element, in the order of their numbers; this is a view of it with
  // the dimensions of the arrays.
  Array mask() const;

  const ProcessGroup& group_;
  RandomSite site_;
  bool backward_;
  Names names_;
  Array in_, out_;
  DropoutOptions options_;
  int shard_dim_;  // -1: none
  Scratch scratch_;
  size_t mask_block_;
};

}  // namespace nxd
