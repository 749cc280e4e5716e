#include "engine/functional/attention_op.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <bit>
#include <limits>

#include "core/kernels/attention.h"
#include "core/kernels/elementwise.h"
#include "engine/autograd/gradients.h"
#include "engine/device/kernel_call.h"
#include "engine/ops/autocast.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Dims {
  int64_t batch, sequence;
};

Dims dims_of(SequenceLayout layout, const at::Tensor& x) {
  return layout == SequenceLayout::kBatchFirst ? Dims{x.size(0), x.size(1)}
                                               : Dims{x.size(1), x.size(0)};
}

struct Strides {
  int64_t batch, sequence, head;
};

Strides strides_of(SequenceLayout layout, const at::Tensor& x) {
  return layout == SequenceLayout::kBatchFirst ? Strides{x.stride(0), x.stride(1), x.stride(2)}
                                               : Strides{x.stride(1), x.stride(0), x.stride(2)};
}

at::Tensor with_dense_heads(const at::Tensor& x) {
  return x.stride(3) == 1 || x.size(3) <= 1 ? x : x.contiguous();
}

at::Tensor dense(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }

kernels::HeadView view_of(SequenceLayout layout, const at::Tensor& x) {
  const Strides s = strides_of(layout, x);
  return {x.data_ptr(), s.batch, s.sequence, s.head};
}

RandomSite site_of(const at::Tensor& words) {
  const int64_t* data = words.data_ptr<int64_t>();
  return {std::bit_cast<std::array<uint32_t, 2>>(data[0]), std::bit_cast<uint64_t>(data[1])};
}

// The numbers of AttentionArgs.
struct AttentionForm {
  SequenceLayout layout;
  bool causal;
  int64_t window;
  double scale;
  double keep;  // of a dropout
  int64_t dropout_heads, first_head;

  KernelParameters parameters() const {
    return {{"layout", layout},        {"causal", causal}, {"window", window},
            {"scale", scale},          {"keep", keep},     {"dropout heads", dropout_heads},
            {"first head", first_head}};
  }
  kernels::AttentionShape shape(const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& key_mask, const at::Tensor& site) const {
    kernels::AttentionShape out;
    out.batch = dims_of(layout, q).batch;
    out.query_length = dims_of(layout, q).sequence;
    out.key_length = dims_of(layout, k).sequence;
    out.query_heads = q.size(2);
    out.kv_heads = k.size(2);
    out.head_dim = q.size(3);
    out.scale = scale;
    out.causal = causal;
    out.window = window;
    out.key_mask = key_mask.defined() ? key_mask.data_ptr<uint8_t>() : nullptr;
    if (site.defined()) out.dropout = {site_of(site), keep, dropout_heads, first_head};
    return out;
  }
};

// Takes q, k, v, the key mask or none and the dropout's site or none; gives {out, statistics}.
struct AttentionForward {
  static constexpr const char* kName = "nxd::attention";
  AttentionForm form;

  KernelParameters parameters() const { return form.parameters(); }
  variable_list results(const variable_list& in) const {
    return {kernel_result_like(in[0]), kernel_result(statistics_sizes(in[0]), at::kFloat)};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor q = with_dense_heads(in[0]), k = with_dense_heads(in[1]),
                     v = with_dense_heads(in[2]), mask = dense(in[3]);
    at::Tensor out = pooled_empty(q.sizes(), q.scalar_type());
    at::Tensor statistics = pooled_empty(statistics_sizes(q), at::kFloat);
    kernels::attention_forward(to_nxd_dtype(q.scalar_type()), form.shape(q, k, mask, in[4]),
                               view_of(form.layout, q), view_of(form.layout, k),
                               view_of(form.layout, v), view_of(form.layout, out),
                               statistics.data_ptr<float>());
    return {out, statistics};
  }
  std::array<int64_t, 4> statistics_sizes(const at::Tensor& q) const {
    const Dims dims = dims_of(form.layout, q);
    return {dims.batch, q.size(2), kernels::kAttentionStatistics, dims.sequence};
  }
};

// Takes q, k, v, the key mask or none, the dropout's site or none, out, statistics and the gradient
// of out.
struct AttentionBackward {
  static constexpr const char* kName = "nxd::attention_backward";
  AttentionForm form;

  KernelParameters parameters() const { return form.parameters(); }
  variable_list results(const variable_list& in) const {
    return {kernel_result_like(in[0]), kernel_result_like(in[1]), kernel_result_like(in[2])};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor q = with_dense_heads(in[0]), k = with_dense_heads(in[1]),
                     v = with_dense_heads(in[2]), mask = dense(in[3]),
                     out = with_dense_heads(in[5]), dout = with_dense_heads(in[7]);
    at::Tensor dq = pooled_empty(q.sizes(), q.scalar_type());
    at::Tensor dk = pooled_empty(k.sizes(), k.scalar_type());
    at::Tensor dv = pooled_empty(v.sizes(), v.scalar_type());
    kernels::attention_backward(
        to_nxd_dtype(q.scalar_type()), form.shape(q, k, mask, in[4]), view_of(form.layout, q),
        view_of(form.layout, k), view_of(form.layout, v), view_of(form.layout, out),
        in[6].data_ptr<float>(), view_of(form.layout, dout), view_of(form.layout, dq),
        view_of(form.layout, dk), view_of(form.layout, dv));
    return {dq, dk, dv};
  }
};

struct AttentionRecord : torch::CustomClassHolder {
  AttentionForm form;
  at::Tensor key_mask;
  at::Tensor dropout_site;
};

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_input,
                            const at::Tensor& k_input, const at::Tensor& v_input,
                            const c10::intrusive_ptr<AttentionRecord>& record) {
    const at::Tensor q = with_dense_heads(q_input), k = with_dense_heads(k_input),
                     v = with_dense_heads(v_input);
    const variable_list out = call_kernel(AttentionForward{record->form},
                                          {q, k, v, record->key_mask, record->dropout_site});
    ctx->saved_data["record"] = c10::IValue::make_capsule(record);
    ctx->save_for_backward({q, k, v, out[0], out[1]});
    return out[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(AttentionForward::kName);
    const auto record =
        c10::static_intrusive_pointer_cast<AttentionRecord>(ctx->saved_data["record"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    variable_list out = call_kernel(AttentionBackward{record->form},
                                    {saved[0], saved[1], saved[2], record->key_mask,
                                     record->dropout_site, saved[3], saved[4], grads[0]});
    out.emplace_back();
    return out;
  }
};

// Where a query does not see a key. Undefined for shapes alone, which it does not change: libtorch
// 1.13 lacks the operators there.
at::Tensor hidden_scores(const AttentionArgs& args, const at::Tensor& q, int64_t n_keys) {
  if (q.is_meta() && !is_tracing()) return {};
  const int64_t n_queries = dims_of(args.layout, q).sequence;
  at::Tensor keep =
      at::ones({n_queries, n_keys}, q.options().dtype(at::kBool).requires_grad(false));
  if (args.causal) keep = keep.tril(n_keys - n_queries);
  if (args.window > 0) keep = keep.triu(n_keys - n_queries - args.window + 1);
  keep = keep.unsqueeze(0).unsqueeze(0);
  if (args.key_mask.defined()) {
    keep = keep.logical_and(args.key_mask.to(at::kBool).unsqueeze(1).unsqueeze(1));
  }
  return keep.logical_not();
}

at::Tensor reference_attention(const AttentionArgs& args, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v) {
  // [batch, heads, sequence, head_dim]
  const auto by_head = [&](const at::Tensor& x) {
    return args.layout == SequenceLayout::kBatchFirst ? x.permute({0, 2, 1, 3})
                                                      : x.permute({1, 2, 0, 3});
  };
  // Each key head as often as query heads share it. repeat_interleave would read the number from a
  // tensor.
  const int64_t shared = q.size(2) / k.size(2);
  const auto repeated = [shared](const at::Tensor& x) {
    if (shared == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), x.size(1), shared, x.size(2), x.size(3)})
        .reshape({x.size(0), x.size(1) * shared, x.size(2), x.size(3)});
  };
  const at::Tensor keys = repeated(by_head(k)), values = repeated(by_head(v));
  const at::ScalarType wide = partial_sum_dtype(q.scalar_type());
  at::Tensor scores = at::matmul(by_head(q).to(wide), keys.to(wide).transpose(2, 3)) * args.scale;
  // A query that sees no key gives zero, not the mean of what it must not see.
  const at::Tensor hidden = hidden_scores(args, q, scores.size(3));
  if (hidden.defined()) {
    scores = scores.masked_fill(hidden, std::numeric_limits<float>::lowest());
  }
  at::Tensor weights = at::softmax(scores, -1);
  if (hidden.defined()) weights = weights.masked_fill(hidden, 0);
  if (args.dropout) weights = weights * args.dropout->factors();
  const at::Tensor out = at::matmul(weights, values.to(wide)).to(q.scalar_type());
  return args.layout == SequenceLayout::kBatchFirst ? out.permute({0, 2, 1, 3})
                                                    : out.permute({2, 0, 1, 3});
}

// Takes x, cosines and sines.
struct Rope {
  static constexpr const char* kName = "nxd::rope";
  SequenceLayout layout;
  bool inverse;

  KernelParameters parameters() const { return {{"layout", layout}, {"inverse", inverse}}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[0])}; }
  variable_list run(const variable_list& inputs) const {
    const at::Tensor x = with_dense_heads(inputs[0]), cos = inputs[1].contiguous(),
                     sin = inputs[2].contiguous();
    at::Tensor y = pooled_empty(x.sizes(), x.scalar_type());
    const Dims dims = dims_of(layout, x);
    const Strides in = strides_of(layout, x), out = strides_of(layout, y);
    kernels::RopeArgs args;
    args.dtype = to_nxd_dtype(x.scalar_type());
    args.batch = dims.batch;
    args.seq = dims.sequence;
    args.heads = x.size(2);
    args.head_dim = x.size(3);
    args.rotary_dim = 2 * cos.size(1);
    args.in = x.data_ptr();
    args.in_batch_stride = in.batch;
    args.in_seq_stride = in.sequence;
    args.in_head_stride = in.head;
    args.out = y.data_ptr();
    args.out_batch_stride = out.batch;
    args.out_seq_stride = out.sequence;
    args.out_head_stride = out.head;
    args.cos = cos.data_ptr<float>();
    args.sin = sin.data_ptr<float>();
    args.inverse = inverse;
    kernels::rope(args);
    return {y};
  }
};

struct FusedRope : torch::autograd::Function<FusedRope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, int64_t layout) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["layout"] = layout;
    return call_kernel(Rope{static_cast<SequenceLayout>(layout), false}, {x, cos, sin})[0];
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check_unrecorded_pass(Rope::kName);
    const variable_list saved = ctx->get_saved_variables();
    const auto layout = static_cast<SequenceLayout>(ctx->saved_data["layout"].toInt());
    return {call_kernel(Rope{layout, true}, {grads[0], saved[0], saved[1]})[0], at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor reference_rope(SequenceLayout layout, const at::Tensor& x, const at::Tensor& cos,
                          const at::Tensor& sin) {
  const int64_t half = cos.size(1);
  const at::ScalarType wide = partial_sum_dtype(x.scalar_type());
  const auto angles = [&](const at::Tensor& table) {
    const at::Tensor t = table.to(wide).unsqueeze(1);  // [sequence, 1, half]
    return layout == SequenceLayout::kBatchFirst ? t.unsqueeze(0) : t.unsqueeze(1);
  };
  const at::Tensor c = angles(cos), s = angles(sin), in = x.to(wide);
  const at::Tensor first = in.narrow(3, 0, half), second = in.narrow(3, half, half);
  return at::cat({first * c - second * s, second * c + first * s,
                  in.narrow(3, 2 * half, x.size(3) - 2 * half)},
                 3)
      .to(x.scalar_type());
}

}  // namespace

at::Tensor key_mask(ProcessGroup& group, const at::Tensor& mask, const at::Tensor& queries,
                    int64_t batch, int64_t sequence) {
  if (!mask.defined()) return {};
  check_with_group(group, mask.dim() == 2 && mask.size(0) == batch && mask.size(1) == sequence,
                   "Attention", "key mask: expected shape [", batch, ", ", sequence, "], got ",
                   mask.sizes());
  check_with_group(group, at::isIntegralType(mask.scalar_type(), /*includeBool=*/true), "Attention",
                   "key mask: expected integers or booleans, got ", dtype_text(mask.scalar_type()));
  check_with_group(group, on_same_device(mask, queries), "Attention", "key mask: expected device ",
                   queries.device(), ", where the input is, got ", mask.device());
  return mask.ne(0).to(at::kByte).contiguous();
}

at::Tensor attention(const Context& context, const AttentionArgs& args, const at::Tensor& queries,
                     const at::Tensor& keys, const at::Tensor& values) {
  // A norm of heads gives F32 beside values of a product's 16 bits.
  const at::Tensor q = cast_lower(queries), k = cast_lower(keys), v = cast_lower(values);
  check_argument(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(),
                 "attention: expected queries, keys and values of one dtype, got ",
                 dtype_text(q.scalar_type()), ", ", dtype_text(k.scalar_type()), " and ",
                 dtype_text(v.scalar_type()));
  if (!use_fused(context, q)) return reference_attention(args, q, k, v);
  auto record = c10::make_intrusive<AttentionRecord>();
  record->form = {args.layout, args.causal, args.window, args.scale, 1, 0, 0};
  if (args.dropout) {
    record->form.keep = args.dropout->keep_probability;
    record->form.dropout_heads = args.dropout->heads;
    record->form.first_head = args.dropout->first_head;
    record->dropout_site = args.dropout->site();
  }
  record->key_mask = args.key_mask;
  return FusedAttention::apply(q, k, v, record);
}

at::Tensor rotate(const Context& context, SequenceLayout layout, const at::Tensor& x,
                  const at::Tensor& cos, const at::Tensor& sin) {
  if (!use_fused(context, x)) return reference_rope(layout, x, cos, sin);
  return FusedRope::apply(x, cos, sin, static_cast<int64_t>(layout));
}

}  // namespace nxd
