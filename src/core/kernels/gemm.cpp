// Products through oneDNN, each on the path that is fastest for its shape.
//
//   f32, large, no bias             dnnl_sgemm: packs blocks of both operands, takes any strides
//   large, dense operands           an inner-product primitive, which packs too; where sums must be
//                                   rounded or added, some rows at a time through f32 sums
//   the rest                        a matmul primitive, which reads operands where they lie; sparse
//                                   rows are copied first when the copy costs little beside the
//                                   product
//   bf16 without such instructions  as f32, rounded once
// A primitive is made once for a shape and kept by its thread (matmul_cache.h).
//
// A team divides the rows or the columns of the result; no sum is divided. The result has the same
// bits for any number of threads. The whole product chooses its way, and its tiles follow. Where
// oneDNN sums an element in an order that depends on its call, tiles are those of the shape alone,
// and one thread forms the same ones (tiles_of below, product_tiles.h).
//
// Example: a linear layer of 4096 inputs and 6144 outputs, 512 tokens, tensor parallelism over
// three ranks, so 2048 outputs each. A rank makes three products: forward [512, 4096] by [2048,
// 4096] transposed, the input's gradient [512, 2048] by [2048, 4096], the weight's gradient [512,
// 2048] transposed by [512, 4096]. In f32 all three are sgemm. In bf16 the first two form f32 sums
// of 512 rows, and the third forms those of the whole weight, 32 MiB.
#include "core/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/buffer_limit.h"
#include "core/base/dtype.h"
#include "core/base/profiler.h"
#include "core/base/thread_own.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/matmul_cache.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/packing_room.h"
#include "core/kernels/parallel.h"
#include "core/kernels/product_tiles.h"

namespace nxd::kernels {
namespace {

// Rows whose f32 sums are formed at a time before they are rounded to 16 bits or added to what is
// there, so that the sums stay in a cache; and the most memory for sums that cannot be split.
constexpr int64_t kSumBytes = 16 << 20;
constexpr int64_t kLeastRows = 256;

struct ThreadState {
  dnnl::stream stream{onednn::cpu_engine()};
  MatmulCache cache;
  Workspace scratch;
  std::array<Workspace, 4> copies;  // of a, b, c and bias
  Workspace sums;
  PackingRoom packing;
};

ThreadState& thread_state() { return ThreadOwn<ThreadState>::get(); }

void check(const GemmArgs& args) {
  const bool known = (args.in_dtype == NXD_DTYPE_F32 && args.out_dtype == NXD_DTYPE_F32) ||
                     (args.in_dtype == NXD_DTYPE_BF16 &&
                      (args.out_dtype == NXD_DTYPE_BF16 || args.out_dtype == NXD_DTYPE_F32));
  check_argument(known, "gemm: expected f32 -> f32, bf16 -> bf16 or bf16 -> f32, got ",
                 dtype_name(args.in_dtype), " -> ", dtype_name(args.out_dtype));
  check_argument(args.m >= 0 && args.n >= 0 && args.k >= 0, "gemm: expected m, n, k >= 0, got ",
                 args.m, ", ", args.n, ", ", args.k);
  const int64_t a_cols = args.trans_a == Trans::kYes ? args.m : args.k;
  const int64_t b_cols = args.trans_b == Trans::kYes ? args.k : args.n;
  check_argument(args.lda >= a_cols && args.ldb >= b_cols && args.ldc >= args.n,
                 "gemm: expected row strides of at least ", a_cols, ", ", b_cols, ", ", args.n,
                 ", got lda ", args.lda, ", ldb ", args.ldb, ", ldc ", args.ldc);
}

// The product of an empty sum: bias, zeros, or C as it is.
void fill_without_product(const GemmArgs& args) {
  if (args.accumulate && !args.bias) return;
  const size_t bytes = static_cast<size_t>(args.n) * dtype_size(args.out_dtype);
  for (int64_t row = 0; row < args.m; ++row) {
    char* out = static_cast<char*>(args.c) +
                static_cast<size_t>(row * args.ldc) * dtype_size(args.out_dtype);
    if (args.accumulate) {
      add(args.out_dtype, args.n, out, args.bias, out);
    } else if (args.bias) {
      std::memcpy(out, args.bias, bytes);
    } else {
      std::memset(out, 0, bytes);
    }
  }
}

// A row stride means nothing when there is one row.
void normalize_strides(GemmArgs& args) {
  const bool trans_a = args.trans_a == Trans::kYes;
  const bool trans_b = args.trans_b == Trans::kYes;
  if ((trans_a ? args.k : args.m) == 1) args.lda = trans_a ? args.m : args.k;
  if ((trans_b ? args.n : args.k) == 1) args.ldb = trans_b ? args.k : args.n;
  if (args.m == 1) args.ldc = args.n;
}

void* dense_copy(Workspace& space, const void* data, int64_t rows, int64_t cols, int64_t ld,
                 nxd_dtype_t dtype) {
  void* copy = space.get(static_cast<size_t>(rows * cols) * dtype_size(dtype));
  if (data) cast_rows(dtype, {data, ld}, dtype, {copy, cols}, rows, cols);
  return copy;
}

void run_primitive(ThreadState& state, const GemmArgs& args, bool inner_product) {
  const MatmulKey key{.m = args.m,
                      .n = args.n,
                      .k = args.k,
                      .lda = args.lda,
                      .ldb = args.ldb,
                      .ldc = args.ldc,
                      .in_dtype = args.in_dtype,
                      .out_dtype = args.out_dtype,
                      .threads = team_size(),
                      .trans_a = args.trans_a == Trans::kYes,
                      .trans_b = args.trans_b == Trans::kYes,
                      .accumulate = args.accumulate,
                      .bias = args.bias != nullptr,
                      .inner_product = inner_product};
  Matmul& matmul = state.cache.get(key);
  void* const scratch = state.scratch.get(matmul.scratch_bytes());
  std::optional<PackingRoom::Lent> lent;  // to the sgemm of inner products in f32
  if (inner_product && args.in_dtype == NXD_DTYPE_F32) {
    lent.emplace(state.packing, packing_bytes(args.m, args.n, args.k));
  }
  matmul.run(state.stream, args, scratch);
}

// Takes any strides.
void run_sgemm(ThreadState& state, const GemmArgs& args) {
  const PackingRoom::Lent lent(state.packing, packing_bytes(args.m, args.n, args.k));
  const auto letter = [](Trans trans) { return trans == Trans::kYes ? 'T' : 'N'; };
  const dnnl_status_t status =
      dnnl_sgemm(letter(args.trans_a), letter(args.trans_b), args.m, args.n, args.k, 1.0F,
                 static_cast<const float*>(args.a), args.lda, static_cast<const float*>(args.b),
                 args.ldb, args.accumulate ? 1.0F : 0.0F, static_cast<float*>(args.c), args.ldc);
  if (status != dnnl_success) throw dnnl::error(status, "sgemm failed");
}

// One inner product; its result is added through sums in f32, since it can only overwrite.
void run_inner_product(ThreadState& state, const GemmArgs& args) {
  if (!args.accumulate) return run_primitive(state, args, true);
  GemmArgs sums = args;
  sums.accumulate = false;
  sums.out_dtype = NXD_DTYPE_F32;
  const int64_t count = args.m * args.n;
  sums.c = state.sums.get(static_cast<size_t>(count) * sizeof(float));
  run_primitive(state, sums, true);
  scale_add(NXD_DTYPE_F32, args.out_dtype, count, sums.c, 1.0, args.c);
}

// True if a large product of dense operands was done by inner products.
bool run_packing(ThreadState& state, const Product& args) {
  const bool trans_a = args.trans_a == Trans::kYes;
  const bool trans_b = args.trans_b == Trans::kYes;
  const bool dense = args.lda == (trans_a ? args.m : args.k) &&
                     args.ldb == (trans_b ? args.k : args.n) && args.ldc == args.n;
  const bool bias_fits = !args.bias || (trans_b && !args.accumulate);
  if (!args.large || !dense || (trans_a && trans_b) || !bias_fits) return false;
  const bool needs_sums = args.accumulate || args.out_dtype != NXD_DTYPE_F32;
  const auto row_bytes = args.n * static_cast<int64_t>(sizeof(float));
  if (!needs_sums) {
    run_inner_product(state, args);
    return true;
  }
  if (trans_a) {
    if (!args.sums_fit) return false;
    run_inner_product(state, args);
    return true;
  }
  const int64_t at_once = std::max(kSumBytes / row_bytes, kLeastRows);
  const int64_t blocks = (args.m + at_once - 1) / at_once;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = args.m * block / blocks;
    GemmArgs rows = args;
    rows.m = args.m * (block + 1) / blocks - begin;
    rows.a = static_cast<const char*>(args.a) +
             begin * args.lda * static_cast<int64_t>(dtype_size(args.in_dtype));
    rows.c = static_cast<char*>(args.c) +
             begin * args.ldc * static_cast<int64_t>(dtype_size(args.out_dtype));
    run_inner_product(state, rows);
  }
  return true;
}

// Any product; dense ones take the fastest way.
void run_product(ThreadState& state, const Product& args) {
  if (args.takes_sgemm()) return run_sgemm(state, args);
  if (!run_packing(state, args)) run_primitive(state, args, false);
}

// Runs with dense operands where copying them pays. A single column is always made dense: oneDNN
// 3.7 takes its elements to lie side by side, whatever the stride.
void run_dense(ThreadState& state, Product args) {
  if (args.takes_sgemm()) return run_sgemm(state, args);
  const bool trans_a = args.trans_a == Trans::kYes;
  const bool trans_b = args.trans_b == Trans::kYes;
  const int64_t a_cols = trans_a ? args.m : args.k;
  const int64_t b_cols = trans_b ? args.k : args.n;
  if (args.lda != a_cols && (args.copies_a || a_cols == 1)) {
    args.a = dense_copy(state.copies[0], args.a, trans_a ? args.k : args.m, a_cols, args.lda,
                        args.in_dtype);
    args.lda = a_cols;
  }
  if (args.ldb != b_cols && (args.copies_b || b_cols == 1)) {
    args.b = dense_copy(state.copies[1], args.b, trans_b ? args.n : args.k, b_cols, args.ldb,
                        args.in_dtype);
    args.ldb = b_cols;
  }
  if (args.ldc == args.n || (!args.copies_c && args.n > 1)) {
    run_product(state, args);
    return;
  }
  Product inner = args;
  inner.c = dense_copy(state.copies[2], args.accumulate ? args.c : nullptr, args.m, args.n,
                       args.ldc, args.out_dtype);
  inner.ldc = args.n;
  run_product(state, inner);
  cast_rows(args.out_dtype, {inner.c, args.n}, args.out_dtype, {args.c, args.ldc}, args.m, args.n);
}

float* widened(Workspace& space, const void* data, int64_t rows, int64_t cols, int64_t ld) {
  auto* copy = space.get<float>(static_cast<size_t>(rows * cols) * sizeof(float));
  cast_rows(NXD_DTYPE_BF16, {data, ld}, NXD_DTYPE_F32, {copy, cols}, rows, cols);
  return copy;
}

// BF16 on a machine whose oneDNN has no BF16 product: in f32, rounded at the end.
void run_widened(ThreadState& state, const Product& args) {
  const bool trans_a = args.trans_a == Trans::kYes;
  const bool trans_b = args.trans_b == Trans::kYes;
  Product wide = args;
  wide.in_dtype = wide.out_dtype = NXD_DTYPE_F32;
  wide.lda = trans_a ? args.m : args.k;
  wide.ldb = trans_b ? args.k : args.n;
  wide.a = widened(state.copies[0], args.a, trans_a ? args.k : args.m, wide.lda, args.lda);
  wide.b = widened(state.copies[1], args.b, trans_b ? args.n : args.k, wide.ldb, args.ldb);
  if (args.out_dtype == NXD_DTYPE_F32) {
    run_product(state, wide);
    return;
  }
  wide.ldc = args.n;
  if (args.bias) wide.bias = widened(state.copies[3], args.bias, 1, args.n, args.n);
  wide.c = args.accumulate
               ? widened(state.copies[2], args.c, args.m, args.n, args.ldc)
               : state.copies[2].get(static_cast<size_t>(args.m * args.n) * sizeof(float));
  run_product(state, wide);
  cast_rows(NXD_DTYPE_F32, {wide.c, args.n}, NXD_DTYPE_BF16, {args.c, args.ldc}, args.m, args.n);
}

// Linear layers tell their products apart by what they transpose.
nxd_phase_t phase_of(const GemmArgs& args) {
  if (args.trans_a == Trans::kYes) return NXD_PHASE_GEMM_WEIGHT_GRAD;
  return args.trans_b == Trans::kYes ? NXD_PHASE_GEMM_FORWARD : NXD_PHASE_GEMM_INPUT_GRAD;
}

double operations(const GemmArgs& args) {
  return 2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) *
         static_cast<double>(args.k);
}

bool has_bf16_matmul() {
  static const bool has = [] {
    try {
      const MatmulKey key{.m = 16,
                          .n = 16,
                          .k = 16,
                          .lda = 16,
                          .ldb = 16,
                          .ldc = 16,
                          .in_dtype = NXD_DTYPE_BF16,
                          .out_dtype = NXD_DTYPE_F32,
                          .threads = 1,
                          .trans_a = false,
                          .trans_b = false,
                          .accumulate = false,
                          .bias = false,
                          .inner_product = false};
      const Matmul probe(key);
      return true;
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) throw;  // which says nothing; asked again next time
      return false;
    }
  }();
  return has;
}

// Runs a product, whose failure in oneDNN is an error of the library's.
template <class Run>
void translated(const GemmArgs& args, const Run& run) {
  try {
    run();
  } catch (const dnnl::error& error) {
    const auto status =
        error.status == dnnl_out_of_memory ? NXD_ERROR_OUT_OF_MEMORY : NXD_ERROR_INTERNAL;
    fail(status, "gemm of ", args.m, " x ", args.n, " x ", args.k, ": oneDNN says ", error.what());
  }
}

// A product on this thread alone.
void run_here(const Product& args) {
  const OneThread one;
  translated(args, [&] {
    ThreadState& state = thread_state();
    if (args.in_dtype == NXD_DTYPE_BF16 && !has_bf16_matmul()) {
      run_widened(state, args);
    } else {
      run_dense(state, args);
    }
  });
}

bool has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

// Where oneDNN sums the elements of a product in the same order whatever its rows and columns, the
// threads may decide about the tiles. Its loops for AVX-512 do, but for those of sgemm, which large
// inner products in f32 call too. For AVX2 these alone do, as long as they copy their operands.
ProductTiles tiles_of(const Product& product) {
  static const bool has_avx512 = has(dnnl_cpu_isa_avx512_core), has_avx2 = has(dnnl_cpu_isa_avx2);
  const bool in_f32 = product.in_dtype == NXD_DTYPE_F32 || !has_bf16_matmul();
  if (!has_avx512) {
    return has_avx2 && in_f32 && ProductTiles::is_copied_for_avx2(product)
               ? ProductTiles::copied_for_avx2(product, team_size())
               : ProductTiles(product, 0);
  }
  const bool alike = !in_f32 || (product.in_dtype == NXD_DTYPE_F32 && !product.large);
  return {product, alike ? team_size() : 0};
}

}  // namespace

void gemm(const GemmArgs& given) {
  check(given);
  if (given.m == 0 || given.n == 0) return;
  const PhaseScope phase(phase_of(given), operations(given));
  check_argument(given.c, "gemm: expected a pointer c, got NULL");
  if (given.k == 0) {
    fill_without_product(given);
    return;
  }
  check_argument(given.a && given.b, "gemm: expected pointers a and b, got NULL");
  GemmArgs args = given;
  normalize_strides(args);
  const Product product(args);
  const ProductTiles tiles = tiles_of(product);
  parallel_ranges(tiles.count(), args.m * args.n / tiles.count() * args.k,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) run_here(tiles.at(i));
                  });
}

double measure_gemm_peak(nxd_dtype_t dtype, int64_t n) {
  check_argument(dtype == NXD_DTYPE_F32 || dtype == NXD_DTYPE_BF16,
                 "dtype: expected f32 or bf16, got ", dtype_name(dtype));
  check_argument(n > 0, "size: expected a positive number, got ", n);
  const auto edge = static_cast<size_t>(n);
  check_argument(edge <= kBufferLimit / dtype_size(dtype) / edge,
                 "size: expected matrices that fit in memory, got an edge of ", n);
  const size_t bytes = edge * edge * dtype_size(dtype);
  Workspace a;
  Workspace b;
  Workspace c;
  // Zeros would do for the arithmetic, but draw less power and so may run at a higher clock.
  const auto fill = [&](Workspace& space) {
    auto* values = space.get<uint16_t>(bytes);
    for (size_t i = 0; i < bytes / 2; ++i) values[i] = static_cast<uint16_t>(0x3F00 + i * 7 % 128);
    return static_cast<void*>(values);
  };
  GemmArgs args{.m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n};
  args.a = fill(a);
  args.b = fill(b);
  args.c = fill(c);
  args.in_dtype = args.out_dtype = dtype;
  // The matmul that others would call, whatever gemm() chooses; gemm() where there is none.
  const auto run = [&] {
    translated(args, [&] {
      const bool plain = dtype == NXD_DTYPE_F32 || has_bf16_matmul();
      plain ? run_primitive(thread_state(), args, false) : gemm(args);
    });
  };
  std::vector<double> seconds;
  double total = 0;
  run();
  while (seconds.size() < 3 || (total < 0.3 && seconds.size() < 1000)) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                   seconds.end());
  const double size = static_cast<double>(n);
  return 2 * size * size * size / std::max(seconds[seconds.size() / 2], 1e-9);
}

}  // namespace nxd::kernels
