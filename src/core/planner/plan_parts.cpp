#include "core/planner/plan_parts.h"

#include "core/planner/part_memory.h"

namespace nxd {
namespace {

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
        places_(group_places(machine, tensor_, 1)) {
    const bool bf16 = is_narrow();
    flops_ = bf16 ? machine.gemm_rate_bf16 : machine.gemm_rate_f32;
    attention_flops_ = flops_ * (bf16 ? machine.attention_share_bf16 : machine.attention_share_f32);
  }

  // Between layers there are the last one's output and the residual that it is added to. A BERT's
  // norms come after the sum, so there the output is all.
  double boundary_bytes() const { return (is_bert() ? 1 : 2) * rows(local_) * element_; }

  PlanPart layer() const {
    PlanPart part;
    part.elements = model_.layer_elements(tensor_);
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
  return {maker.embedding(), maker.layer(), maker.head(), maker.boundary_bytes()};
}

}  // namespace nxd
