// Calls of a training step's end that one rank cannot make: structs that the library does not know,
// outputs that are missing, values out of range. All ranks fail at once, nothing has changed, and
// the next call goes well.
#include <cstring>
#include <fstream>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kRanks = 2;

// A ddp over two ranks, with an optimizer over it.
struct Training {
  BufferModel model{{{5}, {40}}, NXD_DTYPE_F32, NXD_DTYPE_F32};
  Ddp ddp;
  Optimizer optimizer;

  Training(nxd_context_t* ctx, int32_t zero_stage, nxd_toggle_t overlap = NXD_TOGGLE_DEFAULT) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = zero_stage;
    options.overlap = overlap;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(ddp.get(), nullptr, &made));
    optimizer.reset(made);
    model.set_gradients(0, 2);
  }
};

// Arguments of a rank for nxd_optimizer_step or nxd_ddp_finish.
struct Given {
  nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
  nxd_step_report_t report{};
  Given() { report.struct_size = sizeof report; }
};

struct Slip {
  void (*spoil)(Given& given);
  nxd_status_t status;
  const char* part;
  bool of_step = false;  // alone
};
const Slip kSlips[] = {
    {[](Given& g) { g.report.struct_size = 0; }, NXD_ERROR_ABI_MISMATCH,
     "out_report->struct_size: expected 40 to 4096", true},
    {[](Given& g) { g.options.struct_size = 1; }, NXD_ERROR_ABI_MISMATCH,
     "options.struct_size: expected 40 to 4096"},
    {[](Given& g) { g.options.check_finite = 7; }, NXD_ERROR_INVALID_ARGUMENT,
     "check_finite: expected an NXD_TOGGLE_*, got 7"},
};

// The rank that slips is told why, and the others whose slip it is.
void check_told(nxd_status_t status, const Slip& slip, bool is_own, int slipping) {
  NXD_TEST_REFUSED(status, slip.status, slip.part);
  const std::string rank = "rank " + std::to_string(slipping);
  const std::string message = nxd_last_error();
  NXD_TEST_CHECK(is_own || message.find(rank) == 0);
  nxd_error_info_t info{};
  info.struct_size = sizeof info;
  NXD_TEST_OK(nxd_last_error_info(&info));
  NXD_TEST_CHECK(info.parameters == NXD_PARAMETER_STATE_OLD);
}

void steps(void**) {
  for (const int32_t zero_stage : {0, 1}) {
    on_ranks<int>(kRanks, [&](nxd_context_t* ctx, int rank, int) {
      Training training(ctx, zero_stage), undisturbed(ctx, zero_stage);
      const std::vector<char> before = training.model.bytes();
      for (int slipping = 0; slipping < kRanks; ++slipping) {
        for (const Slip& slip : kSlips) {
          Given given;
          if (rank == slipping) slip.spoil(given);
          check_told(nxd_optimizer_step(training.optimizer.get(), &given.options, &given.report),
                     slip, rank == slipping, slipping);
          NXD_TEST_CHECK(training.model.bytes() == before);
        }
      }
      for (const Optimizer* optimizer : {&training.optimizer, &undisturbed.optimizer}) {
        NXD_TEST_OK(nxd_optimizer_step(optimizer->get(), nullptr, nullptr));
      }
      NXD_TEST_CHECK(training.model.bytes() == undisturbed.model.bytes());
      NXD_TEST_CHECK(training.model.bytes() != before);
      return 0;
    });
  }
}

void finishes(void**) {
  on_ranks<int>(kRanks, [](nxd_context_t* ctx, int rank, int) {
    Training training(ctx, 0);
    for (int slipping = 0; slipping < kRanks; ++slipping) {
      for (const Slip& slip : kSlips) {
        if (slip.of_step) continue;
        Given given;
        if (rank == slipping) slip.spoil(given);
        double norm = -1;
        check_told(nxd_ddp_finish(training.ddp.get(), &given.options, &norm), slip,
                   rank == slipping, slipping);
        NXD_TEST_CHECK(norm == 0);
      }
    }
    NXD_TEST_OK(nxd_ddp_finish(training.ddp.get(), nullptr, nullptr));
    return 0;
  });
}

// An update of its own has gradients that are finished, not ones that may be on their way.
void updates_before_the_finish(void**) {
  on_ranks<int>(kRanks, [](nxd_context_t* ctx, int, int) {
    Training training(ctx, 0);
    nxd_optimizer_t* const optimizer = training.optimizer.get();
    const std::vector<char> before = training.model.bytes();
    NXD_TEST_OK(nxd_ddp_mark_ready(training.ddp.get(), 0));
    NXD_TEST_REFUSED(nxd_optimizer_update(optimizer), NXD_ERROR_INVALID_STATE,
                     "not reduced yet: call nxd_ddp_finish before");
    NXD_TEST_CHECK(training.model.bytes() == before);
    NXD_TEST_OK(nxd_ddp_finish(training.ddp.get(), nullptr, nullptr));
    NXD_TEST_OK(nxd_optimizer_update(optimizer));
    NXD_TEST_CHECK(training.model.bytes() != before);
    return 0;
  });
}

nxd_status_t step_by_bad_options(const Training& training) {
  Given given;
  given.options.max_norm = -1;
  return nxd_optimizer_step(training.optimizer.get(), &given.options, nullptr);
}

// A call that was rejected has not finished them, whether all are marked or some.
void updates_after_a_rejection(void**) {
  for (const nxd_toggle_t overlap : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
    for (const size_t marks : {size_t{1}, size_t{2}}) {
      on_ranks<int>(kRanks, [&](nxd_context_t* ctx, int rank, int) {
        Training training(ctx, 0, overlap);
        nxd_ddp_t* const ddp = training.ddp.get();
        nxd_optimizer_t* const optimizer = training.optimizer.get();
        const std::vector<char> before = training.model.bytes();
        for (size_t i = 0; i < marks; ++i) NXD_TEST_OK(nxd_ddp_mark_ready(ddp, i));
        NXD_TEST_REFUSED(rank == 1 ? step_by_bad_options(training)
                                   : nxd_optimizer_step(optimizer, nullptr, nullptr),
                         NXD_ERROR_INVALID_ARGUMENT, "max_norm");
        NXD_TEST_REFUSED(nxd_optimizer_update(optimizer), NXD_ERROR_INVALID_STATE,
                         "not reduced yet: call nxd_ddp_finish before");
        NXD_TEST_CHECK(training.model.bytes() == before);
        NXD_TEST_OK(nxd_ddp_finish(ddp, nullptr, nullptr));
        NXD_TEST_OK(nxd_optimizer_update(optimizer));
        NXD_TEST_CHECK(training.model.bytes() != before);
        return 0;
      });
    }
  }
}

// A reduction that failed has left them as they are, or some of them.
void updates_after_a_lost_peer(void**) {
  for (const nxd_toggle_t overlap : {NXD_TOGGLE_OFF, NXD_TOGGLE_ON}) {
    on_ranks<int>(
        kRanks,
        [&](nxd_context_t* ctx, int rank, int) {
          Training training(ctx, 0, overlap);
          if (rank == 1) {
            nxd_context_abort(ctx);
            return 0;
          }
          const std::vector<char> before = training.model.bytes();
          NXD_TEST_REFUSED(nxd_ddp_finish(training.ddp.get(), nullptr, nullptr),
                           NXD_ERROR_PEER_LOST, "");
          NXD_TEST_REFUSED(nxd_optimizer_update(training.optimizer.get()), NXD_ERROR_INVALID_STATE,
                           "or their reduction has failed");
          NXD_TEST_CHECK(training.model.bytes() == before);
          return 0;
        },
        5000);
  }
}

// How a program says that a rejected step is over: by gradients alone, which it writes anew, by
// marks, or by memory that has moved.
enum class Way { kWritten, kMarked, kUnused, kMoved };

void end_by(Way way, Training& training, Array& moved) {
  nxd_ddp_t* const ddp = training.ddp.get();
  if (way == Way::kMarked) {
    for (size_t i = 0; i < 2; ++i) NXD_TEST_OK(nxd_ddp_mark_ready(ddp, i));
  } else if (way == Way::kUnused) {
    NXD_TEST_OK(nxd_ddp_mark_unused(ddp, 1));
  } else if (way == Way::kMoved) {
    for (int64_t i = 0; i < moved.count(); ++i) moved.set(i, training.model.grads[0]->get(i));
    NXD_TEST_OK(nxd_ddp_rebind(ddp, 0, nullptr, moved.tensor()));
  }
}

// The next step is that of an optimizer which was not disturbed: none of its gradients was reduced.
void new_gradients_after_a_rejection(void**) {
  for (const Way way : {Way::kWritten, Way::kMarked, Way::kUnused, Way::kMoved}) {
    for (const int32_t zero_stage : {0, 1}) {
      on_ranks<int>(kRanks, [&](nxd_context_t* ctx, int rank, int) {
        Array moved({5}, NXD_DTYPE_F32), others({5}, NXD_DTYPE_F32);
        Training training(ctx, zero_stage), undisturbed(ctx, zero_stage);
        NXD_TEST_REFUSED(step_by_bad_options(training), NXD_ERROR_INVALID_ARGUMENT, "max_norm");
        for (Training* each : {&training, &undisturbed}) {
          each->model.set_gradients(3 * rank, 3 * rank + 2);
          end_by(way, *each, each == &training ? moved : others);
          NXD_TEST_OK(nxd_optimizer_step(each->optimizer.get(), nullptr, nullptr));
        }
        NXD_TEST_CHECK(training.model.bytes() == undisturbed.model.bytes());
        return 0;
      });
    }
  }
}

void creations(void**) {
  on_ranks<int>(kRanks, [](nxd_context_t* ctx, int rank, int) {
    BufferModel model({{5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    DLTensor *params[] = {model.params[0]->tensor()}, *grads[] = {model.grads[0]->tensor()};
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    nxd_ddp_t* ddp = reinterpret_cast<nxd_ddp_t*>(1);
    if (rank == 1) options.struct_size = 3;
    NXD_TEST_REFUSED(
        nxd_ddp_create_buffers(ctx, nullptr, nullptr, params, grads, 1, &options, &ddp),
        NXD_ERROR_ABI_MISMATCH, "options.struct_size: expected 40 to 4096, got 3");
    NXD_TEST_CHECK(ddp == nullptr);
    NXD_TEST_REFUSED(nxd_ddp_create_buffers(ctx, nullptr, nullptr, params, grads, 1, nullptr,
                                            rank == 0 ? nullptr : &ddp),
                     NXD_ERROR_INVALID_ARGUMENT, "out_ddp: expected a pointer, got NULL");
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, nullptr, params, grads, 1, nullptr, &ddp));
    nxd_ddp_destroy(ddp);
    return 0;
  });
}

// Brackets and backslashes are letters of a pattern as of a name: none stands for several. A letter
// of several bytes is one, whatever the locale.
void patterns_of_letters(void**) {
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    BufferModel model({{2}, {2}, {2}, {2}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    constexpr size_t kCount = 4;
    DLTensor *params[kCount], *grads[kCount];
    for (size_t i = 0; i < kCount; ++i) {
      params[i] = model.params[i]->tensor();
      grads[i] = model.grads[i]->tensor();
    }
    const char* const names[] = {"w[ab]", "wa", "w\\a", "\u00e9x"};
    const char* const patterns[] = {"w[ab]", "wa", "w\\a", "?x"};
    nxd_ddp_t* made = nullptr;
    NXD_TEST_OK(nxd_ddp_create_buffers(ctx, nullptr, names, params, grads, kCount, nullptr, &made));
    const Ddp ddp(made);
    nxd_optimizer_t* handle = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_sgd_ddp(made, nullptr, &handle));
    const Optimizer optimizer(handle);
    // Each pattern matches one name alone: the rate of its group is that parameter's.
    for (size_t i = 0; i < kCount; ++i) {
      int32_t group = -1;
      NXD_TEST_OK(nxd_optimizer_add_group(handle, &patterns[i], 1, &group));
      NXD_TEST_OK(nxd_optimizer_set_hyperparameter(handle, group, NXD_HYPERPARAMETER_LEARNING_RATE,
                                                   static_cast<double>(i + 1)));
    }
    for (size_t i = 0; i < kCount; ++i) {
      model.params[i]->set(0, 0);
      model.grads[i]->set(0, 1);
    }
    NXD_TEST_OK(nxd_optimizer_step(handle, nullptr, nullptr));
    for (size_t i = 0; i < kCount; ++i) {
      NXD_TEST_CHECK(model.params[i]->get(0) == -static_cast<double>(i + 1));
    }
    const char* const none = "w[a-c]";
    NXD_TEST_REFUSED(nxd_optimizer_add_group(handle, &none, 1, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "matches none of 4 parameters");
    return 0;
  });
}

// A gradient that does not count is not multiplied either, and stays the program's.
void unused_gradients_stay(void**) {
  on_ranks<int>(1, [](nxd_context_t* ctx, int, int) {
    Training training(ctx, 0);
    NXD_TEST_OK(nxd_ddp_mark_unused(training.ddp.get(), 1));
    const std::vector<char> before = training.model.grads[1]->bytes();
    const double used = training.model.grads[0]->get(0);
    nxd_finish_options_t options = NXD_FINISH_OPTIONS_INIT;
    options.scale = 0.5;
    NXD_TEST_OK(nxd_ddp_finish(training.ddp.get(), &options, nullptr));
    NXD_TEST_CHECK(training.model.grads[0]->get(0) == used / 2);
    NXD_TEST_CHECK(training.model.grads[1]->bytes() == before);
    return 0;
  });
}

// Fails in the second span of a step that it is told to.
nxd_status_t fail_in_second(const nxd_update_t*, void* user_data) {
  int& left = *static_cast<int*>(user_data);
  return left > 0 && --left == 0 ? NXD_ERROR_USER : NXD_OK;
}

// An update that broke off leaves values and states of no step. Both have to come from elsewhere.
void states_of_no_step(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/state";
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    Training training(ctx, 0);
    int left = 0;
    nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    options.update = fail_in_second;
    options.user_data = &left;
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_custom_ddp(training.ddp.get(), &options, &made));
    const Optimizer optimizer(made);
    const auto step = [&] { return nxd_optimizer_step(made, nullptr, nullptr); };
    NXD_TEST_OK(step());
    NXD_TEST_OK(nxd_optimizer_save(made, path.c_str()));
    left = 2;
    NXD_TEST_REFUSED(step(), NXD_ERROR_USER, "");
    NXD_TEST_REFUSED(step(), NXD_ERROR_INVALID_STATE, "PARTIAL");
    NXD_TEST_OK(nxd_ddp_mark_reloaded(training.ddp.get()));
    NXD_TEST_REFUSED(step(), NXD_ERROR_INVALID_STATE,
                     "expected an optimizer's state of one step, got a PARTIAL one");
    NXD_TEST_OK(nxd_optimizer_load(made, path.c_str()));
    NXD_TEST_OK(step());
    return 0;
  });
}

// A file whose header has one word in the place of another, and says its new size.
std::string with_header(std::string file, const char* word, const char* before) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  size += std::strlen(word) - std::strlen(before);
  const size_t padding = (8 - size % 8) % 8;
  file.insert(sizeof size + size, padding, ' ');
  size += padding;
  std::memcpy(file.data(), &size, sizeof size);
  return file;
}

// Files that say of themselves what no saved state does. The optimizer stays as it is.
void states_that_are_none(void**) {
  const TempDir directory;
  const std::string good = directory.path() + "/good", bad = directory.path() + "/bad";
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    Training training(ctx, 0);
    nxd_optimizer_t* optimizer = training.optimizer.get();
    for (int i = 0; i < 12; ++i) NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
    NXD_TEST_OK(nxd_optimizer_save(optimizer, good.c_str()));
    std::ifstream in(good, std::ios::binary);
    const std::string saved{std::istreambuf_iterator<char>(in), {}};
    struct Change {
      const char *from, *to;
      nxd_status_t status;
      const char* part;
    };
    for (const Change& change :
         {Change{"nxd-optimizer", "nxd-optimized", NXD_ERROR_INVALID_ARGUMENT,
                 "it is no optimizer state of nxd_optimizer_save"},
          {"\"updates\":\"12\"", "\"updates\":\"1x\"", NXD_ERROR_CORRUPT,
           "no count of updates in the metadata"},
          {"\"updates\":\"12\"", "\"updates\":\"-2\"", NXD_ERROR_CORRUPT,
           "no count of updates in the metadata"},
          {"\"updates\":\"12\"", "\"updates\":\"4611686018427387905\"", NXD_ERROR_CORRUPT,
           "no count of updates in the metadata"},
          {"\"updates\":\"12\"", "\"updates\":\"4611686018427387904\"", NXD_OK, ""},
          {"\"updates.1\":\"12\"", "\"updates.1\":\"x2\"", NXD_ERROR_CORRUPT,
           "no count of updates.1 in the metadata"}}) {
      const size_t at = saved.find(change.from);
      if (!NXD_TEST_CHECK(at != std::string::npos)) return 0;
      std::ofstream(bad, std::ios::binary)
          << with_header(std::string(saved).replace(at, std::strlen(change.from), change.to),
                         change.to, change.from);
      const nxd_status_t status = nxd_optimizer_load(optimizer, bad.c_str());
      if (change.status != NXD_OK) {
        NXD_TEST_REFUSED(status, change.status, change.part);
        continue;
      }
      NXD_TEST_OK(status);
      NXD_TEST_OK(nxd_optimizer_load(optimizer, good.c_str()));
    }
    nxd_step_report_t report{};
    report.struct_size = sizeof report;
    NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, &report));
    NXD_TEST_CHECK(report.updates == 13);
    NXD_TEST_OK(nxd_optimizer_load(optimizer, good.c_str()));
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(steps),
                              cmocka_unit_test(finishes),
                              cmocka_unit_test(updates_before_the_finish),
                              cmocka_unit_test(updates_after_a_rejection),
                              cmocka_unit_test(updates_after_a_lost_peer),
                              cmocka_unit_test(new_gradients_after_a_rejection),
                              cmocka_unit_test(creations),
                              cmocka_unit_test(patterns_of_letters),
                              cmocka_unit_test(unused_gradients_stay),
                              cmocka_unit_test(states_of_no_step),
                              cmocka_unit_test(states_that_are_none)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
