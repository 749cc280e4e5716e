// A caller's arrays from inside: how a product may read them, and which of them overlap.
#include "core/tensor_parallel/array.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/tensor_parallel/array_overlap.h"

#include "support/check.h"

namespace {

using namespace nxd;

std::vector<float> memory(1000);

Array array(Array::Shape shape, Array::Shape strides, int64_t place = 0) {
  return {NXD_DTYPE_F32, std::move(shape), std::move(strides),
          reinterpret_cast<char*>(memory.data() + place)};
}

void assert_matrix(const Array& of, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  const auto matrix = as_matrix(of);
  assert_true(matrix.has_value());
  assert_int_equal(matrix->rows, rows);
  assert_int_equal(matrix->cols, cols);
  assert_int_equal(matrix->row_stride, row);
  assert_int_equal(matrix->col_stride, col);
}

void matrices(void**) {
  assert_matrix(array({2, 3, 4}, {12, 4, 1}), 6, 4, 4, 1);
  assert_matrix(array({2, 3, 4}, {21, 7, 1}), 6, 4, 7, 1);
  assert_matrix(array({3, 4}, {1, 3}), 3, 4, 1, 3);
  assert_matrix(array({4}, {1}), 1, 4, 4, 1);
  assert_matrix(array({}, {}), 1, 1, 1, 1);
  // The strides of dimensions of one element mean nothing.
  assert_matrix(array({2, 1, 3, 4}, {12, 999, 4, 1}), 6, 4, 4, 1);
  assert_matrix(array({5, 1}, {3, 999}), 5, 1, 3, 1);
  assert_matrix(array({0, 3, 4}, {7, 7, 7}), 0, 4, 4, 1);
  assert_false(as_matrix(array({2, 3, 4}, {100, 4, 1})).has_value());
  assert_false(as_matrix(array({3, 4}, {0, 1})).has_value());
}

void assert_overlaps(const Array& a, const Array& b, bool expected) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    bool rejected = false;
    try {
      check_apart(*one, "a", *other, "b");
    } catch (const Error& error) {
      rejected = error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    assert_int_equal(rejected, expected);
  }
}

void overlaps(void**) {
  assert_overlaps(array({4}, {1}), array({4}, {1}, 4), false);
  assert_overlaps(array({4}, {1}), array({4}, {1}, 3), true);
  assert_overlaps(array({4}, {-1}, 4), array({1}, {1}), false);
  assert_overlaps(array({4}, {-1}, 4), array({2}, {1}), true);
  assert_overlaps(array({0}, {1}), array({4}, {1}), false);
  // Halves of one array, side by side, and some that reach into the other's rows.
  assert_overlaps(array({5, 3}, {6, 1}), array({5, 3}, {6, 1}, 3), false);
  assert_overlaps(array({5, 3}, {6, 1}), array({5, 4}, {6, 1}, 3), true);
  assert_overlaps(array({5, 3}, {6, 1}), array({5, 3}, {6, 1}, 2), true);
  assert_overlaps(array({5, 3}, {6, 1}, 3), array({2, 3}, {6, 1}, 12), false);
  assert_overlaps(array({5, 3}, {6, 1}), array({3, 3}, {7, 1}, 3), true);
}

// Columns of one larger array, whichever of its dimensions is dense.
void between_elements(void**) {
  assert_overlaps(array({3, 4}, {1, 8}), array({5, 4}, {1, 8}, 3), false);
  assert_overlaps(array({4, 4}, {1, 8}), array({5, 4}, {1, 8}, 3), true);
  assert_overlaps(array({10}, {2}), array({10}, {2}, 1), false);
  assert_overlaps(array({10}, {2}), array({10}, {4}, 2), true);
  assert_overlaps(array({5, 1, 4}, {12, 4, 1}), array({5, 2, 4}, {12, 4, 1}, 4), false);
}

// Too many elements for each to be tried. Nothing is read.
void between_many_elements(void**) {
  constexpr int64_t kMany = 1000000;
  assert_overlaps(array({kMany}, {2}), array({kMany / 2}, {4}, 1), false);
  assert_overlaps(array({kMany}, {2}), array({kMany / 2}, {4}, 2), true);
  assert_overlaps(array({kMany}, {3}), array({kMany / 2}, {6}, 5), false);
  assert_overlaps(array({kMany}, {3}), array({kMany / 2}, {-6}, 3 * kMany - 1), false);
  assert_overlaps(array({1000, kMany}, {4 * kMany, 4}), array({1000, kMany / 2}, {4 * kMany, 8}, 2),
                  false);
  Array wide = array({kMany / 2}, {2}, 2);  // behind every second of twice as many
  wide.dtype = NXD_DTYPE_F64;
  assert_overlaps(array({kMany}, {4}), wide, false);
}

using Places = std::multiset<const char*>;

// The bytes of an array, one by one.
Places places_of(const Array& of) {
  Places places;
  const auto element = static_cast<int64_t>(dtype_size(of.dtype));
  for (int64_t i = 0; i < of.count(); ++i) {
    int64_t place = 0, rest = i;
    for (size_t d = of.shape.size(); d-- > 0; rest /= of.shape[d]) {
      place += rest % of.shape[d] * of.strides[d];
    }
    for (int64_t byte = 0; byte < element; ++byte) places.insert(of.data + place * element + byte);
  }
  return places;
}

void drawn_arrays(void**) {
  std::mt19937 bits(7);  // NOLINT(cert-msc51-cpp): the same arrays in each run
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint32_t>(high - low + 1));
  };
  const auto some_array = [&] {
    Array some = array({}, {}, draw(400, 440));
    some.dtype = draw(0, 1) ? NXD_DTYPE_F32 : NXD_DTYPE_F64;
    for (int64_t dims = draw(0, 3); dims > 0; --dims) {
      some.shape.push_back(draw(0, 9) ? draw(1, 4) : 0);
      some.strides.push_back(draw(-12, 12));
    }
    return some;
  };
  int apart = 0, distinct = 0;
  constexpr int kArrays = 20000;
  for (int i = 0; i < kArrays; ++i) {
    const Array a = some_array(), b = some_array();
    const Places of_a = places_of(a), of_b = places_of(b);
    const bool share = std::any_of(of_a.begin(), of_a.end(),
                                   [&](const char* place) { return of_b.count(place) > 0; });
    const bool is_distinct = std::adjacent_find(of_a.begin(), of_a.end()) == of_a.end();
    assert_int_equal(overlap(a, b), share);
    assert_int_equal(overlaps_itself(a), !is_distinct);
    apart += !share;
    distinct += is_distinct;
  }
  assert_in_range(apart, kArrays / 10, kArrays * 9 / 10);
  assert_in_range(distinct, kArrays / 10, kArrays * 9 / 10);
}

void outputs(void**) {
  const auto is_good = [](const Array& of) {
    try {
      check_output(of, "y");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  assert_true(is_good(array({2, 3}, {3, 1})));
  assert_true(is_good(array({2, 3}, {1, 2})));
  assert_true(is_good(array({2, 3}, {-3, -1}, 10)));
  assert_true(is_good(array({1, 3}, {0, 1})));
  assert_true(is_good(array({0, 3}, {0, 0})));
  assert_true(is_good(array({2, 3}, {3, 2})));
  assert_false(is_good(array({2, 3}, {2, 1})));
  assert_false(is_good(array({2, 3}, {0, 1})));
  assert_false(is_good(array({2, 3}, {1, 1})));
}

void parts(void**) {
  const Array whole = array({4, 6}, {6, 1});
  const Array part = whole.part(1, 2, 3);
  assert_ptr_equal(part.data, whole.data + 2 * sizeof(float));
  assert_int_equal(part.count(), 12);
  assert_false(part.is_dense());
  assert_true(whole.part(0, 1, 2).is_dense());
  assert_true(array({1, 6}, {99, 1}).is_dense());
}

// More steps of strides than are tried: arrays that may overlap count as such.
void too_many_steps(void**) {
  Array one = array({1}, {1}), many = array({}, {});
  one.dtype = many.dtype = NXD_DTYPE_U8;
  std::mt19937 bits(3);  // NOLINT(cert-msc51-cpp): the same strides in each run
  int64_t place = 0;
  for (int dim = 0; dim < 40; ++dim) {
    many.shape.push_back(2);
    many.strides.push_back((1 << 20) + static_cast<int64_t>(bits() % (1 << 20)));
    if (dim % 2 == 1) place += many.strides.back();
  }
  one.data = many.data + place;
  assert_overlaps(one, many, true);
}

// Arrays as a caller hands them over.
struct Given {
  std::vector<int64_t> shape, strides;
  DLTensor tensor{memory.data(), {kDLCPU, 0}, 0, {kDLFloat, 32, 1}, nullptr, nullptr, 0};
  Given(std::vector<int64_t> sizes, std::vector<int64_t> steps)
      : shape(std::move(sizes)), strides(std::move(steps)) {
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.shape = shape.data();
    tensor.strides = strides.empty() ? nullptr : strides.data();
  }
};

void assert_rejected(const Given& given, const char* part) {
  try {
    read_array(&given.tensor, "x", Data::kNeeded);
  } catch (const Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!std::strstr(error.what(), part)) fail_msg("expected \"%s\", got %s", part, error.what());
    return;
  }
  fail_msg("not rejected: expected \"%s\"", part);
}

void what_no_memory_holds(void**) {
  // Strides of dimensions of one element, or of none, mean nothing.
  const Given one({1, 2}, {INT64_MIN, 1}), none({0, 2}, {INT64_MAX, 1});
  assert_int_equal(read_array(&one.tensor, "x", Data::kNeeded).count(), 2);
  assert_int_equal(read_array(&none.tensor, "x", Data::kNeeded).count(), 0);
  for (const int64_t stride : {INT64_MIN, INT64_MIN + 1, INT64_MAX}) {
    assert_rejected(Given({2, 2}, {stride, 1}), "expected strides within memory");
    assert_rejected(Given({3, 2}, {stride, 1}), "expected strides within memory");
  }
  assert_rejected(Given({INT64_MAX, INT64_MAX}, {}), "expected an array that fits in memory");
  assert_rejected(Given({0, INT64_MAX, INT64_MAX}, {}), "expected an array that fits in memory");
  assert_rejected(Given({INT64_MAX, 0, INT64_MAX}, {}), "expected an array that fits in memory");
  assert_rejected(Given({2, -1}, {}), "expected sizes of at least 0");
  Given far({2}, {}), odd({2}, {});
  far.tensor.byte_offset = UINT64_MAX - 3;
  assert_rejected(far, "expected a byte_offset within memory");
  odd.tensor.byte_offset = 2;
  assert_rejected(odd, "expected data aligned to 4 bytes");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(matrices),
                              cmocka_unit_test(overlaps),
                              cmocka_unit_test(between_elements),
                              cmocka_unit_test(between_many_elements),
                              cmocka_unit_test(drawn_arrays),
                              cmocka_unit_test(outputs),
                              cmocka_unit_test(parts),
                              cmocka_unit_test(too_many_steps),
                              cmocka_unit_test(what_no_memory_holds)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
