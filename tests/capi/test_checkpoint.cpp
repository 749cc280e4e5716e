// Checkpoints: what ranks write together is read back, older ones leave, what is damaged is passed
// over or named, bad calls of one rank fail all, and a job that is killed leaves what was whole.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "nxd.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/working_directory.h"

#include "support/check.h"

namespace {

namespace fs = std::filesystem;
using nxd_test::TempDir;

constexpr int kRanks = 3;

std::string path_in(nxd_checkpoint_t* checkpoint, const std::string& name) {
  char path[4096] = "";
  size_t needed = 0;
  NXD_TEST_OK(nxd_checkpoint_get_path(checkpoint, name.c_str(), path, sizeof path, &needed));
  NXD_TEST_CHECK(needed == strlen(path) + 1);
  return path;
}

std::string value_in(nxd_checkpoint_t* checkpoint, const char* key) {
  char value[256] = "";
  size_t needed = 0;
  NXD_TEST_OK(nxd_checkpoint_get_value(checkpoint, key, value, sizeof value, &needed));
  return needed == 0 ? "(absent)" : value;
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string file_of(int rank) { return "rank-" + std::to_string(rank) + ".bin"; }

std::string content_of(int64_t step, int rank) {
  return std::string(static_cast<size_t>(1000 * (rank + 1)), static_cast<char>('a' + step % 26));
}

// A checkpoint of a step with a file of each rank.
void save(nxd_context_t* ctx, const std::string& root, int64_t step, int keep_last) {
  int32_t rank = 0;
  NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
  nxd_checkpoint_t* checkpoint = nullptr;
  if (!NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), step, &checkpoint))) return;
  write(path_in(checkpoint, file_of(rank)), content_of(step, rank));
  NXD_TEST_OK(nxd_checkpoint_set_value(checkpoint, "data", "shard 7"));
  if (rank == 1) NXD_TEST_OK(nxd_checkpoint_set_value(checkpoint, "of one", "\"\n\xc3\xa4"));
  NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, keep_last));
  nxd_checkpoint_destroy(checkpoint);
}

std::vector<std::string> names_in(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (name != ".lock") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void saved_and_read(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const std::string root = static_cast<TempDir*>(user_data)->path() + "/run/checkpoints";
  nxd_checkpoint_t* checkpoint = nullptr;
  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 0, &checkpoint));
  NXD_TEST_CHECK(checkpoint == nullptr);
  NXD_TEST_OK(nxd_context_set_step(ctx, 41, 5));
  for (const int64_t step : {10, 20, 30}) save(ctx, root, step, 2);
  NXD_TEST_OK(nxd_context_set_step(ctx, 0, 0));
  NXD_TEST_CHECK(
      (names_in(root) == std::vector<std::string>{"step-000000000020", "step-000000000030"}));

  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &checkpoint));
  int64_t step = 0, microbatch = 0;
  NXD_TEST_OK(nxd_checkpoint_get_step(checkpoint, &step));
  NXD_TEST_CHECK(step == 30);
  // Every rank reads every file.
  for (int r = 0; r < size; ++r) {
    NXD_TEST_CHECK(read(path_in(checkpoint, file_of(r))) == content_of(30, r));
  }
  NXD_TEST_CHECK(value_in(checkpoint, "data") == "shard 7");
  NXD_TEST_CHECK(value_in(checkpoint, "of one") == "\"\n\xc3\xa4");
  NXD_TEST_CHECK(value_in(checkpoint, "none") == "(absent)");
  NXD_TEST_OK(nxd_checkpoint_restore_random_state(checkpoint));
  NXD_TEST_OK(nxd_context_get_step(ctx, &step, &microbatch));
  NXD_TEST_CHECK(step == 41 && microbatch == 5);
  NXD_TEST_REFUSED(nxd_checkpoint_set_value(checkpoint, "a", "b"), NXD_ERROR_INVALID_STATE,
                   "before it is published");
  NXD_TEST_REFUSED(nxd_checkpoint_publish(checkpoint, 1), NXD_ERROR_INVALID_STATE, "opened");
  char path[8];
  size_t needed = 0;
  NXD_TEST_REFUSED(nxd_checkpoint_get_path(checkpoint, "other", path, sizeof path, &needed),
                   NXD_ERROR_INVALID_ARGUMENT, "has no file");
  nxd_checkpoint_destroy(checkpoint);

  // One of a step that is there takes its place; one that is let go of leaves nothing.
  NXD_TEST_OK(nxd_context_set_step(ctx, 7, 0));
  save(ctx, root, 30, 0);
  NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 40, &checkpoint));
  write(path_in(checkpoint, file_of(rank)), "x");
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  nxd_checkpoint_destroy(checkpoint);
  NXD_TEST_OK(nxd_barrier(world));
  NXD_TEST_CHECK(
      (names_in(root) == std::vector<std::string>{"step-000000000020", "step-000000000030"}));
  NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), 30, 1, &checkpoint));
  NXD_TEST_OK(nxd_checkpoint_restore_random_state(checkpoint));
  NXD_TEST_OK(nxd_context_get_step(ctx, &step, nullptr));
  NXD_TEST_CHECK(step == 7);
  nxd_checkpoint_destroy(checkpoint);
}

// A run that goes on from an older checkpoint keeps what it saves, whatever steps are there: those
// of higher ones stay, and count.
void going_back(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string root = static_cast<TempDir*>(user_data)->path() + "/run";
  const auto check = [&](int64_t step, int keep_last, const std::vector<std::string>& there) {
    save(ctx, root, step, keep_last);
    std::vector<std::string> names;
    for (const std::string& number : there) names.push_back("step-0000000000" + number);
    NXD_TEST_CHECK(names_in(root) == names);
    nxd_checkpoint_t* checkpoint = nullptr;
    if (!NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), step, 1, &checkpoint))) return;
    NXD_TEST_CHECK(read(path_in(checkpoint, file_of(rank))) == content_of(step, rank));
    nxd_checkpoint_destroy(checkpoint);
  };
  for (const int64_t step : {10, 20, 30}) save(ctx, root, step, 0);
  check(15, 2, {"15", "20", "30"});
  check(16, 1, {"16", "20", "30"});
  check(21, 3, {"20", "21", "30"});
  check(21, 2, {"21", "30"});
  check(31, 1, {"31"});
}

void test_going_back(void**) {
  TempDir directory;
  nxd_test_run_ranks(2, 0, going_back, &directory);
}

// A link may lead to the directory, as from a home to a disk with room, by any of its names.
void behind_a_link(nxd_context_t* ctx, int, int, void* user_data) {
  const std::string& root = *static_cast<std::string*>(user_data);
  for (const int64_t step : {1, 2}) save(ctx, root, step, 1);
  save(ctx, root + "/", 3, 1);
  save(ctx, root, 3, 1);
  NXD_TEST_CHECK(names_in(root) == std::vector<std::string>{"step-000000000003"});
  nxd_checkpoint_t* checkpoint = nullptr;
  NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &checkpoint));
  NXD_TEST_CHECK(checkpoint != nullptr);
  nxd_checkpoint_destroy(checkpoint);
}

void test_behind_a_link(void**) {
  const TempDir directory;
  std::string root = directory.path() + "/link";
  fs::create_directory(directory.path() + "/disk");
  fs::create_directory_symlink("disk", root);
  nxd_test_run_ranks(2, 0, behind_a_link, &root);
  assert_true(fs::is_symlink(root));
}

// Processes that the program forks while it saves, such as workers that read data, live on.
void forked_meanwhile(nxd_context_t* ctx, int, int, void* user_data) {
  const std::string root = static_cast<TempDir*>(user_data)->path();
  std::vector<pid_t> children;
  for (const bool publishes : {true, false, true}) {
    nxd_checkpoint_t* checkpoint = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &checkpoint));
    children.push_back(::fork());
    if (children.back() == 0) {
      for (;;) ::pause();
    }
    if (publishes) NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 0));
    nxd_checkpoint_destroy(checkpoint);
  }
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

void test_forked_meanwhile(void**) {
  TempDir directory;
  nxd_test_run_ranks(1, 0, forked_meanwhile, &directory);
}

void test_saved_and_read(void**) {
  for (const int size : {2, kRanks}) {
    TempDir directory;
    nxd_test_run_ranks(size, 0, saved_and_read, &directory);
  }
}

// Refused on all ranks, with the culprit's reason, and the next call goes well.
void bad_calls(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string& root = static_cast<TempDir*>(user_data)->path();
  const char* path = root.c_str();
  const bool bad = rank == 1;
  nxd_checkpoint_t* out = nullptr;
  const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT, state = NXD_ERROR_INVALID_STATE;
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, bad ? nullptr : path, 1, &out), argument,
                   "directory: expected a pointer, got NULL");
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, bad ? "" : path, 1, &out), argument, "directory");
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, path, 1, bad ? nullptr : &out), argument,
                   "out_checkpoint");
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, path, bad ? 2 : 1, &out), argument,
                   "step: expected the same");
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, path, -1, &out), argument,
                   "step: expected 0 to 2^52");
  NXD_TEST_REFUSED(nxd_checkpoint_create(nullptr, path, 1, &out), argument, "ctx");
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, "/dev/null/x", 1, &out), NXD_ERROR_IO, "/dev/null");
  NXD_TEST_REFUSED(nxd_checkpoint_open(ctx, path, 5, 0, &out), NXD_ERROR_IO, "step-000000000005");
  NXD_TEST_REFUSED(nxd_checkpoint_open(ctx, path, 5, bad ? 2 : 0, &out), argument, "verify");
  NXD_TEST_REFUSED(nxd_checkpoint_open(ctx, path, -1, 0, &out), argument,
                   "step: expected 0 to 2^52");
  NXD_TEST_REFUSED(nxd_checkpoint_open_newest(ctx, path, bad ? 1 : 0, &out), argument,
                   "verify: expected the same");
  NXD_TEST_CHECK(out == nullptr);

  NXD_TEST_OK(nxd_checkpoint_create(ctx, path, 3, &out));
  NXD_TEST_OK(nxd_context_set_step(ctx, 7, 1));
  NXD_TEST_REFUSED(nxd_checkpoint_restore_random_state(out), state, "opened to be read");
  int64_t step = 0, microbatch = 0;
  NXD_TEST_OK(nxd_context_get_step(ctx, &step, &microbatch));
  NXD_TEST_CHECK(step == 7 && microbatch == 1);
  nxd_checkpoint_t* second = nullptr;
  NXD_TEST_REFUSED(nxd_checkpoint_create(ctx, path, 4, &second), state, "being written here");
  size_t needed = 0;
  for (const char* name : {"", "a/b", ".hidden", "manifest.json", "\xff"}) {
    NXD_TEST_REFUSED(nxd_checkpoint_get_path(out, name, nullptr, 0, &needed), argument,
                     "name: expected");
  }
  NXD_TEST_REFUSED(nxd_checkpoint_get_path(out, nullptr, nullptr, 0, &needed), argument, "name");
  NXD_TEST_REFUSED(nxd_checkpoint_get_path(out, "a", nullptr, 0, nullptr), argument, "out_needed");
  NXD_TEST_REFUSED(nxd_checkpoint_get_path(nullptr, "a", nullptr, 0, &needed), argument,
                   "checkpoint");
  NXD_TEST_REFUSED(nxd_checkpoint_set_value(out, "", "b"), argument, "key");
  NXD_TEST_REFUSED(nxd_checkpoint_set_value(out, "a", "\xff"), argument, "value");
  NXD_TEST_REFUSED(nxd_checkpoint_set_value(out, nullptr, "b"), argument, "key");
  NXD_TEST_REFUSED(nxd_checkpoint_set_value(out, "a", nullptr), argument, "value");
  NXD_TEST_REFUSED(nxd_checkpoint_get_value(out, nullptr, nullptr, 0, &needed), argument, "key");
  NXD_TEST_REFUSED(nxd_checkpoint_get_step(out, nullptr), argument, "out_step");
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, bad ? 1 : 2), argument,
                   "keep_last: expected the same");
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, -1), argument, "keep_last");
  NXD_TEST_OK(nxd_checkpoint_set_value(out, "k", bad ? "1" : "2"));
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, 0), argument, "expected the same on all ranks");
  NXD_TEST_OK(nxd_checkpoint_set_value(out, "k", "3"));
  // A directory among the files is refused; without it the same checkpoint is published.
  if (bad) fs::create_directory(path_in(out, "folder"));
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, 0), argument, "of another kind");
  if (bad) fs::remove(path_in(out, "folder"));
  // So is a file whose name no manifest may have.
  const std::string hidden = fs::path(path_in(out, "a")).replace_filename(".hidden");
  if (bad) write(hidden, "a file");
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, 0), argument, "does not begin with '.'");
  if (bad) fs::remove(hidden);
  NXD_TEST_OK(nxd_checkpoint_publish(out, 0));
  NXD_TEST_REFUSED(nxd_checkpoint_publish(out, 0), state, "published already");
  NXD_TEST_OK(nxd_checkpoint_restore_random_state(out));
  nxd_checkpoint_destroy(out);
  nxd_checkpoint_destroy(nullptr);
}

void test_bad_calls(void**) {
  TempDir directory;
  nxd_test_run_ranks(kRanks, 0, bad_calls, &directory);
}

// Each is passed over where the newest is wanted, or named where its content is compared.
void damaged(nxd_context_t* ctx, int, int, void* user_data) {
  const std::string& root = static_cast<TempDir*>(user_data)->path();
  nxd_checkpoint_t* out = nullptr;
  save(ctx, root, 1, 0);
  const auto opened = [&] {
    int64_t step = -1;
    NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 0, &out));
    if (out) NXD_TEST_OK(nxd_checkpoint_get_step(out, &step));
    nxd_checkpoint_destroy(out);
    return step;
  };
  const std::string at = root + "/step-000000000002";
  const auto manifest = [&](const std::string& from, const std::string& to) {
    std::string text = read(at + "/manifest.json");
    const size_t place = text.find(from);
    NXD_TEST_CHECK(place != std::string::npos);
    write(at + "/manifest.json", text.replace(place, from.size(), to));
  };
  const std::function<void()> damages[] = {
      [&] { fs::remove(at + "/manifest.json"); },
      [&] { fs::remove(at + "/" + file_of(0)); },
      [&] { fs::resize_file(at + "/" + file_of(0), 999); },
      [&] { write(at + "/manifest.json", "{"); },
      [&] { manifest("\"step\":2", "\"step\":3"); },
      [&] { manifest(file_of(0), "../../" + file_of(0)); },
      [&] { manifest("nxd-checkpoint", "other"); },
      [&] { manifest("\"version\":1", "\"version\":2"); },
      [&] { manifest("\"bytes\":1000", "\"bytes\":-1"); },
      [&] {
        fs::rename(at + "/" + file_of(0), root + "/elsewhere");
        fs::create_symlink(root + "/elsewhere", at + "/" + file_of(0));
      },
  };
  for (const auto& damage : damages) {
    save(ctx, root, 2, 0);
    NXD_TEST_CHECK(opened() == 2);
    damage();
    NXD_TEST_CHECK(opened() == 1);
    const nxd_status_t status = nxd_checkpoint_open(ctx, root.c_str(), 2, 0, &out);
    NXD_TEST_CHECK(status == NXD_ERROR_CORRUPT || status == NXD_ERROR_IO ||
                   status == NXD_ERROR_UNSUPPORTED);
    // It does not count among those that are kept.
    save(ctx, root, 3, 1);
    NXD_TEST_CHECK(opened() == 3 && !fs::exists(root + "/step-000000000001") && fs::exists(at));
    fs::remove_all(root);
    fs::create_directory(root);
    save(ctx, root, 1, 0);
  }
  save(ctx, root, 2, 0);
  std::fstream file(at + "/" + file_of(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(500);
  file.put('?');
  file.close();
  NXD_TEST_REFUSED(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &out), NXD_ERROR_CORRUPT,
                   "its content is not as it was saved");
  NXD_TEST_REFUSED(nxd_checkpoint_open(ctx, root.c_str(), 2, 1, &out), NXD_ERROR_CORRUPT,
                   file_of(0).c_str());
}

void test_damaged(void**) {
  TempDir directory;
  nxd_test_run_ranks(1, 0, damaged, &directory);
}

void other_seed(nxd_context_t* ctx, int rank, int, void* user_data) {
  const auto& [root, wrong] = *static_cast<std::pair<std::string, bool>*>(user_data);
  if (!wrong) return save(ctx, root, 1, 0);
  nxd_checkpoint_t* out = nullptr;
  NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), 1, 0, &out));
  NXD_TEST_REFUSED(nxd_checkpoint_restore_random_state(out), NXD_ERROR_INVALID_STATE,
                   "expected the seed 4 that it was written with, the context has 5");
  nxd_checkpoint_destroy(out);
  static_cast<void>(rank);
}

void test_other_seed(void**) {
  TempDir directory;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  for (const bool wrong : {false, true}) {
    std::pair<std::string, bool> part{directory.path(), wrong};
    options.seed = wrong ? 5 : 4;
    nxd_test_run_ranks_with(&options, 2, 0, other_seed, &part);
  }
}

// Values that no reader would take from one manifest, and then fewer.
void more_than_a_manifest_has(nxd_context_t* ctx, int, int, void* user_data) {
  const std::string& root = static_cast<TempDir*>(user_data)->path();
  const std::string large(size_t{1} << 20, 'v');
  nxd_checkpoint_t* out = nullptr;
  if (!NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &out))) return;
  for (const char* value : {large.c_str(), ""}) {
    for (int i = 0; i < 64; ++i) {
      NXD_TEST_OK(nxd_checkpoint_set_value(out, std::to_string(i).c_str(), value));
    }
    if (!*value) continue;
    NXD_TEST_REFUSED(nxd_checkpoint_publish(out, 0), NXD_ERROR_INVALID_ARGUMENT,
                     "expected at most 67108864 bytes");
  }
  NXD_TEST_OK(nxd_checkpoint_publish(out, 0));
  nxd_checkpoint_destroy(out);
  NXD_TEST_OK(nxd_checkpoint_open(ctx, root.c_str(), 1, 1, &out));
  nxd_checkpoint_destroy(out);
}

void test_more_than_a_manifest_has(void**) {
  TempDir directory;
  nxd_test_run_ranks(1, 0, more_than_a_manifest_has, &directory);
}

// Ranks with seeds of their own go on with these, and no rank with one that none had.
void test_seeds_of_ranks(void**) {
  TempDir directory;
  const auto run = [&](bool saves, uint64_t first_seed) {
    nxd_store_t* store = nullptr;
    assert_int_equal(nxd_store_create_local(&store), NXD_OK);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
        options.rendezvous = NXD_RENDEZVOUS_STORE;
        options.rank = rank;
        options.size = 2;
        options.store = store;
        options.seed = first_seed + static_cast<uint64_t>(rank);
        nxd_context_t* ctx = nullptr;
        nxd_checkpoint_t* opened = nullptr;
        if (!NXD_TEST_OK(nxd_context_create(&options, &ctx))) return;
        if (saves) {
          save(ctx, directory.path(), 1, 0);
        } else if (NXD_TEST_OK(nxd_checkpoint_open(ctx, directory.path().c_str(), 1, 0, &opened))) {
          if (options.seed <= 5) {
            NXD_TEST_OK(nxd_checkpoint_restore_random_state(opened));
          } else {
            NXD_TEST_REFUSED(nxd_checkpoint_restore_random_state(opened), NXD_ERROR_INVALID_STATE,
                             "the seed 4, or that of another rank, that it was written with, the "
                             "context has 6");
          }
          nxd_checkpoint_destroy(opened);
        }
        nxd_context_destroy(ctx);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    nxd_store_destroy(store);
  };
  run(true, 4);
  run(false, 4);
  run(false, 5);
}

// Two runs have a checkpoint of one step and of one size. Ranks that name different ones are told
// so, and those that name one by different paths are not.
void of_two_runs(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string base = static_cast<TempDir*>(user_data)->path();
  const std::string one = base + "/one", other = base + "/other", link = base + "/link";
  for (const bool first : {true, false}) {
    NXD_TEST_OK(nxd_context_set_step(ctx, first ? 5 : 6, 0));
    save(ctx, first ? one : other, 7, 0);
  }
  if (rank == 1) fs::create_directory_symlink(one, link);
  for (const int32_t verify : {0, 1}) {
    for (const int64_t step : {7, -1}) {
      const auto open = [&](const std::string& root, nxd_checkpoint_t** out) {
        return step < 0 ? nxd_checkpoint_open_newest(ctx, root.c_str(), verify, out)
                        : nxd_checkpoint_open(ctx, root.c_str(), step, verify, out);
      };
      nxd_checkpoint_t* checkpoint = nullptr;
      NXD_TEST_REFUSED(open(rank == 1 ? other : one, &checkpoint), NXD_ERROR_INVALID_ARGUMENT,
                       "directory: expected one checkpoint of step 7 on all ranks, got another in");
      NXD_TEST_CHECK(checkpoint == nullptr);
      NXD_TEST_OK(open(rank == 1 ? link : one, &checkpoint));
      nxd_checkpoint_destroy(checkpoint);
    }
  }
}

// A killed job has left the hidden directory of the same step in the other one.
void begun_in_two_places(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string base = static_cast<TempDir*>(user_data)->path();
  const std::string other = base + "/second";
  if (rank == 1) fs::create_directories(other + "/.step-000000000007.partial");
  nxd_checkpoint_t* checkpoint = nullptr;
  NXD_TEST_REFUSED(
      nxd_checkpoint_create(ctx, (rank == 1 ? other : base + "/first").c_str(), 7, &checkpoint),
      NXD_ERROR_IO, "made by the first rank, but not to be seen on this one");
  NXD_TEST_CHECK(checkpoint == nullptr);
}

void test_of_two_runs(void**) {
  TempDir directory;
  nxd_test_run_ranks(2, 0, of_two_runs, &directory);
  nxd_test_run_ranks(2, 0, begun_in_two_places, &directory);
}

// Between a relative directory's name and its use the program may go elsewhere: all leads from
// where it was when it named it.
void goes_elsewhere(nxd_context_t* ctx, int rank, int size, void* user_data) {
  auto& here = *static_cast<nxd_test::WorkingDirectory*>(user_data);
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  const auto change = [&](const char* directory) {
    NXD_TEST_OK(nxd_barrier(world));
    if (rank == 0) here.change(directory);
    NXD_TEST_OK(nxd_barrier(world));
  };
  const auto check_files = [&](nxd_checkpoint_t* checkpoint, int64_t step) {
    for (int r = 0; r < size; ++r) {
      NXD_TEST_CHECK(read(path_in(checkpoint, file_of(r))) == content_of(step, r));
    }
  };
  for (const bool in_background : {false, true}) {
    const int64_t step = in_background ? 2 : 1;
    nxd_checkpoint_t* checkpoint = nullptr;
    if (!NXD_TEST_OK(nxd_checkpoint_create(ctx, "run", step, &checkpoint))) return;
    const std::string path = path_in(checkpoint, file_of(rank));
    change("elsewhere");
    write(path, content_of(step, rank));
    NXD_TEST_OK(in_background ? nxd_checkpoint_publish_async(checkpoint, 0)
                              : nxd_checkpoint_publish(checkpoint, 0));
    if (in_background) NXD_TEST_OK(nxd_checkpoint_wait(checkpoint, -1));
    check_files(checkpoint, step);
    nxd_checkpoint_destroy(checkpoint);
    change("..");
    if (!NXD_TEST_OK(nxd_checkpoint_open(ctx, "run", step, 1, &checkpoint))) return;
    change("elsewhere");
    check_files(checkpoint, step);
    nxd_checkpoint_destroy(checkpoint);
    change("..");
  }
  // One that is let go of is removed from where it was begun.
  nxd_checkpoint_t* given_up = nullptr;
  NXD_TEST_OK(nxd_checkpoint_create(ctx, "run", 3, &given_up));
  change("elsewhere");
  nxd_checkpoint_destroy(given_up);
  change("..");
  NXD_TEST_CHECK(
      (names_in("run") == std::vector<std::string>{"step-000000000001", "step-000000000002"}));
  NXD_TEST_CHECK(fs::is_empty("elsewhere"));
}

void test_goes_elsewhere(void**) {
  TempDir directory;
  fs::create_directory(directory.path() + "/elsewhere");
  nxd_test::WorkingDirectory here(directory.path());
  nxd_test_run_ranks(2, 0, goes_elsewhere, &here);
}

// A job that saves without end, keeping two.
[[noreturn]] void save_for_ever(const std::string& root, int64_t first) {
  nxd_store_t* store = nullptr;
  nxd_context_t* ctx = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.size = 1;
  NXD_TEST_OK(nxd_store_create_local(&store));
  options.store = store;
  NXD_TEST_OK(nxd_context_create(&options, &ctx));
  for (int64_t step = first;; ++step) save(ctx, root, step, 2);
}

void newest_of(nxd_context_t* ctx, int, int, void* user_data) {
  auto& [root, step] = *static_cast<std::pair<std::string, int64_t>*>(user_data);
  nxd_checkpoint_t* out = nullptr;
  step = -1;
  if (!NXD_TEST_OK(nxd_checkpoint_open_newest(ctx, root.c_str(), 1, &out)) || !out) return;
  NXD_TEST_OK(nxd_checkpoint_get_step(out, &step));
  NXD_TEST_CHECK(read(path_in(out, file_of(0))) == content_of(step, 0));
  nxd_checkpoint_destroy(out);
}

// Forks first: a child has no threads of its parent.
void test_killed_while_saving(void**) {
  TempDir directory;
  std::pair<std::string, int64_t> found{directory.path(), -1};
  std::mt19937 random(7);
  int64_t last = -1;
  int advanced = 0;
  unsigned longest = 20000;  // microseconds; grows until a slow disk has taken a save
  for (int round = 0; round < 200; ++round) {
    const pid_t child = ::fork();
    assert_true(child >= 0);
    if (child == 0) save_for_ever(directory.path(), last + 1);
    ::usleep(std::uniform_int_distribution<unsigned>(0, longest)(random));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    nxd_test_run_ranks(1, 0, newest_of, &found);
    assert_true(found.second >= last);
    const bool saved = found.second > last;
    advanced += saved;
    longest = saved ? 20000 : std::min(2 * longest, 900000U);
    last = found.second;
  }
  assert_true(advanced > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_killed_while_saving), cmocka_unit_test(test_saved_and_read),
      cmocka_unit_test(test_bad_calls),           cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_other_seed),          cmocka_unit_test(test_going_back),
      cmocka_unit_test(test_forked_meanwhile),    cmocka_unit_test(test_goes_elsewhere),
      cmocka_unit_test(test_of_two_runs),         cmocka_unit_test(test_behind_a_link),
      cmocka_unit_test(test_seeds_of_ranks),      cmocka_unit_test(test_more_than_a_manifest_has),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
