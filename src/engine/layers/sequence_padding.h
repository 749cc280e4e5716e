#pragma once

#include <ATen/core/Tensor.h>

#include "engine/functional/mappings.h"

namespace nxd {

// Places behind the end of a sequence, which a model adds under sequence parallelism where the
// sequence does not divide by the ranks. Layers that see each token by itself compute them along,
// and nothing reads what comes of it. Attention leaves them out. It knows them by its key mask,
// which a model then always gives, and whose length is the real one.
class SequencePadding {
 public:
  // x: [sequence, batch, ..] of all ranks with sequence parallelism, else [batch, sequence, ..],
  // which is never padded.
  SequencePadding(const ProcessGroup& group, bool sequence_parallel, const at::Tensor& mask,
                  const at::Tensor& x);

  // The real length.
  int64_t length() const { return length_; }
  // x without these places, and a result with zeros in their stead.
  at::Tensor cut(const at::Tensor& x) const;
  at::Tensor fill(const at::Tensor& x) const;

  // Places that a sequence lacks to divide by the ranks.
  static int64_t lacking(const ProcessGroup& group, int64_t sequence);
  // x [batch, sequence, ..] with so many places more, which repeat the last one: values that are
  // good for one place are good for them.
  static at::Tensor repeat_last(const at::Tensor& x, int64_t places);

 private:
  int64_t length_, places_ = 0;
};

}  // namespace nxd
