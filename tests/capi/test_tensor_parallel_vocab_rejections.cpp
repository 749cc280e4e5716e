// Arguments that one rank of an embedding whose vocabulary is split finds bad, and ranks
// that disagree or are lost.
#include "support/layer_slips.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int64_t kRows = 4, kHidden = 5, kTokens = 6;

Numbers some_ids() {
  Numbers ids({kTokens, 2});
  for (size_t i = 0; i < ids.values.size(); ++i) ids.values[i] = static_cast<double>(i % 12);
  return ids;
}

struct Arguments {
  Buffer ids{some_ids(), NXD_DTYPE_I64};
  Buffer weight{Numbers::pattern({kRows, kHidden}, 2), NXD_DTYPE_F32};
  Buffer y{Numbers::pattern({kTokens, 2, kHidden}, 3), NXD_DTYPE_F32};
  DLTensor *pi = ids.tensor(), *pw = weight.tensor(), *py = y.tensor();
  nxd_vocab_parallel_embedding_options_t embedding = NXD_VOCAB_PARALLEL_EMBEDDING_OPTIONS_INIT;

  std::vector<char> outputs() const {
    std::vector<char> all;
    for (const Buffer* buffer : {&weight, &y}) {
      const std::vector<char> bytes = buffer->bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

using Called = LayerCall<Arguments>;

const Called kEmbedding = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_vocab_parallel_embedding_forward(ctx, a.pi, a.pw, &a.embedding, a.py);
};
const Called kEmbeddingBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_vocab_parallel_embedding_backward(ctx, a.pi, a.py, &a.embedding, a.pw);
};

std::vector<Slip<Arguments>> slips_of_embeddings() {
  static int64_t still[] = {0, 1};
  static char small[8];
  return {
      {&kEmbedding, "ids: expected an array, got NULL", [](Arguments& a) { a.pi = nullptr; }},
      {&kEmbedding, "weight: expected an array, got NULL", [](Arguments& a) { a.pw = nullptr; }},
      {&kEmbeddingBackward, "grad_weight: expected an array, got NULL",
       [](Arguments& a) { a.pw = nullptr; }},
      {&kEmbeddingBackward, "grad_y: expected an array, got NULL",
       [](Arguments& a) { a.py = nullptr; }},
      {&kEmbedding, "ids: expected i32 or i64, got f64",
       [](Arguments& a) { a.pi->dtype.code = kDLFloat; }},
      {&kEmbedding, "weight: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.pw->dtype.code = kDLInt; }},
      {&kEmbedding, "y: expected f32 as weight, got i32",
       [](Arguments& a) { a.py->dtype.code = kDLInt; }},
      {&kEmbeddingBackward, "grad_weight: expected f32 as grad_y, got i32",
       [](Arguments& a) { a.pw->dtype.code = kDLInt; }},
      {&kEmbedding, "weight: expected 2 dimensions, got the shape [4]",
       [](Arguments& a) { a.pw->ndim = 1; }},
      {&kEmbedding, "y: expected the shape [6, 2, 5], got [5, 2, 5]",
       [](Arguments& a) { reshape(a.py, 0, 5); }},
      {&kEmbeddingBackward, "grad_y: expected the shape [6, 2, 5], got [6, 2, 4]",
       [](Arguments& a) { reshape(a.py, 2, 4); }},
      {&kEmbedding, "ids: expected 0 to 11, got 12", [](Arguments& a) { a.ids.set(3, 12); }},
      {&kEmbeddingBackward, "ids: expected 0 to 11, got -1",
       [](Arguments& a) { a.ids.set(3, -1); }},
      {&kEmbedding, "num_embeddings: expected 0 to 12, the rows of all ranks, got 13",
       [](Arguments& a) { a.embedding.num_embeddings = 13; }},
      {&kEmbedding, "num_embeddings: expected 0 to 12, the rows of all ranks, got -1",
       [](Arguments& a) { a.embedding.num_embeddings = -1; }},
      {&kEmbeddingBackward, "padding_idx: expected 0 to 11, got 12",
       [](Arguments& a) { a.embedding.has_padding_idx = 1, a.embedding.padding_idx = 12; }},
      {&kEmbedding, "has_padding_idx: expected 0 or 1, got 2",
       [](Arguments& a) { a.embedding.has_padding_idx = 2; }},
      {&kEmbedding, "sequence_dim: expected a dimension before the last of y, which has 3, got 2",
       [](Arguments& a) { a.embedding.sequence_parallel = 1, a.embedding.sequence_dim = 2; }},
      {&kEmbedding, "ids: expected a size of dimension 1 that divides by the 3 ranks",
       [](Arguments& a) { a.embedding.sequence_parallel = 1, a.embedding.sequence_dim = 1; }},
      {&kEmbedding, "y: expected memory apart from that of weight",
       [](Arguments& a) { a.py->data = a.pw->data; }},
      {&kEmbeddingBackward, "grad_weight: expected memory apart from that of ids",
       [](Arguments& a) { a.pw->data = a.pi->data; }},
      {&kEmbeddingBackward, "grad_weight: expected a place of its own for each element",
       [](Arguments& a) { a.pw->strides = still; }},
      {&kEmbedding, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.embedding.workspace = small, a.pi->dtype.bits = 32; }},
      {&kEmbedding, "options.struct_size", [](Arguments& a) { a.embedding.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      // Good arguments, but others than those of the peers.
      {&kEmbedding, "digest of the ids: expected the same on all ranks",
       [](Arguments& a) { a.ids.set(0, 7); }},
      {&kEmbedding, "number of ids: expected the same on all ranks, got 10 on rank 1 and 12 on",
       [](Arguments& a) { reshape(a.pi, 0, 5), reshape(a.py, 0, 5); }},
      {&kEmbedding, "num_embeddings: expected the same on all ranks, got 9 on rank 1 and 12 on",
       [](Arguments& a) {
         a.embedding.num_embeddings = 9;
         for (int i = 0; i < 12; ++i) a.ids.set(i, i % 9);
       }},
      {&kEmbeddingBackward, "padding_idx (-1: none): expected the same on all ranks, got -1 on",
       [](Arguments& a) { a.embedding.has_padding_idx = 1; }},
  };
}

void slips_fail_on_all_ranks(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_slips(ctx, rank, slips_of_embeddings());
      },
      nullptr);
}

void slips_fail_alone(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        Arguments a;
        NXD_TEST_REFUSED(kEmbedding(ctx, a), NXD_ERROR_INVALID_ARGUMENT,
                         "ids: expected 0 to 3, got 4");
        NXD_TEST_REFUSED(
            nxd_vocab_parallel_embedding_forward(nullptr, a.pi, a.pw, &a.embedding, a.py),
            NXD_ERROR_INVALID_ARGUMENT, "ctx: expected a context, got NULL");
        size_t bytes = 1;
        NXD_TEST_REFUSED(nxd_vocab_parallel_embedding_forward_get_workspace(
                             ctx, a.pi, a.pi, &a.embedding, a.py, &bytes),
                         NXD_ERROR_INVALID_ARGUMENT, "weight: expected f32");
        NXD_TEST_CHECK(bytes == 0);
        NXD_TEST_REFUSED(nxd_vocab_parallel_embedding_backward_get_workspace(
                             ctx, a.pi, a.py, &a.embedding, a.pw, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "out_bytes: expected a pointer, got NULL");
      },
      nullptr);
}

const Called* const kCalls[] = {&kEmbedding, &kEmbeddingBackward};

void other_calls_are_found(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_other_calls<Arguments>(ctx, rank, {std::begin(kCalls), std::end(kCalls)});
      },
      nullptr);
}

void lost_ranks(void**) {
  for (const Called* call : kCalls) {
    nxd_test_run_ranks(
        kSlipRanks, kSlipRanks,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          check_lost(ctx, rank, *static_cast<const Called*>(user_data));
        },
        const_cast<Called*>(call));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(slips_fail_on_all_ranks), cmocka_unit_test(slips_fail_alone),
      cmocka_unit_test(other_calls_are_found), cmocka_unit_test(lost_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
