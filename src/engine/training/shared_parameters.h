#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "engine/graph/stage_executor.h"

namespace nxd {

// Parameters that a traced model uses in several places, such as tied embeddings. Each place has a
// leaf of its own. A gradient is the sum over places of sums over microbatches, so its bits do not
// depend on the cuts. Ranks that have such a parameter
// hold copies of it, of which the first stage's rank owns the value.
class SharedParameters {
 public:
  // pipeline: the ranks of the stages.
  SharedParameters(std::shared_ptr<Context> context, const ProcessGroup& pipeline,
                   std::shared_ptr<const Graph> graph, const Partition& partition,
                   const PipelineShape& shape);

  // Leaves for the places in a stage of this rank.
  std::vector<ParameterUse> uses(int stage) const;
  // The one of several ranks whose copy counts in norms and gives the value.
  bool is_owner(const Parameter& parameter) const;

  // Takes the owners' values. Collective over the ranks that share.
  void synchronize();
  // Lets every leaf see its parameter's value, which an optimizer or a load may have put elsewhere.
  void begin_run();
  // After a backward pass of a stage of this rank: adds the leaves' gradients up in F32 where that
  // is how the parameter's is kept.
  void add_up(int stage);
  // Adds what the leaves have got to the parameters' gradients. Collective over the ranks that
  // share. Without valid tokens there are none, and the parameters' gradients stay as they are.
  void end_run(bool has_valid_tokens);
  // In place of it, after a run that failed on this rank: forgets what the leaves have got, and
  // lets the ranks that share hear of it.
  void reject_end(const char* reason) noexcept;

 private:
  struct Place {
    int stage, node;
    at::Tensor leaf;
    at::Tensor wide;  // the sum of its gradients, where it is in F32
  };
  struct Shared {
    std::shared_ptr<Parameter> parameter;
    std::vector<Place> places;            // on this rank, in the order of the graph
    std::shared_ptr<ProcessGroup> group;  // null: nobody else has it
    bool owner = true;
  };

  void add(const ProcessGroup& pipeline, const std::shared_ptr<Parameter>& parameter,
           const std::vector<int>& nodes, const std::vector<int>& stage_of,
           const PipelineShape& shape);
  static at::Tensor sum(const Shared& shared);
  static void finish(const Shared& shared, bool has_valid_tokens);
  void drop() noexcept;

  std::shared_ptr<Context> context_;
  std::vector<Shared> shared_;
};

}  // namespace nxd
