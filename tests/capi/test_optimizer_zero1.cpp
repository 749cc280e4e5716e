// ZeRO stage 1 over a caller's buffers: recorded values, the same training on any number of ranks,
// memory that is counted, states that move between layouts, and ends that come too early.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/buffer_model.h"
#include "support/larger_error.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

struct Setting {
  int ranks = 1;
  int zero_stage = 1;
  nxd_dtype_t dtype = NXD_DTYPE_F64;
  nxd_dtype_t grad_dtype = NXD_DTYPE_F64;
  int64_t bucket_bytes = 1024;
};

Optimizer adamw(nxd_ddp_t* ddp, nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT) {
  if (options.learning_rate == 0) options.learning_rate = 0.01;
  nxd_optimizer_t* out = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, &options, &out));
  return Optimizer(out);
}

nxd_step_report_t step(nxd_optimizer_t* optimizer, double max_norm = 0, double norm_type = 0) {
  nxd_finish_options_t finish = NXD_FINISH_OPTIONS_INIT;
  finish.max_norm = max_norm;
  finish.norm_type = norm_type;
  nxd_step_report_t report = {};
  report.struct_size = sizeof report;
  NXD_TEST_OK(nxd_optimizer_step(optimizer, &finish, &report));
  return report;
}

nxd_ddp_options_t ddp_options(const Setting& setting) {
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.bucket_bytes = setting.bucket_bytes;
  options.zero_stage = setting.zero_stage;
  return options;
}

constexpr int kSamples = 8;

struct Trained {
  std::vector<double> values, norms;
  std::vector<char> bytes;
  uint64_t state_bytes = 0;
};

// Trains on eight samples, which the ranks share.
Trained train(nxd_context_t* ctx, int rank, const Setting& setting, int steps,
              const nxd_adamw_options_t& options, double max_norm) {
  BufferModel model(ragged_shapes(), setting.dtype, setting.grad_dtype);
  Ddp ddp;
  Trained out;
  if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options(setting), ddp))) return out;
  const Optimizer optimizer = adamw(ddp.get(), options);
  const int each = kSamples / setting.ranks;
  for (int i = 0; i < steps; ++i) {
    model.set_gradients(rank * each, (rank + 1) * each);
    out.norms.push_back(step(optimizer.get(), max_norm).norm);
  }
  NXD_TEST_OK(nxd_optimizer_get_state_bytes(optimizer.get(), &out.state_bytes));
  out.values = model.values();
  out.bytes = model.bytes();
  return out;
}

std::vector<Trained> train_on_ranks(const Setting& setting, int steps,
                                    const nxd_adamw_options_t& options, double max_norm) {
  const auto runs = on_ranks<Trained>(setting.ranks, [&](nxd_context_t* ctx, int rank, int) {
    return train(ctx, rank, setting, steps, options, max_norm);
  });
  for (const Trained& run : runs) {
    assert_true(run.bytes == runs[0].bytes);
    assert_true(run.norms == runs[0].norms);
  }
  return runs;
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = larger_error(worst, a[i] - b[i]);
  }
  return worst;
}

void test_ranks_train_alike(void**) {
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.weight_decay = 0.01;
  for (const bool wide : {true, false}) {
    const nxd_dtype_t dtype = wide ? NXD_DTYPE_F64 : NXD_DTYPE_F32;
    const Trained want = train_on_ranks({1, 0, dtype, dtype, 1 << 20}, 50, options, 2.0).front();
    for (const int ranks : {1, 2, 4}) {
      for (const int stage : {0, 1}) {
        for (const int64_t bucket_bytes : {64, 5000, 1 << 20}) {
          const Setting setting{ranks, stage, dtype, dtype, bucket_bytes};
          const Trained got = train_on_ranks(setting, 50, options, 2.0).front();
          const double tolerance = wide ? 1e-11 : 2e-5;
          const double difference = worst_difference(got.values, want.values);
          if (!(difference <= tolerance)) {
            fail_msg("%d ranks, stage %d, buckets of %d bytes: %g", ranks, stage,
                     static_cast<int>(bucket_bytes), difference);
          }
          assert_true(worst_difference(got.norms, want.norms) <= tolerance * want.norms[0]);
        }
      }
    }
  }
}

// The element sums of the shapes above, however ranks and buckets cut them.
void test_state_is_divided(void**) {
  struct Case {
    nxd_dtype_t dtype, grad_dtype;
    nxd_bf16_update_t update;
    uint64_t bytes;  // for one element
  };
  for (const Case& c : {Case{NXD_DTYPE_F32, NXD_DTYPE_F32, NXD_BF16_UPDATE_MASTER, 8},
                        Case{NXD_DTYPE_F64, NXD_DTYPE_F64, NXD_BF16_UPDATE_MASTER, 16},
                        Case{NXD_DTYPE_BF16, NXD_DTYPE_F32, NXD_BF16_UPDATE_MASTER, 12},
                        Case{NXD_DTYPE_BF16, NXD_DTYPE_BF16, NXD_BF16_UPDATE_STOCHASTIC, 8}}) {
    nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
    options.bf16_update = c.update;
    for (const int ranks : {1, 2, 4}) {
      const auto runs = train_on_ranks({ranks, 1, c.dtype, c.grad_dtype, 1 << 20}, 1, options, 0);
      const uint64_t elements = runs[0].values.size();
      uint64_t sum = 0, most = 0;
      for (const Trained& run : runs) {
        sum += run.state_bytes;
        most = std::max(most, run.state_bytes);
      }
      assert_int_equal(sum, c.bytes * elements);
      // Parts are cut at cache lines of every rank's.
      const uint64_t padding = 32 * static_cast<uint64_t>(ranks);
      assert_true(most <= c.bytes * (elements + padding) / static_cast<uint64_t>(ranks));
    }
  }
}

// P = arange(15) / 10 as [5, 3]; row i of rank r's gradient is (r + 1)(i + 1); mean, clipped to 1;
// one step with learning rate 0.1 and decay 0.01. By torch_xla's ZeRO-1 with either AdamW.
void test_golden(void**) {
  struct Case {
    nxd_adamw_formula_t formula;
    double eps;
    std::vector<double> first, last;
  };
  for (const Case& c :
       {Case{NXD_ADAMW_FORMULA_TORCH, 1e-8, {-0.1, -0.0001, 0.0998}, {1.0988, 1.1987, 1.2986}},
        Case{NXD_ADAMW_FORMULA_NXD,
             1e-6,
             {-0.0998594, 0.0000406, 0.0999406},
             {1.0989081, 1.1988081, 1.2987081}}}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      BufferModel model({{5, 3}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      for (int64_t i = 0; i < 15; ++i) {
        model.params[0]->set(i, static_cast<double>(i) / 10);
        model.grads[0]->set(i, static_cast<double>((rank + 1) * (i / 3 + 1)));
      }
      nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
      options.zero_stage = 1;
      options.reduce = NXD_REDUCE_AVG;
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, options, ddp))) return 0;
      nxd_adamw_options_t rule = NXD_ADAMW_OPTIONS_INIT;
      rule.learning_rate = 0.1;
      rule.weight_decay = 0.01;
      rule.eps = c.eps;
      rule.formula = c.formula;
      const Optimizer optimizer = adamw(ddp.get(), rule);
      const nxd_step_report_t report = step(optimizer.get(), 1.0);
      NXD_TEST_CHECK(std::fabs(report.norm - 19.267849) < 2e-6);
      NXD_TEST_CHECK(report.updates == 1 && report.skipped == 0);
      for (int64_t i = 0; i < 3; ++i) {
        const auto k = static_cast<size_t>(i);
        NXD_TEST_CHECK(std::fabs(model.params[0]->get(i) - c.first[k]) < 1e-6);
        NXD_TEST_CHECK(std::fabs(model.params[0]->get(12 + i) - c.last[k]) < 1e-6);
      }
      return 0;
    });
  }
}

// Whatever divides the model, the same bits are rounded the same way.
void test_stochastic_rounding_knows_no_layout(void**) {
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.bf16_update = NXD_BF16_UPDATE_STOCHASTIC;
  options.learning_rate = 1e-3;
  const auto run = [&](int ranks, int stage) {
    return on_ranks<std::vector<char>>(ranks, [&](nxd_context_t* ctx, int, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_BF16, NXD_DTYPE_F32);
      nxd_ddp_options_t ddp_opts = ddp_options({ranks, stage});
      ddp_opts.reduce = NXD_REDUCE_AVG;
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_opts, ddp))) return std::vector<char>();
      const Optimizer optimizer = adamw(ddp.get(), options);
      for (int i = 0; i < 10; ++i) {
        model.set_gradients(0, 2);  // alike on all ranks, and so is the mean of 1, 2 or 4
        step(optimizer.get());
      }
      return model.bytes();
    });
  };
  const std::vector<char> want = run(1, 0).front();
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {0, 1}) {
      for (const std::vector<char>& got : run(ranks, stage)) assert_true(got == want);
    }
  }
}

void test_norms(void**) {
  for (const double type : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    for (const int stage : {0, 1}) {
      on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
        BufferModel model({{3}, {5, 7}}, NXD_DTYPE_F64, NXD_DTYPE_F64);
        Ddp ddp;
        if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, stage}), ddp))) return 0;
        nxd_sgd_options_t rule = NXD_SGD_OPTIONS_INIT;
        rule.learning_rate = 1;
        nxd_optimizer_t* handle = nullptr;
        NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &rule, &handle));
        const Optimizer optimizer(handle);
        std::vector<double> sums;
        double norm = 0;
        for (const auto& grad : model.grads) {
          for (int64_t i = 0; i < grad->count(); ++i) {
            grad->set(i, wave(i, 3) * (rank + 1));
            sums.push_back(wave(i, 3) * 3);
            const double size = std::fabs(sums.back());
            norm = type == 1 ? norm + size : type == 2 ? norm + size * size : std::max(norm, size);
          }
        }
        if (type == 2) norm = std::sqrt(norm);
        const std::vector<double> before = model.values();
        const nxd_step_report_t report = step(optimizer.get(), 0.5, type);
        NXD_TEST_CHECK(std::fabs(report.norm - norm) < 1e-12 * norm);
        const std::vector<double> after = model.values();
        for (size_t i = 0; i < sums.size(); ++i) {
          const double want = before[i] - sums[i] * (0.5 / (norm + 1e-6));
          NXD_TEST_CHECK(std::fabs(after[i] - want) < 1e-12);
        }
        return 0;
      });
    }
  }
}

void test_nonfinite_gradients_skip_the_step(void**) {
  for (const int stage : {0, 1}) {
    on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, stage, NXD_DTYPE_F32}), ddp)))
        return 0;
      const Optimizer optimizer = adamw(ddp.get());
      model.set_gradients(0, 1);
      if (rank == 1) model.grads[3]->set(100, NAN);
      const std::vector<char> before = model.bytes();
      nxd_step_report_t report = step(optimizer.get());
      NXD_TEST_CHECK(report.skipped == 1 && report.updates == 0 && !std::isfinite(report.norm));
      NXD_TEST_CHECK(model.bytes() == before);
      model.set_gradients(0, 1);
      report = step(optimizer.get());
      NXD_TEST_CHECK(report.skipped == 0 && report.updates == 1);
      NXD_TEST_CHECK(model.bytes() != before);
      return 0;
    });
  }
}

// A state that some ranks wrote goes on on any other number of them.
void test_states_move(void**) {
  const TempDir directory;
  nxd_adamw_options_t options = NXD_ADAMW_OPTIONS_INIT;
  options.learning_rate = 0.01;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    const std::string path = directory.path() + "/state" + std::to_string(dtype);
    const auto run = [&](int ranks, int stage, int steps, const std::vector<double>* start,
                         bool save) {
      return on_ranks<std::vector<double>>(
                 ranks,
                 [&](nxd_context_t* ctx, int, int) {
                   BufferModel model(ragged_shapes(), dtype, NXD_DTYPE_F32);
                   if (start) {
                     size_t k = 0;
                     for (const auto& array : model.params) {
                       for (int64_t i = 0; i < array->count(); ++i) array->set(i, (*start)[k++]);
                     }
                   }
                   nxd_ddp_options_t ddp_opts = ddp_options({ranks, stage});
                   ddp_opts.reduce = NXD_REDUCE_AVG;
                   Ddp ddp;
                   if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_opts, ddp))) return model.values();
                   const Optimizer optimizer = adamw(ddp.get(), options);
                   if (start) NXD_TEST_OK(nxd_optimizer_load(optimizer.get(), path.c_str()));
                   nxd_step_report_t report = {};
                   for (int i = 0; i < steps; ++i) {
                     model.set_gradients(0, 2);
                     report = step(optimizer.get());
                   }
                   NXD_TEST_CHECK(report.updates == steps + (start ? 3 : 0));
                   if (save) NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
                   return model.values();
                 })
          .front();
    };
    for (const int writers : {1, 2}) {
      const std::vector<double> middle = run(writers, 1, 3, nullptr, true);
      const std::vector<double> want = run(writers, 1, 7, nullptr, false);
      for (const int readers : {1, 2, 4}) {
        for (const int stage : {0, 1}) {
          assert_true(run(readers, stage, 4, &middle, false) == want);
        }
      }
    }
  }
}

// The file of a state has its bits, wherever its parts were: a momentum of -0 among them, which the
// first gradient may leave.
void test_states_keep_the_sign_of_zero(void**) {
  const TempDir directory;
  std::vector<std::string> files;
  for (const int stage : {0, 1}) {
    const std::string path = directory.path() + "/state" + std::to_string(stage);
    on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_F64, NXD_DTYPE_F64);
      for (const auto& array : model.grads) {
        for (int64_t i = 0; i < array->count(); ++i) array->set(i, -0.0);
      }
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, stage}), ddp))) return 1;
      nxd_sgd_options_t options = NXD_SGD_OPTIONS_INIT;
      options.momentum = 0.9;
      nxd_optimizer_t* handle = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &options, &handle));
      const Optimizer sgd(handle);
      NXD_TEST_CHECK(step(sgd.get()).updates == 1);
      NXD_TEST_OK(nxd_optimizer_save(sgd.get(), path.c_str()));
      return 0;
    });
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  assert_true(!files[0].empty() && files[0] == files[1]);
}

void test_foreign_states_are_refused(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    BufferModel model({{4}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32),
        other({{4}}, NXD_DTYPE_F32, NXD_DTYPE_F32), shape({{4}, {6}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp, other_ddp, shape_ddp;
    const nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    NXD_TEST_OK(other.create_ddp(ctx, options, other_ddp));
    NXD_TEST_OK(shape.create_ddp(ctx, options, shape_ddp));
    const Optimizer optimizer = adamw(ddp.get());
    model.set_gradients(0, 1);
    step(optimizer.get());
    NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
    const auto refused = [&](nxd_optimizer_t* reader, nxd_status_t status, const char* part) {
      NXD_TEST_REFUSED(nxd_optimizer_load(reader, path.c_str()), status, part);
    };
    refused(adamw(other_ddp.get()).get(), NXD_ERROR_INVALID_ARGUMENT, "belongs to no parameter");
    refused(adamw(shape_ddp.get()).get(), NXD_ERROR_INVALID_ARGUMENT, "[6]");
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    nxd_optimizer_t* handle = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), &sgd, &handle));
    refused(Optimizer(handle).get(), NXD_ERROR_INVALID_ARGUMENT, "expected the state of sgd");
    NXD_TEST_REFUSED(nxd_optimizer_load(optimizer.get(), "/nowhere/at/all"), NXD_ERROR_IO, "");
    NXD_TEST_REFUSED(nxd_optimizer_load(optimizer.get(), nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "path");
    NXD_TEST_REFUSED(nxd_optimizer_save(optimizer.get(), nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "path");
    NXD_TEST_REFUSED(nxd_optimizer_save(optimizer.get(), "/nowhere/at/all"), NXD_ERROR_IO,
                     "rank 0 could not write");
    return 0;
  });
}

// A rule of the caller's that fails on one rank ends the step on all, and names the rank.
void test_a_failing_rule_ends_the_step_everywhere(void**) {
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, 1, NXD_DTYPE_F32}), ddp))) return 0;
    nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    options.update = [](const nxd_update_t*, void* user_data) -> nxd_status_t {
      return *static_cast<int*>(user_data) == 1 ? NXD_ERROR_USER : NXD_OK;
    };
    options.user_data = &rank;
    nxd_optimizer_t* handle = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_custom_ddp(ddp.get(), &options, &handle));
    const Optimizer optimizer(handle);
    model.set_gradients(0, 1);
    if (rank == 1) {
      NXD_TEST_REFUSED(nxd_optimizer_step(handle, nullptr, nullptr), NXD_ERROR_USER, "");
    } else {
      NXD_TEST_REFUSED(nxd_optimizer_step(handle, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                       "rank 1");
    }
    return 0;
  });
}

void test_a_lost_rank_is_named(void**) {
  on_ranks<int>(
      3,
      [&](nxd_context_t* ctx, int rank, int) {
        BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
        Ddp ddp;
        if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({3, 1, NXD_DTYPE_F32}), ddp))) return 0;
        const Optimizer optimizer = adamw(ddp.get());
        model.set_gradients(0, 1);
        step(optimizer.get());
        if (rank == 2) return 0;  // destroys its context
        model.set_gradients(0, 1);
        for (int again = 0; again < 2; ++again) {
          const nxd_status_t status = nxd_optimizer_step(optimizer.get(), nullptr, nullptr);
          nxd_error_info_t info = {};
          info.struct_size = sizeof info;
          NXD_TEST_OK(nxd_last_error_info(&info));
          NXD_TEST_CHECK(status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT);
          NXD_TEST_CHECK(info.root_rank == 2);
        }
        return 0;
      },
      2000);
}

void test_sharded_updates_are_collective(void**) {
  on_ranks<int>(2, [&](nxd_context_t* ctx, int, int) {
    BufferModel model({{4}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, 1, NXD_DTYPE_F32}), ddp))) return 0;
    const Optimizer optimizer = adamw(ddp.get());
    NXD_TEST_REFUSED(nxd_optimizer_update(optimizer.get()), NXD_ERROR_INVALID_STATE,
                     "nxd_optimizer_step");
    NXD_TEST_REFUSED(nxd_ddp_finish(ddp.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                     "nxd_optimizer_step");
    return 0;
  });
}

// A rank that calls the wrong function does not leave the other in its step, which both go on with.
void test_one_rank_finishes_what_others_step(void**) {
  const auto run = [](bool errs) {
    return on_ranks<std::vector<double>>(2, [errs](nxd_context_t* ctx, int rank, int) {
      BufferModel model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
      Ddp ddp;
      if (!NXD_TEST_OK(model.create_ddp(ctx, ddp_options({2, 1, NXD_DTYPE_F32}), ddp))) {
        return std::vector<double>();
      }
      const Optimizer optimizer = adamw(ddp.get());
      model.set_gradients(4 * rank, 4 * (rank + 1));
      if (errs && rank == 0) {
        NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), nullptr, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "rank 1 rejected its arguments: ddp: with");
      } else if (errs) {
        NXD_TEST_REFUSED(nxd_ddp_finish(ddp.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE,
                         "nxd_optimizer_step");
      }
      step(optimizer.get());
      return model.values();
    });
  };
  assert_true(run(true) == run(false));
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_train_alike),
      cmocka_unit_test(test_state_is_divided),
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_stochastic_rounding_knows_no_layout),
      cmocka_unit_test(test_norms),
      cmocka_unit_test(test_nonfinite_gradients_skip_the_step),
      cmocka_unit_test(test_states_move),
      cmocka_unit_test(test_states_keep_the_sign_of_zero),
      cmocka_unit_test(test_foreign_states_are_refused),
      cmocka_unit_test(test_a_failing_rule_ends_the_step_everywhere),
      cmocka_unit_test(test_a_lost_rank_is_named),
      cmocka_unit_test(test_sharded_updates_are_collective),
      cmocka_unit_test(test_one_rank_finishes_what_others_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
