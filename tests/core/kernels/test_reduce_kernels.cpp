// The reduction kernels against scalar code that accumulates one element after the other, bit by
// bit: rounding, NaN, infinities, subnormals and wrapping included.
#include <omp.h>

#include <bit>
#include <functional>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/kernel_support.h"
#include "core/kernels/reduce.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Random;

namespace {

constexpr nxd_dtype_t kDtypes[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16,
                                   NXD_DTYPE_F16, NXD_DTYPE_I32, NXD_DTYPE_I64};
constexpr nxd_reduce_t kReduces[] = {NXD_REDUCE_SUM, NXD_REDUCE_AVG, NXD_REDUCE_MAX, NXD_REDUCE_MIN,
                                     NXD_REDUCE_PROD};
constexpr size_t kCounts[] = {0, 1, 3, 15, 16, 33, 64, 127, 128, 255, 1000, 4099};

// Elements in memory that starts one element past the alignment of a vector, between canaries.
class Elements {
 public:
  Elements(nxd_dtype_t dtype, size_t count) : Elements(dtype_size(dtype), count, nullptr) {}
  Elements(const Elements& other) : Elements(other.size_, other.count_, other.data()) {}
  Elements& operator=(const Elements&) = delete;

  void* data() { return bytes_.data() + start_; }
  const void* data() const { return bytes_.data() + start_; }
  size_t bytes() const { return count_ * size_; }
  template <class T>
  T get(size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + start_ + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void set(size_t i, T value) {
    std::memcpy(bytes_.data() + start_ + i * sizeof(T), &value, sizeof(T));
  }
  bool canaries_live() const {
    const auto live = [](unsigned char byte) { return byte == kCanary; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(bytes_.begin(), begin, live) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes()), bytes_.end(), live);
  }

 private:
  static constexpr unsigned char kCanary = 0xA5;

  Elements(size_t size, size_t count, const void* from)
      : size_(size), count_(count), bytes_(count * size + 256, kCanary) {
    start_ = 128 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64 + size;
    if (from) std::memcpy(data(), from, bytes());
  }

  size_t size_;
  size_t count_;
  size_t start_ = 0;
  std::vector<unsigned char> bytes_;
};

float awkward_float(Random& random) {
  constexpr float kSpecial[] = {0.0F,
                                -0.0F,
                                1e-45F,
                                -3e-39F,
                                6e-8F,
                                3.3e38F,
                                -3.3e38F,
                                65519.0F,
                                65520.0F,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  constexpr auto kSpecials = static_cast<int64_t>(sizeof(kSpecial) / sizeof(*kSpecial));
  if (random.below(8) == 0) return kSpecial[random.below(kSpecials)];
  return static_cast<float>(random.next() * std::exp2(static_cast<double>(random.below(16)) - 8));
}

Elements random_elements(nxd_dtype_t dtype, size_t count, uint64_t seed) {
  Random random(seed);
  Elements out(dtype, count);
  for (size_t i = 0; i < count; ++i) {
    const float value = awkward_float(random);
    const int64_t whole =
        static_cast<int64_t>((static_cast<uint64_t>(random.below(int64_t{1} << 32)) << 32) |
                             static_cast<uint64_t>(random.below(int64_t{1} << 32)));
    switch (dtype) {
      case NXD_DTYPE_F32: out.set(i, value); break;
      case NXD_DTYPE_F64: out.set(i, static_cast<double>(value) * 1.000000001); break;
      case NXD_DTYPE_BF16: out.set(i, f32_to_bf16(value)); break;
      case NXD_DTYPE_F16: out.set(i, f32_to_f16(value)); break;
      case NXD_DTYPE_I32: out.set(i, static_cast<int32_t>(whole >> 13)); break;
      default: out.set(i, whole);
    }
  }
  return out;
}

std::vector<Elements> random_inputs(nxd_dtype_t dtype, size_t n, size_t count, uint64_t seed) {
  std::vector<Elements> inputs;
  for (size_t k = 0; k < n; ++k) inputs.push_back(random_elements(dtype, count, seed * 100 + k));
  return inputs;
}

template <class T>
T combine(nxd_reduce_t reduce, T a, T b) {
  if (reduce == NXD_REDUCE_MAX) return a > b || a != a ? a : b;
  if (reduce == NXD_REDUCE_MIN) return a < b || a != a ? a : b;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<T>(reduce == NXD_REDUCE_PROD ? x * y : x + y);
  } else {
    return reduce == NXD_REDUCE_PROD ? a * b : a + b;
  }
}

template <class Stored, class T, class Load>
T accumulate(const std::vector<Elements>& inputs, size_t i, nxd_reduce_t reduce, const Load& load) {
  T sum = load(inputs[0].get<Stored>(i));
  for (size_t k = 1; k < inputs.size(); ++k) {
    sum = combine(reduce, sum, load(inputs[k].get<Stored>(i)));
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (reduce == NXD_REDUCE_AVG) sum = sum / static_cast<T>(inputs.size());
  }
  return sum;
}

// The reduction of element i, before rounding, of an F32, BF16 or F16 dtype.
float reference_f32(const std::vector<Elements>& inputs, size_t i, nxd_dtype_t dtype,
                    nxd_reduce_t reduce) {
  const auto as_is = [](float x) { return x; };
  if (dtype == NXD_DTYPE_F32) return accumulate<float, float>(inputs, i, reduce, as_is);
  if (dtype == NXD_DTYPE_BF16) return accumulate<uint16_t, float>(inputs, i, reduce, bf16_to_f32);
  return accumulate<uint16_t, float>(inputs, i, reduce, f16_to_f32);
}

void round_reference(Elements& out, size_t i, float value, nxd_dtype_t dtype) {
  if (dtype == NXD_DTYPE_F32) out.set(i, value);
  if (dtype == NXD_DTYPE_BF16) out.set(i, f32_to_bf16(value));
  if (dtype == NXD_DTYPE_F16) out.set(i, f32_to_f16(value));
}

Elements reference(const std::vector<Elements>& inputs, size_t count, nxd_dtype_t dtype,
                   nxd_reduce_t reduce) {
  Elements want(dtype, count);
  const auto as_is = [](auto x) { return x; };
  for (size_t i = 0; i < count; ++i) {
    if (dtype == NXD_DTYPE_F64) {
      want.set(i, accumulate<double, double>(inputs, i, reduce, as_is));
    } else if (dtype == NXD_DTYPE_I32) {
      want.set(i, accumulate<int32_t, int32_t>(inputs, i, reduce, as_is));
    } else if (dtype == NXD_DTYPE_I64) {
      want.set(i, accumulate<int64_t, int64_t>(inputs, i, reduce, as_is));
    } else {
      round_reference(want, i, reference_f32(inputs, i, dtype, reduce), dtype);
    }
  }
  return want;
}

// Equal bits, or both NaN: which of several NaN a processor hands on is not promised.
bool same(const Elements& a, const Elements& b, size_t i, nxd_dtype_t dtype) {
  const auto equal = [&](auto zero) {
    return a.get<decltype(zero)>(i) == b.get<decltype(zero)>(i);
  };
  switch (dtype) {
    case NXD_DTYPE_F32:
      return equal(uint32_t{0}) || (std::isnan(a.get<float>(i)) && std::isnan(b.get<float>(i)));
    case NXD_DTYPE_F64:
      return equal(uint64_t{0}) || (std::isnan(a.get<double>(i)) && std::isnan(b.get<double>(i)));
    case NXD_DTYPE_F16:
      return equal(uint16_t{0}) || (std::isnan(f16_to_f32(a.get<uint16_t>(i))) &&
                                    std::isnan(f16_to_f32(b.get<uint16_t>(i))));
    case NXD_DTYPE_BF16:
      return equal(uint16_t{0}) || (std::isnan(bf16_to_f32(a.get<uint16_t>(i))) &&
                                    std::isnan(bf16_to_f32(b.get<uint16_t>(i))));
    case NXD_DTYPE_I32: return equal(uint32_t{0});
    default: return equal(uint64_t{0});
  }
}

void check_same(const std::string& what, const Elements& got, const Elements& want, size_t count,
                nxd_dtype_t dtype) {
  for (size_t i = 0; i < count; ++i) {
    if (!same(got, want, i, dtype)) {
      fail_msg("%s of %zu %s: element %zu differs", what.c_str(), count, dtype_name(dtype), i);
    }
  }
  if (!got.canaries_live()) fail_msg("%s: written outside the buffer", what.c_str());
}

std::vector<const void*> pointers(const std::vector<Elements>& inputs) {
  std::vector<const void*> out;
  for (const Elements& input : inputs) out.push_back(input.data());
  return out;
}

// One output apart from the inputs, and the first n_outputs inputs as the outputs.
void check_case(nxd_dtype_t dtype, nxd_reduce_t reduce, size_t n, size_t count) {
  const std::string what = "reduce " + std::to_string(reduce) + " n " + std::to_string(n);
  std::vector<Elements> inputs = random_inputs(dtype, n, count, count + n);
  const Elements want = reference(inputs, count, dtype, reduce);
  Elements apart(dtype, count);
  void* const one[] = {apart.data()};
  reduce_to_all(pointers(inputs).data(), n, one, 1, count, dtype, reduce);
  check_same(what, apart, want, count, dtype);
  for (size_t n_outputs = 1; n_outputs <= n; ++n_outputs) {
    std::vector<Elements> buffers = inputs;
    std::vector<void*> outputs;
    for (size_t k = 0; k < n_outputs; ++k) outputs.push_back(buffers[n - 1 - k].data());
    reduce_to_all(pointers(buffers).data(), n, outputs.data(), n_outputs, count, dtype, reduce);
    for (size_t k = 0; k < n; ++k) {
      const bool is_output = k + n_outputs >= n;
      check_same(what + " in place", buffers[k], is_output ? want : inputs[k], count, dtype);
      if (is_output) assert_memory_equal(buffers[k].data(), apart.data(), apart.bytes());
    }
  }
}

void against_scalar_code(void**) {
  for (const nxd_dtype_t dtype : kDtypes) {
    for (const nxd_reduce_t reduce : kReduces) {
      if (reduce == NXD_REDUCE_AVG && !dtype_is_float(dtype)) continue;
      for (const size_t n : {1, 2, 3, 4, 8}) {
        for (const size_t count : kCounts) check_case(dtype, reduce, n, count);
      }
    }
  }
}

// Every pattern of 16 bits through a reduction of itself and of another.
void all_halves(void**) {
  constexpr size_t kAll = 65536;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_BF16, NXD_DTYPE_F16}) {
    std::vector<Elements> both;
    for (const uint32_t factor : {1U, 40503U}) {
      Elements patterns(dtype, kAll);
      for (uint32_t i = 0; i < kAll; ++i) patterns.set(i, static_cast<uint16_t>(i * factor));
      both.push_back(patterns);
    }
    for (const size_t n : {1, 2}) {
      const std::vector<Elements> inputs(both.begin(), both.begin() + static_cast<int>(n));
      for (const nxd_reduce_t reduce : kReduces) {
        const Elements want = reference(inputs, kAll, dtype, reduce);
        Elements got(dtype, kAll);
        void* const out[] = {got.data()};
        reduce_to_all(pointers(inputs).data(), n, out, 1, kAll, dtype, reduce);
        check_same("all patterns", got, want, kAll, dtype);
      }
    }
  }
}

// Every pattern of bf16 and many others, summed where both lie: vectors with subnormal results,
// zeros and NaN among them, and vectors without.
void pairs_in_place(void**) {
  constexpr uint32_t kAll = 65536;
  for (const uint32_t factor : {0U, 1U, 3U, 257U, 40503U, 65535U}) {
    for (const uint32_t offset : {0U, 1U, 0x3f80U, 0xbf80U}) {
      std::vector<Elements> both(2, Elements(NXD_DTYPE_BF16, kAll));
      for (uint32_t i = 0; i < kAll; ++i) {
        both[0].set(i, static_cast<uint16_t>(i));
        both[1].set(i, static_cast<uint16_t>(i * factor + offset));
      }
      const Elements want = reference(both, kAll, NXD_DTYPE_BF16, NXD_REDUCE_SUM);
      void* const outputs[] = {both[0].data(), both[1].data()};
      reduce_to_all(pointers(both).data(), 2, outputs, 2, kAll, NXD_DTYPE_BF16, NXD_REDUCE_SUM);
      check_same("pair", both[0], want, kAll, NXD_DTYPE_BF16);
      assert_memory_equal(both[0].data(), both[1].data(), both[0].bytes());
    }
  }
}

// f32 numbers on, just above and just below the middles between neighbouring halves.
void rounding(void**) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; high += 7) {
    for (const uint32_t low : {0x0000U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const auto below = static_cast<double>(f16_to_f32(static_cast<uint16_t>(half)));
    const auto above = static_cast<double>(f16_to_f32(static_cast<uint16_t>(half + 1)));
    const auto middle = static_cast<float>((below + above) / 2);
    for (const float sign : {1.0F, -1.0F}) {
      values.push_back(sign * middle);
      values.push_back(sign * std::nextafter(middle, 0.0F));
      values.push_back(sign * std::nextafter(middle, 1e30F));
    }
  }
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16, NXD_DTYPE_F16}) {
    for (const float divisor : {1.0F, 3.0F}) {
      Elements want(dtype, values.size());
      Elements got(dtype, values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        round_reference(want, i, values[i] / divisor, dtype);
      }
      round_from_f32(values.data(), got.data(), values.size(), dtype, divisor);
      check_same("rounding", got, want, values.size(), dtype);
    }
  }
}

// Two partial results and their sum, as two hosts with two ranks each have it.
void sums_of_sums(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16, NXD_DTYPE_F16}) {
    for (const nxd_reduce_t reduce : kReduces) {
      if (reduce == NXD_REDUCE_AVG) continue;
      for (const size_t count : kCounts) {
        std::vector<Elements> partial;
        Elements want(dtype, count);
        for (uint64_t host = 0; host < 2; ++host) {
          const std::vector<Elements> inputs = random_inputs(dtype, 2, count, 50 + host);
          Elements expected(NXD_DTYPE_F32, count);
          for (size_t i = 0; i < count; ++i) {
            expected.set(i, reference_f32(inputs, i, dtype, reduce));
          }
          Elements got(NXD_DTYPE_F32, count);
          reduce_to_f32(pointers(inputs).data(), 2, static_cast<float*>(got.data()), count, dtype,
                        reduce);
          check_same("partial result", got, expected, count, NXD_DTYPE_F32);
          partial.push_back(got);
        }
        for (size_t i = 0; i < count; ++i) {
          const float sum = reference_f32(partial, i, NXD_DTYPE_F32, reduce);
          round_reference(want, i, sum / 4.0F, dtype);
        }
        auto* total = static_cast<float*>(partial[0].data());
        reduce_to_f32(pointers(partial).data(), 2, total, count, NXD_DTYPE_F32, reduce);
        Elements got(dtype, count);
        round_from_f32(total, got.data(), count, dtype, 4.0F);
        check_same("sum of sums", got, want, count, dtype);
      }
    }
  }
}

// However a buffer is cut up and however many threads work on it, its bits are the same.
void cuts_and_threads(void**) {
  constexpr size_t kCount = 200003;
  for (const nxd_dtype_t dtype : kDtypes) {
    const std::vector<Elements> inputs = random_inputs(dtype, 3, kCount, 9);
    Elements whole(dtype, kCount);
    void* const out[] = {whole.data()};
    reduce_to_all(pointers(inputs).data(), 3, out, 1, kCount, dtype, NXD_REDUCE_SUM);
    Elements team(dtype, kCount);
    void* const team_out[] = {team.data()};
    const int threads = omp_get_max_threads();
    omp_set_num_threads(3);
    reduce_to_all(pointers(inputs).data(), 3, team_out, 1, kCount, dtype, NXD_REDUCE_SUM);
    omp_set_num_threads(threads);
    assert_memory_equal(team.data(), whole.data(), whole.bytes());
    Elements pieces(dtype, kCount);
    const size_t item = dtype_size(dtype);
    for (size_t from = 0, n = 1; from < kCount; from += n, n = n * 2 + 1) {
      n = std::min(n, kCount - from);
      std::vector<const void*> parts;
      for (const void* p : pointers(inputs)) {
        parts.push_back(static_cast<const char*>(p) + from * item);
      }
      void* const part_out[] = {static_cast<char*>(pieces.data()) + from * item};
      reduce_to_all(parts.data(), 3, part_out, 1, n, dtype, NXD_REDUCE_SUM);
    }
    assert_memory_equal(pieces.data(), whole.data(), whole.bytes());
  }
}

void expect_refused(const char* part, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_INVALID_ARGUMENT);
    if (!std::strstr(error.what(), part)) fail_msg("'%s' lacks '%s'", error.what(), part);
    return;
  }
  fail_msg("expected a refusal that says '%s'", part);
}

void bad_arguments(void**) {
  float data[4] = {1, 2, 3, 4};
  const void* const in[] = {data};
  void* const out[] = {data};
  const auto all = [&](size_t n, nxd_dtype_t dtype, nxd_reduce_t reduce) {
    return [&, n, dtype, reduce] { reduce_to_all(in, n, out, 1, 4, dtype, reduce); };
  };
  expect_refused("got u8", all(1, NXD_DTYPE_U8, NXD_REDUCE_SUM));
  expect_refused("got invalid", all(1, NXD_DTYPE_INVALID, NXD_REDUCE_SUM));
  expect_refused("expected floats for NXD_REDUCE_AVG, got i32",
                 all(1, NXD_DTYPE_I32, NXD_REDUCE_AVG));
  expect_refused("got 5", all(1, NXD_DTYPE_F32, 5));
  expect_refused("n_inputs", all(0, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  expect_refused("got i64", [&] { reduce_to_f32(in, 1, data, 4, NXD_DTYPE_I64, NXD_REDUCE_SUM); });
  expect_refused("got 1", [&] { reduce_to_f32(in, 1, data, 4, NXD_DTYPE_F32, NXD_REDUCE_AVG); });
  expect_refused("got f64", [&] { round_from_f32(data, data, 4, NXD_DTYPE_F64, 1.0F); });
  for (int i = 0; i < 4; ++i) assert_true(data[i] == static_cast<float>(i + 1));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_scalar_code), cmocka_unit_test(all_halves),
      cmocka_unit_test(pairs_in_place),      cmocka_unit_test(rounding),
      cmocka_unit_test(sums_of_sums),        cmocka_unit_test(cuts_and_threads),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
