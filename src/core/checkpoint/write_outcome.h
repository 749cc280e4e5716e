#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace nxd {

// How a file that one rank writes for others came out, as it travels to them.
class WriteOutcome {
 public:
  explicit WriteOutcome(int world_rank) { message_.writer = world_rank; }

  // On the rank that writes. Whatever goes wrong is kept: the peers wait to hear of it.
  void attempt(const std::function<void()>& write) noexcept;
  bool good() const { return message_.status == NXD_OK; }
  // Takes over the outcome of a group's first rank.
  void share(ProcessGroup& group);
  // Fails, on every rank alike, unless the file was written.
  void check() const;

 private:
  void keep(nxd_status_t status, const char* message) noexcept;

  struct Message {
    int32_t status = NXD_OK;
    int32_t writer = 0;
    std::array<char, 504> text{};
  };
  Message message_;
};

}  // namespace nxd
