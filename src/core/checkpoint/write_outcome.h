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
  // On the rank that writes. Whatever goes wrong is kept: the peers wait to hear of it.
  void attempt(const std::function<void()>& write) noexcept;
  // Takes over the outcome of a group's first rank.
  void share(ProcessGroup& group);
  // Fails, on every rank alike, unless the file was written.
  void check(int writer) const;

 private:
  void keep(nxd_status_t status, const char* message) noexcept;

  struct Message {
    int32_t status = NXD_OK;
    std::array<char, 508> text{};
  };
  Message message_;
};

}  // namespace nxd
