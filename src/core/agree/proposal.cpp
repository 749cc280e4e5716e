#include "core/agree/proposal.h"

#include <utility>

namespace nxd {

Proposal& Proposal::same(std::string name, double value, Kind kind) {
  values_.push_back({std::move(name), value, true, kind});
  return *this;
}

Proposal& Proposal::same_within(int part, int parts, const std::string& name, double value,
                                Kind kind) {
  for (int p = 0; p < parts; ++p) values_.push_back({name, value, p == part, kind});
  return *this;
}

Proposal& Proposal::compare_within(int part, int parts, double value) {
  return same_within(part, parts, "", value);
}

Proposal& Proposal::reject(nxd_status_t status, const std::string& why) {
  if (why.empty()) return *this;
  return attempt([&] { fail(status, why); });
}

Proposal& Proposal::attempt(const std::function<void()>& work) {
  if (!own_.good()) return *this;
  Outcome outcome = Outcome::of(own_.rank, work);
  outcome.operation = own_.operation;
  own_ = std::move(outcome);
  return *this;
}

}  // namespace nxd
