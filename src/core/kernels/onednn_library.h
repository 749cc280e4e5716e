#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <type_traits>

// oneDNN has 40 MB, and a program may never ask for a product. The library is loaded by the first
// call of one of its functions, not by the program's start: dnnl.hpp, which calls them, is read
// behind the names below. Include this file instead of dnnl.hpp.
namespace nxd::kernels::onednn {

// The address of a function. Loads the library; IO: it is not there, or has no such function.
void* address_of(const char* function);

}  // namespace nxd::kernels::onednn

#define NXD_ONEDNN(function)                                                        \
  ([] {                                                                             \
    static const auto address = reinterpret_cast<std::decay_t<decltype(function)>>( \
        nxd::kernels::onednn::address_of(#function));                               \
    return address;                                                                 \
  }())

// Functions of oneDNN 2 and of oneDNN 3. One that dnnl.hpp calls and that is not among them leaves
// a symbol undefined, which the linker rejects.
#define dnnl_engine_create NXD_ONEDNN(dnnl_engine_create)
#define dnnl_engine_destroy NXD_ONEDNN(dnnl_engine_destroy)
#define dnnl_get_effective_cpu_isa NXD_ONEDNN(dnnl_get_effective_cpu_isa)
#define dnnl_inner_product_backward_data_desc_init \
  NXD_ONEDNN(dnnl_inner_product_backward_data_desc_init)
#define dnnl_inner_product_backward_data_primitive_desc_create \
  NXD_ONEDNN(dnnl_inner_product_backward_data_primitive_desc_create)
#define dnnl_inner_product_backward_weights_desc_init \
  NXD_ONEDNN(dnnl_inner_product_backward_weights_desc_init)
#define dnnl_inner_product_backward_weights_primitive_desc_create \
  NXD_ONEDNN(dnnl_inner_product_backward_weights_primitive_desc_create)
#define dnnl_inner_product_forward_desc_init NXD_ONEDNN(dnnl_inner_product_forward_desc_init)
#define dnnl_inner_product_forward_primitive_desc_create \
  NXD_ONEDNN(dnnl_inner_product_forward_primitive_desc_create)
#define dnnl_matmul_desc_init NXD_ONEDNN(dnnl_matmul_desc_init)
#define dnnl_matmul_primitive_desc_create NXD_ONEDNN(dnnl_matmul_primitive_desc_create)
#define dnnl_memory_create NXD_ONEDNN(dnnl_memory_create)
#define dnnl_memory_create_v2 NXD_ONEDNN(dnnl_memory_create_v2)
#define dnnl_memory_desc_clone NXD_ONEDNN(dnnl_memory_desc_clone)
#define dnnl_memory_desc_create_with_strides NXD_ONEDNN(dnnl_memory_desc_create_with_strides)
#define dnnl_memory_desc_create_with_tag NXD_ONEDNN(dnnl_memory_desc_create_with_tag)
#define dnnl_memory_desc_destroy NXD_ONEDNN(dnnl_memory_desc_destroy)
#define dnnl_memory_desc_equal NXD_ONEDNN(dnnl_memory_desc_equal)
#define dnnl_memory_desc_get_size NXD_ONEDNN(dnnl_memory_desc_get_size)
#define dnnl_memory_desc_get_size_v2 NXD_ONEDNN(dnnl_memory_desc_get_size_v2)
#define dnnl_memory_desc_init_by_strides NXD_ONEDNN(dnnl_memory_desc_init_by_strides)
#define dnnl_memory_desc_query NXD_ONEDNN(dnnl_memory_desc_query)
#define dnnl_memory_desc_query_v2 NXD_ONEDNN(dnnl_memory_desc_query_v2)
#define dnnl_memory_destroy NXD_ONEDNN(dnnl_memory_destroy)
#define dnnl_memory_get_data_handle NXD_ONEDNN(dnnl_memory_get_data_handle)
#define dnnl_memory_set_data_handle NXD_ONEDNN(dnnl_memory_set_data_handle)
#define dnnl_memory_set_data_handle_v2 NXD_ONEDNN(dnnl_memory_set_data_handle_v2)
#define dnnl_post_ops_append_sum NXD_ONEDNN(dnnl_post_ops_append_sum)
#define dnnl_post_ops_append_sum_v2 NXD_ONEDNN(dnnl_post_ops_append_sum_v2)
#define dnnl_post_ops_create NXD_ONEDNN(dnnl_post_ops_create)
#define dnnl_post_ops_destroy NXD_ONEDNN(dnnl_post_ops_destroy)
#define dnnl_primitive_attr_create NXD_ONEDNN(dnnl_primitive_attr_create)
#define dnnl_primitive_attr_destroy NXD_ONEDNN(dnnl_primitive_attr_destroy)
#define dnnl_primitive_attr_set_post_ops NXD_ONEDNN(dnnl_primitive_attr_set_post_ops)
#define dnnl_primitive_attr_set_scratchpad_mode NXD_ONEDNN(dnnl_primitive_attr_set_scratchpad_mode)
#define dnnl_primitive_create NXD_ONEDNN(dnnl_primitive_create)
#define dnnl_primitive_desc_destroy NXD_ONEDNN(dnnl_primitive_desc_destroy)
#define dnnl_primitive_desc_iterator_create NXD_ONEDNN(dnnl_primitive_desc_iterator_create)
#define dnnl_primitive_desc_iterator_destroy NXD_ONEDNN(dnnl_primitive_desc_iterator_destroy)
#define dnnl_primitive_desc_iterator_fetch NXD_ONEDNN(dnnl_primitive_desc_iterator_fetch)
#define dnnl_primitive_desc_query_md NXD_ONEDNN(dnnl_primitive_desc_query_md)
#define dnnl_primitive_destroy NXD_ONEDNN(dnnl_primitive_destroy)
#define dnnl_primitive_execute NXD_ONEDNN(dnnl_primitive_execute)
#define dnnl_sgemm NXD_ONEDNN(dnnl_sgemm)
#define dnnl_stream_create NXD_ONEDNN(dnnl_stream_create)
#define dnnl_stream_destroy NXD_ONEDNN(dnnl_stream_destroy)

#include <oneapi/dnnl/dnnl.hpp>
