// Rows of a table by id, and sums of their gradients: tables of one row and of none, ids of other
// ranks' tables, and rows of any strides.
#include "core/kernels/embedding.h"

#include <vector>

#include "support/check.h"

using namespace nxd::kernels;

namespace {

// Element j of the row of an id.
double value_of(int64_t id, int64_t j) { return static_cast<double>(10 * id + j + 1); }

struct Case {
  int64_t first, rows, cols;
  std::vector<int64_t> ids;
  bool holds(int64_t id) const { return id >= first && id < first + rows; }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{{0, 3, 4, {0, 2, 1, 2}}, {3, 3, 5, {2, 3, 5, 6, 3}},
                                     {4, 1, 2, {3, 4, 5}},    {4, 0, 2, {3, 4, 5}},
                                     {0, 3, 4, {}},           {0, 3, 0, {1, 2}}};
  return all;
}

void rows_by_id(void**) {
  for (const Case& c : cases()) {
    std::vector<double> table;
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t j = 0; j < c.cols; ++j) table.push_back(value_of(c.first + row, j));
    }
    const auto count = static_cast<int64_t>(c.ids.size());
    std::vector<double> out(static_cast<size_t>(count * c.cols) + 1, -1);
    embedding_forward(NXD_DTYPE_F64, count, c.cols, c.ids.data(), c.first, c.rows, table.data(),
                      out.data());
    size_t at = 0;
    for (const int64_t id : c.ids) {
      for (int64_t j = 0; j < c.cols; ++j) {
        assert_true(out[at++] == (c.holds(id) ? value_of(id, j) : 0));
      }
    }
    assert_true(out[at] == -1);
  }
}

void gradients_by_id(void**) {
  for (const Case& c : cases()) {
    const auto count = static_cast<int64_t>(c.ids.size());
    std::vector<double> dout;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < c.cols; ++j) dout.push_back(value_of(i, j));
    }
    std::vector<double> sums(static_cast<size_t>(c.rows * c.cols) + 1, 0.5);
    embedding_backward(NXD_DTYPE_F64, count, c.cols, c.ids.data(), c.first, c.rows, dout.data(),
                       sums.data());
    size_t at = 0;
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t j = 0; j < c.cols; ++j) {
        double expected = 0.5;
        for (int64_t i = 0; i < count; ++i) {
          if (c.ids[static_cast<size_t>(i)] == c.first + row) expected += value_of(i, j);
        }
        assert_true(sums[at++] == expected);
      }
    }
    assert_true(sums[at] == 0.5);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(rows_by_id), cmocka_unit_test(gradients_by_id)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
