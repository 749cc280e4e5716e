// Arguments that one rank of an embedding or a loss whose vocabulary is split finds bad, and ranks
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

  Buffer logits{Numbers::pattern({kTokens, 2, kRows}, 4), NXD_DTYPE_F32};
  Buffer statistics{Numbers::pattern({2, kTokens, 2}, 5), NXD_DTYPE_F32};
  Buffer loss{Numbers::pattern({kTokens, 2}, 6), NXD_DTYPE_F32};
  Buffer grad{Numbers::pattern({kTokens, 2, kRows}, 7), NXD_DTYPE_F32};
  DLTensor *pz = logits.tensor(), *ps = statistics.tensor(), *pl = loss.tensor();
  DLTensor* pg = grad.tensor();
  nxd_parallel_cross_entropy_options_t entropy = NXD_PARALLEL_CROSS_ENTROPY_OPTIONS_INIT;

  Arguments() { entropy.reduction = NXD_REDUCTION_NONE; }
  std::vector<char> outputs() const {
    std::vector<char> all;
    for (const Buffer* buffer : {&weight, &y, &logits, &statistics, &loss, &grad}) {
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

const Called kLoss = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_parallel_cross_entropy_forward(ctx, a.pz, a.pi, &a.entropy, a.ps, a.pl);
};
const Called kLossBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_parallel_cross_entropy_backward(ctx, a.pz, a.pi, a.ps, a.pl, &a.entropy, a.pg);
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
      {&kEmbedding, "ids: expected none (the vocabulary is empty), got 0",
       [](Arguments& a) { reshape(a.pw, 0, 0); }},
      {&kEmbedding, "padding_idx: expected none (the vocabulary is empty), got 0",
       [](Arguments& a) { reshape(a.pw, 0, 0), a.embedding.has_padding_idx = 1; }},
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
      {&kEmbedding, "digest of the shape of the ids: expected the same on all ranks",
       [](Arguments& a) { turn(a.pi), turn(a.py); }},
      {&kEmbedding, "digest of the ids: expected the same on all ranks",
       [](Arguments& a) { a.ids.set(0, 7); }},
      {&kEmbedding, "number of ids: expected the same on all ranks, got 10 on rank 1 and 12 on",
       [](Arguments& a) { reshape(a.pi, 0, 5), reshape(a.py, 0, 5); }},
      {&kEmbedding, "num_embeddings: expected the same on all ranks, got 9 on rank 1 and 12 on",
       [](Arguments& a) {
         a.embedding.num_embeddings = 9;
         for (int i = 0; i < 12; ++i) a.ids.set(i, i % 9);
       }},
      {&kEmbeddingBackward, "accumulate_grads: expected the same on all ranks",
       [](Arguments& a) { a.embedding.accumulate_grads = 1; }},
      {&kEmbeddingBackward, "padding_idx (-1: none): expected the same on all ranks, got -1 on",
       [](Arguments& a) { a.embedding.has_padding_idx = 1; }},
  };
}

std::vector<Slip<Arguments>> slips_of_losses() {
  static int64_t turned[] = {kRows, kTokens * kRows, 1};
  static char small[8];
  return {
      {&kLoss, "logits: expected an array, got NULL", [](Arguments& a) { a.pz = nullptr; }},
      {&kLoss, "labels: expected an array, got NULL", [](Arguments& a) { a.pi = nullptr; }},
      {&kLoss, "loss: expected an array, got NULL", [](Arguments& a) { a.pl = nullptr; }},
      {&kLossBackward, "statistics: expected an array, got NULL",
       [](Arguments& a) { a.ps = nullptr; }},
      {&kLossBackward, "grad_logits: expected an array, got NULL",
       [](Arguments& a) { a.pg = nullptr; }},
      {&kLoss, "logits: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.pz->dtype.code = kDLInt; }},
      {&kLoss, "labels: expected i32 or i64, got f64",
       [](Arguments& a) { a.pi->dtype.code = kDLFloat; }},
      {&kLoss, "statistics: expected f32 for logits of f32, got i32",
       [](Arguments& a) { a.ps->dtype.code = kDLInt; }},
      {&kLossBackward, "grad_loss: expected f32 for logits of f32, got i32",
       [](Arguments& a) { a.pl->dtype.code = kDLInt; }},
      {&kLossBackward, "grad_logits: expected f32 as logits, got i32",
       [](Arguments& a) { a.pg->dtype.code = kDLInt; }},
      {&kLoss, "logits: expected at least 1 column of the vocabulary, got the shape [6, 2, 0]",
       [](Arguments& a) { reshape(a.pz, 2, 0); }},
      {&kLoss, "labels: expected the shape [5, 2], got [6, 2]",
       [](Arguments& a) { reshape(a.pz, 0, 5); }},
      {&kLoss, "statistics: expected the shape [2, 6, 2], got [2, 6, 1]",
       [](Arguments& a) { reshape(a.ps, 2, 1); }},
      {&kLoss, "loss: expected the shape [], got [6, 2]",
       [](Arguments& a) { a.entropy.reduction = NXD_REDUCTION_MEAN; }},
      {&kLossBackward, "grad_loss: expected the shape [6, 2], got [6]",
       [](Arguments& a) { a.pl->ndim = 1; }},
      {&kLossBackward, "grad_logits: expected the shape [6, 2, 4], got [6, 2, 3]",
       [](Arguments& a) { reshape(a.pg, 2, 3); }},
      {&kLoss, "labels: expected 0 to 11, or -100 to ignore, got 12",
       [](Arguments& a) { a.ids.set(3, 12); }},
      {&kLossBackward, "labels: expected 0 to 11, or -7 to ignore, got -100",
       [](Arguments& a) {
         a.ids.set(3, -100);
         a.entropy.has_ignore_index = 1;
         a.entropy.ignore_index = -7;
       }},
      {&kLoss, "vocab_size: expected 0 to 12, the columns of all ranks, got 13",
       [](Arguments& a) { a.entropy.vocab_size = 13; }},
      {&kLoss, "label_smoothing: expected 0 to 1, got 1.5",
       [](Arguments& a) { a.entropy.label_smoothing = 1.5; }},
      {&kLoss, "smoothing: expected an NXD_SMOOTHING_*, got 2",
       [](Arguments& a) { a.entropy.smoothing = 2; }},
      {&kLossBackward, "reduction: expected an NXD_REDUCTION_*, got 3",
       [](Arguments& a) { a.entropy.reduction = 3; }},
      {&kLoss, "has_ignore_index: expected 0 or 1, got 2",
       [](Arguments& a) { a.entropy.has_ignore_index = 2; }},
      {&kLoss, "loss: expected memory apart from that of logits",
       [](Arguments& a) { a.pl->data = a.pz->data; }},
      {&kLossBackward, "grad_logits: expected memory apart from that of logits",
       [](Arguments& a) { a.pg->data = static_cast<char*>(a.pz->data) + 4; }},
      {&kLossBackward, "grad_logits: expected memory apart from that of logits",
       [](Arguments& a) { a.pg->data = a.pz->data, a.pg->strides = turned; }},
      {&kLossBackward, "grad_logits: expected memory apart from that of statistics",
       [](Arguments& a) { a.pg->data = a.ps->data; }},
      {&kLoss, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.entropy.workspace = small; }},
      {&kLoss, "options.struct_size", [](Arguments& a) { a.entropy.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      // Good arguments, but others than those of the peers.
      {&kLoss, "digest of the shape of the logits: expected the same on all ranks",
       [](Arguments& a) { turn(a.pz), turn(a.pi), turn(a.pl), turn(a.ps, 1); }},
      {&kLoss, "digest of the labels: expected the same on all ranks",
       [](Arguments& a) { a.ids.set(0, 7); }},
      {&kLoss, "reserved: expected 0, got -1", [](Arguments& a) { a.entropy.reserved = -1; }},
      {&kLossBackward, "label_smoothing: expected the same on all ranks, got 0 on rank 0 and 0.1",
       [](Arguments& a) { a.entropy.label_smoothing = 0.1; }},
      {&kLoss, "columns of the logits: expected the same on all ranks, got 3 on rank 1 and 4 on",
       [](Arguments& a) {
         reshape(a.pz, 2, 3);
         for (int i = 0; i < 12; ++i) a.ids.set(i, 0);
       }},
  };
}

void slips_fail_on_all_ranks(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_slips(ctx, rank, slips_of_embeddings());
        check_slips(ctx, rank, slips_of_losses());
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
        for (int i = 0; i < 12; ++i) a.ids.set(i, 0);
        bytes = 1;
        NXD_TEST_REFUSED(nxd_parallel_cross_entropy_forward_get_workspace(
                             ctx, a.pz, a.pi, &a.entropy, a.pz, a.pl, &bytes),
                         NXD_ERROR_INVALID_ARGUMENT, "statistics: expected the shape");
        NXD_TEST_CHECK(bytes == 0);
        NXD_TEST_REFUSED(nxd_parallel_cross_entropy_backward_get_workspace(
                             ctx, a.pz, a.pi, a.ps, a.pl, &a.entropy, a.pg, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "out_bytes: expected a pointer, got NULL");
      },
      nullptr);
}

const Called* const kCalls[] = {&kEmbedding, &kEmbeddingBackward, &kLoss, &kLossBackward};

void other_calls_are_found(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_other_calls<Arguments>(ctx, rank, {std::begin(kCalls), std::end(kCalls)});
      },
      nullptr);
}

void lost_ranks(void**) { check_lost_ranks<Arguments>({std::begin(kCalls), std::end(kCalls)}); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(slips_fail_on_all_ranks), cmocka_unit_test(slips_fail_alone),
      cmocka_unit_test(other_calls_are_found), cmocka_unit_test(lost_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
