// Queries, keys and values against linear layers over the whole weights, written with ATen's
// operators: separate, fused by part and fused by head, with as many key heads as others, with
// fewer, and with fewer than ranks. Outputs, the input's gradient and those of all weights at TP 1,
// 2 and 4, with and without sequence parallelism.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "capi/layer_case.h"

extern "C" {
#include <cmocka.h>
}

using namespace nxd_test;

namespace {

constexpr int64_t kSequence = 8, kBatch = 2, kHidden = 12, kHeads = 4, kWidth = 3;

struct Qkv {
  nxd_qkv_fusion_t fusion;
  int64_t kv_heads;
  bool sequence_parallel;
  nxd_dtype_t dtype;

  std::string name(int size) const {
    return "fusion " + std::to_string(fusion) + ", " + std::to_string(kv_heads) + " key heads" +
           (sequence_parallel ? ", slices" : "") + ", tp " + std::to_string(size);
  }
};

Tensor narrow(const Tensor& x, int dim, int64_t start, int64_t length) {
  return op("narrow", {{"self", x}, {"dim", dim}, {"start", start}, {"length", length}});
}

Tensor reshape(const Tensor& x, const std::vector<int64_t>& shape) {
  return op("reshape", {{"self", x}, {"shape", shape}});
}

// The heads of a part, 0 for queries, of the whole layer: [sequence, batch, heads, width]. Each
// part has a graph of its own.
Tensor whole_heads(const Qkv& c, const Weights& w, const Tensor& x, int which) {
  const int64_t heads = which == 0 ? kHeads : c.kv_heads;
  if (c.fusion == NXD_QKV_SEPARATE) {
    const char* const paths[] = {"q_proj.", "k_proj.", "v_proj."};
    return reshape(linear(x, w, paths[which]), {kSequence, kBatch, heads, kWidth});
  }
  const Tensor y = linear(x, w, "");
  const int64_t each = kHeads / c.kv_heads;
  if (c.fusion == NXD_QKV_BY_PART) {
    const int64_t first = which == 0 ? 0 : kHeads + (which - 1) * c.kv_heads;
    const Tensor all = reshape(y, {kSequence, kBatch, kHeads + 2 * c.kv_heads, kWidth});
    return narrow(all, 2, first, heads);
  }
  const Tensor groups = reshape(y, {kSequence * kBatch, c.kv_heads, each + 2, kWidth});
  const Tensor own =
      which == 0 ? narrow(groups, 2, 0, each) : narrow(groups, 2, each + which - 1, 1);
  return reshape(own, {kSequence, kBatch, heads, kWidth});
}

// This rank's heads of a whole, of which neighbours share one where there are fewer than ranks.
Tensor own_heads(const Tensor& whole, int rank, int size) {
  const int64_t heads = whole.shape()[2];
  if (heads % size == 0) return part(whole, 2, rank, size);
  return narrow(whole, 2, rank * heads / size, 1);
}

nxd_status_t create(const Qkv& c, nxd_context_t* ctx, nxd_module_t** out) {
  nxd_qkv_options_t options = NXD_QKV_OPTIONS_INIT;
  options.dtype = c.dtype;
  options.num_kv_heads = c.kv_heads;
  options.head_dim = kWidth;
  options.fusion = c.fusion;
  options.sequence_parallel = c.sequence_parallel;
  return nxd_layer_create_qkv_linear(ctx, kHidden, kHeads, &options, out);
}

void run(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const Qkv& c = *static_cast<const Qkv*>(user_data);
  Module layer;
  if (c.fusion != NXD_QKV_SEPARATE && c.kv_heads < size) {
    NXD_TEST_REFUSED(create(c, ctx, layer.out()), NXD_ERROR_INVALID_ARGUMENT, "NXD_QKV_SEPARATE");
    return;
  }
  if (!NXD_TEST_OK(create(c, ctx, layer.out()))) return;
  Weights leaves;
  for (const auto& [name, p] : layer.parameters()) {
    // Whole values that are given are split as those that were drawn are gathered.
    const Tensor w = wave(whole(p).shape(), c.dtype, static_cast<int>(leaves.size()) + 5);
    NXD_TEST_OK(nxd_parameter_set_full(p, w.get()));
    NXD_TEST_CLOSE(c.name(size) + " whole " + name, whole(p), w, 0);
    leaves[name] = leaf(w, NXD_DTYPE_F64, true);
  }
  const Tensor x = wave({kSequence, kBatch, kHidden}, c.dtype, 1);
  const int slices = c.sequence_parallel ? 0 : -1;
  const Tensor in = leaf(part(x, slices, rank, size), c.dtype, true);
  nxd_tensor_t* const input = in.get();
  nxd_tensor_t* outputs[3] = {};
  if (!NXD_TEST_OK(nxd_module_forward(layer.get(), &input, 1, outputs, 3))) return;
  const Tensor q(outputs[0]), k(outputs[1]), v(outputs[2]);
  const Tensor exact = leaf(x, NXD_DTYPE_F64, true);
  nxd_tensor_t* grads[3] = {};
  Tensor own[3];
  for (int which = 0; which < 3; ++which) {
    const Tensor want = whole_heads(c, leaves, exact, which);
    const Tensor* const got[] = {&q, &k, &v};
    const std::string what = c.name(size) + " output " + std::to_string(which);
    NXD_TEST_CLOSE(what, *got[which], own_heads(want, rank, size), tolerance(c.dtype));
    const Tensor g = wave(want.shape(), NXD_DTYPE_F64, which + 2);
    own[which] = leaf(own_heads(g, rank, size), c.dtype, false);
    grads[which] = own[which].get();
    // Each rank that holds a head gives its gradient.
    const int64_t holders = which > 0 && c.kv_heads < size ? size / c.kv_heads : 1;
    backward(want, op("mul", "Scalar", {{"self", g}, {"other", static_cast<double>(holders)}}));
  }
  NXD_TEST_OK(nxd_backward(outputs, grads, 3, 0));
  NXD_TEST_OK(nxd_finish_grads(layer.get(), nullptr, nullptr));
  NXD_TEST_CLOSE(c.name(size) + " input gradient", in.grad(),
                 part(exact.grad(), slices, rank, size), tolerance(c.dtype));
  for (const auto& [name, p] : layer.parameters()) {
    NXD_TEST_CLOSE(c.name(size) + " gradient of " + name, whole_grad(p), leaves.at(name).grad(),
                   tolerance(c.dtype));
  }
}

void check_all(nxd_qkv_fusion_t fusion) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const nxd_dtype_t dtype : {NXD_DTYPE_F64, NXD_DTYPE_F32}) {
        Qkv c{fusion, kv_heads, sequence_parallel, dtype};
        for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, run, &c);
      }
    }
  }
}

void separate(void**) { check_all(NXD_QKV_SEPARATE); }
void by_part(void**) { check_all(NXD_QKV_BY_PART); }
void by_head(void**) { check_all(NXD_QKV_BY_HEAD); }

// The same initial values on any number of ranks, and fewer outputs where fewer are asked for.
void initial_values(void**) {
  static std::map<nxd_qkv_fusion_t, std::vector<double>> first;
  for (const int size : {1, 2}) {
    nxd_test_run_ranks(
        size, size,
        [](nxd_context_t* ctx, int rank, int ranks, void*) {
          for (const nxd_qkv_fusion_t fusion :
               {NXD_QKV_SEPARATE, NXD_QKV_BY_PART, NXD_QKV_BY_HEAD}) {
            Module layer;
            if (!NXD_TEST_OK(create({fusion, 2, false, NXD_DTYPE_F32}, ctx, layer.out()))) return;
            std::vector<double> all;
            for (const auto& [name, p] : layer.parameters()) {
              for (const double value : values(whole(p))) all.push_back(value);
            }
            if (rank == 0 && ranks == 1) first[fusion] = all;
            if (ranks > 1) NXD_TEST_CHECK(first[fusion] == all);
            const Tensor q = layer({wave({3, kHidden}, NXD_DTYPE_F32, 1)});
            NXD_TEST_CHECK(q.shape() == (std::vector<int64_t>{3, kHeads / ranks, kWidth}));
          }
        },
        nullptr);
  }
}

// Values alone are used: queries and keys have gradients of zero.
void values_alone(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const nxd_qkv_fusion_t fusion : {NXD_QKV_BY_PART, NXD_QKV_BY_HEAD}) {
          for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64}) {
            Module layer;
            const Qkv c{fusion, kHeads, false, dtype};
            if (!NXD_TEST_OK(create(c, ctx, layer.out()))) return;
            const Tensor x = wave({kSequence, kBatch, kHidden}, dtype, 1);
            nxd_tensor_t* const input = x.get();
            nxd_tensor_t* outputs[3] = {};
            if (!NXD_TEST_OK(nxd_module_forward(layer.get(), &input, 1, outputs, 3))) return;
            const Tensor q(outputs[0]), k(outputs[1]), v(outputs[2]);
            backward(v, wave(v.shape(), dtype, 2));
            for (const auto& [name, p] : layer.parameters()) {
              const Tensor grad = whole_grad(p);
              const int64_t rows = grad.shape()[0];
              for (int64_t row = 0; row < rows; ++row) {
                const int64_t which =
                    fusion == NXD_QKV_BY_PART ? row / (kHeads * kWidth) : row / kWidth % 3;
                const bool is_zero = max_abs(values(narrow(grad, 0, row, 1))) == 0;
                NXD_TEST_CHECK(is_zero == (which < 2));
              }
            }
          }
        }
      },
      nullptr);
}

// Heads whose features no integer counts.
void uncountable_features(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_qkv_options_t options = NXD_QKV_OPTIONS_INIT;
        options.device = NXD_DEVICE_META;
        options.head_dim = int64_t{1} << 30;
        const int64_t heads = int64_t{1} << 40;
        for (const nxd_qkv_fusion_t fusion : {NXD_QKV_SEPARATE, NXD_QKV_BY_PART, NXD_QKV_BY_HEAD}) {
          options.fusion = fusion;
          nxd_module_t* out = nullptr;
          NXD_TEST_REFUSED(nxd_layer_create_qkv_linear(ctx, kHidden, heads, &options, &out),
                           NXD_ERROR_INVALID_ARGUMENT, "num_heads, head_dim: 1099511627776 heads");
          NXD_TEST_CHECK(out == nullptr);
        }
        nxd_attention_options_t attention = NXD_ATTENTION_OPTIONS_INIT;
        attention.device = NXD_DEVICE_META;
        attention.head_dim = options.head_dim;
        nxd_module_t* out = nullptr;
        NXD_TEST_REFUSED(nxd_layer_create_attention(ctx, kHidden, heads, &attention, &out),
                         NXD_ERROR_INVALID_ARGUMENT, "num_heads, head_dim: 1099511627776 heads");
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(separate),     cmocka_unit_test(by_part),
      cmocka_unit_test(by_head),      cmocka_unit_test(initial_values),
      cmocka_unit_test(values_alone), cmocka_unit_test(uncountable_features),
  };
  return cmocka_run_group_tests_name("layers_qkv", tests, nullptr, nullptr);
}
