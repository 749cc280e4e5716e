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

// The formulas in double: torch.optim.AdamW's as its documentation gives it, and that of NxD Core's
// AdamW_FP32OptimParams.
struct AdamwReference {
  nxd_adamw_formula_t formula;
  std::vector<double> p, m, v;

  void step(const AdamwArgs& a, const Buffer& grad) {
    const double bc1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double bc2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = a.grad_scale * grad[static_cast<int64_t>(i)];
      if (formula == NXD_ADAMW_FORMULA_TORCH) p[i] -= a.lr * a.weight_decay * p[i];
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
      if (formula == NXD_ADAMW_FORMULA_TORCH) {
        p[i] -= a.lr / bc1 * m[i] / (std::sqrt(v[i]) / std::sqrt(bc2) + a.eps);
      } else {
        p[i] -= a.lr * std::sqrt(bc2) / bc1 * m[i] / (std::sqrt(v[i]) + a.eps);
        p[i] -= a.lr * a.weight_decay * p[i];
      }
    }
  }
};

void check_adamw(nxd_dtype_t dtype, nxd_dtype_t grad_dtype, int64_t n, nxd_adamw_formula_t formula,
                 bool reference) {
  const bool wide = dtype == NXD_DTYPE_F64;
  Buffer p(dtype, n, 1);
  Buffer m(dtype, n);
  Buffer v(dtype, n);
  Buffer copy(NXD_DTYPE_BF16, n);
  AdamwReference want{formula, values(p), values(m), values(v)};
  AdamwArgs args;
  args.n = n;
  args.dtype = dtype;
  args.grad_dtype = grad_dtype;
  args.param = p.data();
  args.exp_avg = m.data();
  args.exp_avg_sq = v.data();
  args.copy = wide ? nullptr : copy.data();
  args.formula = formula;
  args.lr = 0.01;
  args.beta2 = 0.95;
  args.eps = 1e-6;
  args.weight_decay = 0.1;
  args.grad_scale = 0.5;
  args.reference = reference;
  for (args.step = 1; args.step <= 4; ++args.step) {
    Buffer g(grad_dtype, n, static_cast<uint64_t>(args.step + 10));
    args.grad = g.data();
    adamw(args);
    want.step(args, g);
  }
  const double tol = wide ? 1e-14 : 2e-6;
  check_close("param", p, want.p, tol);
  check_close("exp_avg", m, want.m, tol);
  check_close("exp_avg_sq", v, want.v, tol);
  if (wide) return;
  for (int64_t i = 0; i < n; ++i) {
    assert_true(copy[i] == static_cast<double>(to_float(to_bf16(static_cast<float>(p[i])))));
  }
  assert_true(copy.canaries_live());
}

void adamw_by_its_formulas(void**) {
  for (const int64_t n : kLengths) {
    for (const auto formula : {NXD_ADAMW_FORMULA_TORCH, NXD_ADAMW_FORMULA_NXD}) {
      for (const bool reference : {false, true}) {
        check_adamw(NXD_DTYPE_F32, NXD_DTYPE_F32, n, formula, reference);
        check_adamw(NXD_DTYPE_F32, NXD_DTYPE_BF16, n, formula, reference);
        check_adamw(NXD_DTYPE_F64, NXD_DTYPE_F64, n, formula, reference);
        check_adamw(NXD_DTYPE_F64, NXD_DTYPE_BF16, n, formula, reference);
      }
    }
  }
}

// p = [1, -2] with learning rate 0.1 and eps 1e-6, on three gradients: what torch.optim.AdamW and
// NxD Core's AdamW_FP32OptimParams made of them.
void adamw_recorded(void**) {
  struct Recorded {
    nxd_adamw_formula_t formula;
    double weight_decay;
    double want[3][2];
  };
  const Recorded all[] = {
      {NXD_ADAMW_FORMULA_TORCH,
       0,
       {{.9000002, -1.9000001}, {.8067825, -1.9366105}, {.7347249, -1.9649104}}},
      {NXD_ADAMW_FORMULA_NXD,
       0,
       {{.9000064, -1.9000032}, {.8067937, -1.9366131}, {.7347400, -1.9649127}}},
      {NXD_ADAMW_FORMULA_NXD,
       .01,
       {{.8991063, -1.8981032}, {.8050877, -1.9327784}, {.7323011, -1.9591168}}}};
  const double grads[3][2] = {{.5, -1}, {.25, 2}, {0, 0}};
  for (const Recorded& recorded : all) {
    for (const bool reference : {false, true}) {
      Buffer p(NXD_DTYPE_F32, 2), g(NXD_DTYPE_F32, 2), m(NXD_DTYPE_F32, 2), v(NXD_DTYPE_F32, 2);
      p.set(0, 1);
      p.set(1, -2);
      AdamwArgs args;
      args.n = 2;
      args.param = p.data();
      args.grad = g.data();
      args.exp_avg = m.data();
      args.exp_avg_sq = v.data();
      args.formula = recorded.formula;
      args.lr = .1;
      args.eps = 1e-6;
      args.weight_decay = recorded.weight_decay;
      args.reference = reference;
      for (args.step = 1; args.step <= 3; ++args.step) {
        for (int64_t i = 0; i < 2; ++i) {
          g.set(i, grads[args.step - 1][i]);
        }
        adamw(args);
        for (int64_t i = 0; i < 2; ++i) {
          test::check_near("recorded", p[i], recorded.want[args.step - 1][i], 4e-7);
        }
      }
    }
  }
}

struct SgdCase {
  double momentum, dampening, weight_decay;
  bool nesterov;
};

void check_sgd(const SgdCase& c, nxd_dtype_t dtype, nxd_dtype_t grad_dtype, int64_t n,
               bool reference) {
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
  args.reference = reference;
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
      for (const bool reference : {false, true}) {
        check_sgd(c, NXD_DTYPE_F32, NXD_DTYPE_F32, n, reference);
        check_sgd(c, NXD_DTYPE_F32, NXD_DTYPE_BF16, n, reference);
        check_sgd(c, NXD_DTYPE_F64, NXD_DTYPE_F64, n, reference);
      }
    }
  }
}

// A parameter may be infinite, such as the bias of a token that is never drawn. Without a decay it
// stays, as in torch, and what is kept for its momentum stays a number.
void sgd_keeps_infinities(void**) {
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16}) {
    for (const bool reference : {false, true}) {
      for (const double momentum : {0.0, 0.9}) {
        const nxd_dtype_t wide = dtype == NXD_DTYPE_F64 ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
        constexpr int64_t kCount = 37;
        Buffer p(dtype, kCount, 1), g(wide, kCount), buffer(wide, kCount);
        p.set(3, INFINITY);
        p.set(kCount - 1, -INFINITY);
        const std::vector<double> want = values(p);
        SgdArgs args;
        args.n = kCount;
        args.dtype = dtype;
        args.grad_dtype = wide;
        args.param = p.data();
        args.grad = g.data();
        args.momentum_buffer = momentum != 0 ? buffer.data() : nullptr;
        args.lr = 0.1;
        args.momentum = momentum;
        args.reference = reference;
        for (const bool first : {true, false}) {
          args.first_step = first;
          sgd(args);
        }
        assert_true(values(p) == want);
        assert_true(values(buffer) == std::vector<double>(place(kCount)));
      }
    }
  }
}

// How a parameter is held, and where else it goes.
struct Holding {
  nxd_dtype_t dtype, grad_dtype;
  bool copied, stochastic;
};
const Holding kHoldings[] = {{NXD_DTYPE_F32, NXD_DTYPE_F32, false, false},
                             {NXD_DTYPE_F32, NXD_DTYPE_BF16, true, false},
                             {NXD_DTYPE_F64, NXD_DTYPE_F64, false, false},
                             {NXD_DTYPE_BF16, NXD_DTYPE_BF16, false, false},
                             {NXD_DTYPE_BF16, NXD_DTYPE_F32, false, true}};

// One update, with everything that it wrote.
struct Updated {
  Buffer param, copy, first, second;  // copy and peer copies
  Buffer states[2];
};

template <class Args, class Update>
Updated update_once(const Holding& h, int64_t n, bool reference, bool has_copies,
                    const Update& update) {
  const nxd_dtype_t state = h.dtype == NXD_DTYPE_BF16 ? NXD_DTYPE_F32 : h.dtype;
  const nxd_dtype_t stored = h.copied ? NXD_DTYPE_BF16 : h.dtype;
  Updated out{Buffer(h.dtype, n, 1),
              Buffer(NXD_DTYPE_BF16, n),
              Buffer(stored, n),
              Buffer(stored, n),
              {Buffer(state, n), Buffer(state, n)}};
  Buffer grad(h.grad_dtype, n, 2);
  const std::vector<void*> peer_copies{out.first.data(), out.second.data()};
  // A piece in the midst of a tensor with rows of 9.
  const RoundingSource rounding{RandomSite(3, "p").at(2, 0), 41, 5, 9};
  const RoundingSource row{RandomSite(3, "p").at(2, 0), 41, 0, 0};
  Args args;
  args.n = n;
  args.dtype = h.dtype;
  args.grad_dtype = h.grad_dtype;
  args.param = out.param.data();
  args.grad = grad.data();
  args.copy = h.copied ? out.copy.data() : nullptr;
  args.peer_copies = has_copies ? &peer_copies : nullptr;
  args.rounding = !h.stochastic ? nullptr : n % 5 == 0 ? &rounding : &row;
  args.lr = 0.05;
  args.reference = reference;
  update(args, out.states);
  return out;
}

Updated adamw_once(const Holding& h, int64_t n, bool reference, bool has_copies) {
  return update_once<AdamwArgs>(h, n, reference, has_copies, [](AdamwArgs& args, Buffer* states) {
    args.exp_avg = states[0].data();
    args.exp_avg_sq = states[1].data();
    adamw(args);
  });
}

Updated sgd_once(const Holding& h, int64_t n, bool reference, bool has_copies) {
  return update_once<SgdArgs>(h, n, reference, has_copies, [](SgdArgs& args, Buffer* states) {
    args.momentum = 0.5;
    args.momentum_buffer = states[0].data();
    sgd(args);
  });
}

// Mirrors get the bits that the copy gets, or the parameter, and change none of them.
void peer_copies_equal_their_parameter(void**) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(2);
  for (const auto once : {adamw_once, sgd_once}) {
    for (const Holding& h : kHoldings) {
      for (const int64_t n : {0, 1, 7, 40, 129, 40000}) {
        for (const bool reference : {false, true}) {
          const Updated with = once(h, n, reference, true);
          const Updated without = once(h, n, reference, false);
          assert_true(with.param == without.param && with.copy == without.copy);
          assert_true(with.first == (h.copied ? with.copy : with.param));
          assert_true(with.second == with.first);
        }
      }
    }
  }
  omp_set_num_threads(before);
}

// The reference form differs by rounding alone: in bf16 by one step where values lie near a
// boundary.
void reference_as_vectors(void**) {
  for (const auto once : {adamw_once, sgd_once}) {
    for (const Holding& h : kHoldings) {
      for (const int64_t n : {1, 7, 40, 40000}) {
        const Updated reference = once(h, n, true, false);
        const Updated fused = once(h, n, false, false);
        const bool narrow = h.dtype == NXD_DTYPE_BF16;
        check_close("param", fused.param, values(reference.param), narrow ? 1.0 / 128 : 1e-6);
        int64_t same = 0;
        for (int64_t i = 0; i < n; ++i) same += fused.param[i] == reference.param[i];
        if (narrow) assert_true(same >= n - n / 1000);
        check_close("state", fused.states[0], values(reference.states[0]), 1e-6);
        check_close("state", fused.states[1], values(reference.states[1]), 1e-6);
      }
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
  args = {};
  args.formula = NXD_ADAMW_FORMULA_INVALID;
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
      cmocka_unit_test(adamw_by_its_formulas),
      cmocka_unit_test(adamw_recorded),
      cmocka_unit_test(sgd_as_torch),
      cmocka_unit_test(sgd_keeps_infinities),
      cmocka_unit_test(peer_copies_equal_their_parameter),
      cmocka_unit_test(reference_as_vectors),
      cmocka_unit_test(sum_of_squares_in_one_order),
      cmocka_unit_test(largest_absolute_value),
      cmocka_unit_test(bad_arguments_are_refused),
      cmocka_unit_test(embedding),
      cmocka_unit_test(embedding_threads_change_no_bit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
