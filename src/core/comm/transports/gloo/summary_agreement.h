#pragma once

#include <string>
#include <vector>

#include "core/comm/transports/gloo/call_summary.h"
#include "core/comm/transports/gloo/gloo_link.h"

namespace nxd {

// The agreement of many ranks. As Agreement, by dissemination in ceil(log2 n) rounds (Hensgen,
// Finkel and Manber, Two algorithms for barrier synchronization, 1988). But each rank sends the
// result of the headers and not the headers: a bounded number of bytes a round for any number of
// ranks. So a rank learns of the others only which one disagrees, and no data travel along.
class SummaryAgreement {
 public:
  explicit SummaryAgreement(GlooLink& link) : link_(link) {}

  // Nothing when all headers agree and no rank has a rejection.
  std::optional<Rejection> exchange(const CallHeader& header, const std::optional<Rejection>& own);

 private:
  struct Round {
    int to, from;
    bool posted = false;
    CallSummary in, out;
    GlooLink::Buffer in_buffer, out_buffer;
  };

  void prepare();

  GlooLink& link_;
  std::vector<Round> rounds_;  // the buffers point into it
};

}  // namespace nxd
