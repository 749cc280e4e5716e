#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/module/buffer_watch.h"
#include "engine/training/buffer_places.h"

namespace nxd {

// Buffers that stages of several ranks use. Each rank has a copy, so that no module may write to
// them: the copies would part.
class SharedBuffers {
 public:
  // rank: of the pipeline. Buffers that it does not use are none of its own.
  SharedBuffers(const std::vector<BufferPlace>& places, int rank);

  // Around a run. The latter gives the name of a buffer that was written to, null for none.
  void begin_run();
  std::shared_ptr<const std::string> written() const noexcept;

 private:
  struct Shared {
    std::shared_ptr<const std::string> name;
    std::shared_ptr<Buffer> buffer;
    std::optional<BufferWatch> found{};  // by the run
  };
  std::vector<Shared> shared_;
};

}  // namespace nxd
