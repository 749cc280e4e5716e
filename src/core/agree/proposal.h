#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/agree/outcome.h"

namespace nxd {

// A rank's part in an agreement: named values, and its own error if it has one. All ranks give
// values of the same names in the same order.
class Proposal {
 public:
  // operation: for the errors of ranks that hear of a rejection, or of a difference.
  explicit Proposal(int world_rank, const char* operation = "") {
    own_.rank = world_rank;
    own_.operation = operation;
  }

  // The kind of a value, for the errors of ranks that differ.
  enum class Kind { kNumber, kDtype, kDigest };

  // All ranks must give the same. Not NaN.
  Proposal& same(std::string name, double value, Kind kind = Kind::kNumber);
  Proposal& same_dtype(std::string name, nxd_dtype_t dtype) {
    return same(std::move(name), dtype, Kind::kDtype);
  }
  Proposal& same_digest(std::string name, uint32_t digest) {
    return same(std::move(name), digest, Kind::kDigest);
  }
  // All ranks of this one's part must, of so many parts, such as the stages of a pipeline.
  Proposal& same_within(int part, int parts, const std::string& name, double value,
                        Kind kind = Kind::kNumber);
  // Ranks of one part may give different values, and agree() tells them whether they do.
  Proposal& compare_within(int part, int parts, double value);

  // This rank cannot take part. The first of several reasons counts; "" is none.
  Proposal& reject(nxd_status_t status, const std::string& why);
  // Does what may fail on one rank, unless this one has a reason already.
  Proposal& attempt(const std::function<void()>& work);

  struct Value {
    std::string name;  // "" when it may differ
    double value;
    bool given;  // by this rank's part
    Kind kind;
  };
  const std::vector<Value>& values() const { return values_; }
  const Outcome& own() const { return own_; }

 private:
  std::vector<Value> values_;
  Outcome own_;
};

}  // namespace nxd
