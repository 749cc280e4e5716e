#pragma once

#include <string>

#include "core/tensor_parallel/array.h"
#include "core/tensor_parallel/scratch.h"

namespace nxd {

// For messages: the ids of a vocabulary of a size.
std::string id_range(int64_t count);

// Ids or labels of a caller's, i32 or i64, read as consecutive i64.
class IdInput {
 public:
  // INVALID_ARGUMENT for another dtype.
  IdInput(const Array& array, const char* name, Scratch& scratch);

  // INVALID_ARGUMENT for an id outside of 0 ... count - 1, other than the one that is allowed
  // besides. Data that are not there are not looked at.
  void check_range(int64_t count, std::optional<int64_t> besides) const;
  // A digest of all ids, the same on ranks that have the same ids.
  uint32_t digest() const;

  // Makes the copy, if there is one; to be called once.
  const int64_t* read(const Scratch& scratch) const;

 private:
  Array array_;
  const char* name_;
  bool copies_;
  size_t block_ = 0;
};

}  // namespace nxd
