#include "core/planner/plan_parts.h"

#include <algorithm>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/pool_classes.h"

namespace nxd {
namespace {

constexpr double kF32Bytes = 4;
// Libraries of products copy operands into malloc's memory, of which the process keeps so much
// (keep_heap in engine/tensor/aten_pool.cpp). Measured: operands and result twice.
constexpr double kKeptHeap = 64 << 20;
constexpr double kHeapCopies = 2;
// A product that is rounded to 16 bits is formed in F32 for so many bytes at a time
// (core/kernels/gemm.cpp).
constexpr double kWideProduct = 16 << 20;

// Blocks of a size, as the pool has them: it keeps each for later blocks of that size alone.
double blocks(int count, double bytes) {
  return count * static_cast<double>(kernels::pool_footprint(static_cast<size_t>(bytes)));
}

class PartMaker {
 public:
  PartMaker(const ModelSizes& model, const nxd_plan_machine_t& machine,
            const nxd_plan_layout_t& layout)
      : model_(model),
        machine_(machine),
        tensor_(layout.tensor_parallel_size),
        recompute_(layout.recompute != 0),
        split_sequence_(layout.sequence_parallel != 0),
        element_(number(bytes_of(layout.dtype))),
        tokens_(int64_t{layout.microbatch_size} * layout.sequence_length),
        sequence_(layout.sequence_length),
        local_(split_sequence_ ? tokens_ / tensor_ : tokens_),
        hidden_(model.hidden),
        query_(model.query_width(tensor_)),
        key_(model.key_width(tensor_)),
        mlp_(model.mlp_width(tensor_)),
        vocabulary_(model.head_elements(tensor_) / model.hidden),
        logit_rows_(std::min(tokens_, kernels::logit_block_rows(tokens_, vocabulary_))),
        repeats_(layout.num_microbatches > 1),
        places_(group_places(machine, tensor_, 1)) {
    const bool bf16 = is_narrow();
    flops_ = bf16 ? machine.gemm_rate_bf16 : machine.gemm_rate_f32;
    attention_flops_ = flops_ * (bf16 ? machine.attention_share_bf16 : machine.attention_share_f32);
  }

  // Between layers there are the last one's output and the residual that it is added to. A BERT's
  // norms come after the sum, so there the output is all.
  double boundary_bytes() const { return (is_bert() ? 1 : 2) * rows(local_) * element_; }

  double heap_bytes() const {
    const auto product = [&](int64_t m, int64_t n) {
      return element_ * (number(m) * number(n) + number(m + n) * number(hidden_));
    };
    const double largest = std::max(product(tokens_, mlp_), product(logit_rows_, vocabulary_));
    return std::min(kKeptHeap, kHeapCopies * largest);
  }

  PlanPart layer() const {
    PlanPart part;
    part.elements = model_.layer_elements(tensor_);
    add_layer_memory(part);
    const double products =
        seconds(2.0 * number(tokens_) * number(model_.layer_matrix_elements(tensor_)), flops_);
    // Half of the scores are never formed where a token sees no later one.
    const double pairs = number(tokens_) * number(sequence_) / (model_.causal ? 2 : 1);
    const double scores = seconds(4 * pairs * number(query_), attention_flops_);
    const int64_t rope = model_.positions == 0 ? 2 * (query_ + key_) : 0;
    const int64_t activation = model_.gated_mlp ? 3 * mlp_ : 2 * mlp_;
    const int64_t activation_back = model_.gated_mlp ? 5 * mlp_ : 3 * mlp_;
    // Attention and the MLP: the input comes in, the partial sums go out.
    part.forward = {products, scores,
                    moved(8 * rows(local_) + number(tokens_) * number(rope + activation)),
                    2 * input_mapping() + 2 * output_mapping()};
    part.input = {products, 2 * scores,
                  moved(8 * rows(local_) + number(tokens_) * number(rope + activation_back)),
                  2 * input_mapping_back() + 2 * output_mapping_back()};
    part.weight = {products, 0, 0, 2 * input_mapping()};
    if (!split_sequence_) part.weight.collectives = 0;
    if (recompute_) part.input += part.forward;
    return part;
  }

  PlanPart embedding() const {
    PlanPart part;
    part.elements = model_.embedding_elements(tensor_);
    part.slack_bytes = slack(1, model_.head_elements(tensor_));
    // Rows of the table's gradient are summed in F32.
    if (is_narrow()) part.transient_bytes = blocks(1, kF32Bytes * table());
    // It is formed by itself, and added to the head's where both are one.
    if (model_.tied_embeddings) part.transient_bytes += blocks(1, element_ * table());
    part.forward.elementwise = moved(2 * rows(tokens_));
    part.forward.collectives = output_mapping();
    part.weight.elementwise = moved(3 * rows(tokens_));
    part.weight.collectives = output_mapping_back();
    return part;
  }

  // Gradients of the head are formed with the loss, in the forward pass.
  PlanPart head() const {
    PlanPart part;
    part.elements = model_.last_elements(tensor_) + model_.head_elements(tensor_);
    const int64_t matrix = model_.head_elements(tensor_);
    part.slack_bytes = slack(1, matrix);
    // The last sum, and both gradients: that of the matrix becomes its parameter's where there is
    // none yet.
    part.kept_bytes = blocks(2, element_ * rows(local_));
    if (repeats_) part.kept_bytes += blocks(1, element_ * table());
    const double logits = number(logit_rows_) * number(vocabulary_);
    part.transient_bytes = blocks(1, kF32Bytes * logits);
    if (is_narrow()) {  // the logits' gradient, and the matrix's in F32
      part.transient_bytes += blocks(1, element_ * logits) + blocks(1, kF32Bytes * table());
    }
    part.forward.gemm = 3 * seconds(2.0 * number(tokens_) * number(matrix), flops_);
    part.forward.elementwise = moved(4 * rows(local_)) + 3 * kF32Bytes * number(tokens_) *
                                                             number(vocabulary_) /
                                                             machine_.memory_bandwidth;
    part.forward.collectives = input_mapping() + input_mapping_back();
    part.input.elementwise = moved(4 * rows(local_));
    if (is_bert()) add_dense(part);
    return part;
  }

 private:
  bool is_bert() const { return model_.token_types > 0; }
  bool is_narrow() const { return element_ < kF32Bytes; }
  double table() const { return number(model_.head_elements(tensor_)); }

  void add_layer_memory(PlanPart& part) const {
    const double row = element_ * rows(local_), tokens = element_ * number(tokens_);
    const double query = tokens * number(query_), key = tokens * number(key_);
    const double mlp = tokens * number(mlp_);
    // Both residual sums and both norms; q, k, v and the result; gate, up and their product.
    const double all =
        blocks(4, row) + blocks(2, query) + blocks(2, key) + blocks(model_.gated_mlp ? 3 : 2, mlp);
    part.kept_bytes = recompute_ ? blocks(is_bert() ? 1 : 2, row) : all;
    // A block is free behind the operator that uses it last, when the results have theirs: the
    // gradients of gate, up and their product stand beside the first two. Queries and keys are
    // there before and behind their rotation.
    part.transient_bytes =
        blocks(2, row) + blocks(1, query) + blocks(2, key) + blocks(model_.gated_mlp ? 2 : 1, mlp);
    if (recompute_) part.transient_bytes += all;
    const double sum = kF32Bytes * rows(tokens_);  // of ranks, or of several products
    if (tensor_ > 1) part.transient_bytes += blocks(2, sum);
    if (split_sequence_) part.transient_bytes += blocks(2, element_ * rows(tokens_));
    if (is_narrow()) {
      part.transient_bytes += blocks(1, sum) + blocks(1, std::min(kWideProduct, 2 * mlp));
    }
    part.slack_bytes = slack(2, hidden_ * query_) + slack(2, hidden_ * key_) +
                       slack(model_.gated_mlp ? 3 : 2, hidden_ * mlp_);
  }

  // Bytes that so many matrices, their gradients and AdamW's states have beyond their elements.
  double slack(int count, int64_t elements) const {
    const auto of = [&](int copies, double bytes) {
      return blocks(count * copies, bytes) - count * copies * bytes;
    };
    const double size = number(elements);
    return is_narrow() ? of(2, element_ * size) + of(3, kF32Bytes * size) : of(4, kF32Bytes * size);
  }

  // Each token passes a dense layer, an activation and a norm before the logits; the first token of
  // each sequence passes another dense layer. Each rank has these in full.
  void add_dense(PlanPart& head) const {
    const double dense_tokens = number(local_ + tokens_ / sequence_);
    const double product = seconds(2 * dense_tokens * number(hidden_) * number(hidden_), flops_);
    head.forward.gemm += product;
    head.input.gemm += product;
    head.weight.gemm += product;
    head.forward.elementwise += moved(4 * rows(local_));
    head.input.elementwise += moved(6 * rows(local_));
    head.kept_bytes += blocks(3, element_ * rows(local_));
  }

  static double seconds(double operations, double rate) { return operations / rate; }
  double rows(int64_t tokens) const { return number(tokens) * number(hidden_); }
  double moved(double elements) const { return elements * element_ / machine_.memory_bandwidth; }

  double half_reduce(double element) const {
    return tensor_ == 1 ? 0 : reduce_scatter_time(machine_, places_, rows(tokens_) * element).sum();
  }
  // Sums are exchanged in f32, what is gathered as it is.
  double gather() const { return half_reduce(element_); }
  double scatter() const { return half_reduce(kF32Bytes); }
  double reduce() const { return 2 * scatter(); }

  double input_mapping() const { return split_sequence_ ? gather() : 0; }
  double input_mapping_back() const { return split_sequence_ ? scatter() : reduce(); }
  double output_mapping() const { return split_sequence_ ? scatter() : reduce(); }
  double output_mapping_back() const { return split_sequence_ ? gather() : 0; }

  const ModelSizes& model_;
  const nxd_plan_machine_t& machine_;
  int tensor_;
  bool recompute_, split_sequence_;
  double element_;  // bytes
  int64_t tokens_, sequence_;
  int64_t local_;  // tokens of this rank, where activations are not split by features
  int64_t hidden_, query_, key_, mlp_, vocabulary_;
  int64_t logit_rows_;  // of which the head forms the loss and its gradients at a time
  bool repeats_;        // there are gradients already when the last microbatch comes
  GroupPlaces places_;
  double flops_ = 0, attention_flops_ = 0;
};

}  // namespace

PassTime& PassTime::operator+=(const PassTime& other) {
  gemm += other.gemm;
  attention += other.attention;
  elementwise += other.elementwise;
  collectives += other.collectives;
  return *this;
}

PassTime operator*(double factor, PassTime time) {
  return {factor * time.gemm, factor * time.attention, factor * time.elementwise,
          factor * time.collectives};
}

PlanParts plan_parts(const ModelSizes& model, const nxd_plan_machine_t& machine,
                     const nxd_plan_layout_t& layout) {
  const PartMaker maker(model, machine, layout);
  return {maker.embedding(), maker.layer(), maker.head(), maker.boundary_bytes(),
          maker.heap_bytes()};
}

}  // namespace nxd
