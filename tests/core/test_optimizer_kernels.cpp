#include <omp.h>

#include "core/kernel_support.h"
#include "core/kernels/embedding.h"
#include "core/kernels/optimizer_kernels.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

constexpr int64_t kLengths[] = {0, 1, 7, 17, 129, 40000};

size_t place(int64_t i) { return static_cast<size_t>(i); }

std::vector<double> values(const Buffer& b) {
  std::vector<double> out;
  for (int64_t i = 0; i < b.size(); ++i) out.push_back(b[i]);
  return out;
}

void check_adamw(nxd_dtype_t dtype, nxd_dtype_t grad_dtype, int64_t n) {
  const bool wide = dtype == NXD_DTYPE_F64;
  Buffer p(dtype, n, 1);
  Buffer m(dtype, n);
  Buffer v(dtype, n);
  Buffer copy(NXD_DTYPE_BF16, n);
  std::vector<double> want_p = values(p);
  std::vector<double> want_m(place(n));
  std::vector<double> want_v(place(n));
  AdamwArgs args;
  args.n = n;
  args.dtype = dtype;
  args.grad_dtype = grad_dtype;
  args.param = p.data();
  args.exp_avg = m.data();
  args.exp_avg_sq = v.data();
  args.copy = wide ? nullptr : copy.data();
  args.lr = 0.01;
  args.beta2 = 0.95;
  args.weight_decay = 0.1;
  args.grad_scale = 0.5;
  for (int64_t step = 1; step <= 4; ++step) {
    Buffer g(grad_dtype, n, static_cast<uint64_t>(step + 10));
    args.grad = g.data();
    args.step = step;
    adamw(args);
    const double bc1 = 1 - std::pow(0.9, static_cast<double>(step));
    const double bc2 = 1 - std::pow(0.95, static_cast<double>(step));
    for (size_t i = 0; i < want_p.size(); ++i) {
      const double d = 0.5 * g[static_cast<int64_t>(i)];
      want_p[i] -= 0.01 * 0.1 * want_p[i];
      want_m[i] = 0.9 * want_m[i] + 0.1 * d;
      want_v[i] = 0.95 * want_v[i] + 0.05 * d * d;
      want_p[i] -= 0.01 / bc1 * want_m[i] / (std::sqrt(want_v[i]) / std::sqrt(bc2) + 1e-8);
    }
  }
  const double tol = wide ? 1e-14 : 2e-6;
  check_close("param", p, want_p, tol);
  check_close("exp_avg", m, want_m, tol);
  check_close("exp_avg_sq", v, want_v, tol);
  if (wide) return;
  for (int64_t i = 0; i < n; ++i) {
    assert_true(copy[i] == static_cast<double>(to_float(to_bf16(static_cast<float>(p[i])))));
  }
  assert_true(copy.canaries_live());
}

void adamw_as_torch(void**) {
  for (const int64_t n : kLengths) {
    check_adamw(NXD_DTYPE_F32, NXD_DTYPE_F32, n);
    check_adamw(NXD_DTYPE_F32, NXD_DTYPE_BF16, n);
    check_adamw(NXD_DTYPE_F64, NXD_DTYPE_F64, n);
    check_adamw(NXD_DTYPE_F64, NXD_DTYPE_BF16, n);
  }
}

struct SgdCase {
  double momentum, dampening, weight_decay;
  bool nesterov;
};

void check_sgd(const SgdCase& c, nxd_dtype_t dtype, nxd_dtype_t grad_dtype, int64_t n) {
  const bool wide = dtype == NXD_DTYPE_F64;
  Buffer p(dtype, n, 1);
  Buffer buffer(dtype, n);
  buffer.fill(NAN);
  Buffer copy(NXD_DTYPE_BF16, n);
  std::vector<double> want = values(p);
  std::vector<double> kept(place(n));
  SgdArgs args;
  args.n = n;
  args.dtype = dtype;
  args.grad_dtype = grad_dtype;
  args.param = p.data();
  args.momentum_buffer = c.momentum != 0 ? buffer.data() : nullptr;
  args.copy = wide ? nullptr : copy.data();
  args.lr = 0.1;
  args.momentum = c.momentum;
  args.dampening = c.dampening;
  args.weight_decay = c.weight_decay;
  args.nesterov = c.nesterov;
  args.grad_scale = 0.25;
  for (int64_t step = 0; step < 3; ++step) {
    Buffer g(grad_dtype, n, static_cast<uint64_t>(step + 10));
    args.grad = g.data();
    args.first_step = step == 0;
    sgd(args);
    for (size_t i = 0; i < want.size(); ++i) {
      double d = 0.25 * g[static_cast<int64_t>(i)] + c.weight_decay * want[i];
      if (c.momentum != 0) {
        kept[i] = step == 0 ? d : c.momentum * kept[i] + (1 - c.dampening) * d;
        d = c.nesterov ? d + c.momentum * kept[i] : kept[i];
      }
      want[i] -= 0.1 * d;
    }
  }
  check_close("param", p, want, wide ? 1e-14 : 1e-6);
  if (c.momentum != 0) check_close("momentum", buffer, kept, wide ? 1e-14 : 1e-6);
  for (int64_t i = 0; i < n && !wide; ++i) {
    assert_true(copy[i] == static_cast<double>(to_float(to_bf16(static_cast<float>(p[i])))));
  }
}

void sgd_as_torch(void**) {
  const SgdCase cases[] = {{0, 0, 0, false},
                           {0, 0, 0.1, false},
                           {0.9, 0, 0, false},
                           {0.9, 0.3, 0.1, false},
                           {0.9, 0, 0.1, true}};
  for (const auto& c : cases) {
    // A single value may cancel to nearly nothing, and then has no scale to be compared with.
    for (const int64_t n : {0, 7, 17, 129, 40000}) {
      check_sgd(c, NXD_DTYPE_F32, NXD_DTYPE_F32, n);
      check_sgd(c, NXD_DTYPE_F32, NXD_DTYPE_BF16, n);
      check_sgd(c, NXD_DTYPE_F64, NXD_DTYPE_F64, n);
    }
  }
}

// The documented order: element i of a block of 2^15 goes to sum i mod 32, sums fold in halves.
double sum_in_order(const Buffer& x) {
  double total = 0;
  for (int64_t start = 0; start < x.size(); start += 1 << 15) {
    double sums[32] = {};
    const int64_t end = std::min<int64_t>(x.size(), start + (1 << 15));
    for (int64_t i = start; i < end; ++i) {
      const volatile double square = x[i] * x[i];
      sums[(i - start) % 32] += square;
    }
    for (int half = 16; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    total += sums[0];
  }
  return total;
}

void sum_of_squares_in_one_order(void**) {
  const int before = omp_get_max_threads();
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16, NXD_DTYPE_F64}) {
    for (const int64_t n : {0, 1, 31, 32, 33, 1000, 300001}) {
      Buffer x(dtype, n, 3);
      for (const int team : {1, 2}) {
        omp_set_num_threads(team);
        assert_true(sum_of_squares(dtype, n, x.data()) == sum_in_order(x));
      }
    }
  }
  omp_set_num_threads(before);
}

void largest_absolute_value(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16, NXD_DTYPE_F64}) {
    for (const int64_t n : {0, 1, 31, 33, 100001}) {
      Buffer x(dtype, n, 3);
      double want = 0;
      for (int64_t i = 0; i < n; ++i) want = std::max(want, std::fabs(x[i]));
      assert_true(max_abs(dtype, n, x.data()) == want);
      if (n == 0) continue;
      for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
        Buffer bad = x;
        bad.set(where, -INFINITY);
        assert_true(max_abs(dtype, n, bad.data()) == INFINITY);
        bad.set(where, NAN);
        assert_true(std::isnan(max_abs(dtype, n, bad.data())));
        assert_true(std::isnan(sum_of_squares(dtype, n, bad.data())));
      }
    }
  }
}

void bad_arguments_are_refused(void**) {
  const auto refused = [](const AdamwArgs& args) {
    try {
      adamw(args);
    } catch (const Error& error) {
      return error.status() == NXD_ERROR_INVALID_ARGUMENT;
    }
    return false;
  };
  float x = 0;
  AdamwArgs args;
  adamw(args);
  args.step = 0;
  assert_true(refused(args));
  args = {};
  args.dtype = NXD_DTYPE_F16;
  assert_true(refused(args));
  args = {};
  args.grad_dtype = NXD_DTYPE_F64;
  assert_true(refused(args));
  args = {};
  args.dtype = args.grad_dtype = NXD_DTYPE_F64;
  args.copy = &x;
  assert_true(refused(args));
}

void embedding(void**) {
  const int64_t ids[] = {12, 10, 3, 12, -1, 16, 15, 12, 10};
  const int64_t count = 9;
  const int64_t first = 10;
  const int64_t rows = 6;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16, NXD_DTYPE_F64}) {
    for (const int64_t cols : {1, 7, 33}) {
      Buffer table(dtype, rows * cols, 1);
      Buffer out(dtype, count * cols);
      out.fill(NAN);
      Buffer dout(dtype, count * cols, 2);
      Buffer dtable(dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32, rows * cols, 3);
      std::vector<double> want;
      std::vector<double> want_table = values(dtable);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = ids[i] - first;
        const bool held = row >= 0 && row < rows;
        for (int64_t j = 0; j < cols; ++j) {
          want.push_back(held ? table[row * cols + j] : 0);
          if (held) want_table[place(row * cols + j)] += dout[i * cols + j];
        }
      }
      embedding_forward(dtype, count, cols, ids, first, rows, table.data(), out.data());
      check_close("out", out, want, 0);
      embedding_backward(dtype, count, cols, ids, first, rows, dout.data(), dtable.data());
      check_close("dtable", dtable, want_table, 1e-6);
    }
  }
}

void embedding_threads_change_no_bit(void**) {
  const int64_t count = 3000;
  const int64_t cols = 64;
  const int64_t rows = 50;
  std::vector<int64_t> ids;
  test::Random random(1);
  for (int64_t i = 0; i < count; ++i) ids.push_back(random.below(rows + 10));
  Buffer dout(NXD_DTYPE_F32, count * cols, 2);
  const int before = omp_get_max_threads();
  std::vector<Buffer> tables(2, Buffer(NXD_DTYPE_F32, rows * cols));
  for (int team = 1; team <= 2; ++team) {
    omp_set_num_threads(team);
    embedding_backward(NXD_DTYPE_F32, count, cols, ids.data(), 5, rows, dout.data(),
                       tables[static_cast<size_t>(team - 1)].data());
  }
  omp_set_num_threads(before);
  assert_true(tables[0] == tables[1]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(adamw_as_torch),
      cmocka_unit_test(sgd_as_torch),
      cmocka_unit_test(sum_of_squares_in_one_order),
      cmocka_unit_test(largest_absolute_value),
      cmocka_unit_test(bad_arguments_are_refused),
      cmocka_unit_test(embedding),
      cmocka_unit_test(embedding_threads_change_no_bit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
