// Room of malloc's that large products copy operands into: one for all of a thread, whatever small
// blocks come and stay between them.
#include <malloc.h>

#include <cstdlib>
#include <vector>

#include "core/kernel_support.h"
#include "core/kernels/gemm.h"
#include "core/kernels/packing_room.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

// A product of which oneDNN copies both operands.
constexpr int64_t kRows = 640, kColumns = 1056, kDepth = 384;

// As the bytes of malloc's heap are counted; blocks that it maps by themselves are not in it.
size_t heap_bytes() { return mallinfo2().arena; }

void products_share_their_room(void**) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  print_message("skip: the sanitizers' malloc has no heap\n");
  skip();
#endif
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as libnxd does where it may
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  Buffer a(NXD_DTYPE_F32, kRows * kDepth, 1), b(NXD_DTYPE_F32, kColumns * kDepth, 2);
  Buffer c(NXD_DTYPE_F32, kRows * kColumns, 3);
  GemmArgs args;
  args.m = kRows;
  args.n = args.ldc = kColumns;
  args.k = args.lda = args.ldb = kDepth;
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  args.trans_b = Trans::kYes;
  args.in_dtype = args.out_dtype = NXD_DTYPE_F32;
  test::Random random(1);
  std::vector<void*> small;
  size_t kept = 0, before = 0;
  constexpr int kFirst = 3, kProducts = 60;
  for (int i = 0; i < kProducts; ++i) {
    gemm(args);
    if (i == kFirst) before = heap_bytes() - kept;
    // As nodes of a graph: some stay, and some of the last ones go.
    for (int j = 0; j < 60; ++j) {
      const auto bytes = static_cast<size_t>(random.below(600)) + 1;
      small.push_back(std::malloc(bytes));
      assert_non_null(small.back());
      kept += bytes + 32;
      if (j % 3 != 2) continue;
      const auto at = small.size() - 1 - static_cast<size_t>(random.below(3));
      std::free(small[at]);
      small.erase(small.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  const size_t after = heap_bytes();
  for (void* block : small) std::free(block);
  // Less than the blocks of three more products, each of which takes 192 rows of 896 values or
  // more.
  constexpr size_t kOfProduct = size_t{192} * 896 * sizeof(float);
  if (after > before + kept + 3 * kOfProduct) {
    fail_msg("malloc's heap grew from %zu to %zu bytes in %d products, beside %zu of small blocks",
             before, after, kProducts - kFirst, kept);
  }
}

void rooms_grow_and_nest_no_product(void**) {
  PackingRoom room;
  for (const size_t bytes : {size_t{100}, size_t{1} << 20, size_t{50}, size_t{20} << 20}) {
    const PackingRoom::Lent lent(room, bytes);
    void* block = nullptr;
    assert_int_equal(posix_memalign(&block, 128, bytes), 0);
    std::free(block);
  }
}

void bytes_of_packed_blocks(void**) {
  // 384 rows and all columns, padded to tiles, 384 deep at most.
  assert_int_equal(packing_bytes(640, 1000, 384), (384 + 1000 + 96) * 384 * 4);
  assert_int_equal(packing_bytes(200, 20000, 5000), (200 + 10000 + 96) * 384 * 4);
  assert_int_equal(packing_bytes(200, 20000, 1), (200 + 10000 + 96) * 128 * 4);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(products_share_their_room),
                              cmocka_unit_test(rooms_grow_and_nest_no_product),
                              cmocka_unit_test(bytes_of_packed_blocks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
