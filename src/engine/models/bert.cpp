#include "engine/models/bert.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/world/long_call.h"
#include "engine/functional/activation_op.h"
#include "engine/functional/cross_entropy.h"
#include "engine/layers/parallel_embedding.h"
#include "engine/layers/replicated_linear.h"
#include "engine/layers/sequence_padding.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

// The first files have these names of its weight and bias.
class BertNorm : public LayerNorm, public StoredNames {
 public:
  using LayerNorm::LayerNorm;

  std::vector<std::pair<std::string, std::string>> other_names() const override {
    return {{"weight", "gamma"}, {"bias", "beta"}};
  }
};

std::shared_ptr<LayerNorm> add_norm(Module& parent, const LayerContext& at,
                                    const BertConfig& config) {
  return add_layer<BertNorm>(parent, at, "LayerNorm", config.hidden,
                             NormOptions{.eps = norm_eps(config.norm_eps)});
}

// For layers that all ranks compute alike, whether or not the sequence is split.
LayerContext for_all_ranks(const LayerContext& at) {
  LayerContext out = at;
  out.sequence_parallel = false;
  return out;
}

// Hidden states as the decoder reads them: dense, activation, norm.
class BertTransform : public Module {
 public:
  BertTransform(const LayerContext& at, const BertConfig& config)
      : Module(at.context, "BertPredictionHeadTransform"), activation_(config.activation) {
    note_options(activation_);
    dense_ = add_layer<ReplicatedLinear>(*this, at, "dense", config.hidden, config.hidden);
    norm_ = add_norm(*this, at, config);
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    return norm_->call({activate(*context(), activation_, (*dense_)(inputs[0]))});
  }

 private:
  nxd_activation_t activation_;
  std::shared_ptr<Module> dense_, norm_;
};

// A sublayer's first half: more features, of which each rank has its part, and the activation.
class BertIntermediate : public Module {
 public:
  BertIntermediate(const LayerContext& at, const BertConfig& config)
      : Module(at.context, "BertIntermediate"), activation_(config.activation) {
    note_options(activation_);
    const LinearOptions linear{.gather_output = false,
                               .own = own_features(*at.group(), config.intermediate)};
    dense_ = add_layer<ColumnParallelLinear>(*this, at, "dense", config.hidden, config.intermediate,
                                             linear);
  }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override {
    check_arity(inputs, n_outputs, 1, 1, 1);
    return {activate(*context(), activation_, (*dense_)(inputs[0]))};
  }

 private:
  nxd_activation_t activation_;
  std::shared_ptr<Module> dense_;
};

// The mean over the labels that count. All ranks of the group have the same.
at::Tensor sentence_loss(const GroupRef& group, const at::Tensor& logits,
                         const at::Tensor& labels) {
  const auto apply = [group](const Module::Tensors& in) -> Module::Tensors {
    const int64_t ignored = LossFormula().ignore_index;
    const auto find_failure = [ignored](const at::Tensor& next) -> std::string {
      const at::Tensor known = next.eq(0).logical_or(next.eq(1)).logical_or(next.eq(ignored));
      if (known.all().item<bool>()) return "";
      return text("next_sentence_label: expected 0 or 1, or ", ignored, " where there is none");
    };
    check_values(group, "BertForPreTraining", "nxd::check_next_sentence", in[1], find_failure);
    const at::Tensor rows = at::log_softmax(in[0].to(partial_sum_dtype(in[0].scalar_type())), 1);
    const at::Tensor sum = at::nll_loss(rows, in[1], {}, at::Reduction::Sum, ignored);
    return {sum / in[1].ne(ignored).sum().clamp_min(1)};
  };
  return call_opaque("next_sentence_loss", {logits, labels}, apply)[0];
}

}  // namespace

BertEmbeddings::BertEmbeddings(const LayerContext& at, const BertConfig& config)
    : Module(at.context, "BertEmbeddings"),
      group_(at.group()),
      sequence_parallel_(at.sequence_parallel),
      token_types_(config.token_types) {
  words_ = add_layer<ParallelEmbedding>(
      *this, at, "word_embeddings", config.vocabulary, config.hidden,
      EmbeddingOptions{.padding_idx = config.padding_idx, .pad_rows = true});
  positions_ =
      add_layer<PositionTable>(*this, at, "position_embeddings", config.positions, config.hidden);
  types_ = add_layer<Container>(*this, at, "token_type_embeddings", "Embedding");
  mark_replicated(make_parameter(*types_, at.child("token_type_embeddings"), "weight",
                                 ShardSpec::replicated({token_types_, config.hidden}),
                                 Initializer::normal(0, config.initializer_range)),
                  group_, sequence_parallel_);
  norm_ = add_norm(*this, at, config);
  dropout_ = add_activation_dropout(*this, at, "dropout", config.hidden_dropout);
}

at::Tensor BertEmbeddings::type_rows(const at::Tensor& types) const {
  check_ids_below(group_, "BertEmbeddings", "token_type_ids: expected", types, token_types_);
  at::Tensor own = types;
  if (sequence_parallel_) own = own_part(group_, types, 1, types.size(1) / group_->size()).t();
  const at::Tensor table = types_->parameter_value("weight");
  const at::Tensor one_hot = own.unsqueeze(-1).eq(at::arange(token_types_, own.options()));
  ParallelLinearPlan plan;
  plan.context = context();
  plan.group = group_;
  plan.weights_in_out = true;
  return parallel_linear(plan, one_hot.to(table.scalar_type()), table, at::Tensor());
}

Module::Tensors BertEmbeddings::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor& ids = inputs[0];
  const at::Tensor given = input_or_none(inputs, 1);
  const at::Tensor types = given.defined() ? given : at::zeros_like(ids);
  positions_->check_parameters(inputs);
  types_->check_parameters(inputs);
  const at::Tensor words = (*words_)(sequence_parallel_ ? ids.t().contiguous() : ids);
  const at::Tensor places = positions_->rows(ids.size(1));
  return {(*dropout_)(norm_->call({words + places, type_rows(types)})[0])};
}

BertSelfAttention::BertSelfAttention(const LayerContext& at, const BertConfig& config)
    : Module(at.context, "BertSelfAttention"),
      group_(at.group()),
      hidden_(config.hidden),
      head_dim_(config.head_dim),
      sequence_parallel_(at.sequence_parallel) {
  const HeadSizes sizes = HeadSizes::make(*group_, hidden_, config.heads, 0, head_dim_);
  const LinearOptions linear{.gather_output = false, .own = sizes.features(sizes.own)};
  const auto add = [&](const char* name) {
    return add_layer<ColumnParallelLinear>(*this, at, name, hidden_, hidden_, linear);
  };
  query_ = add("query");
  key_ = add("key");
  value_ = add("value");
  dropout_ = add_layer<AttentionDropout>(*this, at, "dropout", config.attention_dropout, sizes);
  plan_.context = context();
  plan_.group = group_;
  plan_.input = sequence_parallel_ ? ParallelLinearPlan::Input::kGatherSequence
                                   : ParallelLinearPlan::Input::kCopy;
}

Module::Tensors BertSelfAttention::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1, group_.get());
  for (const auto& part : {query_, key_, value_}) part->check_parameters(inputs);
  check_features(*group_, class_name(), inputs[0], hidden_, query_->weight());
  // The three projections share one exchange of their input.
  const auto projected =
      parallel_linears(plan_, inputs[0], {query_->weight(), key_->weight(), value_->weight()},
                       {query_->bias(), key_->bias(), value_->bias()});
  const auto heads = [&](const at::Tensor& x) {
    return x.unflatten(-1, {x.size(-1) / head_dim_, head_dim_});
  };
  const at::Tensor q = heads(projected[0]), k = heads(projected[1]), v = heads(projected[2]);
  const at::Tensor mask = input_or_none(inputs, 1);
  const SequencePadding padding(*group_, sequence_parallel_, mask, q);
  AttentionArgs args;
  args.layout = sequence_parallel_ ? SequenceLayout::kSequenceFirst : SequenceLayout::kBatchFirst;
  args.causal = false;
  args.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  args.key_mask = key_mask(*group_, mask, q, q.size(sequence_parallel_ ? 1 : 0), padding.length());
  const at::Tensor out = dropout_->attend(args, padding.cut(q), padding.cut(k), padding.cut(v));
  return {padding.fill(out).flatten(2)};
}

BertOutput::BertOutput(const LayerContext& at, const char* class_name, const BertConfig& config,
                       int64_t features, ShardSpec::Range own)
    : Module(at.context, class_name) {
  dense_ = add_layer<RowParallelLinear>(*this, at, "dense", features, config.hidden,
                                        LinearOptions{.input_is_parallel = true, .own = own});
  norm_ = add_norm(*this, at, config);
  dropout_ = add_activation_dropout(*this, at, "dropout", config.hidden_dropout);
}

Module::Tensors BertOutput::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 2, 2, 1);
  return norm_->call({(*dropout_)((*dense_)(inputs[0])), inputs[1]});
}

BertLayer::BertLayer(const LayerContext& at, const BertConfig& config)
    : Module(at.context, "BertLayer") {
  auto attention = add_layer<Container>(*this, at, "attention", "BertAttention");
  const LayerContext inside = at.child("attention");
  attention_ = add_layer<BertSelfAttention>(*attention, inside, "self", config);
  const HeadSizes sizes =
      HeadSizes::make(*at.group(), config.hidden, config.heads, 0, config.head_dim);
  attention_output_ = add_layer<BertOutput>(*attention, inside, "output", "BertSelfOutput", config,
                                            config.hidden, sizes.features(sizes.own));
  intermediate_ = add_layer<BertIntermediate>(*this, at, "intermediate", config);
  output_ = add_layer<BertOutput>(*this, at, "output", "BertOutput", config, config.intermediate,
                                  own_features(*at.group(), config.intermediate));
}

Module::Tensors BertLayer::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 2, 1);
  const at::Tensor mixed = attention_->call({inputs[0], input_or_none(inputs, 1)})[0];
  const at::Tensor attended = attention_output_->call({mixed, inputs[0]})[0];
  return output_->call({(*intermediate_)(attended), attended});
}

BertPooler::BertPooler(const LayerContext& at, const BertConfig& config)
    : Module(at.context, "BertPooler"),
      group_(at.group()),
      sequence_parallel_(at.sequence_parallel) {
  dense_ =
      add_layer<ReplicatedLinear>(*this, for_all_ranks(at), "dense", config.hidden, config.hidden);
}

Module::Tensors BertPooler::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1);
  // The first token is in the first rank's slice.
  const at::Tensor first =
      sequence_parallel_ ? gather_from_region(group_, inputs[0].narrow(0, 0, 1), 0).select(0, 0)
                         : inputs[0].select(1, 0);
  return {at::tanh((*dense_)(first))};
}

BertModel::BertModel(const LayerContext& at, const BertConfig& config)
    : Module(at.context, "BertModel") {
  embeddings_ = add_layer<BertEmbeddings>(*this, at, "embeddings", config);
  auto encoder = add_layer<Container>(*this, at, "encoder", "BertEncoder");
  auto list = add_layer<Container>(*encoder, at.child("encoder"), "layer", "ModuleList");
  for (int64_t i = 0; i < config.layers; ++i) {
    check_interrupt(*context(), "nxd_model_create");
    layers_.push_back(
        add_layer<BertLayer>(*list, at.child("encoder").child("layer"), std::to_string(i), config));
  }
  pooler_ = add_layer<BertPooler>(*this, at, "pooler", config);
}

Module::Tensors BertModel::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 3, 2);
  check_token_ids(*this, inputs[0]);
  const at::Tensor mask = input_or_none(inputs, 1);
  at::Tensor x = embeddings_->call({inputs[0], input_or_none(inputs, 2)})[0];
  for (const auto& layer : layers_) x = layer->call({x, mask})[0];
  if (n_outputs == 1) return {x};
  return {x, (*pooler_)(x)};
}

BertForPreTraining::BertForPreTraining(const LayerContext& given, const BertConfig& config)
    : TokenModel(given, "BertForPreTraining", config) {
  check_heads("num_attention_heads");
  check_enough("intermediate_size", config.intermediate);
  const LayerContext at = given.with(WeightInit::normal(config.initializer_range));
  auto model = add_layer<BertModel>(*this, at, "bert", config);
  bert_ = model;
  auto heads = add_layer<Container>(*this, at, "cls", "BertPreTrainingHeads");
  const LayerContext cls = at.child("cls");
  auto predictions = add_layer<Container>(*heads, cls, "predictions", "BertLMPredictionHead");
  const LayerContext inside = cls.child("predictions");
  make_parameter(*predictions, inside, "bias", vocabulary_shard({config.vocabulary}, *group()),
                 Initializer::constant(0));
  transform_ = add_layer<BertTransform>(*predictions, inside, "transform", config);
  decoder_ =
      add_layer<LanguageHead>(*predictions, inside, "decoder", config.hidden, config.vocabulary,
                              config.tied_embeddings ? model->words().parameter("weight") : nullptr,
                              predictions->parameter("bias"));
  next_sentence_ =
      add_layer<ReplicatedLinear>(*heads, for_all_ranks(cls), "seq_relationship", config.hidden, 2);
}

void BertForPreTraining::check_inputs(const Tensors& inputs, size_t n_outputs) const {
  check_ids(inputs[0]);
  const at::Tensor labels = input_or_none(inputs, 1), next = input_or_none(inputs, 4);
  check_like_ids("labels", labels, inputs[0]);
  check_mask(input_or_none(inputs, 2), inputs[0]);
  check_like_ids("token_type_ids", input_or_none(inputs, 3), inputs[0]);
  check(labels.defined() == next.defined(),
        text("labels and next_sentence_label: expected both or neither, got ",
             labels.defined() ? "labels" : "next_sentence_label", " alone"));
  check(labels.defined() || n_outputs <= 2,
        text("gives two outputs at most without labels, ", n_outputs, " were asked for"));
  if (!next.defined()) return;
  const int64_t batch = inputs[0].size(0);
  check(next.dim() == 1 && next.size(0) == batch && next.scalar_type() == at::kLong,
        text("next_sentence_label: expected [", batch, "] of dtype i64, got ",
             dtype_text(next.scalar_type()), " of shape ", next.sizes()));
}

Module::Tensors BertForPreTraining::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 5, 3, group().get());
  check_inputs(inputs, n_outputs);
  const at::Tensor &ids = inputs[0], labels = input_or_none(inputs, 1);
  std::vector<std::string> names{"prediction_logits", "seq_relationship_logits"};
  if (labels.defined()) names.insert(names.begin(), "loss");
  name_outputs(std::move(names));
  const int64_t places = padding_of(ids);
  const at::Tensor types = input_or_none(inputs, 3);
  const Tensors body = bert_->call(
      {SequencePadding::repeat_last(ids, places), mask_of(input_or_none(inputs, 2), ids),
       types.defined() ? SequencePadding::repeat_last(types, places) : types},
      2);
  const at::Tensor hidden = (*transform_)(body[0]);
  const at::Tensor is_next = (*next_sentence_)(body[1]);
  Tensors outputs;
  at::Tensor logits;
  if (n_outputs > 1 || !labels.defined()) logits = (*decoder_)(hidden);
  if (labels.defined()) {
    const at::Tensor targets = padded_labels(labels, places);
    const at::Tensor masked = logits.defined() ? decoder_->loss_of_logits(logits, targets)
                                               : decoder_->loss(hidden, targets);
    outputs.push_back(masked + sentence_loss(group(), is_next, inputs[4]).to(masked.scalar_type()));
  }
  if (logits.defined()) outputs.push_back(real_logits(logits, places));
  outputs.push_back(is_next);
  outputs.resize(n_outputs);
  return outputs;
}

}  // namespace nxd
