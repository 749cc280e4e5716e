// Copies into memory that peers read: of any size, from and to any place, and of nothing more.
#include "core/kernels/copy.h"

#include <cstring>
#include <vector>

#include "support/check.h"

namespace {

using Copy = void (*)(void* to, const void* from, size_t bytes);

// Sizes around those of vectors and cache lines.
void check(Copy copy) {
  constexpr size_t kMost = 700, kMargin = 64;
  std::vector<unsigned char> from(kMost + 2 * kMargin), to(from.size());
  std::vector<unsigned char> before(from.size()), expected(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<unsigned char>(i * 7 + 1);
    before[i] = static_cast<unsigned char>(i * 5 + 3);
  }
  for (size_t bytes = 0; bytes <= kMost; bytes += bytes < 300 ? 1 : 37) {
    for (const size_t source : {0, 1, 32}) {
      for (const size_t target : {0, 1, 7, 33, 63}) {
        to = before;
        copy(to.data() + target, from.data() + source, bytes);
        std::memcpy(expected.data(), before.data(), before.size());
        std::memcpy(expected.data() + target, from.data() + source, bytes);
        assert_true(to == expected);
      }
    }
  }
}

void shared(void**) { check(nxd::kernels::copy_shared); }
void streamed(void**) { check(nxd::kernels::stream_to_shared); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(shared), cmocka_unit_test(streamed)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
