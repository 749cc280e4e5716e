#pragma once

#include "core/kernels/onednn_library.h"

// The only place that knows how oneDNN 2.x and 3.x differ.
namespace nxd::kernels::onednn {

// The CPU engine of the process. Never destroyed: threads may outlive main's statics.
dnnl::engine& cpu_engine();

// c = a b (+ bias); bias may be a zero memory descriptor.
dnnl::matmul::primitive_desc matmul_primitive_desc(const dnnl::memory::desc& a,
                                                   const dnnl::memory::desc& b,
                                                   const dnnl::memory::desc& bias,
                                                   const dnnl::memory::desc& c,
                                                   const dnnl::primitive_attr& attributes);

// dst = src weights^T (+ bias); bias may be a zero memory descriptor.
dnnl::inner_product_forward::primitive_desc inner_product_primitive_desc(
    const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& dst,
    const dnnl::primitive_attr& attributes);

// diff_src = diff_dst weights.
dnnl::inner_product_backward_data::primitive_desc input_gradient_primitive_desc(
    const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& diff_dst, const dnnl::primitive_attr& attributes);

// diff_weights = diff_dst^T src.
dnnl::inner_product_backward_weights::primitive_desc weight_gradient_primitive_desc(
    const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights,
    const dnnl::memory::desc& diff_dst, const dnnl::primitive_attr& attributes);

}  // namespace nxd::kernels::onednn
