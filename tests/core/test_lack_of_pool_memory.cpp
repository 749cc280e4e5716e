// One rank whose memory is bounded (nxd_memory_set_cap) makes a ddp, ends a step, saves an
// optimizer's state and publishes a snapshot of it: at whatever point its memory ends, all ranks
// fail alike and at once, and all go on. The bound is a process's, so ranks are processes here: the
// program starts itself.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/buffer_model.h"
#include "support/memory_cap.h"
#include "support/temp_dir.h"

#include "support/check.h"
#include "support/part.h"

namespace {

using namespace nxd_test;

constexpr int kRanks = 4;
// No test is about how long it is: a rank that waits for one that has left is an error in the end.
constexpr int kTimeoutMs = 30000;
constexpr int64_t kRows = 32, kColumns = 24;
constexpr uint64_t kStep = 1024;  // below the size of every array

struct Part {
  int tensor = 1, pipeline = 1, zero_stage = 0, lacking = 0;
};

// Arrays that lie in another order than that of files: these are sorted when they are written.
struct Trainer {
  Trainer(nxd_context_t* ctx, const Part& part)
      : model({{kRows / part.tensor, kColumns}, {kColumns}}, NXD_DTYPE_F32, NXD_DTYPE_F32, true) {
    int32_t stage = 0;
    NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_PIPELINE, &stage));
    for (const char* name : {"weight", "bias"}) names.push_back(name + std::to_string(stage));
  }
  nxd_status_t make_ddp(nxd_context_t* ctx, int zero_stage) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = zero_stage;
    options.bucket_bytes = 1024;
    std::vector<DLTensor*> params, grads;
    for (const auto& array : model.params) params.push_back(array->tensor());
    for (const auto& array : model.grads) grads.push_back(array->tensor());
    const char* const given[] = {names[0].c_str(), names[1].c_str()};
    nxd_ddp_t* made = nullptr;
    const nxd_status_t status = nxd_ddp_create_buffers(ctx, nullptr, given, params.data(),
                                                       grads.data(), 2, &options, &made);
    ddp.reset(made);
    return status;
  }
  void make_optimizer(nxd_context_t* ctx, bool lacks) {
    const nxd_placement_t placements[] = {NXD_PLACEMENT_SHARDED, NXD_PLACEMENT_REPLICATED};
    NXD_TEST_OK(nxd_ddp_set_placements(ddp.get(), placements, nullptr, nullptr, 2));
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &made));
    optimizer.reset(made);
    model.set_gradients(0, 1);
    // The first step takes the states. Another call goes on with the gradients that there are.
    const std::vector<char> before = model.bytes();
    NXD_TEST_CHECK(with_more_and_more(world_of(ctx), lacks, kStep, [&] {
                     const nxd_status_t status = nxd_optimizer_step(made, nullptr, nullptr);
                     NXD_TEST_CHECK((model.bytes() == before) == (status != NXD_OK));
                     return status;
                   }) >= 1);
  }

  BufferModel model;
  std::vector<std::string> names;
  Ddp ddp;
  Optimizer optimizer;
};

void train_and_save(nxd_context_t* ctx, const Part& part, const std::string& directory) {
  int32_t rank = 0;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
  const bool lacks = rank == part.lacking;
  Trainer trainer(ctx, part);
  nxd_group_t* data = nullptr;
  NXD_TEST_OK(nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &data));
  const int refused = with_more_and_more(data, lacks, kStep,
                                         [&] { return trainer.make_ddp(ctx, part.zero_stage); });
  // With stages there is one copy, which reduces nothing.
  const bool is_copy_of_lacking = part.pipeline == 1 && (rank - part.lacking) % part.tensor == 0;
  NXD_TEST_CHECK(!is_copy_of_lacking || refused >= 1);
  if (!trainer.ddp) return;
  trainer.make_optimizer(ctx, lacks);
  nxd_optimizer_t* const optimizer = trainer.optimizer.get();
  const std::string path = directory + "/state";
  NXD_TEST_CHECK(with_more_and_more(world_of(ctx), lacks, kStep, [&] {
                   return nxd_optimizer_save(optimizer, path.c_str());
                 }) >= 2);
  NXD_TEST_OK(nxd_optimizer_load(optimizer, path.c_str()));
  nxd_checkpoint_t* checkpoint = nullptr;
  NXD_TEST_OK(nxd_checkpoint_create(ctx, directory.c_str(), 1, &checkpoint));
  NXD_TEST_OK(nxd_optimizer_snapshot(optimizer, checkpoint, "snapshot"));
  NXD_TEST_CHECK(with_more_and_more(world_of(ctx), lacks, kStep,
                                    [&] { return nxd_checkpoint_publish(checkpoint, 0); }) >= 2);
  nxd_checkpoint_destroy(checkpoint);
  NXD_TEST_OK(nxd_barrier(world_of(ctx)));
}

int child(const char* text) {
  Part part;
  char directory[512] = "";
  if (std::sscanf(text, "%d %d %d %d %511s", &part.tensor, &part.pipeline, &part.zero_stage,
                  &part.lacking, directory) != 5) {
    return 250;
  }
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = kTimeoutMs;
  nxd_context_t* ctx = nullptr;
  if (!NXD_TEST_OK(nxd_context_create(&options, &ctx))) return 249;
  nxd_parallel_options_t layout = NXD_PARALLEL_OPTIONS_INIT;
  layout.tensor_parallel_size = part.tensor;
  layout.pipeline_parallel_size = part.pipeline;
  if (NXD_TEST_OK(nxd_init_model_parallel(ctx, &layout))) train_and_save(ctx, part, directory);
  nxd_context_destroy(ctx);
  return nxd_test_failures() == 0 ? 0 : 1;
}

void run(Part part) {
  for (part.lacking = 0; part.lacking < kRanks; ++part.lacking) {
    const TempDir directory;
    const std::string text = std::to_string(part.tensor) + " " + std::to_string(part.pipeline) +
                             " " + std::to_string(part.zero_stage) + " " +
                             std::to_string(part.lacking) + " " + directory.path();
    nxd_test_run_part(text.c_str(), kRanks, kNxdTestNone, 0, 300);
  }
}

// Ranks sum their parts of the shards over the copies, and gather the shards.
void shards_of_sharded_states(void**) { run({2, 1, 1}); }
// The first stage's rank receives what the second one gathers.
void shards_of_stages(void**) { run({2, 2, 0}); }

}  // namespace

int main() {
  if (const char* part = std::getenv("NXD_TEST_PART")) return child(part);
  const CMUnitTest tests[] = {
      cmocka_unit_test(shards_of_sharded_states),
      cmocka_unit_test(shards_of_stages),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
