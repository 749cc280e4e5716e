#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "engine/graph/partition.h"

namespace nxd {

// Buffers that stages of several ranks use. Each rank has a copy, so that no module may write to
// them: the copies would part.
class SharedBuffers {
 public:
  // rank: of the pipeline. Buffers that it does not use are none of its own.
  SharedBuffers(const Module& root, const Graph& graph, const Partition& partition,
                const PipelineShape& shape, int rank);

  // Around a run. The latter gives the name of a buffer that was written to, null for none.
  void begin_run();
  std::shared_ptr<const std::string> written() const noexcept;

 private:
  struct Shared {
    std::shared_ptr<const std::string> name;
    std::shared_ptr<Buffer> buffer;
    at::Tensor tensor{}, value{};  // as the run found them
    uint32_t version = 0;
  };
  std::vector<Shared> shared_;
};

}  // namespace nxd
