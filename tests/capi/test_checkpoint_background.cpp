// Checkpoints that are published while the program goes on: the files are those of the moment of
// the snapshot, what the program does meanwhile has the same bits as without, and a full disk, a
// lost peer or a kill leaves the checkpoint before.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/buffer_model.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

namespace fs = std::filesystem;
using namespace nxd_test;

constexpr const char* kState = "optimizer.safetensors";

using Checkpoint = std::unique_ptr<nxd_checkpoint_t, Destroyer<nxd_checkpoint_destroy>>;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Checkpoint begin(nxd_context_t* ctx, const std::string& root, int64_t step) {
  nxd_checkpoint_t* out = nullptr;
  NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), step, &out));
  return Checkpoint(out);
}

std::string path_in(const Checkpoint& checkpoint, const char* name) {
  char path[4096] = "";
  size_t needed = 0;
  NXD_TEST_OK(nxd_checkpoint_get_path(checkpoint.get(), name, path, sizeof path, &needed));
  return path;
}

int64_t newest_step(nxd_context_t* ctx, const std::string& root) {
  nxd_checkpoint_t* out = nullptr;
  int64_t step = -1;
  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &out));
  const Checkpoint opened(out);
  if (out) NXD_TEST_OK(nxd_checkpoint_get_step(out, &step));
  return step;
}

std::string state_path(const std::string& root, int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "/step-%012lld/", static_cast<long long>(step));
  return root + name + kState;
}

// So large that its checksum keeps the background busy for a while; it takes no room on the disk.
void make_long(const Checkpoint& checkpoint, const char* name) {
  const std::string path = path_in(checkpoint, name);
  std::ofstream(path).close();
  fs::resize_file(path, uintmax_t{256} << 20);
}

// A rank's parameters, and their training.
struct Trained {
  explicit Trained(nxd_context_t* ctx, int zero_stage = 0, const Shapes& shapes = ragged_shapes())
      : model(shapes, NXD_DTYPE_F32, NXD_DTYPE_F32) {
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    options.zero_stage = zero_stage;
    options.bucket_bytes = 1024;
    NXD_TEST_OK(model.create_ddp(ctx, options, ddp));
    nxd_optimizer_t* made = nullptr;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp.get(), nullptr, &made));
    optimizer.reset(made);
  }
  void train(int rank, int steps) {
    for (int i = 0; i < steps; ++i) {
      model.set_gradients(rank, rank + 1);
      NXD_TEST_OK(nxd_optimizer_step(optimizer.get(), nullptr, nullptr));
    }
  }

  BufferModel model;
  Ddp ddp;
  Optimizer optimizer;
};

// True if a state that is loaded from the one path is saved as the other's bytes.
bool same_state(nxd_context_t* ctx, int zero_stage, const std::string& path,
                const std::string& same) {
  Trained other(ctx, zero_stage);
  const std::string again = same + ".again";
  NXD_TEST_OK(nxd_optimizer_load(other.optimizer.get(), path.c_str()));
  NXD_TEST_OK(nxd_optimizer_save(other.optimizer.get(), again.c_str()));
  return read(again) == read(same);
}

void goes_on_meanwhile(void**) {
  for (const int zero_stage : {0, 1}) {
    const TempDir directory;
    const std::string root = directory.path() + "/run", same = directory.path() + "/same";
    const auto run = [&](nxd_context_t* ctx, int rank, bool saves) {
      Trained trained(ctx, zero_stage);
      trained.train(rank, 3);
      Checkpoint checkpoint;
      if (saves) {
        checkpoint = begin(ctx, root, 3);
        if (rank == 1) make_long(checkpoint, "own.bin");
        NXD_TEST_OK(nxd_checkpoint_set_value(checkpoint.get(), "data", "batch 3"));
        NXD_TEST_OK(nxd_optimizer_save(trained.optimizer.get(), same.c_str()));
        NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
        trained.train(rank, 1);  // the snapshot and the random state are of before
        NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 0));
      } else {
        trained.train(rank, 1);
      }
      trained.train(rank, 5);
      if (!saves) return trained.model.bytes();
      int32_t done = -1;
      NXD_TEST_OK(nxd_checkpoint_test(checkpoint.get(), &done));
      size_t needed = 0;
      const nxd_status_t status =
          nxd_checkpoint_get_path(checkpoint.get(), kState, nullptr, 0, &needed);
      const nxd_status_t set = nxd_checkpoint_set_value(checkpoint.get(), "late", "1");
      NXD_TEST_CHECK(set == NXD_ERROR_INVALID_STATE);
      if (status != NXD_OK) {
        NXD_TEST_CHECK(done == 0 && status == NXD_ERROR_INVALID_STATE);
        const nxd_status_t waited = nxd_checkpoint_wait(checkpoint.get(), 0);
        NXD_TEST_CHECK(waited == NXD_OK || waited == NXD_ERROR_TIMEOUT);
      }
      NXD_TEST_OK(nxd_checkpoint_wait(checkpoint.get(), -1));
      NXD_TEST_OK(nxd_checkpoint_wait(checkpoint.get(), -1));
      NXD_TEST_OK(nxd_checkpoint_test(checkpoint.get(), &done));
      NXD_TEST_CHECK(done == 1);
      NXD_TEST_CHECK(same_state(ctx, zero_stage, path_in(checkpoint, kState), same));
      NXD_TEST_CHECK(newest_step(ctx, root) == 3);
      const std::vector<char> bytes = trained.model.bytes();
      NXD_TEST_OK(nxd_checkpoint_restore_random_state(checkpoint.get()));
      int64_t step = 0;
      NXD_TEST_OK(nxd_context_get_step(ctx, &step, nullptr));
      NXD_TEST_CHECK(step == 3);
      return bytes;
    };
    const auto on = [&](bool saves) {
      return on_ranks<std::vector<char>>(
          3, [&](nxd_context_t* ctx, int rank, int) { return run(ctx, rank, saves); });
    };
    const auto without = on(false);
    assert_true(on(true) == without);
  }
}

// Each of them waits for the one under way, whose handle may be gone.
void next_one_waits(void**) {
  const TempDir directory;
  const std::string& root = directory.path();
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Trained trained(ctx);
    Checkpoint before;
    for (const int64_t step : {1, 2, 3}) {
      trained.train(rank, 1);
      Checkpoint checkpoint = begin(ctx, root, step);
      NXD_TEST_CHECK(!before || fs::exists(state_path(root, step - 1)));
      if (rank == 0) make_long(checkpoint, "own.bin");
      NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
      NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 2));
      before = std::move(checkpoint);
    }
    NXD_TEST_REFUSED(nxd_checkpoint_publish(before.get(), 0), NXD_ERROR_INVALID_STATE,
                     "published already");
    NXD_TEST_CHECK(newest_step(ctx, root) == 3);
    // The end of the handle, and of the context, are the end of what it publishes.
    Checkpoint last = begin(ctx, root, 4);
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), last.get(), kState));
    NXD_TEST_OK(nxd_checkpoint_publish_async(last.get(), 2));
    last.reset();
    NXD_TEST_CHECK(fs::exists(state_path(root, 4)));
    last = begin(ctx, root, 5);
    if (rank == 0) make_long(last, "own.bin");
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), last.get(), kState));
    NXD_TEST_OK(nxd_checkpoint_publish_async(last.get(), 2));
    NXD_TEST_OK(nxd_context_finalize(ctx));
    NXD_TEST_CHECK(fs::exists(state_path(root, 5)) && !fs::exists(state_path(root, 3)));
    NXD_TEST_OK(nxd_checkpoint_wait(last.get(), 0));
    return 0;
  });
}

// A context that ends without finalize waits too: its last checkpoint is not lost.
void context_destroyed(void**) {
  const TempDir directory;
  Checkpoint left[2];
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    Trained trained(ctx);
    trained.train(rank, 1);
    Checkpoint& checkpoint = left[rank];
    checkpoint = begin(ctx, directory.path(), 1);
    if (rank == 1) make_long(checkpoint, "own.bin");
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
    NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 2));
    return 0;
  });
  assert_true(fs::exists(state_path(directory.path(), 1)));
  for (const Checkpoint& checkpoint : left) {
    assert_int_equal(nxd_checkpoint_wait(checkpoint.get(), 0), NXD_OK);
  }
}

void set_file_limit(nxd_context_t* ctx, int rank, rlim_t bytes) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
  NXD_TEST_OK(nxd_barrier(world));
}

// All ranks hear of it when they wait, what was there stays, and the snapshot can be written later.
// The signal for files that are too large does not end the process.
void full_disk(void**) {
  const TempDir directory;
  const std::string &root = directory.path(), same = directory.path() + "/same";
  const auto old = ::signal(SIGXFSZ, SIG_DFL);
  on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int) {
    Trained trained(ctx, 1);
    trained.train(rank, 1);
    Checkpoint good = begin(ctx, root, 1);
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), good.get(), kState));
    NXD_TEST_OK(nxd_checkpoint_publish(good.get(), 1));
    trained.train(rank, 1);
    NXD_TEST_OK(nxd_optimizer_save(trained.optimizer.get(), same.c_str()));
    Checkpoint checkpoint = begin(ctx, root, 2);
    NXD_TEST_OK(nxd_context_set_step(ctx, 2, 3));
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
    NXD_TEST_OK(nxd_context_set_step(ctx, 4, 0));
    set_file_limit(ctx, rank, 1000);
    NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 1));
    trained.train(rank, 2);
    NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint.get(), -1), NXD_ERROR_IO, "File too large");
    NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint.get(), 0), NXD_ERROR_IO, "File too large");
    NXD_TEST_CHECK(newest_step(ctx, root) == 1);
    NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint.get(), 1), NXD_ERROR_IO, "File too large");
    set_file_limit(ctx, rank, RLIM_INFINITY);
    NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 1));
    NXD_TEST_OK(nxd_checkpoint_wait(checkpoint.get(), -1));
    NXD_TEST_CHECK(newest_step(ctx, root) == 2);
    NXD_TEST_CHECK(same_state(ctx, 1, path_in(checkpoint, kState), same));
    // Random bits go on behind the step of the snapshot, however late it was published.
    int64_t step = 0, microbatch = 0;
    NXD_TEST_OK(nxd_checkpoint_restore_random_state(checkpoint.get()));
    NXD_TEST_OK(nxd_context_get_step(ctx, &step, &microbatch));
    NXD_TEST_CHECK(step == 2 && microbatch == 3);
    return 0;
  });
  ::signal(SIGXFSZ, old);
}

void lost_peer(void**) {
  const TempDir directory;
  const std::string& root = directory.path();
  on_ranks<int>(
      3,
      [&](nxd_context_t* ctx, int rank, int) {
        Trained trained(ctx);
        Checkpoint good = begin(ctx, root, 1);
        NXD_TEST_OK(nxd_checkpoint_publish(good.get(), 0));
        Checkpoint checkpoint = begin(ctx, root, 2);
        // The lost rank describes the last of three files.
        for (const char* name : {"0.bin", "1.bin", "2.bin"}) {
          if (rank == 0 && *name == '2') make_long(checkpoint, name);
          if (rank == 0 && *name != '2') std::ofstream(path_in(checkpoint, name)) << name;
        }
        NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 0));
        if (rank == 2) {
          NXD_TEST_OK(nxd_context_abort(ctx));
          NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint.get(), -1), NXD_ERROR_ABORTED, "abort");
          return 0;
        }
        NXD_TEST_REFUSED(nxd_checkpoint_wait(checkpoint.get(), -1), NXD_ERROR_PEER_LOST, "rank 2");
        nxd_checkpoint_t* none = nullptr;
        NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, root.c_str(), 3, &none), NXD_ERROR_PEER_LOST,
                         "rank 2");
        return 0;
      },
      5000);
  on_ranks<int>(1, [&](nxd_context_t* ctx, int, int) {
    NXD_TEST_CHECK(newest_step(ctx, root) == 1);
    return 0;
  });
}

// Refused on all ranks, with the culprit's reason; the next call goes well.
void bad_calls(void**) {
  const TempDir directory;
  const std::string& root = directory.path();
  on_ranks<int>(3, [&](nxd_context_t* ctx, int rank, int) {
    const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT, state = NXD_ERROR_INVALID_STATE;
    Trained trained(ctx);
    nxd_optimizer_t* optimizer = trained.optimizer.get();
    const bool bad = rank == 1;
    int32_t done = 0;
    Checkpoint checkpoint = begin(ctx, root, 1);
    nxd_checkpoint_t* out = checkpoint.get();
    NXD_TEST_REFUSED(nxd_checkpoint_wait(nullptr, 0), argument, "checkpoint");
    NXD_TEST_REFUSED(nxd_checkpoint_wait(out, 0), state, "nxd_checkpoint_publish_async");
    NXD_TEST_REFUSED(nxd_checkpoint_test(out, &done), state, "nxd_checkpoint_publish_async");
    NXD_TEST_REFUSED(nxd_checkpoint_test(out, nullptr), argument, "out_done");
    NXD_TEST_REFUSED(nxd_checkpoint_publish_async(nullptr, 0), argument, "checkpoint");
    NXD_TEST_REFUSED(nxd_checkpoint_publish_async(out, bad ? 1 : 2), argument,
                     "keep_last: expected the same");
    NXD_TEST_REFUSED(nxd_checkpoint_publish_async(out, -1), argument, "keep_last");
    NXD_TEST_REFUSED(bad ? nxd_checkpoint_publish(out, 0) : nxd_checkpoint_publish_async(out, 0),
                     argument, "in the background (1) or not (0): expected the same");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, nullptr, kState), argument, "checkpoint");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(bad ? nullptr : optimizer, out, kState), argument,
                     "optimizer");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, out, bad ? nullptr : kState), argument,
                     "name");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, out, bad ? "../x" : kState), argument,
                     "name: expected");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, out, bad ? "other" : kState), argument,
                     "name: expected the same on all ranks");
    NXD_TEST_OK(nxd_optimizer_snapshot(optimizer, out, kState));
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, out, kState), argument, "already");
    NXD_TEST_OK(nxd_checkpoint_set_value(out, "k", bad ? "1" : "2"));
    NXD_TEST_REFUSED(nxd_checkpoint_publish_async(out, 0), argument,
                     "expected the same on all ranks");
    NXD_TEST_OK(nxd_checkpoint_set_value(out, "k", "3"));
    NXD_TEST_OK(nxd_checkpoint_publish_async(out, 0));
    NXD_TEST_REFUSED(nxd_checkpoint_publish_async(out, 0), state, "published already");
    NXD_TEST_REFUSED(nxd_optimizer_snapshot(optimizer, out, "late"), state, "before");
    NXD_TEST_OK(nxd_checkpoint_wait(out, -1));
    return 0;
  });
}

// One whose job was killed while it gave the name to another of the same step.
void one_that_was_put_aside(void**) {
  const TempDir directory;
  const std::string& root = directory.path();
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    nxd_group_t* world = nullptr;
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    Trained trained(ctx, 1);
    for (const int64_t step : {1, 2}) {
      trained.train(rank, 1);
      const Checkpoint checkpoint = begin(ctx, root, step);
      NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
      NXD_TEST_OK(nxd_checkpoint_publish(checkpoint.get(), 0));
    }
    NXD_TEST_OK(nxd_barrier(world));
    const std::string published = root + "/step-000000000002";
    if (rank == 0) fs::rename(published, published + ".aside");
    NXD_TEST_OK(nxd_barrier(world));
    NXD_TEST_CHECK(newest_step(ctx, root) == 2);
    nxd_checkpoint_t* out = nullptr;
    if (!NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), 2, 1, &out))) return 0;
    const Checkpoint opened(out);
    NXD_TEST_OK(nxd_optimizer_load(trained.optimizer.get(), path_in(opened, kState).c_str()));
    return 0;
  });
}

// A file of the caller's is no snapshot's to replace: all ranks hear of it before any is written,
// and it may leave.
void own_files_of_snapshots_names(void**) {
  const TempDir directory;
  on_ranks<int>(2, [&](nxd_context_t* ctx, int rank, int) {
    nxd_group_t* world = nullptr;
    NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
    Trained trained(ctx, 1);
    trained.train(rank, 1);
    Checkpoint checkpoint = begin(ctx, directory.path(), 1);
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
    const std::string beside = path_in(checkpoint, "optimizer.share-notes.safetensors");
    if (rank == 1) std::ofstream(beside) << "notes";
    for (const char* name : {kState, "optimizer.safetensors.shares.json",
                             "optimizer.share-00002-of-00002.safetensors"}) {
      const std::string own = path_in(checkpoint, name);
      if (rank == 1) std::ofstream(own) << "own";
      NXD_TEST_OK(nxd_barrier(world));
      const std::string told = "would replace a file of the caller's, \"" + std::string(name);
      NXD_TEST_REFUSED(nxd_checkpoint_publish_async(checkpoint.get(), 0),
                       NXD_ERROR_INVALID_ARGUMENT, told.c_str());
      NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint.get(), 0), NXD_ERROR_INVALID_ARGUMENT,
                       told.c_str());
      NXD_TEST_CHECK(read(own) == "own");
      NXD_TEST_OK(nxd_barrier(world));
      if (rank == 1) fs::remove(own);
      NXD_TEST_OK(nxd_barrier(world));
    }
    NXD_TEST_OK(nxd_checkpoint_publish(checkpoint.get(), 0));
    NXD_TEST_CHECK(read(path_in(checkpoint, "optimizer.share-notes.safetensors")) == "notes");
    NXD_TEST_CHECK(newest_step(ctx, directory.path()) == 1);
    return 0;
  });
}

const Shapes kSmall = {{16, 8}, {5}};

// A job that saves in the background without end, from a step on, keeping two.
[[noreturn]] void save_for_ever(const std::string& root, int64_t first) {
  nxd_store_t* store = nullptr;
  nxd_context_t* ctx = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 1;
  NXD_TEST_OK(nxd_store_create_local(&store));
  options.store = store;
  NXD_TEST_OK(nxd_context_create(&options, &ctx));
  Trained trained(ctx, 0, kSmall);
  trained.train(0, static_cast<int>(first));
  Checkpoint before;
  for (int64_t step = first;; ++step) {
    Checkpoint checkpoint = begin(ctx, root, step);
    NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
    NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 2));
    before = std::move(checkpoint);
    trained.train(0, 1);
  }
}

// Forks first: a child has no threads of its parent.
void killed_while_saving(void**) {
  const TempDir directory;
  const std::string &root = directory.path(), same = directory.path() + "/same";
  std::mt19937 random(7);
  int64_t last = 0;
  int advanced = 0;
  unsigned longest = 20000;  // microseconds; more where the machine is slow
  for (int round = 0; round < 100; ++round) {
    const pid_t child = ::fork();
    assert_true(child >= 0);
    if (child == 0) save_for_ever(root, last + 1);
    ::usleep(std::uniform_int_distribution<unsigned>(0, longest)(random));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const int64_t found = on_ranks<int64_t>(1, [&](nxd_context_t* ctx, int, int) {
      const int64_t step = newest_step(ctx, root);
      if (step < 0) return step;
      // It is the state of that very step.
      Trained trained(ctx, 0, kSmall);
      trained.train(0, static_cast<int>(step));
      NXD_TEST_OK(nxd_optimizer_save(trained.optimizer.get(), same.c_str()));
      NXD_TEST_CHECK(read(state_path(root, step)) == read(same));
      return step;
    })[0];
    assert_true(found >= last || (found == -1 && last == 0));
    advanced += found > last;
    if (found <= last) longest = std::min(longest + longest / 4, 400000U);
    last = std::max(found, last);
  }
  assert_true(advanced > 0);
}

}  // namespace

uint64_t bytes_in_use() {
  nxd_memory_stats_t stats{};
  stats.struct_size = sizeof stats;
  NXD_TEST_OK(nxd_memory_get_stats(&stats));
  return stats.bytes_in_use;
}

// A snapshot shares the states' memory: the next step takes as much again, but not once the
// snapshot is written.
void takes_memory_late(void**) {
  const TempDir directory;
  const Shapes shapes = {{1024, 1024}};
  constexpr uint64_t kStates = 2 * 4 * 1024 * 1024, kSmall = kStates / 16;
  on_ranks<int>(1, [&](nxd_context_t* ctx, int rank, int) {
    Trained trained(ctx, 0, shapes);
    trained.train(rank, 1);
    const uint64_t before = bytes_in_use();
    for (const bool is_published : {false, true}) {
      Checkpoint checkpoint = begin(ctx, directory.path() + "/run", 1);
      NXD_TEST_OK(nxd_optimizer_snapshot(trained.optimizer.get(), checkpoint.get(), kState));
      NXD_TEST_CHECK(bytes_in_use() < before + kSmall);
      if (is_published) NXD_TEST_OK(nxd_checkpoint_publish(checkpoint.get(), 0));
      trained.train(rank, 1);
      NXD_TEST_CHECK((bytes_in_use() < before + kSmall) == is_published);
      checkpoint.reset();
      NXD_TEST_CHECK(bytes_in_use() < before + kSmall);
    }
    return 0;
  });
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(takes_memory_late),
      cmocka_unit_test(killed_while_saving),
      cmocka_unit_test(goes_on_meanwhile),
      cmocka_unit_test(next_one_waits),
      cmocka_unit_test(context_destroyed),
      cmocka_unit_test(full_disk),
      cmocka_unit_test(lost_peer),
      cmocka_unit_test(bad_calls),
      cmocka_unit_test(own_files_of_snapshots_names),
      cmocka_unit_test(one_that_was_put_aside),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
