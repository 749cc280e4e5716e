#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// Shared by the custom calls of one execution: the object of the rank that runs it, and the first
// error that one of them threw. XLA makes a text of that error, for this execution and for those
// that read its results, which find the error itself here.
class CustomCallScope {
 public:
  explicit CustomCallScope(void* rank_data) : rank_data_(rank_data) {}

  void* rank_data() const { return rank_data_; }
  void keep(const Error& error);
  // The execution reads a result of another.
  void add_source(std::shared_ptr<const CustomCallScope> source);
  // The execution has ended: sources matter no longer, but for an error of theirs.
  void end();
  // The first error of this scope or of its sources.
  std::optional<Error> error() const;

 private:
  void* rank_data_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::vector<std::shared_ptr<const CustomCallScope>> sources_;
};

}  // namespace nxd
