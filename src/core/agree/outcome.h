#pragma once

#include <exception>
#include <string>

#include "core/base/error.h"
#include "core/comm/process_group.h"

namespace nxd {

// How one rank's part in something came out, as others hear of it.
struct Outcome {
  nxd_status_t status = NXD_OK;
  int rank = -1;  // in the world: whose it is
  std::string reason;
  std::exception_ptr cause;      // on that rank alone
  std::string group, operation;  // over which others heard of it, and what they were about to do

  // Within a handler: that the rank failed with what is being handled.
  static Outcome from_current_exception(int rank) noexcept;
  // Whatever goes wrong is kept.
  template <class Attempt>
  static Outcome of(int rank, Attempt&& attempt) noexcept {
    try {
      attempt();
      Outcome good;
      good.rank = rank;
      return good;
    } catch (...) {
      return from_current_exception(rank);
    }
  }

  bool good() const { return status == NXD_OK; }
  // Fails as the rank did; on other ranks with its name and reason. Nothing when it is good.
  void rethrow() const;
  // Fails on all ranks alike, with words between the rank and its reason.
  void check(const char* words) const;
  // Takes over the outcome of a group's first rank. Collective.
  void share(ProcessGroup& group);
};

}  // namespace nxd
