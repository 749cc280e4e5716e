// Kernels of one Llama layer beside the roofs of this machine, measured in the same run: products
// beside oneDNN's plain matmul of 2048 x 2048, everything else beside the traffic of a copy, or of
// a sum over an array for kernels that only read, with as many bytes. Roofs are measured next to
// what they are roofs of. At the end the worst of each kind.
//
//   bench_kernels [--long] [PART]     only kernels whose name has this part, such as dW or rope
//
//   --long    attention of long sequences too: 8192 and 16384 tokens, with and without a window
//
// OMP_NUM_THREADS says how many threads work.
#include <getopt.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/bf16.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/gemm.h"
#include "core/kernels/memory_pool.h"
#include "core/kernels/norms.h"
#include "core/kernels/optimizer_kernels.h"

using namespace nxd::kernels;

namespace {

constexpr int64_t kBatch = 4, kSeq = 512, kHidden = 512, kFfn = 1408, kHeads = 8, kKvHeads = 4;
constexpr int64_t kHeadDim = kHidden / kHeads, kVocabulary = 8192, kTokens = kBatch * kSeq;
constexpr int64_t kParams = 1 << 24;

size_t size_of(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_BF16 ? 2 : 4; }
double as_double(int64_t value) { return static_cast<double>(value); }

// Pool memory filled with numbers of -1 ... 1.
class Tensor {
 public:
  Tensor(nxd_dtype_t dtype, int64_t n)
      : data_(pool_allocate(static_cast<size_t>(n) * size_of(dtype))) {
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
      if (dtype == NXD_DTYPE_BF16) {
        static_cast<Bf16*>(data_)[i] = to_bf16(value);
      } else {
        static_cast<float*>(data_)[i] = value;
      }
    }
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { pool_free(data_); }

  operator void*() const { return data_; }
  float* f32() const { return static_cast<float*>(data_); }

 private:
  void* data_;
};

// Seconds of work: the thread's own CPU time where it works alone, so that other load of the
// machine disturbs less; wall time for a team.
double now() {
  timespec time{};
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_seconds(const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 7 || (total < 0.25 && seconds.size() < 2000)) {
    const double start = now();
    run();
    seconds.push_back(now() - start);
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

enum class Kind { kProduct, kAttention, kRows, kOptimizer, kCount };
const char* const kKindNames[] = {"products", "attention", "rows", "optimizer"};

// Shares of the roof, by kind and dtype.
struct Result {
  std::string name;
  double share;
};
std::vector<Result> results[static_cast<size_t>(Kind::kCount)][3];
double product_peaks[3] = {};  // by dtype
std::string wanted;
bool with_long = false;
const char* const kUsage = "usage: bench_kernels [--long] [PART]\n";

bool is_wanted(const std::string& name) { return name.find(wanted) != std::string::npos; }

const char* dtype_text(nxd_dtype_t dtype) { return dtype == NXD_DTYPE_BF16 ? "bf16" : "f32"; }

void report(Kind kind, const char* name, nxd_dtype_t dtype, double seconds, double rate,
            const char* unit, double roof, const char* roof_name) {
  std::printf("%-34s %-4s %9.3f ms %8.1f %-8s %6.1f %% of %s\n", name, dtype_text(dtype),
              seconds * 1e3, rate * 1e-9, unit, 100 * rate / roof, roof_name);
  results[static_cast<size_t>(kind)][dtype].push_back({name, rate / roof});
}

void report_flops(Kind kind, const char* name, nxd_dtype_t dtype, double flops,
                  const std::function<void()>& run) {
  if (!is_wanted(name)) return;
  const double seconds = median_seconds(run);
  report(kind, name, dtype, seconds, flops / seconds, "GFLOP/s", product_peaks[dtype],
         "the product peak");
}

enum class Traffic { kCopy, kRead };

// Bytes a second of a copy that reads and writes so many bytes, or of a scan that reads them.
double bandwidth(Traffic traffic, double bytes) {
  const auto n = std::max<int64_t>(
      static_cast<int64_t>(bytes) / (traffic == Traffic::kCopy ? 2 : 1) / int64_t{sizeof(float)},
      64);
  const Tensor from(NXD_DTYPE_F32, n);
  const double moved = as_double(n) * sizeof(float);
  if (traffic == Traffic::kRead) {
    return moved / median_seconds([&] { (void)max_abs(NXD_DTYPE_F32, n, from); });
  }
  const Tensor to(NXD_DTYPE_F32, n);
  return 2 * moved / median_seconds([&] { scale(NXD_DTYPE_F32, n, from, 1.0, to); });
}

void report_bytes(Kind kind, const char* name, nxd_dtype_t dtype, double bytes, Traffic traffic,
                  const std::function<void()>& run) {
  if (!is_wanted(name)) return;
  const double seconds = median_seconds(run);
  report(kind, name, dtype, seconds, bytes / seconds, "GB/s", bandwidth(traffic, bytes),
         traffic == Traffic::kCopy ? "a copy" : "a read");
}

void report_rows(const char* name, nxd_dtype_t dtype, double bytes,
                 const std::function<void()>& run) {
  report_bytes(Kind::kRows, name, dtype, bytes, Traffic::kCopy, run);
}

// In the time that now() takes.
void measure_peak(nxd_dtype_t dtype) {
  const auto wall = [] {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now(), wall_start = wall();
  const double flops = measure_gemm_peak(dtype, 2048);
  product_peaks[dtype] = flops * (wall() - wall_start) / (now() - start);
}

bool any_result() {
  for (const auto& by_dtype : results) {
    for (const std::vector<Result>& all : by_dtype) {
      if (!all.empty()) return true;
    }
  }
  return false;
}

void print_summary() {
  std::printf("\n%-12s %-5s %8s %10s   %s\n", "kind", "dtype", "median", "least", "of the roof by");
  for (size_t kind = 0; kind < static_cast<size_t>(Kind::kCount); ++kind) {
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      std::vector<Result>& all = results[kind][dtype];
      if (all.empty()) continue;
      std::sort(all.begin(), all.end(),
                [](const Result& a, const Result& b) { return a.share < b.share; });
      std::printf("%-12s %-5s %6.1f %% %8.1f %%   %s\n", kKindNames[kind], dtype_text(dtype),
                  100 * all[all.size() / 2].share, 100 * all[0].share, all[0].name.c_str());
    }
  }
}

// The products of a layer y = x w^T with w [out, in]; the gradient of w as a first and as a later
// microbatch needs it.
void bench_linear(const char* name, nxd_dtype_t dtype, int64_t out, int64_t in) {
  const Tensor x(dtype, kTokens * in);
  const Tensor w(dtype, out * in);
  const Tensor y(dtype, kTokens * out);
  const Tensor dx(dtype, kTokens * in);
  const Tensor dw(dtype, out * in);
  const double flops = 2.0 * as_double(kTokens) * as_double(out) * as_double(in);
  GemmArgs args;
  args.in_dtype = args.out_dtype = dtype;
  args.m = kTokens, args.n = out, args.k = in;
  args.trans_b = Trans::kYes;
  args.a = x, args.lda = in, args.b = w, args.ldb = in, args.c = y, args.ldc = out;
  char label[64];
  const auto run = [&](const char* part) {
    std::snprintf(label, sizeof(label), "%s %lldx%lld %s", name, static_cast<long long>(out),
                  static_cast<long long>(in), part);
    report_flops(Kind::kProduct, label, dtype, flops, [&] { gemm(args); });
  };
  run("forward");
  args.n = in, args.k = out;
  args.trans_b = Trans::kNo;
  args.a = y, args.lda = out, args.b = w, args.ldb = in, args.c = dx, args.ldc = in;
  run("dX");
  args.m = out, args.n = in, args.k = kTokens;
  args.trans_a = Trans::kYes;
  args.a = y, args.lda = out, args.b = x, args.ldb = in, args.c = dw, args.ldc = in;
  run("dW");
  args.accumulate = true;
  run("dW+=");
}

struct AttentionCase {
  int64_t batch, length, head_dim, window;
  int64_t padding = 0;  // keys that a mask hides at the end
};

// Operations are those of the pairs of a query and a key that it sees: two products forward, and
// five back, of which one forms the scores again.
void bench_attention(nxd_dtype_t dtype, const AttentionCase& c) {
  const int64_t queries = c.batch * c.length * kHeads * c.head_dim;
  const int64_t keys = c.batch * c.length * kKvHeads * c.head_dim;
  const Tensor q(dtype, queries), out(dtype, queries), dout(dtype, queries), dq(dtype, queries);
  const Tensor k(dtype, keys), v(dtype, keys), dk(dtype, keys), dv(dtype, keys);
  const Tensor statistics(NXD_DTYPE_F32, kAttentionStatistics * c.batch * c.length * kHeads);
  // Kept to the padding, in each batch entry.
  std::vector<uint8_t> mask;
  for (int64_t i = 0; c.padding > 0 && i < c.batch * c.length; ++i) {
    mask.push_back(i % c.length < c.length - c.padding);
  }
  const AttentionShape shape{c.batch,
                             c.length,
                             c.length,
                             kHeads,
                             kKvHeads,
                             c.head_dim,
                             1.0 / std::sqrt(as_double(c.head_dim)),
                             true,
                             mask.empty() ? nullptr : mask.data(),
                             c.window};
  const auto view = [&](const Tensor& t, int64_t heads) {
    return HeadView{t, c.length * heads * c.head_dim, heads * c.head_dim, c.head_dim};
  };
  const auto triangle = [](int64_t n) { return as_double(n) * as_double(n + 1) / 2; };
  const int64_t kept = c.length - c.padding;
  const double seen = triangle(kept) + as_double(kept * c.padding) -
                      (c.window > 0 ? triangle(c.length - c.window) : 0);
  const double product = 2.0 * as_double(c.batch * kHeads * c.head_dim) * seen;
  char name[64];
  const auto label = [&](const char* way) {
    std::snprintf(name, sizeof(name), "attention %lldx%lld%s%s %s",
                  static_cast<long long>(c.length), static_cast<long long>(c.head_dim),
                  c.window > 0 ? " window" : "", c.padding > 0 ? " mask" : "", way);
    return name;
  };
  report_flops(Kind::kAttention, label("forward"), dtype, 2 * product, [&] {
    attention_forward(dtype, shape, view(q, kHeads), view(k, kKvHeads), view(v, kKvHeads),
                      view(out, kHeads), statistics.f32());
  });
  report_flops(Kind::kAttention, label("backward"), dtype, 5 * product, [&] {
    attention_backward(dtype, shape, view(q, kHeads), view(k, kKvHeads), view(v, kKvHeads),
                       view(out, kHeads), statistics.f32(), view(dout, kHeads), view(dq, kHeads),
                       view(dk, kKvHeads), view(dv, kKvHeads));
  });
}

void bench_attentions(nxd_dtype_t dtype) {
  const AttentionCase cases[] = {{kBatch, kSeq, kHeadDim, 0},
                                 {kBatch, kSeq, 80, 0},
                                 {kBatch, kSeq, 96, 0},
                                 {kBatch, kSeq, 128, 0},
                                 {kBatch, kSeq, kHeadDim, 0, kSeq / 2},
                                 {1, 4096, kHeadDim, 0},
                                 {1, 4096, kHeadDim, 1024}};
  for (const AttentionCase& c : cases) bench_attention(dtype, c);
  const AttentionCase long_cases[] = {{1, 8192, kHeadDim, 0},
                                      {1, 8192, 96, 0},
                                      {1, 8192, kHeadDim, 0, 4096},
                                      {1, 16384, kHeadDim, 0},
                                      {1, 16384, kHeadDim, 4096}};
  for (const AttentionCase& c : long_cases) {
    if (with_long) bench_attention(dtype, c);
  }
}

void bench_rows(nxd_dtype_t dtype) {
  const double size = as_double(static_cast<int64_t>(size_of(dtype)));
  const double hidden = as_double(kTokens * kHidden) * size;
  const double ffn = as_double(kTokens * kFfn) * size;
  const Tensor x(dtype, kTokens * kHidden);
  const Tensor r(dtype, kTokens * kHidden);
  const Tensor y(dtype, kTokens * kHidden);
  const Tensor w(dtype, kHidden);
  const Tensor dw(NXD_DTYPE_F32, kHidden);
  const Tensor inv(NXD_DTYPE_F32, kTokens);
  report_rows("rms_norm forward", dtype, 2 * hidden,
              [&] { rms_norm_forward(dtype, kTokens, kHidden, x, w, 1e-6, y, inv.f32()); });
  report_rows("add_rms_norm forward", dtype, 4 * hidden, [&] {
    add_rms_norm_forward(dtype, kTokens, kHidden, x, y, w, 1e-6, r, y, inv.f32());
  });
  report_rows("rms_norm backward", dtype, 3 * hidden,
              [&] { rms_norm_backward(dtype, kTokens, kHidden, x, w, inv.f32(), r, y, dw.f32()); });
  const Tensor both(dtype, 2 * kTokens * kFfn);
  const Tensor dboth(dtype, 2 * kTokens * kFfn);
  const Tensor act(dtype, kTokens * kFfn);
  const auto half = [&](const Tensor& t, int64_t which) {
    void* start = t;
    return static_cast<char*>(start) + static_cast<size_t>(which * kFfn) * size_of(dtype);
  };
  const int64_t ld = 2 * kFfn;
  report_rows("swiglu forward", dtype, 3 * ffn, [&] {
    swiglu_forward(dtype, kTokens, kFfn, {half(both, 0), ld}, {half(both, 1), ld}, {act, kFfn});
  });
  report_rows("swiglu backward", dtype, 5 * ffn, [&] {
    swiglu_backward(dtype, kTokens, kFfn, {half(both, 0), ld}, {half(both, 1), ld}, {act, kFfn},
                    {half(dboth, 0), ld}, {half(dboth, 1), ld});
  });
  const Tensor angles(NXD_DTYPE_F32, kSeq * kHeadDim / 2);
  RopeArgs rotate{.dtype = dtype,
                  .batch = kBatch,
                  .seq = kSeq,
                  .heads = kHeads,
                  .head_dim = kHeadDim,
                  .rotary_dim = kHeadDim};
  rotate.in = x, rotate.out = y, rotate.cos = rotate.sin = angles.f32();
  rotate.in_batch_stride = rotate.out_batch_stride = kSeq * kHidden;
  rotate.in_seq_stride = rotate.out_seq_stride = kHidden;
  rotate.in_head_stride = rotate.out_head_stride = kHeadDim;
  report_rows("rope", dtype, 2 * hidden, [&] { rope(rotate); });
  report_rows("gelu (erf) forward", dtype, 2 * ffn, [&] {
    activation_forward(Activation::kGeluErf, dtype, kTokens * kFfn, act, half(both, 0));
  });
  std::vector<int64_t> ids(static_cast<size_t>(kTokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919 % kVocabulary);
  const Tensor table(dtype, kVocabulary * kHidden);
  const Tensor dtable(NXD_DTYPE_F32, kVocabulary * kHidden);
  report_rows("embedding forward", dtype, 2 * hidden, [&] {
    embedding_forward(dtype, kTokens, kHidden, ids.data(), 0, kVocabulary, table, y);
  });
  report_rows("embedding backward", dtype, hidden + 8.0 * as_double(kTokens * kHidden), [&] {
    embedding_backward(dtype, kTokens, kHidden, ids.data(), 0, kVocabulary, x, dtable);
  });
}

void bench_cross_entropy(nxd_dtype_t dtype) {
  const Tensor logits(dtype, kTokens * kVocabulary);
  const Tensor out(dtype, kTokens * kVocabulary);
  const Tensor statistics(NXD_DTYPE_F32, kRowStatistics * kTokens);
  const Tensor max(NXD_DTYPE_F32, kTokens);
  const Tensor log_sum(NXD_DTYPE_F32, kTokens);
  const Tensor loss(NXD_DTYPE_F32, kTokens);
  const std::vector<int64_t> targets(static_cast<size_t>(kTokens), 5);
  // In chunks of rows that stay in the cache from one pass to the next.
  constexpr int64_t kRows = 16;
  const double bytes =
      as_double(kTokens * kVocabulary) * as_double(static_cast<int64_t>(size_of(dtype)));
  report_rows("cross entropy, all (one r, one w)", dtype, 2 * bytes, [&] {
    for (int64_t row = 0; row < kTokens; row += kRows) {
      const auto skip = static_cast<size_t>(row * kVocabulary) * size_of(dtype);
      void* in = logits;
      void* to = out;
      const LogitShard shard{dtype,
                             kRows,
                             kVocabulary,
                             kVocabulary,
                             static_cast<char*>(in) + skip,
                             targets.data() + row,
                             0};
      cross_entropy_statistics(shard, statistics.f32());
      cross_entropy_merge(1, kRows, statistics.f32(), kRowStatistics * kRows, kVocabulary, 0,
                          kVocabulary, max.f32(), log_sum.f32(), loss.f32());
      cross_entropy_backward(shard, max.f32(), log_sum.f32(), loss.f32(), 0, kVocabulary, dtype,
                             static_cast<char*>(to) + skip, kVocabulary);
    }
  });
}

void bench_optimizers() {
  const Tensor p(NXD_DTYPE_F32, kParams);
  const Tensor g(NXD_DTYPE_F32, kParams);
  const Tensor m(NXD_DTYPE_F32, kParams);
  const Tensor v(NXD_DTYPE_F32, kParams);
  const Tensor copy(NXD_DTYPE_BF16, kParams);
  const Tensor narrow(NXD_DTYPE_BF16, kParams);
  std::memset(v, 0, static_cast<size_t>(kParams) * sizeof(float));
  AdamwArgs args{.n = kParams, .param = p, .grad = g, .exp_avg = m, .exp_avg_sq = v};
  const double n = as_double(kParams);
  report_bytes(Kind::kOptimizer, "adamw (28 B per parameter)", NXD_DTYPE_F32, 28 * n,
               Traffic::kCopy, [&] { adamw(args); });
  args.grad = narrow;
  args.grad_dtype = NXD_DTYPE_BF16;
  args.copy = copy;
  report_bytes(Kind::kOptimizer, "adamw bf16 grad and copy (28 B)", NXD_DTYPE_BF16, 28 * n,
               Traffic::kCopy, [&] { adamw(args); });
  const SgdArgs plain{.n = kParams, .param = p, .grad = g, .momentum_buffer = m, .momentum = 0.9};
  report_bytes(Kind::kOptimizer, "sgd, momentum (20 B)", NXD_DTYPE_F32, 20 * n, Traffic::kCopy,
               [&] { sgd(plain); });
  report_bytes(Kind::kOptimizer, "sum of squares", NXD_DTYPE_F32, 4 * n, Traffic::kRead,
               [&] { (void)sum_of_squares(NXD_DTYPE_F32, kParams, g); });
  report_bytes(Kind::kOptimizer, "max_abs", NXD_DTYPE_F32, 4 * n, Traffic::kRead,
               [&] { (void)max_abs(NXD_DTYPE_F32, kParams, g); });
  report_bytes(Kind::kOptimizer, "cast f32 to bf16", NXD_DTYPE_F32, 6 * n, Traffic::kCopy,
               [&] { cast(NXD_DTYPE_F32, g, NXD_DTYPE_BF16, copy, kParams); });
}

}  // namespace

int main(int argc, char** argv) {
  static const option known[] = {{"long", no_argument, nullptr, 'l'}, {nullptr, 0, nullptr, 0}};
  int letter = 0;
  while ((letter = ::getopt_long(argc, argv, "", known, nullptr)) == 'l') with_long = true;
  if (letter != -1 || argc - optind > 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (optind < argc) wanted = argv[optind];
  std::printf(
      "Llama: hidden %lld, ffn %lld, heads %lld/%lld, %lld x %lld tokens, vocabulary %lld\n",
      static_cast<long long>(kHidden), static_cast<long long>(kFfn), static_cast<long long>(kHeads),
      static_cast<long long>(kKvHeads), static_cast<long long>(kBatch),
      static_cast<long long>(kSeq), static_cast<long long>(kVocabulary));
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    measure_peak(dtype);
    std::printf("\nproduct peak, %s: %.1f GFLOP/s\n", dtype_text(dtype),
                product_peaks[dtype] * 1e-9);
    bench_linear("qkv", dtype, (kHeads + 2 * kKvHeads) * kHeadDim, kHidden);
    bench_linear("o", dtype, kHidden, kHidden);
    bench_linear("gate_up", dtype, 2 * kFfn, kHidden);
    bench_linear("down", dtype, kHidden, kFfn);
    bench_linear("head", dtype, kVocabulary, kHidden);
    bench_attentions(dtype);
    bench_rows(dtype);
    bench_cross_entropy(dtype);
  }
  bench_optimizers();
  if (!any_result()) {
    std::fprintf(stderr, "bench_kernels: no kernel has %s in its name\n%s", wanted.c_str(), kUsage);
    return 2;
  }
  print_summary();
  return 0;
}
