#pragma once

#include <oneapi/dnnl/dnnl.hpp>

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

}  // namespace nxd::kernels::onednn
