// The whole state of a run, saved and loaded by one call: what is loaded, on as many ranks or on
// others, is what was there at the save; failures are told once, on all ranks alike, and change
// nothing that they need not.
#include "nxd/training_state.h"

#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

namespace fs = std::filesystem;
using namespace nxd_test;

constexpr nxd_status_t kArgument = NXD_ERROR_INVALID_ARGUMENT;
constexpr int64_t kTokens = 4096, kLength = 4, kBatch = 2;

using State = std::unique_ptr<nxd_training_state_t, Destroyer<nxd_training_state_destroy>>;
using Loader = std::unique_ptr<nxd_data_loader_t, Destroyer<nxd_data_loader_destroy>>;
using Checkpoint = std::unique_ptr<nxd_checkpoint_t, Destroyer<nxd_checkpoint_destroy>>;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string write_text(const TempDir& directory) {
  const std::string path = directory.path() + "/text.txt";
  std::ofstream out(path);
  for (int64_t i = 0; i < kTokens; ++i) out.put(static_cast<char>((i * i + 7 * i) % 251));
  return path;
}

State new_state(nxd_context_t* ctx) {
  nxd_training_state_t* made = nullptr;
  NXD_TEST_OK(nxd_training_state_create(ctx, &made));
  return State(made);
}

std::string value_of(const State& state, const char* key) {
  char text[64] = "";
  size_t needed = 99;
  NXD_TEST_OK(nxd_training_state_get_value(state.get(), key, text, sizeof text, &needed));
  return needed == 0 ? "none" : text;
}

// A rank's run: parameters in buffers of its own, an optimizer, a loader, and the state of them.
struct Run {
  Run(nxd_context_t* context, const std::string& text, bool with_loader = true,
      bool first_innermost = false)
      : ctx(context), model(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32, first_innermost) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = 1;
    options.bucket_bytes = 1024;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    nxd_optimizer_t* adamw = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &adamw));
    optimizer.reset(adamw);
    const char* path = text.c_str();
    nxd_data_loader_t* opened = nullptr;
    NXD_TEST_OK(nxd_data_loader_create(ctx, &path, 1, kBatch, kLength, nullptr, &opened));
    loader.reset(opened);
    state = new_state(ctx);
    NXD_TEST_OK(nxd_training_state_add_optimizer(state.get(), "optimizer", adamw));
    if (with_loader) NXD_TEST_OK(nxd_training_state_add_data_loader(state.get(), "data", opened));
  }
  std::vector<int64_t> batch() {
    std::vector<int64_t> ids(static_cast<size_t>(kBatch * kLength));
    NXD_TEST_OK(nxd_data_loader_next(loader.get(), ids.data(), nullptr, ids.size()));
    return ids;
  }
  void train(int rank, int steps) {
    for (int i = 0; i < steps; ++i) {
      batch();
      model.set_gradients(rank, rank + 1);
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
    }
  }
  // The file that the optimizer would write now.
  std::string optimizer_bytes(const TempDir& directory) {
    const std::string path = directory.path() + "/now";
    NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
    return read(path);
  }
  int64_t position() const {
    int64_t out = -1;
    NXD_TEST_OK(nxd_data_loader_get_position(loader.get(), &out));
    return out;
  }
  int64_t step() const {
    int64_t out = -1;
    NXD_TEST_OK(nxd_context_get_step(ctx, &out, nullptr));
    return out;
  }

  nxd_context_t* ctx;
  BufferModel model;
  Ddp ddp;
  Optimizer optimizer;
  Loader loader;
  State state;
};

// The order of a rank's calls is that of all: each waits for the others before a file is read.
void meet(nxd_context_t* ctx) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
}

// Saved on two ranks, at once or in the background; loaded on as many and on one.
void goes_on(void**) {
  for (const bool background : {false, true}) {
    const TempDir directory;
    const std::string root = directory.path() + "/run", text = write_text(directory);
    std::string state_bytes;
    std::vector<std::vector<int64_t>> next_batches =
        on_ranks<std::vector<int64_t>>(2, [&](nxd_context_t* ctx, int rank, int) {
          Run run(ctx, text);
          int64_t step = 0;
          NXD_TEST_OK(nxd_training_state_load_newest(run.state.get(), root.c_str(), 1, &step));
          NXD_TEST_CHECK(step == -1 && run.position() == 0);
          run.train(rank, 3);
          NXD_TEST_OK(nxd_training_state_set_value(run.state.get(), "epoch", "old"));
          NXD_TEST_OK(nxd_training_state_set_value(run.state.get(), "epoch", "two"));
          const std::string now = run.optimizer_bytes(directory);
          if (rank == 0) state_bytes = now;
          const auto save = background ? nxd_training_state_save_async : nxd_training_state_save;
          NXD_TEST_OK(save(run.state.get(), root.c_str(), 3, 0));
          const std::vector<int64_t> next = run.batch();
          run.train(rank, 2);
          NXD_TEST_OK(nxd_training_state_wait(run.state.get(), -1));
          NXD_TEST_OK(nxd_training_state_wait(run.state.get(), -1));
          return next;
        });
    // Each rank's share of the ZeRO-1 state, and no file of the whole.
    const std::string file = root + "/step-000000000003/optimizer";
    assert_true(fs::exists(file + ".share-00002-of-00002.safetensors"));
    assert_true(fs::exists(file + ".safetensors.shares.json"));
    assert_false(fs::exists(file + ".safetensors"));
    for (const int ranks : {2, 1}) {
      on_ranks<int>(ranks, [&](nxd_context_t* ctx, int rank, int) {
        Run run(ctx, text);
        NXD_TEST_OK(nxd_training_state_set_value(run.state.get(), "gone", "with the load"));
        int64_t step = 0;
        NXD_TEST_OK(nxd_training_state_load_newest(run.state.get(), root.c_str(), 1, &step));
        NXD_TEST_CHECK(step == 3 && run.step() == 3 && run.position() == 3 * 2 * kBatch);
        NXD_TEST_CHECK(value_of(run.state, "epoch") == "two");
        NXD_TEST_CHECK(value_of(run.state, "gone") == "none");
        NXD_TEST_CHECK(value_of(run.state, "data") == "none");
        NXD_TEST_CHECK(run.optimizer_bytes(directory) == state_bytes);
        if (ranks == 2) NXD_TEST_CHECK(run.batch() == next_batches[static_cast<size_t>(rank)]);
        meet(ctx);
        return 0;
      });
    }
  }
}

std::atomic<int> warnings{0};

void count_warnings(nxd_log_level_t, const char* message, void*) {
  const char* const part = "step 1 is taken at microbatch 2, without the gradients";
  warnings += std::string(message).find(part) != std::string::npos;
}

// Gradients are no part of the state: a save in the middle of an accumulation says so, once, and
// goes on.
void within_a_step(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  assert_int_equal(nxd_log_set_callback(count_warnings, nullptr, nullptr), NXD_OK);
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Run run(ctx, text);
    run.train(rank, 1);
    for (const int64_t microbatch : {0, 2}) {
      NXD_TEST_OK(nxd_context_set_step(ctx, 1, microbatch));
      NXD_TEST_OK(nxd_training_state_save(run.state.get(), root.c_str(), 1, 0));
      meet(ctx);
      NXD_TEST_CHECK(warnings == (microbatch == 0 ? 0 : 1));
    }
    return 0;
  });
  assert_int_equal(nxd_log_set_callback(nullptr, nullptr, nullptr), NXD_OK);
}

// The state keeps its parts alive, and the caller's own files and texts come beside them.
void parts_of_a_checkpoint(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Run run(ctx, text);
    run.train(rank, 1);
    run.optimizer.reset();
    run.loader.reset();
    nxd_checkpoint_t* made = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &made));
    const Checkpoint checkpoint(made);
    NXD_TEST_OK(nxd_training_state_snapshot(run.state.get(), made));
    NXD_TEST_OK(nxd_checkpoint_set_value(made, "own", "text"));
    NXD_TEST_REFUSED(nxd_training_state_snapshot(run.state.get(), made), kArgument, "already");
    NXD_TEST_REFUSED(nxd_training_state_restore(run.state.get(), made), NXD_ERROR_INVALID_STATE,
                     "opened to be read");
    NXD_TEST_OK(nxd_checkpoint_publish(made, 0));
    NXD_TEST_REFUSED(nxd_training_state_snapshot(run.state.get(), made), NXD_ERROR_INVALID_STATE,
                     "before it is published");
    nxd_checkpoint_t* opened = nullptr;
    NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), 1, 1, &opened));
    const Checkpoint again(opened);
    NXD_TEST_OK(nxd_training_state_restore(run.state.get(), opened));
    NXD_TEST_CHECK(value_of(run.state, "own") == "text");
    return 0;
  });
}

void limit_files(nxd_context_t* ctx, int rank, rlim_t bytes) {
  meet(ctx);
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
  meet(ctx);
}

// Snapshots whose names differ by the ending of safetensors alone have files of their own, and
// those of one name are rejected.
void names_alike(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Run run(ctx, text);
    nxd_optimizer_t* optimizer = run.optimizer.get();
    nxd_checkpoint_t* made = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &made));
    Checkpoint checkpoint(made);
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, made, "a.shares.json"), kArgument,
                     "another ending");
    const char* const names[] = {"a", "a.safetensors", "a.safetensors.safetensors"};
    std::vector<std::string> states;
    for (const char* name : names) {
      run.train(rank, 1);
      NXD_TEST_OK(nxd_optimizer_snapshot(optimizer, made, name));
      states.push_back(run.optimizer_bytes(directory));
      meet(ctx);
    }
    NXD_TEST_OK(nxd_checkpoint_publish(made, 0));
    for (size_t i = 0; i < states.size(); ++i) {
      char path[4096] = "";
      size_t needed = 0;
      NXD_TEST_OK(nxd_checkpoint_get_path(made, names[i], path, sizeof path, &needed));
      NXD_TEST_OK(nxd_optimizer_load(optimizer, path));
      NXD_TEST_CHECK(run.optimizer_bytes(directory) == states[i]);
      meet(ctx);
    }
    // One rank writes all of this one, under the name of another's share.
    BufferModel other(ragged_shapes(), NXD_DTYPE_F32, NXD_DTYPE_F32);
    Ddp ddp;
    NXD_TEST_OK(other.create_ddp(ctx, NXD_DDP_OPTIONS_INIT, ddp));
    nxd_optimizer_t* whole = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &whole));
    const Optimizer kept(whole);
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 2, &made));
    checkpoint.reset(made);
    NXD_TEST_OK(nxd_optimizer_snapshot(optimizer, made, "a.safetensors"));
    NXD_TEST_OK(nxd_optimizer_snapshot(whole, made, "a.share-00001-of-00002.safetensors"));
    NXD_TEST_REFUSED(nxd_checkpoint_publish(made, 0), kArgument, "two snapshots");
    return 0;
  });
}

// A parameter that was written from outside is what the run goes on with, and not the F32 copy of
// what it was before.
void replaced_values(void**) {
  for (const int zero : {0, 1}) {
    for (const bool by_snapshot : {false, true}) {
      const TempDir directory;
      const std::string root = directory.path() + "/run", file = directory.path() + "/state";
      on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
        const auto make = [&](BufferModel& model, Ddp& ddp, Optimizer& optimizer) {
          nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
          options.zero_stage = zero;
          NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
          nxd_adamw_options_t adamw = NXD_ADAMW_OPTIONS_INIT;
          adamw.learning_rate = 0.05;
          nxd_optimizer_t* made = nullptr;
          NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), &adamw, &made));
          optimizer.reset(made);
        };
        const auto replace = [](BufferModel& model) {
          for (const auto& array : model.params) {
            for (int64_t i = 0; i < array->count(); ++i) array->set(i, 0.5);
          }
        };
        const auto step = [&](BufferModel& model, const Optimizer& optimizer) {
          model.set_gradients(rank, rank + 1);
          NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
        };
        BufferModel model(ragged_shapes(), NXD_DTYPE_BF16, NXD_DTYPE_BF16);
        BufferModel other(ragged_shapes(), NXD_DTYPE_BF16, NXD_DTYPE_BF16);
        Ddp ddp, of_other;
        Optimizer optimizer, again;
        make(model, ddp, optimizer);
        for (int i = 0; i < 3; ++i) step(model, optimizer);
        replace(model);
        NXD_TEST_OK(nxd_ddp_mark_reloaded(ddp.get()));
        std::string path = file;
        Checkpoint checkpoint;
        if (by_snapshot) {
          nxd_checkpoint_t* made = nullptr;
          NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &made));
          checkpoint.reset(made);
          NXD_TEST_OK(nxd_optimizer_snapshot(optimizer.get(), made, "state"));
          NXD_TEST_OK(nxd_checkpoint_publish(made, 0));
          char name[4096] = "";
          size_t needed = 0;
          NXD_TEST_OK(nxd_checkpoint_get_path(made, "state", name, sizeof name, &needed));
          path = name;
        } else {
          NXD_TEST_OK(nxd_optimizer_save(optimizer.get(), path.c_str()));
        }
        make(other, of_other, again);
        replace(other);
        NXD_TEST_OK(nxd_optimizer_load(again.get(), path.c_str()));
        for (int i = 0; i < 2; ++i) {
          step(model, optimizer);
          step(other, again);
          NXD_TEST_CHECK(model.bytes() == other.bytes());
        }
        return 0;
      });
    }
  }
}

// A failure in the background is told by the wait, or by the next save; the one behind it is good.
void full_disk(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Run run(ctx, text);
    nxd_training_state_t* state = run.state.get();
    NXD_TEST_OK(nxd_training_state_save(state, root.c_str(), 0, 0));
    for (const bool waits : {true, false}) {
      run.train(rank, 1);
      limit_files(ctx, rank, 1000);
      NXD_TEST_OK(nxd_training_state_save_async(state, root.c_str(), 1, 0));
      if (waits) {
        NXD_TEST_REFUSED(nxd_training_state_wait(state, -1), NXD_ERROR_IO, "File too large");
      } else {
        NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 2, 0), NXD_ERROR_IO,
                         "File too large");
      }
      NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 2, 0), NXD_ERROR_IO,
                       "File too large");
      limit_files(ctx, rank, RLIM_INFINITY);
      NXD_TEST_CHECK(!fs::exists(root + "/step-000000000002"));
      NXD_TEST_OK(nxd_training_state_wait(state, 0));
    }
    // A rank that has waited hears of the save's failure from the one that has not.
    limit_files(ctx, rank, 1000);
    NXD_TEST_OK(nxd_training_state_save_async(state, root.c_str(), 1, 0));
    if (rank == 0) {
      NXD_TEST_REFUSED(nxd_training_state_wait(state, -1), NXD_ERROR_IO, "File too large");
    }
    NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 2, 0), NXD_ERROR_IO,
                     "File too large");
    limit_files(ctx, rank, RLIM_INFINITY);
    NXD_TEST_OK(nxd_training_state_save(state, root.c_str(), 3, 1));
    NXD_TEST_CHECK(!fs::exists(root + "/step-000000000000"));
    return 0;
  });
  ::signal(SIGXFSZ, old);
}

// A checkpoint that lacks a part, has a bad position or another seed changes nothing.
void other_checkpoints(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    int64_t step = 0;
    Run run(ctx, text, false);
    nxd_training_state_t* state = run.state.get();
    run.train(rank, 1);
    const auto load = [&] { return nxd_training_state_load_newest(state, root.c_str(), 0, &step); };
    NXD_TEST_OK(nxd_training_state_save(state, root.c_str(), 1, 1));
    run.train(rank, 1);
    const std::string before = run.optimizer_bytes(directory);
    meet(ctx);
    NXD_TEST_OK(nxd_training_state_add_data_loader(state, "data", run.loader.get()));
    NXD_TEST_REFUSED(load(), kArgument, "no position \"data\"");
    NXD_TEST_CHECK(step == 0);
    nxd_checkpoint_t* made = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &made));
    const Checkpoint checkpoint(made);
    NXD_TEST_OK(nxd_optimizer_snapshot(run.optimizer.get(), made, "optimizer.safetensors"));
    NXD_TEST_OK(nxd_checkpoint_set_value(made, "data", "12x"));
    NXD_TEST_OK(nxd_checkpoint_publish(made, 1));
    NXD_TEST_REFUSED(load(), NXD_ERROR_CORRUPT, "12x");
    NXD_TEST_OK(nxd_training_state_add_optimizer(state, "second", run.optimizer.get()));
    NXD_TEST_REFUSED(load(), kArgument, "second.safetensors");
    NXD_TEST_CHECK(run.optimizer_bytes(directory) == before && run.step() == 2);
    meet(ctx);
    return 0;
  });
}

// Refused on all ranks, with the culprit's reason; the next call goes well.
void bad_calls(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int) {
    Run run(ctx, text);
    nxd_training_state_t *state = run.state.get(), *none = nullptr;
    nxd_optimizer_t* optimizer = run.optimizer.get();
    const bool bad = rank == 1;
    int64_t step = 0;
    NXD_TEST_REFUSED(nxd_training_state_create(nullptr, &none), kArgument, "ctx");
    NXD_TEST_REFUSED(nxd_training_state_create(ctx, nullptr), kArgument, "out_state");
    NXD_TEST_REFUSED(nxd_training_state_add_optimizer(state, "", optimizer), kArgument,
                     "name: expected a name, got \"\"");
    for (const char* name : {"../x", ".hidden", "a/b"}) {
      NXD_TEST_REFUSED(nxd_training_state_add_optimizer(state, name, optimizer), kArgument, "name");
    }
    NXD_TEST_REFUSED(nxd_training_state_add_optimizer(state, "optimizer", optimizer), kArgument,
                     "already");
    NXD_TEST_REFUSED(nxd_training_state_add_optimizer(state, "data", optimizer), kArgument,
                     "already");
    NXD_TEST_REFUSED(nxd_training_state_add_optimizer(state, "x", nullptr), kArgument, "optimizer");
    NXD_TEST_REFUSED(nxd_training_state_add_data_loader(state, "x", nullptr), kArgument, "loader");
    NXD_TEST_REFUSED(nxd_training_state_add_data_loader(state, "", run.loader.get()), kArgument,
                     "key");
    NXD_TEST_REFUSED(nxd_training_state_set_value(state, "data", "1"), kArgument, "data loader");
    NXD_TEST_REFUSED(nxd_training_state_set_value(state, "k", nullptr), kArgument, "value");
    NXD_TEST_OK(nxd_training_state_set_value(state, "k", "v"));
    NXD_TEST_REFUSED(nxd_training_state_add_data_loader(state, "k", run.loader.get()), kArgument,
                     "a text");
    NXD_TEST_REFUSED(nxd_training_state_save(nullptr, root.c_str(), 1, 0), kArgument, "state");
    NXD_TEST_REFUSED(nxd_training_state_save(state, bad ? nullptr : root.c_str(), 1, 0), kArgument,
                     "directory");
    NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), bad ? 2 : 1, 0), kArgument,
                     "step: expected the same");
    NXD_TEST_REFUSED(nxd_training_state_save_async(state, root.c_str(), 1, -1), kArgument,
                     "keep_last");
    NXD_TEST_REFUSED(nxd_training_state_load_newest(state, root.c_str(), bad ? 2 : 1, &step),
                     kArgument, "verify");
    NXD_TEST_REFUSED(nxd_training_state_load_newest(state, root.c_str(), 1, bad ? nullptr : &step),
                     kArgument, "out_step");
    NXD_TEST_REFUSED(nxd_training_state_snapshot(state, nullptr), kArgument, "checkpoint");
    NXD_TEST_OK(nxd_training_state_set_value(state, "k", bad ? "w" : "v"));
    NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 1, 0), kArgument, "value of");
    NXD_TEST_OK(nxd_training_state_set_value(state, "k", "v"));
    NXD_TEST_OK(nxd_training_state_save(state, root.c_str(), 1, 0));
    // One name for parts of two kinds, and one for two.
    nxd_training_state_t* kinds = nullptr;
    NXD_TEST_OK(nxd_training_state_create(ctx, &kinds));
    const State kept(kinds);
    if (bad) {
      NXD_TEST_OK(nxd_training_state_add_optimizer(kinds, "part", optimizer));
    } else {
      NXD_TEST_OK(nxd_training_state_add_data_loader(kinds, "part", run.loader.get()));
    }
    NXD_TEST_REFUSED(nxd_training_state_save(kinds, root.c_str(), 2, 0), kArgument,
                     bad ? "got (optimizer \"part\")" : "got (data loader \"part\")");
    if (bad) NXD_TEST_OK(nxd_training_state_add_optimizer(state, "own", optimizer));
    NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 2, 0), kArgument, "same parts");
    NXD_TEST_REFUSED(nxd_training_state_load_newest(state, root.c_str(), 1, &step), kArgument,
                     "own");
    return 0;
  });
}

// Ranks that are left hear of it, and what was complete stays.
void lost_peer(void**) {
  const TempDir directory;
  const std::string root = directory.path() + "/run", text = write_text(directory);
  on_ranks<int>(
      2,
      [&](nxd_context_t* ctx, int rank, int) {
        Run run(ctx, text);
        nxd_training_state_t* state = run.state.get();
        NXD_TEST_OK(nxd_training_state_save(state, root.c_str(), 1, 0));
        if (rank == 1) {
          NXD_TEST_OK(nxd_context_abort(ctx));
          return 0;
        }
        NXD_TEST_REFUSED(nxd_training_state_save(state, root.c_str(), 2, 0), NXD_ERROR_PEER_LOST,
                         "rank 1");
        return 0;
      },
      5000);
  assert_true(fs::exists(root + "/step-000000000001/manifest.json"));
  assert_false(fs::exists(root + "/step-000000000002"));
}

// Shares hold the state in C order, whichever order its arrays have in memory: arrays in any other
// order go on from them, on as many ranks and on one.
void orders_of_dimensions(void**) {
  std::string first_state;
  for (const bool saved_innermost : {true, false}) {
    const TempDir directory;
    const std::string root = directory.path() + "/run", text = write_text(directory);
    const std::vector<std::string> states =
        on_ranks<std::string>(2, [&](nxd_context_t* ctx, int rank, int) {
          Run run(ctx, text, true, saved_innermost);
          run.train(rank, 3);
          const auto save =
              saved_innermost ? nxd_training_state_save_async : nxd_training_state_save;
          NXD_TEST_OK(save(run.state.get(), root.c_str(), 3, 0));
          NXD_TEST_OK(nxd_training_state_wait(run.state.get(), -1));
          const std::string now = run.optimizer_bytes(directory);
          meet(ctx);
          return now;
        });
    // AdamW is elementwise: a run in the other order has the same state.
    if (first_state.empty()) first_state = states[0];
    assert_true(states[0] == first_state && states[1] == first_state);
    for (const int ranks : {2, 1}) {
      for (const bool innermost : {true, false}) {
        on_ranks<int>(ranks, [&](nxd_context_t* ctx, int, int) {
          Run run(ctx, text, true, innermost);
          int64_t step = 0;
          NXD_TEST_OK(nxd_training_state_load_newest(run.state.get(), root.c_str(), 1, &step));
          NXD_TEST_CHECK(step == 3 && run.optimizer_bytes(directory) == states[0]);
          meet(ctx);
          return 0;
        });
      }
    }
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(goes_on),
                              cmocka_unit_test(within_a_step),
                              cmocka_unit_test(parts_of_a_checkpoint),
                              cmocka_unit_test(names_alike),
                              cmocka_unit_test(replaced_values),
                              cmocka_unit_test(full_disk),
                              cmocka_unit_test(other_checkpoints),
                              cmocka_unit_test(bad_calls),
                              cmocka_unit_test(lost_peer),
                              cmocka_unit_test(orders_of_dimensions)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
