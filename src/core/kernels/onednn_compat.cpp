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

}  // namespace nxd::kernels::onednn
