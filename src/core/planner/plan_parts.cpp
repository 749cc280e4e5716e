#include "core/planner/plan_parts.h"

#include "core/planner/part_sizes.h"

namespace nxd {
namespace {

class PartMaker : PartSizes {
 public:
  PartMaker(const ModelSizes& model, const nxd_plan_machine_t& machine,
            const nxd_plan_layout_t& layout)
      : PartSizes(model, layout),
        machine_(machine),
        places_(group_places(machine, ranks_in(layout), tensor_, 1)) {
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
        seconds(2.0 * tokens_ * number(model_.layer_matrix_elements(tensor_)), flops_);
    const double scores = seconds(attention_operations(), attention_flops_);
    const double rope = model_.positions == 0 ? 2 * (query_ + key_) : 0;
    const double activation = model_.gated_mlp ? 3 * mlp_ : 2 * mlp_;
    const double activation_back = model_.gated_mlp ? 5 * mlp_ : 3 * mlp_;
    // Attention and the MLP: the input comes in, the partial sums go out.
    part.forward = {products, scores, moved(8 * rows(local_) + tokens_ * (rope + activation)),
                    2 * input_mapping() + 2 * output_mapping()};
    part.input = {products, 2 * scores,
                  moved(8 * rows(local_) + tokens_ * (rope + activation_back)),
                  2 * input_mapping_back() + 2 * output_mapping_back()};
    part.weight = {products, 0, 0, 2 * input_mapping()};
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
    part.forward.gemm = 3 * seconds(2.0 * tokens_ * number(matrix), flops_);
    part.forward.elementwise =
        moved(4 * rows(local_)) + 3 * kF32Bytes * tokens_ * vocabulary_ / machine_.memory_bandwidth;
    part.forward.collectives = input_mapping() + input_mapping_back();
    part.input.elementwise = moved(4 * rows(local_));
    if (is_bert()) add_dense(part);
    return part;
  }

 private:
  // Each token passes a dense layer, an activation and a norm before the logits; the first token of
  // each sequence passes another dense layer. Each rank has these in full.
  void add_dense(PlanPart& head) const {
    const double dense_tokens = local_ + sequences_;
    const double product = seconds(2 * dense_tokens * hidden_ * hidden_, flops_);
    head.forward.gemm += product;
    head.input.gemm += product;
    head.weight.gemm += product;
    head.forward.elementwise += moved(4 * rows(local_));
    head.input.elementwise += moved(6 * rows(local_));
  }

  // The share of this rank in a layer, as the mean of all. Half of the scores are never
  // formed where a token sees no later one.
  double attention_operations() const {
    const double of_sequence = model_.attention_operations(static_cast<int64_t>(sequence_)) /
                               number(model_.layers) / (model_.causal ? 2 : 1);
    return of_sequence * sequences_ * (query_ / number(model_.query_width()));
  }

  static double seconds(double operations, double rate) { return operations / rate; }
  double rows(double tokens) const { return tokens * hidden_; }
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

  const nxd_plan_machine_t& machine_;
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
