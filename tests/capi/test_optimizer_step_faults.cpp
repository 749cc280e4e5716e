// A rank lost at the end of a training step: every survivor is told the step, and of which step its
// parameters are, which the values themselves must bear out; PARTIAL ones are rejected until they
// are loaded again. Ranks are processes here, and the lost one is killed: the program starts
// itself.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"
#include "support/part.h"

namespace {

using namespace nxd_test;

constexpr int kRanks = 3, kLost = 1, kTimeoutMs = 2000;
constexpr int64_t kLostAt = 2;  // the step whose end is disturbed
constexpr double kRate = 0.25;

enum Place { kReduction, kUpdate, kGather };

struct Part {
  int zero_stage = 0;
  int place = kReduction;
  int delay_us = 0;  // kGather: from the last update to the kill
  int is_small = 0;  // with ZeRO the last rank has a part without elements
};

double start_value(int64_t i) { return static_cast<double>(i % 7); }

// Gradients are 1 on every rank: exact in F32.
double value_after(int64_t i, int64_t steps) {
  return start_value(i) - kRate * kRanks * static_cast<double>(steps);
}

struct Trainer {
  explicit Trainer(const Part& p) : part(p) {}

  const Part part;
  bool doomed = false;
  int64_t step = 0;
  size_t runs = 0, runs_per_step = 0;  // calls of the rule: with ZeRO a rank has some parameters

  BufferModel model{part.is_small ? Shapes{{20}} : Shapes{{70000}, {5000}, {3}, {20000}},
                    NXD_DTYPE_F32, NXD_DTYPE_F32};
  Ddp ddp;
  Optimizer optimizer;

  void set_values(int64_t steps) {
    for (auto& array : model.params) {
      for (int64_t i = 0; i < array->count(); ++i) array->set(i, value_after(i, steps));
    }
  }
  bool holds(int64_t steps) const {
    for (const auto& array : model.params) {
      for (int64_t i = 0; i < array->count(); ++i) {
        if (array->get(i) != value_after(i, steps)) return false;
      }
    }
    return true;
  }
};

nxd_status_t update(const nxd_update_t* run, void* user_data) {
  auto& self = *static_cast<Trainer*>(user_data);
  auto* param = static_cast<float*>(run->param);
  const auto* grad = static_cast<const float*>(run->grad);
  for (int64_t i = 0; i < run->count; ++i) {
    param[i] -= static_cast<float>(kRate * run->grad_scale) * grad[i];
  }
  ++self.runs;
  if (!self.doomed || self.step != kLostAt) return NXD_OK;
  if (self.part.place == kUpdate) raise(SIGKILL);
  if (self.part.place == kGather && self.runs == self.runs_per_step) {
    std::thread([delay = self.part.delay_us] {
      usleep(static_cast<useconds_t>(delay));
      kill(getpid(), SIGKILL);
    }).detach();
  }
  return NXD_OK;
}

nxd_status_t make_optimizer(Trainer& self) {
  nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
  options.update = update;
  options.user_data = &self;
  nxd_optimizer_t* handle = nullptr;
  const nxd_status_t status = nxd_optimizer_create_custom_ddp(self.ddp.get(), &options, &handle);
  self.optimizer.reset(handle);
  return status;
}

nxd_status_t take_step(Trainer& self) {
  for (auto& array : self.model.grads) {
    for (int64_t i = 0; i < array->count(); ++i) array->set(i, 1);
  }
  if (self.doomed && self.part.place == kReduction && self.step == kLostAt) {
    nxd_ddp_mark_ready(self.ddp.get(), self.model.grads.size() - 1);
    raise(SIGKILL);
  }
  while (self.doomed && self.step > kLostAt) pause();  // the kill is on its way
  self.runs_per_step = std::exchange(self.runs, 0);
  return nxd_optimizer_step(self.optimizer.get(), nullptr, nullptr);
}

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, nxd_last_error()); \
      return __LINE__ % 200 + 1;                                                         \
    }                                                                                    \
  } while (0)

int check_partial(Trainer& self, const std::string& directory) {
  const auto says_partial = [] {
    return std::string(nxd_last_error()).find("PARTIAL") != std::string::npos;
  };
  EXPECT(nxd_optimizer_step(self.optimizer.get(), nullptr, nullptr) == NXD_ERROR_INVALID_STATE);
  EXPECT(says_partial());
  const std::string path = directory + "/state" + std::to_string(getpid());
  EXPECT(nxd_optimizer_save(self.optimizer.get(), path.c_str()) == NXD_ERROR_INVALID_STATE);
  EXPECT(says_partial());
  // The values are rejected by themselves, with any optimizer.
  Optimizer first = std::move(self.optimizer);
  EXPECT(make_optimizer(self) == NXD_OK);
  EXPECT(nxd_optimizer_step(self.optimizer.get(), nullptr, nullptr) == NXD_ERROR_INVALID_STATE);
  EXPECT(says_partial());
  self.optimizer = std::move(first);
  self.set_values(kLostAt);
  EXPECT(nxd_ddp_mark_reloaded(self.ddp.get()) == NXD_OK);
  // The optimizer's state is not whole yet: another optimizer starts afresh.
  EXPECT(nxd_optimizer_step(self.optimizer.get(), nullptr, nullptr) == NXD_ERROR_INVALID_STATE);
  EXPECT(make_optimizer(self) == NXD_OK);
  const nxd_status_t status = take_step(self);
  EXPECT(status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT);
  EXPECT(self.holds(kLostAt));
  return 0;
}

// True if a survivor may find this.
bool is_expected(const Part& part, int64_t step, nxd_parameter_state_t state) {
  if (part.place == kReduction) return step == kLostAt && state == NXD_PARAMETER_STATE_OLD;
  // Without shards the others' updates need no peer.
  const bool next = step == kLostAt + 1 && state == NXD_PARAMETER_STATE_OLD;
  if (part.zero_stage == 0) return next;
  const bool partial = step == kLostAt && state == NXD_PARAMETER_STATE_PARTIAL;
  return partial || (part.place == kGather && next);
}

int survive(Trainer& self, const std::string& directory) {
  nxd_status_t status = NXD_OK;
  for (self.step = 0; self.step <= kLostAt + 1; ++self.step) {
    status = take_step(self);
    nxd_parameter_state_t state = NXD_PARAMETER_STATE_INVALID;
    int64_t step = -2;
    EXPECT(nxd_optimizer_get_parameter_state(self.optimizer.get(), &state, &step) == NXD_OK ||
           status != NXD_OK);
    EXPECT(step == self.step);
    if (status != NXD_OK) break;
    EXPECT(state == NXD_PARAMETER_STATE_NEW && self.holds(self.step + 1));
  }
  EXPECT(status == NXD_ERROR_PEER_LOST || status == NXD_ERROR_TIMEOUT);
  // Asking for the state was no failure, so the error is still the step's.
  nxd_error_info_t info = {};
  info.struct_size = sizeof info;
  EXPECT(nxd_last_error_info(&info) == NXD_OK);
  EXPECT(info.root_rank == kLost);
  EXPECT(info.step == self.step);
  EXPECT(is_expected(self.part, info.step, info.parameters));
  nxd_parameter_state_t state = NXD_PARAMETER_STATE_INVALID;
  EXPECT(nxd_optimizer_get_parameter_state(self.optimizer.get(), &state, nullptr) == NXD_OK);
  EXPECT(state == info.parameters);
  const std::string message = nxd_last_error();
  EXPECT(message.find("the end of step " + std::to_string(info.step)) != std::string::npos);
  if (info.parameters == NXD_PARAMETER_STATE_PARTIAL) return check_partial(self, directory);
  EXPECT(message.find("OLD") != std::string::npos);
  EXPECT(self.holds(info.step));
  return 0;
}

int child(const char* text) {
  Part part;
  char directory[512] = "";
  if (std::sscanf(text, "%d %d %d %d %511s", &part.zero_stage, &part.place, &part.delay_us,
                  &part.is_small, directory) != 5) {
    return 250;
  }
  Trainer self(part);
  const int rank = std::atoi(std::getenv("RANK"));
  self.doomed = rank == kLost;
  if (const char* per_host = std::getenv("NXD_TEST_RANKS_PER_HOST")) {
    setenv("NXD_HOST_ID", ("host" + std::to_string(rank / std::atoi(per_host))).c_str(), 1);
  }
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = nullptr;
  EXPECT(nxd_context_create(&options, &ctx) == NXD_OK);
  self.set_values(0);
  nxd_ddp_options_t of_ddp = NXD_DDP_OPTIONS_INIT;
  of_ddp.zero_stage = self.part.zero_stage;
  of_ddp.bucket_bytes = 64 << 10;
  EXPECT(self.model.create_ddp(ctx, of_ddp, self.ddp) == NXD_OK);
  EXPECT(make_optimizer(self) == NXD_OK);
  const int code = survive(self, directory);
  self.optimizer.reset();
  self.ddp.reset();
  nxd_context_destroy(ctx);
  return code;
}

void run_part(const Part& part) {
  const TempDir directory;
  const std::string text = std::to_string(part.zero_stage) + " " + std::to_string(part.place) +
                           " " + std::to_string(part.delay_us) + " " +
                           std::to_string(part.is_small) + " " + directory.path();
  nxd_test_run_part(text.c_str(), kRanks, kLost, 128 + SIGKILL, 60);
}

void killed_in_the_reduction(void**) {
  run_part({0, kReduction, 0});
  run_part({1, kReduction, 0});
}

void killed_in_the_update(void**) {
  run_part({0, kUpdate, 0});
  run_part({1, kUpdate, 0});
  // A rank that updates nothing itself has parts of its peers' all the same.
  run_part({1, kUpdate, 0, 1});
}

void killed_in_the_gather(void**) {
  for (const int delay_us : {0, 50, 200, 1000}) run_part({1, kGather, delay_us});
}

// A rule that fails on one rank, with every rank alive: at its first call, or at its second.
struct Failing {
  int at_call = 0;  // 0: never
  int calls = 0;
};

nxd_status_t failing_update(const nxd_update_t* run, void* user_data) {
  auto& self = *static_cast<Failing*>(user_data);
  if (++self.calls == self.at_call) return NXD_ERROR_USER;
  for (int64_t i = 0; i < run->count; ++i) {
    static_cast<float*>(run->param)[i] -= static_cast<const float*>(run->grad)[i];
  }
  return NXD_OK;
}

// The rank whose values are PARTIAL rejects the next step with its peer, who does not wait for it.
void refused_together(void**) {
  on_ranks<int>(2, [](nxd_context_t* ctx, int rank, int) {
    BufferModel model({{4}, {5}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
    const nxd_ddp_options_t of_ddp = NXD_DDP_OPTIONS_INIT;
    Ddp ddp;
    if (!NXD_TEST_OK(model.create_ddp(ctx, of_ddp, ddp))) return 0;
    Failing failing{rank == 1 ? 1 : 0};
    nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
    options.update = failing_update;
    options.user_data = &failing;
    nxd_optimizer_t* handle = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_custom_ddp(ddp.get(), &options, &handle));
    const Optimizer optimizer(handle);
    const auto step = [&] { return nxd_optimizer_step(handle, nullptr, nullptr); };
    nxd_parameter_state_t state = NXD_PARAMETER_STATE_INVALID;
    const auto state_is = [&](nxd_parameter_state_t expected) {
      return NXD_TEST_OK(nxd_optimizer_get_parameter_state(handle, &state, nullptr)) &&
             NXD_TEST_CHECK(state == expected);
    };
    state_is(NXD_PARAMETER_STATE_NONE);
    model.set_gradients(0, 1);
    if (rank == 1) {
      // The first call changes nothing, and this rank's step may be taken again.
      NXD_TEST_REFUSED(nxd_optimizer_update(handle), NXD_ERROR_USER, "");
      state_is(NXD_PARAMETER_STATE_OLD);
      failing = {2, 0};
      NXD_TEST_REFUSED(step(), NXD_ERROR_USER, "PARTIAL");
      nxd_error_info_t info = {};
      info.struct_size = sizeof info;
      NXD_TEST_OK(nxd_last_error_info(&info));
      NXD_TEST_CHECK(info.step == 0 && info.parameters == NXD_PARAMETER_STATE_PARTIAL);
    } else {
      NXD_TEST_OK(step());
    }
    state_is(rank == 1 ? NXD_PARAMETER_STATE_PARTIAL : NXD_PARAMETER_STATE_NEW);
    NXD_TEST_REFUSED(step(), NXD_ERROR_INVALID_STATE, rank == 1 ? "PARTIAL" : "rank 1");
    nxd_error_info_t info = {};
    info.struct_size = sizeof info;
    NXD_TEST_OK(nxd_last_error_info(&info));
    NXD_TEST_CHECK(info.parameters ==
                   (rank == 1 ? NXD_PARAMETER_STATE_NONE : NXD_PARAMETER_STATE_OLD));
    NXD_TEST_REFUSED(nxd_optimizer_save(handle, "/nowhere/at/all"), NXD_ERROR_INVALID_STATE,
                     rank == 1 ? "PARTIAL" : "rank 1");
    if (rank == 1)
      NXD_TEST_REFUSED(nxd_optimizer_update(handle), NXD_ERROR_INVALID_STATE, "PARTIAL");
    NXD_TEST_OK(nxd_ddp_mark_reloaded(ddp.get()));
    NXD_TEST_REFUSED(step(), NXD_ERROR_INVALID_STATE, rank == 1 ? "state" : "rank 1");
    return 0;
  });
}

// With ZeRO-1 the peers of a rank whose rule fails wait for its part: they hear the reason, and the
// context goes on, also where the ddp has a group of its own beside that of the layout.
void failing_beside_the_layout(void**) {
  for (const bool has_own : {false, true}) {
    on_ranks<int>(2, [has_own](nxd_context_t* ctx, int rank, int) {
      const nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
      NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout));
      const int32_t ranks[] = {0, 1};
      nxd_group_t* own = nullptr;
      if (has_own) NXD_TEST_OK(nxd_group_create(ctx, ranks, 2, "own", &own));
      BufferModel model({{400}}, NXD_DTYPE_F32, NXD_DTYPE_F32);
      DLTensor* const param = model.params[0]->tensor();
      DLTensor* const grad = model.grads[0]->tensor();
      nxd_ddp_options_t of_ddp = NXD_DDP_OPTIONS_INIT;
      of_ddp.zero_stage = 1;
      nxd_ddp_t* made = nullptr;
      NXD_TEST_OK(nxd_ddp_create_buffers(ctx, own, nullptr, &param, &grad, 1, &of_ddp, &made));
      Ddp ddp(made);
      const nxd_placement_t placement = NXD_PLACEMENT_REPLICATED;
      NXD_TEST_OK(nxd_ddp_set_placements(made, &placement, nullptr, nullptr, 1));
      Failing failing{rank == 1 ? 1 : 0};
      nxd_custom_optimizer_options_t options = NXD_CUSTOM_OPTIMIZER_OPTIONS_INIT;
      options.update = failing_update;
      options.user_data = &failing;
      nxd_optimizer_t* handle = nullptr;
      NXD_TEST_OK(nxd_optimizer_create_custom_ddp(made, &options, &handle));
      Optimizer optimizer(handle);
      model.set_gradients(0, 1);
      NXD_TEST_REFUSED(nxd_optimizer_step(handle, nullptr, nullptr),
                       rank == 1 ? NXD_ERROR_USER : NXD_ERROR_INVALID_ARGUMENT,
                       rank == 1 ? "" : "rank 1 rejected its arguments");
      NXD_TEST_REFUSED(nxd_optimizer_step(handle, nullptr, nullptr), NXD_ERROR_INVALID_STATE, "");
      optimizer.reset();
      ddp.reset();
      nxd_group_destroy(own);
      nxd_group_t* world = nullptr;
      NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
      NXD_TEST_OK(nxd_barrier(world));
      return 0;
    });
  }
}

}  // namespace

int main() {
  if (const char* part = std::getenv("NXD_TEST_PART")) return child(part);
  const CMUnitTest tests[] = {
      cmocka_unit_test(killed_in_the_reduction),   cmocka_unit_test(killed_in_the_update),
      cmocka_unit_test(killed_in_the_gather),      cmocka_unit_test(refused_together),
      cmocka_unit_test(failing_beside_the_layout),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
