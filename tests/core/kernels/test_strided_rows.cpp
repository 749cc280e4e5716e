// Rows of arrays of any strides: sums of columns and moves, of one row, of none, and of as many
// columns as blocks do not divide.
#include "core/kernels/strided_rows.h"

#include <algorithm>
#include <vector>

#include "support/check.h"

using namespace nxd::kernels;

namespace {

// A matrix whose elements are so many apart, within memory that is larger.
struct Strided {
  Strided(int64_t rows, int64_t cols, int64_t apart)
      : shape{rows, cols},
        strides{cols * apart + 3, apart},
        memory(static_cast<size_t>(rows * strides[0] + 7), -1.0F) {}
  StridedRows rows() const { return {NXD_DTYPE_F32, 2, shape.data(), strides.data(), data()}; }
  float* data() const { return const_cast<float*>(memory.data()) + 2; }
  float& at(int64_t row, int64_t col) const { return data()[row * strides[0] + col * strides[1]]; }
  // Elements that hold what they held at first, which is what lies between.
  int64_t untouched() const { return std::count(memory.begin(), memory.end(), -1.0F); }

  std::vector<int64_t> shape, strides;
  std::vector<float> memory;
};

void sums_of_columns(void**) {
  for (const int64_t cols : {1, 2, 255, 256, 257, 511, 512, 600}) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const int64_t apart : {1, 2}) {
        const Strided in(rows, cols, apart), out(1, cols, 3 - apart);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) in.at(r, c) = static_cast<float>(r * cols + c);
        }
        const int64_t between = out.untouched() - cols;
        for (const bool accumulate : {false, true}) {
          sum_rows(in.rows(), out.rows(), accumulate);
          for (int64_t c = 0; c < cols; ++c) {
            const int64_t sum = rows * (rows - 1) / 2 * cols + rows * c;
            assert_true(out.at(0, c) == static_cast<float>((accumulate ? 2 : 1) * sum));
          }
        }
        assert_int_equal(out.untouched(), between);
      }
    }
  }
}

void moves(void**) {
  for (const int64_t cols : {0, 1, 3, 300}) {
    for (const int64_t rows : {0, 1, 4}) {
      const Strided from(rows, cols, 2), to(rows, cols, 1), zeros(rows, cols, 2);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) from.at(r, c) = static_cast<float>(r * cols + c + 1);
      }
      const int64_t between = to.untouched() - rows * cols;
      move_rows(from.rows(), to.rows());
      const std::vector<float> bias(static_cast<size_t>(cols), 0.5F);
      for (int64_t turn = 1; turn <= 2; ++turn) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const float once = from.at(r, c);
            assert_true(to.at(r, c) == (turn == 1 ? once : 2 * once + 0.5F));
          }
        }
        if (turn == 1) move_rows(from.rows(), to.rows(), bias.data(), true);
      }
      assert_int_equal(to.untouched(), between);
      zero_rows(zeros.rows());
      assert_int_equal(std::count(zeros.memory.begin(), zeros.memory.end(), 0.0F), rows * cols);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(sums_of_columns), cmocka_unit_test(moves)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
