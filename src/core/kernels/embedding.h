#pragma once

#include <cstdint>

#include "nxd.h"

// Rows of a table looked up by id; the table holds the ids first ... first + table_rows of a
// vocabulary, dense [table_rows, cols].
namespace nxd::kernels {

// out[i] = table[ids[i] - first], or zeros for an id the table does not hold. out is dense
// [count, cols]; F32, F64 or BF16.
void embedding_forward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                       int64_t first, int64_t table_rows, const void* table, void* out);

// dtable[ids[i] - first] += dout[i], in the order of i for every row, so bits do not depend on
// threads. dout is F32 or BF16 with an F32 dtable, or F64 with an F64 one. Not overwritten: the
// caller sets dtable to zero first, or accumulates.
void embedding_backward(nxd_dtype_t dtype, int64_t count, int64_t cols, const int64_t* ids,
                        int64_t first, int64_t table_rows, const void* dout, void* dtable);

}  // namespace nxd::kernels
