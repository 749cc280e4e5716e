#include "core/kernels/onednn_compat.h"

namespace nxd::kernels::onednn {

dnnl::engine& cpu_engine() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::matmul::primitive_desc matmul_primitive_desc(const dnnl::memory::desc& a,
                                                   const dnnl::memory::desc& b,
                                                   const dnnl::memory::desc& bias,
                                                   const dnnl::memory::desc& c,
                                                   const dnnl::primitive_attr& attributes) {
  const bool with_bias = bias != dnnl::memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  if (with_bias) return {cpu_engine(), a, b, bias, c, attributes};
  return {cpu_engine(), a, b, c, attributes};
#else
  const auto description =
      with_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {description, attributes, cpu_engine()};
#endif
}

namespace {

// Description of the forward pass that oneDNN wants for a backward one. Outputs of another dtype
// than the operands' do not matter to it.
dnnl::inner_product_forward::primitive_desc forward_hint(const dnnl::memory::desc& src,
                                                         const dnnl::memory::desc& weights,
                                                         const dnnl::memory::desc& dst) {
  return inner_product_primitive_desc(src, weights, {}, dst, {});
}

dnnl::memory::desc with_dtype_of(const dnnl::memory::desc& x, const dnnl::memory::desc& like) {
#if DNNL_VERSION_MAJOR >= 3
  return {x.get_dims(), like.get_data_type(), x.get_strides()};
#else
  return {x.dims(), like.data_type(), dnnl::memory::dims{x.dims()[1], 1}};
#endif
}

}  // namespace

dnnl::inner_product_forward::primitive_desc inner_product_primitive_desc(
    const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& dst,
    const dnnl::primitive_attr& attributes) {
  const auto kind = dnnl::prop_kind::forward_training;
  const bool with_bias = bias != dnnl::memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  if (with_bias) return {cpu_engine(), kind, src, weights, bias, dst, attributes};
  return {cpu_engine(), kind, src, weights, dst, attributes};
#else
  using Desc = dnnl::inner_product_forward::desc;
  const Desc description =
      with_bias ? Desc(kind, src, weights, bias, dst) : Desc(kind, src, weights, dst);
  return {description, attributes, cpu_engine()};
#endif
}

dnnl::inner_product_backward_data::primitive_desc input_gradient_primitive_desc(
    const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const dnnl::primitive_attr& attributes) {
  const auto hint = forward_hint(with_dtype_of(diff_src, weights), weights, diff_dst);
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), diff_src, weights, diff_dst, hint, attributes};
#else
  return {{diff_src, weights, diff_dst}, attributes, cpu_engine(), hint};
#endif
}

dnnl::inner_product_backward_weights::primitive_desc weight_gradient_primitive_desc(
    const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_dst, const dnnl::primitive_attr& attributes) {
  const auto hint = forward_hint(src, with_dtype_of(diff_weights, src), diff_dst);
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), src, diff_weights, diff_dst, hint, attributes};
#else
  return {{src, diff_weights, diff_dst}, attributes, cpu_engine(), hint};
#endif
}

}  // namespace nxd::kernels::onednn
