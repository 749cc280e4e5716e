#include "core/kernels/matmul_cache.h"

namespace nxd::kernels {
namespace {

dnnl::memory::data_type data_type(int32_t dtype) {
  return dtype == NXD_DTYPE_BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t cols, int64_t ld, bool trans, int32_t dtype) {
  const dnnl::memory::dims strides = trans ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {{rows, cols}, data_type(dtype), strides};
}

dnnl::primitive_attr attributes(bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  return attributes;
}

}  // namespace

Matmul::Matmul(const MatmulKey& key) {
  if (!key.inner_product || !make_inner_product(key)) make_matmul(key);
}

void Matmul::set_memory(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                        const dnnl::memory::desc& c, const dnnl::memory::desc& scratch) {
  auto& engine = onednn::cpu_engine();
  a_ = dnnl::memory(a, engine, nullptr);
  b_ = dnnl::memory(b, engine, nullptr);
  c_ = dnnl::memory(c, engine, nullptr);
  scratch_ = dnnl::memory(scratch, engine, nullptr);
  scratch_bytes_ = scratch.get_size();
}

void Matmul::make_matmul(const MatmulKey& key) {
  const auto a = matrix(key.m, key.k, key.lda, key.trans_a, key.in_dtype);
  const auto b = matrix(key.k, key.n, key.ldb, key.trans_b, key.in_dtype);
  const auto c = matrix(key.m, key.n, key.ldc, false, key.out_dtype);
  const auto bias = key.bias ? matrix(1, key.n, key.n, false, key.out_dtype) : dnnl::memory::desc();
  const auto description = onednn::matmul_primitive_desc(a, b, bias, c, attributes(key.accumulate));
  primitive_ = dnnl::matmul(description);
  set_memory(a, b, c, description.scratchpad_desc());
  arguments_ = {{DNNL_ARG_SRC, a_},
                {DNNL_ARG_WEIGHTS, b_},
                {DNNL_ARG_DST, c_},
                {DNNL_ARG_SCRATCHPAD, scratch_}};
  if (key.bias) {
    bias_ = dnnl::memory(bias, onednn::cpu_engine(), nullptr);
    arguments_.emplace(DNNL_ARG_BIAS, bias_);
  }
}

// Forward is A B^T, the gradient of the input A B, that of the weight A^T B.
bool Matmul::make_inner_product(const MatmulKey& key) {
  const auto a = key.trans_a ? matrix(key.k, key.m, key.m, false, key.in_dtype)
                             : matrix(key.m, key.k, key.k, false, key.in_dtype);
  const auto b = key.trans_b ? matrix(key.n, key.k, key.k, false, key.in_dtype)
                             : matrix(key.k, key.n, key.n, false, key.in_dtype);
  const auto c = matrix(key.m, key.n, key.n, false, key.out_dtype);
  try {
    if (key.trans_a) {
      const auto description = onednn::weight_gradient_primitive_desc(b, c, a, attributes(false));
      primitive_ = dnnl::inner_product_backward_weights(description);
      set_memory(a, b, c, description.scratchpad_desc());
      arguments_ = {{DNNL_ARG_DIFF_DST, a_}, {DNNL_ARG_SRC, b_}, {DNNL_ARG_DIFF_WEIGHTS, c_}};
    } else if (key.trans_b) {
      const auto bias =
          key.bias ? dnnl::memory::desc({key.n}, data_type(key.out_dtype), dnnl::memory::dims{1})
                   : dnnl::memory::desc();
      const auto description =
          onednn::inner_product_primitive_desc(a, b, bias, c, attributes(false));
      primitive_ = dnnl::inner_product_forward(description);
      set_memory(a, b, c, description.scratchpad_desc());
      arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
      if (key.bias) {
        bias_ = dnnl::memory(bias, onednn::cpu_engine(), nullptr);
        arguments_.emplace(DNNL_ARG_BIAS, bias_);
      }
    } else {
      const auto description = onednn::input_gradient_primitive_desc(c, b, a, attributes(false));
      primitive_ = dnnl::inner_product_backward_data(description);
      set_memory(a, b, c, description.scratchpad_desc());
      arguments_ = {{DNNL_ARG_DIFF_DST, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DIFF_SRC, c_}};
    }
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    return false;
  }
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratch_);
  return true;
}

void Matmul::run(const dnnl::stream& stream, const GemmArgs& args, void* scratch) {
  a_.set_data_handle(const_cast<void*>(args.a));
  b_.set_data_handle(const_cast<void*>(args.b));
  c_.set_data_handle(args.c);
  if (args.bias) bias_.set_data_handle(const_cast<void*>(args.bias));
  scratch_.set_data_handle(scratch);
  primitive_.execute(stream, arguments_);
}

size_t MatmulCache::Hash::operator()(const MatmulKey& key) const noexcept {
  uint64_t hash = 0;
  const auto mix = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  };
  for (const int64_t value : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc}) mix(value);
  mix(key.in_dtype * 4096 + key.out_dtype * 64 + key.threads);
  mix(key.trans_a + 2 * key.trans_b + 4 * key.accumulate + 8 * key.bias + 16 * key.inner_product);
  return hash;
}

Matmul& MatmulCache::get(const MatmulKey& key) {
  if (Matmul* const found = matmuls_.find(key)) return *found;
  matmuls_.add(key, Matmul(key));
  return *matmuls_.find(key);
}

}  // namespace nxd::kernels
