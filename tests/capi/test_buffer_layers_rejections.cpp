// Arguments that one rank of a norm, a dropout or a head with its loss finds bad, and ranks that
// disagree or are lost.
#include "support/layer_slips.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int64_t kFeatures = 5, kTokens = 6, kClasses = 4;

Numbers some_labels() {
  Numbers labels({kTokens, 2});
  for (size_t i = 0; i < labels.values.size(); ++i) labels.values[i] = static_cast<double>(i % 12);
  return labels;
}

struct Arguments {
  Buffer x{Numbers::pattern({kTokens, 2, kFeatures}, 1), NXD_DTYPE_F32};
  Buffer weight{Numbers::pattern({kFeatures}, 2), NXD_DTYPE_F32};
  Buffer bias{Numbers::pattern({kFeatures}, 3), NXD_DTYPE_F32};
  Buffer y{Numbers::pattern({kTokens, 2, kFeatures}, 4), NXD_DTYPE_F32};
  Buffer rms{Numbers::pattern({kTokens, 2}, 5), NXD_DTYPE_F32};
  Buffer layer{Numbers::pattern({2, kTokens, 2}, 6), NXD_DTYPE_F32};
  Buffer dx{Numbers::pattern({kTokens, 2, kFeatures}, 7), NXD_DTYPE_F32};
  Buffer dw{Numbers::pattern({kFeatures}, 8), NXD_DTYPE_F32};
  Buffer db{Numbers::pattern({kFeatures}, 9), NXD_DTYPE_F32};
  DLTensor *px = x.tensor(), *pw = weight.tensor(), *pb = bias.tensor(), *py = y.tensor();
  DLTensor *pr = rms.tensor(), *pl = layer.tensor();
  DLTensor *pdx = dx.tensor(), *pdw = dw.tensor(), *pdb = db.tensor();
  nxd_normalization_options_t norm = NXD_NORMALIZATION_OPTIONS_INIT;

  const char* name = "model.dropout";
  nxd_dropout_options_t dropout = NXD_DROPOUT_OPTIONS_INIT;

  Buffer head{Numbers::pattern({kClasses, kFeatures}, 10), NXD_DTYPE_F32};
  Buffer head_bias{Numbers::pattern({kClasses}, 11), NXD_DTYPE_F32};
  Buffer labels{some_labels(), NXD_DTYPE_I64};
  Buffer loss{Numbers::pattern({kTokens, 2}, 12), NXD_DTYPE_F32};
  Buffer dhead{Numbers::pattern({kClasses, kFeatures}, 13), NXD_DTYPE_F32};
  DLTensor *ph = head.tensor(), *phb = head_bias.tensor(), *pt = labels.tensor();
  DLTensor *po = loss.tensor(), *pdh = dhead.tensor();
  nxd_linear_cross_entropy_options_t entropy = NXD_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;

  Arguments() {
    dropout.p = 0.5;
    entropy.reduction = NXD_REDUCTION_NONE;
  }
  std::vector<char> outputs() const {
    std::vector<char> all;
    for (const Buffer* buffer : {&y, &rms, &layer, &dx, &dw, &db, &loss, &dhead}) {
      const std::vector<char> bytes = buffer->bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

using Called = LayerCall<Arguments>;

const Called kRms = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_rms_norm_forward(ctx, a.px, a.pw, &a.norm, a.py, a.pr);
};
const Called kRmsBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_rms_norm_backward(ctx, a.px, a.pw, a.pr, a.py, &a.norm, a.pdx, a.pdw);
};
const Called kLayer = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_layer_norm_forward(ctx, a.px, a.pw, a.pb, &a.norm, a.py, a.pl);
};
const Called kLayerBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_layer_norm_backward(ctx, a.px, a.pw, a.pl, a.py, &a.norm, a.pdx, a.pdw, a.pdb);
};
const Called kDropout = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_dropout_forward(ctx, a.name, a.px, &a.dropout, a.py);
};
const Called kDropoutBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_dropout_backward(ctx, a.name, a.py, &a.dropout, a.pdx);
};
const Called kHead = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_linear_cross_entropy_forward(ctx, a.px, a.ph, a.phb, a.pt, &a.entropy, a.pl, a.po);
};
const Called kHeadBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_linear_cross_entropy_backward(ctx, a.px, a.ph, a.phb, a.pt, a.pl, a.po, &a.entropy,
                                           a.pdx, a.pdh, nullptr);
};

std::vector<Slip<Arguments>> slips_of_norms() {
  static int64_t still[] = {0};
  static char small[8];
  return {
      {&kRms, "x: expected an array, got NULL", [](Arguments& a) { a.px = nullptr; }},
      {&kRms, "y: expected an array, got NULL", [](Arguments& a) { a.py = nullptr; }},
      {&kLayerBackward, "grad_y: expected an array, got NULL",
       [](Arguments& a) { a.py = nullptr; }},
      {&kRmsBackward, "statistics: expected an array, got NULL",
       [](Arguments& a) { a.pr = nullptr; }},
      {&kRms, "x: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.px->dtype.code = kDLInt; }},
      {&kRms, "weight: expected f32 as x, got i32",
       [](Arguments& a) { a.pw->dtype.code = kDLInt; }},
      {&kLayer, "bias: expected f32 as x, got i32",
       [](Arguments& a) { a.pb->dtype.code = kDLInt; }},
      {&kLayerBackward, "grad_bias: expected f32 as x, got i32",
       [](Arguments& a) { a.pdb->dtype.code = kDLInt; }},
      {&kRms, "statistics: expected f32 for x of f32, got i32",
       [](Arguments& a) { a.pr->dtype.code = kDLInt; }},
      {&kRms, "x: expected at least 1 feature in the last dimension, got the shape [6, 2, 0]",
       [](Arguments& a) { reshape(a.px, 2, 0); }},
      {&kRms, "weight: expected the shape [5], got [4]", [](Arguments& a) { reshape(a.pw, 0, 4); }},
      {&kLayer, "bias: expected the shape [5], got [4]", [](Arguments& a) { reshape(a.pb, 0, 4); }},
      {&kRms, "y: expected the shape [6, 2, 5], got [5, 2, 5]",
       [](Arguments& a) { reshape(a.py, 0, 5); }},
      {&kLayer, "statistics: expected the shape [2, 6, 2], got [2, 6, 1]",
       [](Arguments& a) { reshape(a.pl, 2, 1); }},
      {&kRmsBackward, "statistics: expected the shape [6, 2], got [6, 1]",
       [](Arguments& a) { reshape(a.pr, 1, 1); }},
      {&kRmsBackward, "grad_x: expected the shape [6, 2, 5], got [6, 2, 4]",
       [](Arguments& a) { reshape(a.pdx, 2, 4); }},
      {&kRmsBackward, "grad_weight: expected the shape [5], got [4]",
       [](Arguments& a) { reshape(a.pdw, 0, 4); }},
      {&kRms, "eps: expected a positive number, got -1", [](Arguments& a) { a.norm.eps = -1; }},
      {&kLayer, "eps: expected a positive number, got nan", [](Arguments& a) { a.norm.eps = NAN; }},
      {&kRms, "sequence_parallel: expected 0 or 1, got 2",
       [](Arguments& a) { a.norm.sequence_parallel = 2; }},
      {&kRmsBackward, "accumulate_grads: expected 0 or 1, got 2",
       [](Arguments& a) { a.norm.accumulate_grads = 2; }},
      {&kRms, "y: expected memory apart from that of x",
       [](Arguments& a) { a.py->data = a.px->data; }},
      {&kLayerBackward, "grad_bias: expected memory apart from that of grad_weight",
       [](Arguments& a) { a.pdb->data = a.pdw->data; }},
      {&kLayerBackward, "grad_weight: expected a place of its own for each element",
       [](Arguments& a) { a.pdw->strides = still; }},
      {&kRmsBackward, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.norm.workspace = small; }},
      {&kRms, "options.struct_size", [](Arguments& a) { a.norm.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      // Good arguments, but others than those of the peers.
      {&kRms, "eps: expected the same on all ranks, got 9.999999747378752e-06 on rank",
       [](Arguments& a) { a.norm.eps = 1e-5F; }},
      {&kRmsBackward, "accumulate_grads: expected the same on all ranks",
       [](Arguments& a) { a.norm.accumulate_grads = 1; }},
      {&kRmsBackward, "grad_x: expected the same on all ranks",
       [](Arguments& a) { a.pdx = nullptr; }},
      {&kHeadBackward, "accumulate_grads: expected the same on all ranks",
       [](Arguments& a) { a.entropy.accumulate_grads = 1; }},
      {&kHead, "block_tokens: expected the same on all ranks",
       [](Arguments& a) { a.entropy.block_tokens = 2; }},
      {&kRmsBackward, "sequence_parallel: expected the same on all ranks, got 0 on rank 0 and 1",
       [](Arguments& a) { a.norm.sequence_parallel = 1; }},
      {&kRms, "weight: expected the same on all ranks", [](Arguments& a) { a.pw = nullptr; }},
      {&kRms, "digest of the shape of x (0: each rank's own): expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.py), turn(a.pr); }},
      {&kLayerBackward, "grad_bias: expected the same on all ranks",
       [](Arguments& a) { a.pdb = nullptr; }},
      {&kRms, "rows of x (0: each rank's own): expected the same on all ranks",
       [](Arguments& a) { reshape(a.px, 0, 5), reshape(a.py, 0, 5), reshape(a.pr, 0, 5); }},
  };
}

std::vector<Slip<Arguments>> slips_of_dropouts() {
  static int64_t turned[] = {kFeatures, kTokens * kFeatures, 1};
  static char small[8];
  return {
      {&kDropout, "name: expected the name of a layer, got NULL",
       [](Arguments& a) { a.name = nullptr; }},
      {&kDropout, "name: expected the name of a layer, got \"\"",
       [](Arguments& a) { a.name = ""; }},
      {&kDropout, "x: expected an array, got NULL", [](Arguments& a) { a.px = nullptr; }},
      {&kDropoutBackward, "grad_x: expected an array, got NULL",
       [](Arguments& a) { a.pdx = nullptr; }},
      {&kDropout, "x: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.px->dtype.code = kDLInt; }},
      {&kDropoutBackward, "grad_x: expected f32 as grad_y, got i32",
       [](Arguments& a) { a.pdx->dtype.code = kDLInt; }},
      {&kDropout, "y: expected the shape [6, 2, 5], got [5, 2, 5]",
       [](Arguments& a) { reshape(a.py, 0, 5); }},
      {&kDropout, "p: expected a probability from 0 to below 1, got 1",
       [](Arguments& a) { a.dropout.p = 1; }},
      {&kDropout, "p: expected a probability from 0 to below 1, got 1.0000001",
       [](Arguments& a) { a.dropout.p = 1.0000001; }},
      {&kDropout, "p: expected a probability from 0 to below 1, got nan",
       [](Arguments& a) { a.dropout.p = NAN; }},
      {&kDropout, "step, microbatch: expected 0 or more, got -1 and 0",
       [](Arguments& a) { a.dropout.has_position = 1, a.dropout.step = -1; }},
      {&kDropout, "shard_dim: expected a dimension of an array with 3 dimensions, got 3",
       [](Arguments& a) { a.dropout.has_shard_dim = 1, a.dropout.shard_dim = 3; }},
      {&kDropout, "transposed: expected at least 2 dimensions, got the shape [6]",
       [](Arguments& a) { a.dropout.transposed = 1, a.px->ndim = a.py->ndim = 1; }},
      {&kDropout, "has_position: expected 0 or 1, got 2",
       [](Arguments& a) { a.dropout.has_position = 2; }},
      {&kDropout, "y: expected memory apart from that of x",
       [](Arguments& a) { a.py->data = a.px->data, a.py->strides = turned; }},
      {&kDropout, "y: expected memory apart from that of x",
       [](Arguments& a) { a.py->data = static_cast<char*>(a.px->data) + 4; }},
      {&kDropout, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.dropout.workspace = small; }},
      {&kDropout, "options.struct_size", [](Arguments& a) { a.dropout.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      {&kDropout, "p: expected the same on all ranks", [](Arguments& a) { a.dropout.p = 0.25; }},
      {&kDropout, "digest of seed and name: expected the same on all ranks",
       [](Arguments& a) { a.name = "model.other"; }},
      {&kDropoutBackward, "digest of step and microbatch: expected the same on all ranks",
       [](Arguments& a) { a.dropout.has_position = 1, a.dropout.step = 7; }},
      {&kDropout, "digest of the shape: expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.py); }},
      {&kDropout, "shard_dim (-1: none): expected the same on all ranks",
       [](Arguments& a) { a.dropout.has_shard_dim = 1; }},
  };
}

std::vector<Slip<Arguments>> slips_of_heads() {
  static char small[8];
  return {
      {&kHead, "x: expected an array, got NULL", [](Arguments& a) { a.px = nullptr; }},
      {&kHead, "weight: expected an array, got NULL", [](Arguments& a) { a.ph = nullptr; }},
      {&kHead, "labels: expected an array, got NULL", [](Arguments& a) { a.pt = nullptr; }},
      {&kHead, "loss: expected an array, got NULL", [](Arguments& a) { a.po = nullptr; }},
      {&kHeadBackward, "statistics: expected an array, got NULL",
       [](Arguments& a) { a.pl = nullptr; }},
      {&kHead, "x: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.px->dtype.code = kDLInt; }},
      {&kHead, "weight: expected f32 as x, got i32",
       [](Arguments& a) { a.ph->dtype.code = kDLInt; }},
      {&kHead, "labels: expected i32 or i64, got f64",
       [](Arguments& a) { a.pt->dtype.code = kDLFloat; }},
      {&kHead, "loss: expected f32 for x of f32, got i32",
       [](Arguments& a) { a.po->dtype.code = kDLInt; }},
      {&kHead, "weight: expected 2 dimensions, got the shape [4]",
       [](Arguments& a) { a.ph->ndim = 1; }},
      {&kHead, "weight: expected at least 1 class of the vocabulary, got the shape [0, 5]",
       [](Arguments& a) { reshape(a.ph, 0, 0); }},
      {&kHead, "x: expected 4 features in the last dimension, got the shape [6, 2, 5]",
       [](Arguments& a) { reshape(a.ph, 1, 4); }},
      {&kHead, "bias: expected the shape [4], got [3]", [](Arguments& a) { reshape(a.phb, 0, 3); }},
      {&kHead, "labels: expected the shape [5, 2], got [6, 2]",
       [](Arguments& a) { reshape(a.px, 0, 5); }},
      {&kHead, "labels: expected the shape [18, 2], got [6, 2]",
       [](Arguments& a) { a.entropy.sequence_parallel = 1; }},
      {&kHead, "sequence_dim: expected a dimension before the last of x, which has 3, got 2",
       [](Arguments& a) { a.entropy.sequence_parallel = 1, a.entropy.sequence_dim = 2; }},
      {&kHead, "labels: expected 0 to 11, or -100 to ignore, got 12",
       [](Arguments& a) { a.labels.set(3, 12); }},
      {&kHead, "vocab_size: expected 0 to 12, the columns of all ranks, got 13",
       [](Arguments& a) { a.entropy.vocab_size = 13; }},
      {&kHead, "label_smoothing: expected 0 to 1, got 1.0000001",
       [](Arguments& a) { a.entropy.label_smoothing = 1.0000001; }},
      {&kHead, "label_smoothing: expected 0 to 1, got 1.5",
       [](Arguments& a) { a.entropy.label_smoothing = 1.5; }},
      {&kHead, "block_tokens: expected 0 or more, got -1",
       [](Arguments& a) { a.entropy.block_tokens = -1; }},
      {&kHeadBackward, "grad_weight: expected the shape [4, 5], got [3, 5]",
       [](Arguments& a) { reshape(a.pdh, 0, 3); }},
      {&kHeadBackward, "grad_x: expected memory apart from that of x",
       [](Arguments& a) { a.pdx->data = a.px->data; }},
      {&kHead, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.entropy.workspace = small; }},
      {&kHead, "options.struct_size", [](Arguments& a) { a.entropy.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      {&kHead, "digest of the labels: expected the same on all ranks",
       [](Arguments& a) { a.labels.set(0, 7); }},
      {&kHead, "bias: expected the same on all ranks", [](Arguments& a) { a.phb = nullptr; }},
      {&kHead, "digest of the shape of x: expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.pt), turn(a.po), turn(a.pl, 1); }},
      {&kHeadBackward, "grad_x: expected the same on all ranks",
       [](Arguments& a) { a.pdx = nullptr; }},
  };
}

void slips_fail_on_all_ranks(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_slips(ctx, rank, slips_of_norms());
        check_slips(ctx, rank, slips_of_dropouts());
        check_slips(ctx, rank, slips_of_heads());
      },
      nullptr);
}

void slips_fail_alone(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        Arguments a;
        a.entropy.vocab_size = 4;
        NXD_TEST_REFUSED(kHead(ctx, a), NXD_ERROR_INVALID_ARGUMENT, "labels: expected 0 to 3");
        NXD_TEST_REFUSED(nxd_rms_norm_forward(nullptr, a.px, a.pw, &a.norm, a.py, a.pr),
                         NXD_ERROR_INVALID_ARGUMENT, "ctx: expected a context, got NULL");
        NXD_TEST_REFUSED(
            nxd_layer_norm_backward(nullptr, a.px, a.pw, a.pl, a.py, &a.norm, a.pdx, a.pdw, a.pdb),
            NXD_ERROR_INVALID_ARGUMENT, "ctx: expected a context, got NULL");
        size_t bytes = 1;
        NXD_TEST_REFUSED(
            nxd_rms_norm_forward_get_workspace(ctx, a.px, a.pt, &a.norm, a.py, a.pr, &bytes),
            NXD_ERROR_INVALID_ARGUMENT, "weight: expected f32");
        NXD_TEST_CHECK(bytes == 0);
        NXD_TEST_REFUSED(
            nxd_dropout_forward_get_workspace(ctx, a.name, a.px, &a.dropout, a.pw, &bytes),
            NXD_ERROR_INVALID_ARGUMENT, "y: expected the shape");
        NXD_TEST_REFUSED(nxd_linear_cross_entropy_backward_get_workspace(
                             ctx, a.px, a.ph, a.phb, a.pt, a.pl, a.po, &a.entropy, a.pdx, a.pdh,
                             nullptr, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "out_bytes: expected a pointer, got NULL");
      },
      nullptr);
}

const Called* const kCalls[] = {&kRms,     &kRmsBackward,     &kLayer, &kLayerBackward,
                                &kDropout, &kDropoutBackward, &kHead,  &kHeadBackward};

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
