#pragma once

#include "core/kernels/strided_rows.h"

// Rows of a table looked up by id; the table [table_rows, cols] holds the ids first ... first +
// table_rows of a vocabulary.
namespace nxd::kernels {

// Ids, in C order, that rows of a second array belong to.
struct Ids {
  const int64_t* ids;
  int64_t count;
  int64_t first;         // of the table
  int64_t ignored = -1;  // an id whose row of gradients is not added
};

// out[i] = table[ids[i] - first], or zeros for an id the table does not hold. out [..., cols] has
// as many rows as there are ids; both are of one dtype of 2, 4 or 8 bytes.
void embedding_forward(const StridedRows& table, const Ids& ids, const StridedRows& out);

// dtable[ids[i] - first] += dout[i], in the order of i for every row, so bits do not depend on
// threads. dout is F32, BF16 or F16 with an F32 dtable, or F64 with an F64 one. Not overwritten:
// the caller sets dtable to zero first, or accumulates.
void embedding_backward(const StridedRows& dout, const Ids& ids, const StridedRows& dtable);

// The same with dense arrays.
void embedding_forward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                       int64_t first, int64_t table_rows, const void* table, void* out);
void embedding_backward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                        int64_t first, int64_t table_rows, const void* dout, void* dtable);

}  // namespace nxd::kernels
