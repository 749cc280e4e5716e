// Data parallelism over a caller's buffers: against NxD Core's recorded gradients and against sums
// done by hand, whatever is marked when; memory that is bounded; arguments and ranks that do not
// agree.
#include <algorithm>
#include <array>

#include "support/buffer_model.h"
#include "support/npy.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

nxd_ddp_options_t in_buckets(int64_t bytes, nxd_reduce_t reduce = NXD_REDUCE_SUM) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = bytes;
  options.reduce = reduce;
  return options;
}

// --- Against NxD Core --------------------------------------------------------------------------

// Four gradients of each of two ranks, and their means.
void against_nxd_core(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    const auto read = [&](const std::string& name, int i) {
      return read_npy<float>(oracles() + "/nxd/bucket_allreduce_dp2/" + name + std::to_string(i) +
                             ".rank" + std::to_string(rank) + ".npy");
    };
    Shapes shapes;
    for (int i = 0; i < 4; ++i) shapes.push_back(read("pre", i).shape);
    BufferModel model(shapes, NXD_DTYPE_F32, NXD_DTYPE_F32);
    for (int i = 0; i < 4; ++i) {
      const auto values = read("pre", i).values;
      std::memcpy(model.grads[static_cast<size_t>(i)]->data(), values.data(),
                  values.size() * sizeof(float));
    }
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(300, NXD_REDUCE_AVG), ddp))) return 0;
    for (size_t i = 0; i < 4; ++i) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), i));
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    for (int i = 0; i < 4; ++i) {
      const auto want = read("post", i).values;
      const Array& got = *model.grads[static_cast<size_t>(i)];
      for (size_t k = 0; k < want.size(); ++k) {
        const double error = std::fabs(got.get(static_cast<int64_t>(k)) - double(want[k]));
        NXD_TEST_CHECK(error <= 1e-9);
      }
    }
    return 0;
  });
}

// --- Against sums by hand ----------------------------------------------------------------------

// Whole numbers that add up without rounding in every dtype.
double grad_of(int rank, size_t parameter, int64_t i, int step) {
  const auto k = static_cast<int64_t>(parameter);
  return static_cast<double>((7 * i + 5 * k + 11 * rank + 3 * step) % 23 - 11);
}

struct Case {
  int ranks;
  nxd_dtype_t dtype, grad_dtype;
  int64_t bucket_bytes;
  nxd_reduce_t reduce;
  bool overlap;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  static const std::array<std::pair<nxd_dtype_t, nxd_dtype_t>, 4> dtypes{
      {{NXD_DTYPE_F32, NXD_DTYPE_F32},
       {NXD_DTYPE_F64, NXD_DTYPE_F64},
       {NXD_DTYPE_BF16, NXD_DTYPE_BF16},
       {NXD_DTYPE_BF16, NXD_DTYPE_F32}}};
  for (const int ranks : {1, 2, 4}) {
    for (const auto& [dtype, grad_dtype] : dtypes) {
      for (const int64_t bytes : {int64_t{1}, int64_t{700}, int64_t{0}}) {
        const nxd_reduce_t reduce = bytes == 700 ? NXD_REDUCE_AVG : NXD_REDUCE_SUM;
        all.push_back({ranks, dtype, grad_dtype, bytes, reduce, ranks != 4 || bytes != 1});
      }
    }
  }
  return all;
}

// In an order of the rank's own, of which some are left out.
std::vector<size_t> marks_of(int rank, int step, size_t n) {
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) {
    order[i] = (i * (rank % 2 == 0 ? 5 : 1) + static_cast<size_t>(step)) % n;
  }
  order.resize(n - static_cast<size_t>((rank + step) % 3));
  return order;
}

std::vector<char> reduce_steps(nxd_context_t* ctx, int rank, const Case& c) {
  BufferModel model(ragged_shapes(), c.dtype, c.grad_dtype);
  nxd_ddp_options_t options = in_buckets(c.bucket_bytes, c.reduce);
  options.overlap = c.overlap ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF;
  Ddp ddp;
  std::vector<char> bytes;
  if (!NXD_TEST_OK(model.create_ddp(ctx, options, ddp))) return bytes;
  const double part = c.reduce == NXD_REDUCE_AVG ? 1.0 / c.ranks : 1;
  for (int step = 0; step < 3; ++step) {
    for (size_t k = 0; k < model.grads.size(); ++k) {
      for (int64_t i = 0; i < model.grads[k]->count(); ++i) {
        model.grads[k]->set(i, grad_of(rank, k, i, step));
      }
    }
    for (const size_t k : marks_of(rank, step, model.grads.size())) {
      NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), k));
    }
    double norm = 0, squares = 0;
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, &norm));
    int wrong = 0;
    for (size_t k = 0; k < model.grads.size(); ++k) {
      for (int64_t i = 0; i < model.grads[k]->count(); ++i) {
        double want = 0;
        for (int r = 0; r < c.ranks; ++r) want += grad_of(r, k, i, step);
        want *= part;
        squares += want * want;
        wrong += model.grads[k]->get(i) != want;
      }
      bytes.insert(bytes.end(), model.grads[k]->bytes().begin(), model.grads[k]->bytes().end());
    }
    if (wrong > 0) {
      nxd_test_fail(__FILE__, __LINE__, "%d ranks, dtypes %d %d, buckets of %d: %d wrong", c.ranks,
                    static_cast<int>(c.dtype), static_cast<int>(c.grad_dtype),
                    static_cast<int>(c.bucket_bytes), wrong);
    }
    NXD_TEST_CHECK(std::fabs(norm - std::sqrt(squares)) <= 1e-12 * norm);
  }
  return bytes;
}

void sums_by_hand(void**) {
  for (const Case& c : cases()) {
    const auto bytes = on_ranks<std::vector<char>>(
        c.ranks, [&](nxd_context_t* ctx, int rank, int) { return reduce_steps(ctx, rank, c); });
    for (const auto& of_rank : bytes) assert_true(of_rank == bytes[0]);
  }
}

// Sums that do round have the same bits on all ranks, and in buckets of every size.
void buckets_change_no_bit(void**) {
  std::vector<char> first;
  for (const int64_t bucket_bytes : {1, 700, 1 << 20}) {
    const auto bytes = on_ranks<std::vector<char>>(3, [&](nxd_context_t* ctx, int rank, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
      model.set_gradients(rank, rank + 1);
      Ddp ddp;
      std::vector<char> out;
      if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(bucket_bytes), ddp))) return out;
      NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
      for (const auto& grad : model.grads) {
        out.insert(out.end(), grad->bytes().begin(), grad->bytes().end());
      }
      return out;
    });
    if (first.empty()) first = bytes[0];
    for (const auto& of_rank : bytes) assert_true(of_rank == first);
  }
}

// Gradients of two microbatches, which the caller adds up; only the sums are reduced.
void accumulation(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    BufferModel model({{9}, {4}}, NXD_DTYPE_F64, NXD_DTYPE_F64);
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0), ddp))) return 0;
    NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 0));
    NXD_TEST_REFUSED(nxd_ddp_mark_ready(ddp.get(), 0), NXD_ERROR_INVALID_STATE, "set_sync is off");
    NXD_TEST_OK(nxd_ddp_set_sync(ddp.get(), 1));
    for (int64_t i = 0; i < 9; ++i) {
      model.grads[0]->set(i, grad_of(rank, 0, i, 0) + grad_of(rank, 0, i, 1));
    }
    NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 1));
    NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 0));
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    for (int64_t i = 0; i < 9; ++i) {
      double want = 0;
      for (int term = 0; term < 4; ++term) want += grad_of(term % 2, 0, i, term / 2);
      NXD_TEST_CHECK(model.grads[0]->get(i) == want);
    }
    return 0;
  });
}

// A parameter that took part on one rank gets that one's gradient everywhere; what lies in the
// buffer of a rank that did not use it does not count. One that took part nowhere is not updated,
// be it in one call or by an update after the gradients are finished.
void unused_parameters(void**) {
  for (const auto& [bucket_bytes, no_overlap] :
       {std::pair(1, 0), {1, 1}, {1 << 20, 0}, {1 << 20, 1}}) {
    for (const bool in_two : {false, true}) {
      on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
        BufferModel model({{5}, {40}, {3}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
        nxd_ddp_options_t options = in_buckets(bucket_bytes);
        options.overlap = no_overlap ? NXD_TOGGLE_OFF : NXD_TOGGLE_DEFAULT;
        Ddp ddp;
        if (!NXD_TEST_OK(model.create_ddp(ctx, options, ddp))) return 0;
        nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
        sgd.learning_rate = 0.5;
        sgd.weight_decay = 0.25;
        nxd_optimizer_t* handle = nullptr;
        if (!NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle))) return 0;
        const Optimizer optimizer(handle);
        const double before = model.params[0]->get(0), nowhere = model.params[2]->get(0);
        for (const auto& grad : model.grads) {
          for (int64_t i = 0; i < grad->count(); ++i) grad->set(i, rank == 0 ? 1 : 1000);
        }
        if (rank == 1) NXD_TEST_OK(nxd_ddp_mark_unused(ddp.get(), 0));
        NXD_TEST_OK(nxd_ddp_mark_unused(ddp.get(), 2));
        if (rank == 0) NXD_TEST_OK(nxd_ddp_mark_ready(ddp.get(), 0));
        if (in_two) {
          NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
          NXD_TEST_OK(nxd_optimizer_update(optimizer.get()));
        } else {
          NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
        }
        NXD_TEST_CHECK(model.grads[0]->get(0) == 1);
        NXD_TEST_CHECK(model.grads[1]->get(39) == 1001);
        NXD_TEST_CHECK(std::fabs(model.params[0]->get(0) - (before - 0.5 * (1 + 0.25 * before))) <
                       1e-6);
        NXD_TEST_CHECK(model.params[2]->get(0) == nowhere);
        // In the next step all take part again.
        if (in_two) NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
        NXD_TEST_OK(in_two ? nxd_optimizer_update(optimizer.get())
                           : nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
        NXD_TEST_CHECK(model.params[2]->get(0) != nowhere);
        return 0;
      });
    }
  }
}

// --- Creation ----------------------------------------------------------------------------------

void first_values_are_sent(void**) {
  for (const int no_broadcast : {0, 1}) {
    on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_BF16, NXD_DTYPE_F32);
      const std::vector<char> of_first = model.bytes();
      for (const auto& param : model.params) {
        for (int64_t i = 0; i < param->count(); ++i) param->set(i, param->get(i) + rank);
      }
      const std::vector<char> own = model.bytes();
      nxd_ddp_options_t options = in_buckets(0);
      options.broadcast = no_broadcast ? NXD_TOGGLE_OFF : NXD_TOGGLE_DEFAULT;
      Ddp ddp;
      NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
      NXD_TEST_CHECK(model.bytes() == (no_broadcast ? own : of_first));
      return 0;
    });
  }
}

void staging_is_bounded(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int, int) {
    BufferModel model(Shapes(64, {1000}), NXD_DTYPE_F32, NXD_DTYPE_F32);
    uint64_t bytes = 0;
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(16000), ddp))) return 0;
    NXD_TEST_OK(nxd_ddp_get_buffer_bytes(ddp.get(), &bytes));
    NXD_TEST_CHECK(bytes > 0 && bytes <= 2 * (16000 + 128));
    // One that is reduced where it lies needs none.
    BufferModel large({{100000}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    if (!NXD_TEST_OK(large.create_ddp(ctx, in_buckets(16000), ddp))) return 0;
    NXD_TEST_OK(nxd_ddp_get_buffer_bytes(ddp.get(), &bytes));
    NXD_TEST_CHECK(bytes == 0);
    return 0;
  });
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    BufferModel model(Shapes(64, {1000}), NXD_DTYPE_F32, NXD_DTYPE_F32);
    uint64_t bytes = 1;
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(16000), ddp))) return 0;
    NXD_TEST_OK(nxd_ddp_get_buffer_bytes(ddp.get(), &bytes));
    NXD_TEST_CHECK(bytes == 0);
    return 0;
  });
}

// A group of the caller's own, names, and buffers that move.
void groups_names_and_moves(void**) {
  on_ranks<int>(3, [](nxd_context_t* ctx, int rank, int) {
    const std::vector<int32_t> ranks =
        rank == 1 ? std::vector<int32_t>{1} : std::vector<int32_t>{2, 0};
    nxd_group_t* group = nullptr;
    if (!NXD_TEST_OK(nxd_group_create(ctx, ranks.data(), ranks.size(), "own", &group))) return 0;
    Array param({2}, NXD_DTYPE_F32), grad({2}, NXD_DTYPE_F32), moved({2}, NXD_DTYPE_F32);
    param.set(0, rank);
    DLTensor *params[] = {param.tensor()}, *grads[] = {grad.tensor()};
    const char* names[] = {"weight"};
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx, group, names, params, grads, 1, nullptr, &ddp));
    nxd_group_destroy(group);
    NXD_TEST_CHECK(param.get(0) == (rank == 1 ? 1 : 2));  // the group's first rank
    const char* name = nullptr;
    size_t count = 0;
    NXD_TEST_OK(nxd_ddp_get_name(ddp, 0, &name));
    NXD_TEST_OK(nxd_ddp_get_count(ddp, &count));
    NXD_TEST_CHECK(std::string(name) == "weight" && count == 1);
    moved.set(1, rank + 1);
    NXD_TEST_OK(nxd_ddp_rebind(ddp, 0, nullptr, moved.tensor()));
    NXD_TEST_OK(nxd_ddp_finish(ddp, nullptr, nullptr));
    NXD_TEST_CHECK(moved.get(1) == (rank == 1 ? 2 : 4) && grad.get(1) == 0);
    nxd_ddp_destroy(ddp);
    return 0;
  });
}

// --- Bad calls ---------------------------------------------------------------------------------

nxd_status_t create_one(nxd_context_t* ctx, DLTensor* param, DLTensor* grad,
                        const char* name = nullptr) {
  DLTensor *params[] = {param}, *grads[] = {grad};
  const char* names[] = {name};
  nxd_ddp_t* ddp = reinterpret_cast<nxd_ddp_t*>(1);
  const nxd_status_t status =
      nxd_ddp_create_buffers(ctx, nullptr, name ? names : nullptr, params, grads, 1, nullptr, &ddp);
  NXD_TEST_CHECK((status == NXD_OK) == (ddp != nullptr));
  nxd_ddp_destroy(ddp);
  return status;
}

void bad_tensors(void**) {
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    const auto refused = [](nxd_status_t status, const char* part) {
      NXD_TEST_REFUSED(status, NXD_ERROR_INVALID_ARGUMENT, part);
    };
    Array param({2, 3}, NXD_DTYPE_F32), grad({2, 3}, NXD_DTYPE_F32);
    Array wide({2, 3}, NXD_DTYPE_F64), flat({6}, NXD_DTYPE_F32);
    refused(create_one(ctx, nullptr, grad.tensor()), "params[0] (0): expected a tensor");
    refused(create_one(ctx, param.tensor(), nullptr), "grads[0] (0): expected a tensor");
    refused(create_one(ctx, param.tensor(), flat.tensor()), "got [6]");
    refused(create_one(ctx, param.tensor(), wide.tensor()), "dtype f32, got f64");
    refused(create_one(ctx, param.tensor(), grad.tensor(), ""), "names[0]");
    DLTensor bad = *param.tensor();
    int64_t strides[] = {1, 2}, row_strides[] = {3, 1}, negative[] = {2, -3}, gaps[] = {4, 1};
    bad.strides = strides;
    refused(create_one(ctx, &bad, grad.tensor(), "w"),
            "grads[0] (w): expected the parameter's order of dimensions in memory, got another");
    refused(create_one(ctx, grad.tensor(), &bad, "w"), "order of dimensions in memory, C order");
    DLTensor turned = *grad.tensor();
    turned.strides = strides;
    NXD_TEST_OK(create_one(ctx, &bad, &turned));
    bad.strides = gaps;
    refused(create_one(ctx, &bad, grad.tensor(), "w"),
            "params[0] (w): expected a dense array, in C order or another order of dimensions, "
            "got the strides [4, 1] for the shape [2, 3]");
    bad.strides = row_strides;
    NXD_TEST_OK(create_one(ctx, &bad, grad.tensor()));
    bad.shape = negative;
    refused(create_one(ctx, &bad, grad.tensor()), "sizes of at least 0");
    bad = *param.tensor();
    bad.device.device_type = kDLCUDA;
    refused(create_one(ctx, &bad, grad.tensor()), "memory of the CPU");
    bad = *param.tensor();
    bad.data = nullptr;
    refused(create_one(ctx, &bad, grad.tensor()), "got NULL");
    bad = *param.tensor();
    bad.byte_offset = 2;
    refused(create_one(ctx, &bad, grad.tensor()), "aligned to 4");
    bad.byte_offset = uint64_t{1} << 61;
    refused(create_one(ctx, &bad, grad.tensor()), "byte_offset within memory");
    bad = *param.tensor();
    int64_t huge[] = {int64_t{1} << 30, int64_t{1} << 30};
    bad.shape = huge;
    refused(create_one(ctx, &bad, grad.tensor()), "fits in memory");
    bad = *param.tensor();
    bad.dtype = {kDLInt, 32, 1};
    refused(create_one(ctx, &bad, grad.tensor()), "expected f32, f64 or bf16");
    DLTensor* twice[] = {param.tensor(), param.tensor()};
    DLTensor* grads[] = {grad.tensor(), grad.tensor()};
    const char* names[] = {"w", "w"};
    nxd_ddp_t* ddp = nullptr;
    refused(nxd_ddp_create_buffers(ctx, nullptr, names, twice, grads, 2, nullptr, &ddp),
            "names[1]: expected each name once");
    refused(nxd_ddp_create_buffers(ctx, nullptr, nullptr, nullptr, grads, 2, nullptr, &ddp),
            "params: expected an array");
    for (const size_t n : {SIZE_MAX, size_t{1} << 60}) {
      refused(nxd_ddp_create_buffers(ctx, nullptr, nullptr, twice, grads, n, nullptr, &ddp),
              "params: expected an array that fits in memory");
    }
    refused(nxd_ddp_create_buffers(nullptr, nullptr, nullptr, twice, grads, 2, nullptr, &ddp),
            "ctx");
    refused(nxd_ddp_create_buffers(ctx, nullptr, nullptr, twice, grads, 1, nullptr, nullptr),
            "out_ddp");
    return 0;
  });
}

void bad_calls(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int, int) {
    BufferModel model({{3}, {2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Array other({4}, NXD_DTYPE_F32);
    Ddp owner;
    if (!NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0), owner))) return 0;
    nxd_ddp_t* ddp = owner.get();
    const char* name = nullptr;
    NXD_TEST_REFUSED(nxd_ddp_get_name(ddp, 2, &name), NXD_ERROR_INVALID_ARGUMENT, "less than 2");
    NXD_TEST_REFUSED(nxd_ddp_mark_ready(ddp, 2), NXD_ERROR_INVALID_ARGUMENT, "less than 2");
    NXD_TEST_REFUSED(nxd_ddp_mark_ready(nullptr, 0), NXD_ERROR_INVALID_ARGUMENT, "ddp");
    NXD_TEST_REFUSED(nxd_ddp_set_sync(ddp, 2), NXD_ERROR_INVALID_ARGUMENT, "0 or 1");
    NXD_TEST_REFUSED(nxd_ddp_rebind(ddp, 0, nullptr, other.tensor()), NXD_ERROR_INVALID_ARGUMENT,
                     "[3], got [4]");
    NXD_TEST_REFUSED(nxd_ddp_rebind(ddp, 0, other.tensor(), nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "[3] as before, got f32 [4]");
    NXD_TEST_OK(nxd_ddp_mark_ready(ddp, 1));
    NXD_TEST_REFUSED(nxd_ddp_mark_ready(ddp, 1), NXD_ERROR_INVALID_STATE, "marked in this step");
    NXD_TEST_REFUSED(nxd_ddp_mark_unused(ddp, 1), NXD_ERROR_INVALID_STATE, "marked in this step");
    NXD_TEST_REFUSED(nxd_ddp_rebind(ddp, 2, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "less than 2");
    NXD_TEST_REFUSED(nxd_ddp_rebind(ddp, 1, nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                     "parameter 1: its gradient was marked in this step");
    NXD_TEST_OK(nxd_ddp_rebind(ddp, 0, nullptr, nullptr));
    nxd_finish_options_t wrong = NXD_FINISH_OPTIONS_INIT;
    wrong.max_norm = -1;
    NXD_TEST_REFUSED(nxd_ddp_finish(ddp, &wrong, nullptr), NXD_ERROR_INVALID_ARGUMENT, "max_norm");
    // The reductions that it had started have ended with it.
    NXD_TEST_OK(nxd_ddp_rebind(ddp, 0, nullptr, nullptr));
    NXD_TEST_OK(nxd_ddp_finish(ddp, nullptr, nullptr));
    NXD_TEST_OK(nxd_ddp_rebind(ddp, 0, nullptr, nullptr));
    nxd_ddp_destroy(nullptr);
    return 0;
  });
}

// A parameter that is given twice would be updated twice.
void shared_memory(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    struct Case {
      const char* message;
      void (*apply)(BufferModel& model);
    };
    static const Case cases[] = {
        {"params[1] (1): expected memory of its own, got memory of params[0] (0)",
         [](BufferModel& m) {
           m.params[1]->tensor()->data = static_cast<float*>(m.params[0]->data()) + 11;
         }},
        {"grads[1] (1): expected memory of its own, got memory of grads[0] (0)",
         [](BufferModel& m) {
           m.grads[1]->tensor()->data = m.grads[0]->data();
           m.grads[1]->tensor()->byte_offset = 8;
         }},
        {"grads[1] (1): expected memory of its own, got memory of params[0] (0)",
         [](BufferModel& m) {
           m.grads[1]->tensor()->data = static_cast<float*>(m.params[0]->data()) + 1;
         }}};
    for (const Case& wrong : cases) {
      BufferModel model({{3, 4}, {2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      if (rank == 1) wrong.apply(model);
      Ddp ddp;
      NXD_TEST_REFUSED(model.create_ddp(ctx, in_buckets(0), ddp), NXD_ERROR_INVALID_ARGUMENT,
                       wrong.message);
    }
    // Arrays side by side in one block, and empty ones anywhere.
    BufferModel model({{3, 4}, {2}, {0, 5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    std::vector<float> block(14);
    model.params[0]->tensor()->data = block.data();
    model.params[1]->tensor()->data = block.data() + 12;
    model.params[2]->tensor()->data = block.data() + 3;
    Ddp ddp;
    NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0), ddp));
    return 0;
  });
}

// Arguments of the ranks must agree; a mistake of one is an error on all, and the world goes on.
void ranks_that_differ(void**) {
  struct Difference {
    void (*apply)(BufferModel& model, nxd_ddp_options_t& options);
    const char* part;
  };
  static const Difference differences[] = {
      {[](BufferModel&, nxd_ddp_options_t& o) { o.bucket_bytes = 100; }, "bucket_bytes"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.reduce = NXD_REDUCE_AVG; }, "reduce"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.zero_stage = 1; }, "zero_stage"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.overlap = NXD_TOGGLE_OFF; }, "overlap"},
      {[](BufferModel& m, nxd_ddp_options_t&) {
         m = BufferModel({{3}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
       },
       "number of parameters"},
      {[](BufferModel& m, nxd_ddp_options_t&) {
         m = BufferModel({{3}, {3}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
       },
       "elements of parameter 1 (1)"},
      {[](BufferModel& m, nxd_ddp_options_t&) {
         m = BufferModel({{3}, {2}}, NXD_DTYPE_F64, NXD_DTYPE_F64);
       },
       "dtype of parameter 0 (0): expected the same on all ranks, got f32 on rank 0 and f64 on "
       "rank "
       "1"}};
  static const Difference none[] = {
      {[](BufferModel&, nxd_ddp_options_t& o) { o.zero_stage = 2; },
       "zero_stage: expected 0 or 1, got 2"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.fp32_grads = 7; },
       "fp32_grads: expected 0 or 1, got 7"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.overlap = 3; },
       "overlap: expected an NXD_TOGGLE_*, got 3"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.broadcast = -1; },
       "broadcast: expected an NXD_TOGGLE_*, got -1"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.bucket_bytes = -5; },
       "bucket_bytes: expected at least 0, got -5"},
      {[](BufferModel&, nxd_ddp_options_t& o) { o.reserved = 9; }, "reserved: expected 0, got 9"}};
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    for (const Difference& difference : differences) {
      BufferModel model({{3}, {2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      nxd_ddp_options_t options = in_buckets(0);
      if (rank == 1) difference.apply(model, options);
      Ddp ddp;
      NXD_TEST_REFUSED(model.create_ddp(ctx, options, ddp), NXD_ERROR_INVALID_ARGUMENT,
                       difference.part);
    }
    BufferModel model({{3}, {2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    for (const Difference& wrong : none) {
      nxd_ddp_options_t options = in_buckets(0);
      if (rank == 1) wrong.apply(model, options);
      NXD_TEST_REFUSED(model.create_ddp(ctx, options, ddp), NXD_ERROR_INVALID_ARGUMENT,
                       rank == 1 ? wrong.part : "rank 1 rejected");
    }
    NXD_TEST_OK(model.create_ddp(ctx, in_buckets(0), ddp));
    NXD_TEST_OK(nxd_ddp_finish(ddp.get(), nullptr, nullptr));
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.nesterov = 7;
    nxd_optimizer_t* optimizer = nullptr;
    NXD_TEST_REFUSED(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &optimizer),
                     NXD_ERROR_INVALID_ARGUMENT, "nesterov: expected 0 or 1, got 7");
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(against_nxd_core),      cmocka_unit_test(sums_by_hand),
      cmocka_unit_test(buckets_change_no_bit), cmocka_unit_test(accumulation),
      cmocka_unit_test(unused_parameters),     cmocka_unit_test(first_values_are_sent),
      cmocka_unit_test(staging_is_bounded),    cmocka_unit_test(groups_names_and_moves),
      cmocka_unit_test(bad_tensors),           cmocka_unit_test(bad_calls),
      cmocka_unit_test(shared_memory),         cmocka_unit_test(ranks_that_differ)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
