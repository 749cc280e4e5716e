#include "core/planner/part_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/packing_room.h"
#include "core/kernels/pool_classes.h"

namespace nxd {
namespace {

// A product that is rounded to 16 bits is formed in F32 for so many bytes at a time
// (core/kernels/gemm.cpp).
constexpr double kWideProduct = 16 << 20;
// A machine whose BF16 products are not this much faster than those in F32 has none of its own:
// operands are widened first.
constexpr double kOwnBf16 = 1.25;

// From so many multiplications on a product copies blocks of operands. A forward one has tiles of
// so many columns at most. Others have about so many rows, or all of them where operands are
// widened and the sum of the inverse sizes is below this (core/kernels/product_tiles.cpp).
constexpr double kPackingPays = 1 << 26;
constexpr double kTransposedColumns = 2048;
constexpr double kCopiedBelow = 0.0038;
constexpr double kTileRows = 256;

// In slabs of huge pages; the end of a slab, half of such a page, has no block.
double footprint(double bytes) {
  constexpr double kOfSlab = 1.0 / 32;
  const auto size = static_cast<size_t>(bytes);
  const auto own = static_cast<double>(kernels::pool_footprint(size));
  const bool in_slab =
      kernels::pool_class_bytes(kernels::pool_class(size)) <= kernels::kLargestInSlab;
  return in_slab ? own * (1 + kOfSlab) : own;
}

size_t class_of(const BlockCount& blocks) {
  return kernels::pool_class(static_cast<size_t>(blocks.bytes));
}

// One entry for each class, of its largest size.
BlockList by_class(const BlockList& blocks) {
  BlockList out;
  for (const BlockCount& more : blocks) {
    const auto found = std::find_if(out.begin(), out.end(), [&](const BlockCount& have) {
      return class_of(have) == class_of(more);
    });
    if (found == out.end()) {
      out.push_back(more);
    } else {
      found->count += more.count;
      found->bytes = std::max(found->bytes, more.bytes);
    }
  }
  return out;
}

class MemoryMaker : PartSizes {
 public:
  MemoryMaker(const ModelSizes& model, const nxd_plan_machine_t& machine,
              const nxd_plan_layout_t& layout)
      : PartSizes(model, layout),
        repeats_(layout.num_microbatches > 1),
        in_buckets_(layout.data_parallel_size > 1),
        is_pipeline_(layout.pipeline_parallel_size > 1),
        logit_rows_(number(rows_of_logits())),
        widens_(is_narrow() && machine.gemm_rate_bf16 < kOwnBf16 * machine.gemm_rate_f32) {}

  PartMemory layer() const {
    PartMemory memory;
    const double row = element_ * local_ * hidden_, query = element_ * tokens_ * query_;
    const double key = element_ * tokens_ * key_, mlp = element_ * tokens_ * mlp_;
    const int gates = model_.gated_mlp ? 3 : 2;
    memory.matrices = {{2, hidden_ * query_}, {2, hidden_ * key_}, {number(gates), hidden_ * mlp_}};
    // Both residual sums and both norms; q, k, v and the result; gate, up and their product.
    const BlockList all = {{4, row}, {2, query}, {2, key}, {number(gates), mlp}};
    memory.kept = all;
    if (recompute_) memory.kept = {{number(is_bert() ? 1 : 2), row}};
    // A block is free behind the operator that uses it last, when the results have theirs: the
    // gradients of gate, up and their product stand beside the first two. Queries and keys are
    // there before and behind their rotation.
    BlockList& transient = memory.transient;
    transient = {{2, row}, {1, query}, {2, key}, {number(gates - 1), mlp}};
    if (recompute_) transient.insert(transient.end(), all.begin(), all.end());
    const double sum = kF32Bytes * tokens_ * hidden_;  // of ranks, or of several products
    if (tensor_ > 1) transient.push_back({2, sum});
    if (split_sequence_) transient.push_back({2, element_ * tokens_ * hidden_});
    if (is_narrow()) transient.push_back({1, sum});
    if (widens_) {  // operands, the first block outgrown, and results
      memory.workspaces = {{1, sum}, {2, kF32Bytes * tokens_ * mlp_}};
    } else if (is_narrow()) {
      transient.push_back({1, std::min(kWideProduct, kF32Bytes * tokens_ * mlp_)});
    }
    add_formed(memory);
    // Gradients have as many columns as the inputs of a product.
    memory.packing = packing(std::max({hidden_, query_, mlp_}), hidden_ * mlp_, tokens_);
    return memory;
  }

  PartMemory embedding() const {
    PartMemory memory;
    memory.matrices = {{1, table_}};
    // Rows of the table's gradient are summed in F32.
    if (is_narrow()) memory.transient.push_back({1, kF32Bytes * table_});
    // It is formed by itself, and added to what is there: of earlier microbatches; or the head's
    // where both are one, which autograd does in a third block.
    const bool is_tied = model_.tied_embeddings && !is_pipeline_;
    if (is_tied) {
      memory.transient.push_back({in_buckets_ && !repeats_ ? 3.0 : 2.0, element_ * table_});
    } else if (repeats_ && !in_buckets_) {
      memory.transient.push_back({1, element_ * table_});
    }
    if (!is_tied) add_formed(memory);
    return memory;
  }

  // Gradients of the head are formed with the loss, in the forward pass.
  PartMemory head() const {
    PartMemory memory;
    memory.matrices = {{1, table_}};
    // The last sum, and both gradients: that of the matrix becomes its parameter's where there is
    // none yet.
    const double row = element_ * local_ * hidden_;
    memory.kept = {{2, row}};
    if (repeats_) memory.kept.push_back({1, element_ * table_});
    if (is_bert()) memory.kept.push_back({3, row});
    const double logits = logit_rows_ * vocabulary_;
    memory.transient = {{1, kF32Bytes * logits}};
    const bool is_one_block = logit_rows_ == tokens_;
    // The logits' gradient, and the matrix's in F32: of one block a product is rounded.
    if (is_narrow()) memory.transient.push_back({1, element_ * logits});
    if (is_narrow() && !(widens_ && is_one_block)) {
      memory.transient.push_back({1, kF32Bytes * table_});
    }
    if (is_pipeline_) {  // both gradients, times the microbatch's weight
      memory.transient.push_back({1, row});
      memory.transient.push_back({1, element_ * table_});
    }
    // A tile of the logits' gradient, and the matrix.
    if (widens_) {
      memory.workspaces = {{1, kF32Bytes * tile_rows(logit_rows_) * vocabulary_},
                           {1, kF32Bytes * table_}};
    }
    add_formed(memory);
    memory.packing =
        packing(std::max(hidden_, std::min(vocabulary_, kTransposedColumns)), table_, logit_rows_);
    return memory;
  }

 private:
  int64_t rows_of_logits() const {
    const auto tokens = static_cast<int64_t>(tokens_);
    return std::min(tokens, kernels::logit_block_rows(tokens, static_cast<int64_t>(vocabulary_)));
  }

  // A gradient that belongs in a bucket is formed in a block, one after the other.
  void add_formed(PartMemory& memory) const {
    if (!in_buckets_) return;
    for (const BlockCount& matrix : memory.matrices) {
      memory.transient.push_back({1, element_ * matrix.bytes});
    }
  }

  // Rows of a tile of a product of widened operands that has as many columns as its inputs.
  double tile_rows(double rows) const {
    if (rows < 2 * kTileRows || 1 / rows + 1 / hidden_ < kCopiedBelow) return rows;
    return rows / std::floor(rows / kTileRows + 0.5);
  }

  // BF16 products of a machine that has them lie in workspaces.
  double packing(double columns, double matrix, double rows) const {
    if (is_narrow() && !widens_) return 0;
    if (matrix * rows < kPackingPays) return 0;
    const auto depth = std::numeric_limits<int64_t>::max();
    return number(static_cast<int64_t>(
        kernels::packing_bytes(static_cast<int64_t>(rows), static_cast<int64_t>(columns), depth)));
  }

  bool repeats_;     // there are gradients already when the last microbatch comes
  bool in_buckets_;  // gradients are
  bool is_pipeline_;
  double logit_rows_;  // of which the head forms the loss and its gradients at a time
  bool widens_;        // operands of BF16 products
};

}  // namespace

double pool_bytes(const BlockList& blocks) {
  double bytes = 0;
  for (const BlockCount& b : blocks) bytes += b.count * footprint(b.bytes);
  return bytes;
}

double pool_bytes_of_most(const std::vector<const BlockList*>& lists) {
  BlockList most;
  for (const BlockList* list : lists) {
    for (const BlockCount& more : by_class(*list)) {
      const auto found = std::find_if(most.begin(), most.end(), [&](const BlockCount& have) {
        return class_of(have) == class_of(more);
      });
      if (found == most.end()) {
        most.push_back(more);
      } else {
        *found = {std::max(found->count, more.count), std::max(found->bytes, more.bytes)};
      }
    }
  }
  return pool_bytes(most);
}

double shared_pool_bytes(const BlockList& one, const BlockList& other) {
  const BlockList mine = by_class(one), others = by_class(other);
  double bytes = 0;
  for (const BlockCount& a : mine) {
    for (const BlockCount& b : others) {
      if (class_of(a) != class_of(b)) continue;
      bytes += std::min(a.count, b.count) * footprint(std::min(a.bytes, b.bytes));
    }
  }
  return bytes;
}

ModelMemory model_memory(const ModelSizes& model, const nxd_plan_machine_t& machine,
                         const nxd_plan_layout_t& layout) {
  const MemoryMaker maker(model, machine, layout);
  return {maker.embedding(), maker.layer(), maker.head()};
}

}  // namespace nxd
