#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/base/lru_map.h"
#include "core/kernels/gemm.h"
#include "core/kernels/onednn_compat.h"

namespace nxd::kernels {

// Key of a oneDNN matmul: everything of GemmArgs but the pointers, and the size of the OpenMP team
// it was made for.
struct MatmulKey {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t in_dtype, out_dtype, threads;
  bool trans_a, trans_b, accumulate, bias;
  // Asks for oneDNN's inner product, which copies blocks of both operands into the order that its
  // loops read. Dense operands, not both transposed, nothing accumulated, bias forward only.
  bool inner_product;

  bool operator==(const MatmulKey&) const = default;
};

// A primitive with its memory objects; running it only sets their pointers. A matmul where there is
// no inner product for the key.
class Matmul {
 public:
  explicit Matmul(const MatmulKey& key);
  void run(const dnnl::stream& stream, const GemmArgs& args, void* scratch);
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  void make_matmul(const MatmulKey& key);
  bool make_inner_product(const MatmulKey& key);
  void set_memory(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                  const dnnl::memory::desc& c, const dnnl::memory::desc& scratch);

  dnnl::primitive primitive_;
  dnnl::memory a_, b_, c_, bias_, scratch_;
  std::unordered_map<int, dnnl::memory> arguments_;
  size_t scratch_bytes_ = 0;
};

// The matmuls of one thread, least recently used out first.
class MatmulCache {
 public:
  // Valid until the next call of get.
  Matmul& get(const MatmulKey& key);

 private:
  struct Hash {
    size_t operator()(const MatmulKey& key) const noexcept;
  };
  static constexpr size_t kMaxEntries = 512;
  LruMap<MatmulKey, Matmul, Hash> matmuls_{kMaxEntries};
};

}  // namespace nxd::kernels
