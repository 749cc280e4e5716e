#pragma once

#include <cstdint>
#include <optional>

#include "core/base/philox.h"
#include "nxd.h"

namespace nxd::kernels {

// A tensor [batch, seq, heads, head_dim]: element strides, head_dim contiguous.
struct HeadView {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t seq_stride = 0;
  int64_t head_stride = 0;
};

// A dropout of the probabilities: each is kept by the word of its number, and divided by keep.
// Numbers are those of [batch, heads, query_length, key_length], where the query heads are a part
// of all heads.
struct WeightDropout {
  RandomSite site;
  double keep;  // above 0
  int64_t heads, first_head;
};

// Query head h uses key/value head h / (query_heads / kv_heads). With causal the last query sees
// every key: query i sees the keys j <= i + key_length - query_length, and with a window only the
// last `window` of these.
struct AttentionShape {
  int64_t batch = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double scale = 1;  // of the scores, usually 1 / sqrt(head_dim)
  bool causal = false;
  const uint8_t* key_mask = nullptr;  // [batch, key_length], 1: keep; null: all
  int64_t window = 0;                 // 0: none; only with causal
  std::optional<WeightDropout> dropout = std::nullopt;
};

constexpr int64_t kAttentionStatistics = 2;

// out = dropout(softmax(scale q k^T)) v, block by block, never holding more than a block of the
// scores. dtype F32 or BF16 is that of q, k, v and out; sums and statistics are f32. Where the
// processor multiplies BF16, probabilities are rounded to it for the second product, as in
// FlashAttention (Dao 2022); elsewhere BF16 operands are widened, and probabilities stay f32.
//   q, out: [batch, query_length, query_heads, head_dim]
//   k, v:   [batch, key_length, kv_heads, head_dim]
//   statistics: [batch, query_heads, kAttentionStatistics, query_length]: the maxima of the rows'
//           scores times scale log2(e), then 1 / sum 2^(score - maximum). One logarithm instead of
//           the two numbers would be rounded, and err in all of a row's probabilities.
//           Rows that see no key have +infinity and 0, and give 0 and zero gradients.
// out may be q when their strides agree. Threads divide the pairs of batch entry and key/value
// head, and the blocks of queries of the pairs that are left over. Every sum has an order of its
// own, so results do not depend on the number of threads.
void attention_forward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                       const HeadView& k, const HeadView& v, const HeadView& out,
                       float* statistics);

// Gradients; dq, dk and dv are overwritten and may alias nothing else. The scores are computed
// again from the statistics, and the words of the dropout drawn again. Gradients sum over the heads
// of a group in f32 and are rounded once.
void attention_backward(nxd_dtype_t dtype, const AttentionShape& shape, const HeadView& q,
                        const HeadView& k, const HeadView& v, const HeadView& out,
                        const float* statistics, const HeadView& dout, const HeadView& dq,
                        const HeadView& dk, const HeadView& dv);

}  // namespace nxd::kernels
