// Arguments that one rank of a parallel layer finds bad, and ranks that disagree: every rank gets
// the error, with what was expected and what was given, no output has changed, and the next call
// goes well. Ranks that are lost: their peers are told.
#include "support/layer_slips.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int64_t kIn = 6, kOut = 9, kRows = 3;

// Arguments of all calls, to be spoilt one by one.
struct Arguments {
  Buffer x{Numbers::pattern({kRows, 2, kIn}, 1), NXD_DTYPE_F32};
  Buffer weight{Numbers::pattern({kOut, kIn}, 2), NXD_DTYPE_F32};
  Buffer bias{Numbers::pattern({kOut}, 3), NXD_DTYPE_F32};
  Buffer y{{kRows, 2, kOut}, NXD_DTYPE_F32};
  Buffer dx{{kRows, 2, kIn}, NXD_DTYPE_F32};
  Buffer dweight{{kOut, kIn}, NXD_DTYPE_F32};
  Buffer dbias{{kOut}, NXD_DTYPE_F32};
  Buffer second{{kRows, 2, kOut}, NXD_DTYPE_F32};  // the result of another weight
  DLTensor *px = x.tensor(), *pw = weight.tensor(), *pb = bias.tensor(), *py = y.tensor();
  DLTensor *pdx = dx.tensor(), *pdw = dweight.tensor(), *pdb = dbias.tensor();
  nxd_column_linear_options_t column = NXD_COLUMN_LINEAR_OPTIONS_INIT;
  nxd_row_linear_options_t row = NXD_ROW_LINEAR_OPTIONS_INIT;
  nxd_region_mapping_t mapping = NXD_REGION_MAPPING_REDUCE_FROM;
  int32_t dim = 0;
  Buffer moved{{kRows, 2, kIn}, NXD_DTYPE_F32};
  DLTensor* pmoved = moved.tensor();

  // All outputs.
  std::vector<char> outputs() const {
    std::vector<char> all;
    for (const Buffer* buffer : {&y, &dx, &dweight, &dbias, &second, &moved}) {
      const std::vector<char> bytes = buffer->bytes();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

using Called = LayerCall<Arguments>;

const Called kColumnForward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_column_linear_forward(ctx, a.px, a.pw, a.pb, &a.column, a.py);
};
const Called kColumnBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_column_linear_backward(ctx, a.px, a.pw, a.py, &a.column, a.pdx, a.pdw, a.pdb);
};
const Called kColumnsForward = [](nxd_context_t* ctx, Arguments& a) {
  DLTensor *weights[] = {a.pw, a.weight.tensor()}, *ys[] = {a.py, a.second.tensor()};
  return nxd_column_linears_forward(ctx, a.px, weights, nullptr, 2, &a.column, ys);
};
const Called kColumnsBackward = [](nxd_context_t* ctx, Arguments& a) {
  DLTensor *weights[] = {a.pw, a.weight.tensor()}, *dys[] = {a.py, a.second.tensor()};
  DLTensor *dweights[] = {a.pdw, nullptr}, *dbiases[] = {nullptr, a.pdb};
  return nxd_column_linears_backward(ctx, a.px, weights, dys, 2, &a.column, a.pdx, dweights,
                                     dbiases);
};
const Called kRowForward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_row_linear_forward(ctx, a.px, a.pw, a.pb, &a.row, a.py);
};
const Called kRowBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_row_linear_backward(ctx, a.px, a.pw, a.py, &a.row, a.pdx, a.pdw, a.pdb);
};
const Called kMappingForward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_region_mapping_forward(ctx, a.mapping, a.dim, a.px, a.pmoved);
};
const Called kMappingBackward = [](nxd_context_t* ctx, Arguments& a) {
  return nxd_region_mapping_backward(ctx, a.mapping, a.dim, a.px, a.pmoved);
};

std::vector<Slip<Arguments>> slips() {
  static int64_t far[] = {INT64_MAX, 1, 1}, still[] = {0, 1, 2},
                 huge[] = {int64_t{1} << 40, 1 << 20};
  static int64_t stepped[] = {24, 12, 2};
  static float room[kRows * 24];  // of an x with these strides, which reaches no other array there
  static char small[8];
  const auto x = [](const char* message, std::function<void(DLTensor&)> spoil) {
    return Slip<Arguments>{&kRowForward, message, [spoil](Arguments& a) { spoil(*a.px); }};
  };
  return {
      {&kColumnForward, "x: expected an array, got NULL", [](Arguments& a) { a.px = nullptr; }},
      {&kColumnForward, "weight: expected an array, got NULL",
       [](Arguments& a) { a.pw = nullptr; }},
      {&kRowForward, "y: expected an array, got NULL", [](Arguments& a) { a.py = nullptr; }},
      {&kRowBackward, "grad_y: expected an array, got NULL", [](Arguments& a) { a.py = nullptr; }},
      x("x: expected 0 to 64 dimensions, got -1", [](DLTensor& t) { t.ndim = -1; }),
      x("x: expected 3 sizes, got NULL", [](DLTensor& t) { t.shape = nullptr; }),
      x("x: expected at least 1 dimension, got none", [](DLTensor& t) { t.ndim = 0; }),
      x("x: expected the data of 36 elements, got NULL", [](DLTensor& t) { t.data = nullptr; }),
      x("x: expected data aligned to 4 bytes", [](DLTensor& t) { t.byte_offset = 1; }),
      x("x: expected a byte_offset within memory", [](DLTensor& t) { t.byte_offset = ~0ULL; }),
      x("x: expected memory of the CPU, got the device type 2",
        [](DLTensor& t) { t.device.device_type = kDLCUDA; }),
      x("x: expected elements of an NXD_DTYPE_*, got code 2 with 32 bits and 4 lanes",
        [](DLTensor& t) { t.dtype.lanes = 4; }),
      x("x: expected f32, f64, bf16 or f16, got i32", [](DLTensor& t) { t.dtype.code = kDLInt; }),
      x("x: expected strides within memory", [](DLTensor& t) { t.strides = far; }),
      x("x: expected sizes of at least 0, got [3, -2, 6]", [](DLTensor& t) { t.shape[1] = -2; }),
      x("x: expected an array that fits in memory",
        [](DLTensor& t) { t.shape = huge, t.ndim = 2, t.strides = nullptr; }),
      x("x: expected 6 features in the last dimension, got the shape [3, 2, 5]",
        [](DLTensor& t) { t.shape[2] = 5; }),
      {&kColumnForward, "weight: expected f32 as x, got i32",
       [](Arguments& a) { a.pw->dtype.code = kDLInt; }},
      {&kColumnForward, "weight: expected 2 dimensions, got the shape [9]",
       [](Arguments& a) { a.pw->ndim = 1; }},
      {&kColumnForward, "bias: expected the shape [9], got [8]",
       [](Arguments& a) { reshape(a.pb, 0, 8); }},
      {&kColumnForward, "y: expected the shape [3, 2, 9], got [3, 2, 8]",
       [](Arguments& a) { reshape(a.py, 2, 8); }},
      {&kColumnBackward, "grad_y: expected the shape [3, 2, 9], got [3, 1, 9]",
       [](Arguments& a) { reshape(a.py, 1, 1); }},
      {&kColumnBackward, "grad_x: expected the shape [3, 2, 6], got [2, 2, 6]",
       [](Arguments& a) { reshape(a.pdx, 0, 2); }},
      {&kRowBackward, "grad_weight: expected the shape [9, 6], got [9, 5]",
       [](Arguments& a) { reshape(a.pdw, 1, 5); }},
      {&kRowBackward, "grad_bias: expected the shape [9], got [1]",
       [](Arguments& a) { reshape(a.pdb, 0, 1); }},
      {&kRowBackward, "grad_weight: expected f32 as x, got i32",
       [](Arguments& a) { a.pdw->dtype.code = kDLInt; }},
      {&kColumnsForward, "ys[0]: expected the shape [3, 2, 9], got [3, 2, 8]",
       [](Arguments& a) { reshape(a.py, 2, 8); }},
      {&kColumnsBackward, "grad_ys[0]: expected the shape [3, 2, 9], got [3, 1, 9]",
       [](Arguments& a) { reshape(a.py, 1, 1); }},
      {&kColumnsBackward, "grad_weights[0]: expected memory apart from that of grad_x",
       [](Arguments& a) { a.pdx->data = a.pdw->data; }},
      {&kColumnsBackward, "grad_biases[1]: expected the shape [9], got [1]",
       [](Arguments& a) { reshape(a.pdb, 0, 1); }},
      {&kColumnsBackward, "grad_weight: expected the same on all ranks",
       [](Arguments& a) { a.pdw = nullptr; }},
      {&kColumnForward, "y: expected memory apart from that of x, got arrays that overlap",
       [](Arguments& a) { a.py->data = a.px->data; }},
      {&kColumnBackward, "grad_weight: expected memory apart from that of grad_x",
       [](Arguments& a) { a.pdx->data = a.pdw->data; }},
      {&kColumnBackward, "grad_bias: expected memory apart from that of grad_y",
       [](Arguments& a) { a.pdb->data = a.py->data; }},
      {&kRowForward, "y: expected a place of its own for each element",
       [](Arguments& a) { a.py->strides = still; }},
      {&kRowForward, "workspace_bytes: expected at least ",
       [](Arguments& a) { a.row.workspace = small, a.px->strides = stepped, a.px->data = room; }},
      {&kColumnBackward, "workspace: expected memory apart from that of ",
       [](Arguments& a) { a.column.workspace = a.pw->data, a.column.workspace_bytes = 4096; }},
      {&kColumnForward, "gather_output: expected 0 or 1, got 2",
       [](Arguments& a) { a.column.gather_output = 2; }},
      {&kColumnForward, "gather_output: cannot be on together with sequence_parallel",
       [](Arguments& a) { a.column.gather_output = a.column.sequence_parallel = 1; }},
      {&kRowForward, "sequence_parallel: needs input_is_parallel",
       [](Arguments& a) {
         a.row.input_is_parallel = NXD_TOGGLE_OFF;
         a.row.sequence_parallel = 1;
         reshape(a.pw, 1, 2);
       }},
      {&kRowForward, "input_is_parallel: expected an NXD_TOGGLE_*, got 7",
       [](Arguments& a) { a.row.input_is_parallel = 7; }},
      {&kColumnForward,
       "sequence_dim: expected a dimension before the last of x, which has 3, got 2",
       [](Arguments& a) { a.column.sequence_parallel = 1, a.column.sequence_dim = 2; }},
      {&kColumnForward,
       "sequence_dim: expected a dimension before the last of x, which has 3, got -4",
       [](Arguments& a) { a.column.sequence_parallel = 1, a.column.sequence_dim = -4; }},
      {&kRowForward, "x: expected a size of dimension 1 that divides by the 3 ranks",
       [](Arguments& a) { a.row.sequence_parallel = 1, a.row.sequence_dim = 1; }},
      {&kRowForward, "options.struct_size", [](Arguments& a) { a.row.struct_size = 3; },
       NXD_ERROR_ABI_MISMATCH},
      // Good arguments, but others than those of the peers.
      {&kRowForward, "rows of x: expected the same on all ranks, got 4 on rank 1 and 6 on rank 0",
       [](Arguments& a) { reshape(a.px, 0, 2), reshape(a.py, 0, 2); }},
      {&kColumnForward, "out_features of the weight: expected the same on all ranks, got 8 on rank",
       [](Arguments& a) { reshape(a.pw, 0, 8), reshape(a.pb, 0, 8), reshape(a.py, 2, 8); }},
      {&kColumnBackward, "grad_weight: expected the same on all ranks, got 0 on rank 1 and 1",
       [](Arguments& a) { a.pdw = nullptr; }},
      {&kRowForward, "bias: expected the same on all ranks", [](Arguments& a) { a.pb = nullptr; }},
      {&kRowBackward, "accumulate_grads: expected the same on all ranks",
       [](Arguments& a) { a.row.accumulate_grads = 1; }},
      {&kColumnBackward, "transposed_weight: expected the same on all ranks",
       [](Arguments& a) {
         a.column.transposed_weight = 1;
         turn(a.pw), turn(a.pdw);
       }},
      {&kRowForward, "digest of the shape of x: expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.py); }},
      {&kColumnBackward, "digest of the shape of x: expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.py), turn(a.pdx); }},
      {&kMappingForward, "digest of the shape: expected the same on all ranks",
       [](Arguments& a) { turn(a.px), turn(a.pmoved); }},
      {&kColumnForward, "reserved: expected 0, got 1", [](Arguments& a) { a.column.reserved = 1; }},
      {&kRowBackward, "reserved: expected 0, got 2", [](Arguments& a) { a.row.reserved = 2; }},
      {&kMappingForward, "mapping: expected an NXD_REGION_MAPPING_*, got 6",
       [](Arguments& a) { a.mapping = 6; }},
      {&kMappingForward, "x: expected f32, f64, bf16 or f16, got i32",
       [](Arguments& a) { a.px->dtype.code = a.pmoved->dtype.code = kDLInt; }},
      {&kMappingForward, "y: expected f32 as x, got i32",
       [](Arguments& a) { a.pmoved->dtype.code = kDLInt; }},
      {&kMappingForward, "y: expected the shape [3, 2, 6], got [3, 2, 5]",
       [](Arguments& a) { reshape(a.pmoved, 2, 5); }},
      {&kMappingForward, "dim: expected a dimension of an array with 3 dimensions, got 3",
       [](Arguments& a) { a.mapping = NXD_REGION_MAPPING_SCATTER_TO, a.dim = 3; }},
      {&kMappingForward, "x: expected a size of dimension 1 that divides by the 3 ranks",
       [](Arguments& a) { a.mapping = NXD_REGION_MAPPING_REDUCE_SCATTER_TO, a.dim = 1; }},
      {&kMappingBackward, "grad_x: expected memory apart from that of grad_y",
       [](Arguments& a) { a.pmoved->data = a.px->data; }},
      {&kMappingBackward, "grad_x: expected an array, got NULL",
       [](Arguments& a) { a.pmoved = nullptr; }},
  };
}

void slips_fail_on_all_ranks(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) { check_slips(ctx, rank, slips()); }, nullptr);
}

// A group of one has nobody to tell.
void slips_fail_alone(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        Arguments arguments;
        reshape(arguments.py, 2, 8);
        NXD_TEST_REFUSED(kColumnForward(ctx, arguments), NXD_ERROR_INVALID_ARGUMENT,
                         "y: expected the shape [3, 2, 9], got [3, 2, 8]");
        NXD_TEST_REFUSED(nxd_column_linear_forward(nullptr, arguments.px, arguments.pw, nullptr,
                                                   nullptr, arguments.py),
                         NXD_ERROR_INVALID_ARGUMENT, "ctx: expected a context, got NULL");
        size_t bytes = 1;
        NXD_TEST_REFUSED(
            nxd_column_linear_forward_get_workspace(ctx, arguments.px, arguments.pw, nullptr,
                                                    nullptr, arguments.py, &bytes),
            NXD_ERROR_INVALID_ARGUMENT, "y: expected the shape");
        NXD_TEST_CHECK(bytes == 0);
        NXD_TEST_REFUSED(
            nxd_row_linear_forward_get_workspace(ctx, arguments.px, arguments.pw, nullptr, nullptr,
                                                 arguments.py, nullptr),
            NXD_ERROR_INVALID_ARGUMENT, "out_bytes: expected a pointer, got NULL");
      },
      nullptr);
}

void other_calls_are_found(void**) {
  nxd_test_run_ranks(
      kSlipRanks, kSlipRanks,
      [](nxd_context_t* ctx, int rank, int, void*) {
        check_other_calls<Arguments>(ctx, rank,
                                     {&kColumnForward, &kColumnBackward, &kColumnsForward,
                                      &kRowForward, &kRowBackward, &kMappingForward});
      },
      nullptr);
}

// Without a layout there is no group, and with ranks along other axes there is no such layer.
void layouts(void**) {
  nxd_test_run_ranks(
      2, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        Arguments arguments;
        NXD_TEST_REFUSED(kRowForward(ctx, arguments), NXD_ERROR_INVALID_STATE, "initialised");
        nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
        options.context_parallel_size = 2;
        NXD_TEST_OK(nxd_init_model_parallel(ctx, &options));
        NXD_TEST_REFUSED(kRowForward(ctx, arguments), NXD_ERROR_UNSUPPORTED,
                         "layers: expected a layout with context_parallel_size 1, got 2");
      },
      nullptr);
}

void lost_ranks(void**) {
  check_lost_ranks<Arguments>({&kColumnForward, &kColumnBackward, &kColumnsForward,
                               &kColumnsBackward, &kRowForward, &kRowBackward, &kMappingForward,
                               &kMappingBackward});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(slips_fail_on_all_ranks),
                              cmocka_unit_test(slips_fail_alone),
                              cmocka_unit_test(other_calls_are_found), cmocka_unit_test(layouts),
                              cmocka_unit_test(lost_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
