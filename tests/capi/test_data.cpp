// Loaders of token files: batches against samples cut from the test's own arrays in the order of
// nxd_sample_epoch, whatever the ranks, batches and files are; every sample once an epoch; going on
// at a position with other ranks; bad files and calls on one rank; files that change underneath.
#include "nxd/data.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "nxd/data_parallel.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

namespace fs = std::filesystem;
using nxd_test::TempDir;
using Tokens = std::vector<int64_t>;

constexpr int64_t kLength = 5;
constexpr uint64_t kSeed = 7;

struct Format {
  nxd_token_format_t format;
  int bytes;
  const char* ending;  // that is known by itself
  int64_t vocab;
};
constexpr Format kFormats[] = {{NXD_TOKEN_FORMAT_UINT16, 2, "bin", 65536},
                               {NXD_TOKEN_FORMAT_UINT32, 4, "u32", int64_t{1} << 32},
                               {NXD_TOKEN_FORMAT_BYTES, 1, "txt", 256}};

void write_tokens(const std::string& path, const Tokens& tokens, int bytes) {
  std::ofstream out(path, std::ios::binary);
  for (const int64_t token : tokens) {
    for (int i = 0; i < bytes; ++i) out.put(static_cast<char>(token >> (8 * i)));
  }
}

// Files of given lengths in tokens, with all of them different.
struct Files {
  Files(const Format& format, const std::vector<int64_t>& lengths, bool known_ending = true) {
    int64_t token = 3;
    for (const int64_t length : lengths) {
      Tokens tokens;
      for (int64_t i = 0; i < length; ++i) {
        token = (token * 1103515245 + 12345) % format.vocab;
        tokens.push_back(token);
      }
      paths.push_back(directory.path() + "/" + std::to_string(paths.size()) + "." +
                      (known_ending ? format.ending : "data"));
      write_tokens(paths.back(), tokens, format.bytes);
      contents.push_back(tokens);
    }
  }
  // Each with a token more, which is the next label of the last.
  std::vector<Tokens> samples(bool next_labels) const {
    std::vector<Tokens> all;
    for (const Tokens& tokens : contents) {
      const auto size = static_cast<int64_t>(tokens.size());
      for (int64_t at = 0; at + kLength + next_labels <= size; at += kLength) {
        all.emplace_back(tokens.begin() + at, tokens.begin() + std::min(at + kLength + 1, size));
      }
    }
    return all;
  }

  TempDir directory;
  std::vector<std::string> paths;
  std::vector<Tokens> contents;
};

nxd_data_loader_t* open(nxd_context_t* ctx, const std::vector<std::string>& paths, int64_t batch,
                        const nxd_data_loader_options_t* options, int64_t length = kLength) {
  std::vector<const char*> names;
  for (const std::string& path : paths) names.push_back(path.c_str());
  nxd_data_loader_t* loader = nullptr;
  NXD_TEST_OK(
      nxd_data_loader_create(ctx, names.data(), names.size(), batch, length, options, &loader));
  return loader;
}

int64_t position_of(nxd_data_loader_t* loader) {
  int64_t position = -1;
  NXD_TEST_OK(nxd_data_loader_get_position(loader, &position));
  return position;
}

// The sample at a place of the epochs one after another.
int64_t sample_at(int64_t place, int64_t samples, uint64_t seed, bool shuffle) {
  Tokens order(static_cast<size_t>(samples));
  size_t count = 0;
  NXD_TEST_OK(nxd_sample_epoch(samples, 1, 0, place / samples, seed, shuffle, 0, order.data(),
                               order.size(), &count));
  return order[static_cast<size_t>(place % samples)];
}

struct Case {
  const Files* files;
  nxd_data_loader_options_t options;
  uint64_t seed;  // that counts
  bool shuffle;
};

// Batches of three calls with one, two and three batches, of ranks that stand at data of ranks.
void check_batches(nxd_context_t* ctx, const Case& test, int data, int ranks, int64_t batch) {
  const bool labels = test.options.next_labels == 1;
  const std::vector<Tokens> samples = test.files->samples(labels);
  const auto number = static_cast<int64_t>(samples.size());
  nxd_data_loader_t* loader = open(ctx, test.files->paths, batch, &test.options);
  int64_t found = 0;
  NXD_TEST_OK(nxd_data_loader_get_sample_count(loader, &found));
  NXD_TEST_CHECK(found == number);
  int64_t position = 0;
  for (int64_t batches = 1; batches <= 3; ++batches) {
    const auto count = static_cast<size_t>(batches * batch * kLength);
    Tokens ids(count + 1, -7), next(count + 1, -7);
    NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), labels ? next.data() : nullptr, count));
    NXD_TEST_CHECK(ids.back() == -7 && next.back() == -7);
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = static_cast<int64_t>(i) / kLength,
                    column = static_cast<int64_t>(i) % kLength;
      const int64_t place = position + row * ranks + data;
      const Tokens& sample =
          samples[static_cast<size_t>(sample_at(place, number, test.seed, test.shuffle))];
      NXD_TEST_CHECK(ids[i] == sample[static_cast<size_t>(column)]);
      if (labels) NXD_TEST_CHECK(next[i] == sample[static_cast<size_t>(column) + 1]);
    }
    position += batches * batch * ranks;
    NXD_TEST_CHECK(position_of(loader) == position);
  }
  nxd_data_loader_destroy(loader);
}

void batches_of_rank(nxd_context_t* ctx, int rank, int size, void* user_data) {
  check_batches(ctx, *static_cast<const Case*>(user_data), rank, size, 3);
}

void test_batches(void**) {
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = kSeed;
  for (const Format& format : kFormats) {
    // Sizes that end with a sample, one token behind it, and far from it; one sample alone.
    const Files files(format, {4 * kLength, 3 * kLength + 1, 2 * kLength + 3, kLength + 1});
    Case test{&files, NXD_DATA_LOADER_OPTIONS_INIT, kSeed, true};
    for (const int ranks : {1, 2, 4}) {
      nxd_test_run_ranks_with(&context, ranks, 0, batches_of_rank, &test);
    }
    test.options.next_labels = 1;
    test.options.vocab_size = format.vocab;
    test.options.has_seed = 1;
    test.options.seed = test.seed = 0;
    nxd_test_run_ranks_with(&context, 2, 0, batches_of_rank, &test);
    test.options.shuffle = NXD_TOGGLE_OFF;
    test.shuffle = false;
    test.options.prefetch = 1;
    const Files unknown(format, {11 * kLength}, false);
    test.files = &unknown;
    test.options.format = format.format;
    nxd_test_run_ranks_with(&context, 2, 0, batches_of_rank, &test);
  }
}

// The ranks of one tensor-parallel group get the same, data-parallel ranks different ones.
void batches_of_layout(nxd_context_t* ctx, int, int, void* user_data) {
  int32_t data = -1;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_DATA, &data));
  check_batches(ctx, *static_cast<const Case*>(user_data), data, 2, 2);
}

void test_layout(void**) {
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = kSeed;
  const Files files(kFormats[0], {9 * kLength});
  Case test{&files, NXD_DATA_LOADER_OPTIONS_INIT, kSeed, true};
  nxd_test_run_ranks_with(&context, 4, 2, batches_of_layout, &test);
}

// Batches that are being read ahead of a position count for nothing behind a move to another.
void moves(nxd_context_t* ctx, int, int, void*) {
  constexpr int64_t kBatch = 16, kSamples = 80;
  const Files files(kFormats[0], {kSamples * kLength});
  const std::vector<Tokens> samples = files.samples(false);
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.shuffle = NXD_TOGGLE_OFF;
  nxd_data_loader_t* loader = open(ctx, files.paths, kBatch, &options);
  Tokens ids(kBatch * kLength);
  for (int64_t move = 0; move < 1000; ++move) {
    const int64_t position = move * 37 % (kSamples - kBatch);
    NXD_TEST_OK(nxd_data_loader_set_position(loader, position));
    NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()));
    const Tokens& first = samples[static_cast<size_t>(position)];
    if (!NXD_TEST_CHECK(std::equal(ids.begin(), ids.begin() + kLength, first.begin()))) break;
  }
  nxd_data_loader_destroy(loader);
}

void test_moves(void**) { nxd_test_run_ranks(1, 0, moves, nullptr); }

// Ids that each rank has taken, by rank, of runs one after another that share a position.
struct Run {
  const Files* files;
  int64_t batch, batches, start;
  std::vector<Tokens> taken;
  int64_t end;
};

void take(nxd_context_t* ctx, int rank, int, void* user_data) {
  auto& run = *static_cast<Run*>(user_data);
  const nxd_data_loader_options_t defaults = NXD_DATA_LOADER_OPTIONS_INIT;
  nxd_data_loader_t* loader = open(ctx, run.files->paths, run.batch, &defaults);
  // One that is set when much was read ahead, and taken, counts like any other.
  Tokens& ids = run.taken[static_cast<size_t>(rank)];
  ids.resize(static_cast<size_t>(run.batch * kLength));
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()));
  NXD_TEST_OK(nxd_data_loader_set_position(loader, run.start));
  NXD_TEST_CHECK(position_of(loader) == run.start);
  ids.resize(static_cast<size_t>(run.batches * run.batch * kLength));
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()));
  if (rank == 0) run.end = position_of(loader);
  nxd_data_loader_destroy(loader);
}

// Samples in the order of places from runs with such ranks, batches of each and numbers of them.
std::vector<Tokens> order_of(const Files& files, const std::vector<std::array<int, 3>>& runs) {
  nxd_context_options_t context = NXD_CONTEXT_OPTIONS_INIT;
  context.seed = kSeed;
  std::vector<Tokens> order;
  int64_t position = 0;
  for (const auto& [ranks, batch, batches] : runs) {
    Run run{&files, batch, batches, position, std::vector<Tokens>(static_cast<size_t>(ranks)), 0};
    nxd_test_run_ranks_with(&context, ranks, 0, take, &run);
    for (int row = 0; row < batch * batches; ++row) {
      for (const Tokens& taken : run.taken) {
        order.emplace_back(taken.begin() + row * kLength, taken.begin() + (row + 1) * kLength);
      }
    }
    position = run.end;
  }
  return order;
}

// Eleven samples divide by no number of ranks: every epoch has each of them once all the same.
void test_epochs_and_positions(void**) {
  const Files files(kFormats[0], {6 * kLength, 5 * kLength + 2});
  const std::vector<Tokens> whole = order_of(files, {{1, 1, 44}});
  for (size_t epoch = 0; epoch < 4; ++epoch) {
    std::map<Tokens, int> seen;
    for (size_t i = 0; i < 11; ++i) ++seen[whole[11 * epoch + i]];
    assert_int_equal(seen.size(), 11);
  }
  assert_true(std::vector<Tokens>(whole.begin(), whole.begin() + 11) !=
              std::vector<Tokens>(whole.begin() + 11, whole.begin() + 22));
  assert_true(order_of(files, {{4, 11, 1}}) == whole);
  assert_true(order_of(files, {{2, 3, 2}, {4, 1, 3}, {1, 5, 4}}) == whole);
}

struct Slip {
  const char* message;
  nxd_status_t status;
  std::function<void(std::vector<std::string>&, int64_t&, int64_t&, nxd_data_loader_options_t&)>
      spoil;
};

std::vector<Slip> slips(const std::string& in) {
  const auto file = [in](const char* name) { return in + "/" + name; };
  const auto path = [file](const char* name) {
    return [file, name](auto& paths, auto&, auto&, auto&) { paths[0] = file(name); };
  };
  const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT, corrupt = NXD_ERROR_CORRUPT;
  return {
      {"num_paths: expected at least 1, got 0", argument,
       [](auto& paths, auto&, auto&, auto&) { paths.clear(); }},
      {"batch_size: expected 1 to 2^30, got 0", argument,
       [](auto&, auto& batch, auto&, auto&) { batch = 0; }},
      {"batch_size: expected 1 to 2^30", argument,
       [](auto&, auto& batch, auto&, auto&) { batch = (int64_t{1} << 30) + 1; }},
      {"sequence_length: expected 1 to 2^40, got -1", argument,
       [](auto&, auto&, auto& length, auto&) { length = -1; }},
      {"sequence_length: expected 1 to 2^40, got 1099511627777", argument,
       [](auto&, auto&, auto& length, auto&) { length = (int64_t{1} << 40) + 1; }},
      {"samples of 32768 tokens do not fit in memory", argument,
       [file](auto& paths, auto& batch, auto& length, auto& o) {
         paths[0] = file("large.bin");
         batch = int64_t{1} << 30;
         length = 1 << 15;
         o.prefetch = 1024;
       }},
      {"format: expected an NXD_TOKEN_FORMAT_*, got 4", argument,
       [](auto&, auto&, auto&, auto& o) { o.format = 4; }},
      {"good.bin, ids of 2 bytes by its name, and ", argument,
       [file](auto& paths, auto&, auto&, auto&) { paths.push_back(file("good.txt")); }},
      {"odd.u32, of 4", argument,
       [file](auto& paths, auto&, auto&, auto&) { paths.push_back(file("odd.u32")); }},
      {"vocab_size: expected at least 0, got -1", argument,
       [](auto&, auto&, auto&, auto& o) { o.vocab_size = -1; }},
      {"prefetch: expected 1 to 1024 batches, got 1025", argument,
       [](auto&, auto&, auto&, auto& o) { o.prefetch = 1025; }},
      {"has_seed: expected 0 or 1", argument, [](auto&, auto&, auto&, auto& o) { o.has_seed = 2; }},
      {"next_labels: expected 0 or 1", argument,
       [](auto&, auto&, auto&, auto& o) { o.next_labels = -1; }},
      {"options.reserved: expected 0, got 1", argument,
       [](auto&, auto&, auto&, auto& o) { o.reserved = 1; }},
      {"shuffle: expected an NXD_TOGGLE_*", argument,
       [](auto&, auto&, auto&, auto& o) { o.shuffle = 9; }},
      {"struct_size", NXD_ERROR_ABI_MISMATCH,
       [](auto&, auto&, auto&, auto& o) { o.struct_size = 0; }},
      // Good by itself, and not what other ranks have.
      {"batch_size: expected the same", argument,
       [](auto&, auto& batch, auto&, auto&) { ++batch; }},
      {"options.seed, upper 32 bits: expected the same", argument,
       [](auto&, auto&, auto&, auto& o) { o.has_seed = 1, o.seed = uint64_t{1} << 32U; }},
      {"vocab_size: expected the same", argument,
       [](auto&, auto&, auto&, auto& o) { o.vocab_size = 70000; }},
      {"shuffle: expected the same", argument,
       [](auto&, auto&, auto&, auto& o) { o.shuffle = NXD_TOGGLE_OFF; }},
      {"next_labels: expected the same", argument,
       [](auto&, auto&, auto&, auto& o) { o.next_labels = 1; }},
      {"samples of the files: expected the same", argument, path("longer.bin")},
      {"hash of the files' sizes: expected the same", argument, path("byte.bin")},
      {"odd.bin: expected ids of 2 bytes, got 33 bytes", corrupt, path("odd.bin")},
      {"short.bin: expected at least one sample of 5 tokens, got 4", corrupt, path("short.bin")},
      {"empty.bin: expected at least one sample", corrupt, path("empty.bin")},
      {"absent.bin: cannot open", NXD_ERROR_IO, path("absent.bin")},
      {"expected a regular file, got a directory", NXD_ERROR_IO, path("")},
      {"/dev/null: expected a regular file, got a device", NXD_ERROR_IO,
       [](auto& paths, auto&, auto&, auto&) { paths[0] = "/dev/null"; }},
  };
}

// Each on one rank fails all of them, and the next call goes well.
void bad_loaders(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string in = static_cast<TempDir*>(user_data)->path();
  for (const Slip& slip : slips(in)) {
    std::vector<std::string> paths{in + "/good.bin"};
    int64_t batch = 2, length = kLength;
    nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
    if (rank == 1) slip.spoil(paths, batch, length, options);
    std::vector<const char*> names;
    for (const std::string& path : paths) names.push_back(path.c_str());
    nxd_data_loader_t* loader = nullptr;
    NXD_TEST_REFUSED(
        nxd_data_loader_create(ctx, names.data(), names.size(), batch, length, &options, &loader),
        slip.status, slip.message);
    NXD_TEST_CHECK(loader == nullptr);
    nxd_data_loader_destroy(open(ctx, {in + "/good.bin"}, 2, nullptr));
  }
  const std::string good = in + "/good.bin";
  // With a format that is given names tell of none.
  nxd_data_loader_options_t given = NXD_DATA_LOADER_OPTIONS_INIT;
  given.format = NXD_TOKEN_FORMAT_UINT16;
  nxd_data_loader_destroy(open(ctx, {good, in + "/good.txt"}, 2, &given));
  const char* one = good.c_str();
  nxd_data_loader_t* loader = nullptr;
  const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT;
  NXD_TEST_REFUSED(
      nxd_data_loader_create(ctx, rank == 1 ? nullptr : &one, 1, 1, 1, nullptr, &loader), argument,
      "paths: expected an array");
  const char* none = nullptr;
  NXD_TEST_REFUSED(nxd_data_loader_create(ctx, rank == 1 ? &none : &one, 1, 1, 1, nullptr, &loader),
                   argument, "paths[0]: expected a text, got NULL");
  NXD_TEST_REFUSED(
      nxd_data_loader_create(ctx, &one, 1, 1, 1, nullptr, rank == 1 ? nullptr : &loader), argument,
      "out_loader");
  NXD_TEST_REFUSED(nxd_data_loader_create(nullptr, &one, 1, 1, 1, nullptr, &loader), argument,
                   "ctx");
}

void test_bad_loaders(void**) {
  TempDir directory;
  const auto write = [&](const char* name, size_t bytes) {
    std::ofstream(directory.path() + "/" + name, std::ios::binary) << std::string(bytes, 'x');
  };
  write("good.bin", 40);
  write("good.txt", 40);
  write("large.bin", 1 << 17);
  write("byte.bin", 42);
  write("longer.bin", 50);
  write("odd.bin", 33);
  write("short.bin", 8);
  write("empty.bin", 0);
  nxd_test_run_ranks(3, 0, bad_loaders, &directory);
}

void bad_calls(nxd_context_t* ctx, int, int, void* user_data) {
  const auto& files = *static_cast<const Files*>(user_data);
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  nxd_data_loader_t* plain = open(ctx, files.paths, 2, nullptr);
  options.next_labels = 1;
  nxd_data_loader_t* labelled = open(ctx, files.paths, 2, &options);
  const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT;
  Tokens ids(64), labels(64);
  int64_t value = 0;
  NXD_TEST_REFUSED(nxd_data_loader_next(nullptr, ids.data(), nullptr, 10), argument, "loader");
  NXD_TEST_REFUSED(nxd_data_loader_next(plain, nullptr, nullptr, 10), argument, "ids");
  NXD_TEST_REFUSED(nxd_data_loader_next(plain, ids.data(), labels.data(), 10), argument,
                   "labels: expected NULL without next_labels");
  NXD_TEST_REFUSED(nxd_data_loader_next(labelled, ids.data(), nullptr, 10), argument,
                   "labels: expected room");
  for (const size_t count : {size_t{0}, size_t{11}, size_t{5}, SIZE_MAX}) {
    NXD_TEST_REFUSED(nxd_data_loader_next(plain, ids.data(), nullptr, count), argument, "count");
  }
  for (const int64_t position :
       {int64_t{-1}, (int64_t{1} << 53) + 1, INT64_MIN, int64_t{4} << 39}) {
    NXD_TEST_REFUSED(nxd_data_loader_set_position(plain, position), argument,
                     "position: expected 0 to 2^53");
  }
  NXD_TEST_REFUSED(nxd_data_loader_set_position(nullptr, 0), argument, "loader");
  NXD_TEST_REFUSED(nxd_data_loader_get_position(nullptr, &value), argument, "loader");
  NXD_TEST_REFUSED(nxd_data_loader_get_position(plain, nullptr), argument, "out_position");
  NXD_TEST_REFUSED(nxd_data_loader_get_sample_count(nullptr, &value), argument, "loader");
  NXD_TEST_REFUSED(nxd_data_loader_get_sample_count(plain, nullptr), argument, "out_count");
  NXD_TEST_REFUSED(nxd_data_loader_options_init(nullptr, sizeof options), argument, "options");
  NXD_TEST_CHECK(position_of(plain) == 0);
  NXD_TEST_OK(nxd_data_loader_set_position(plain, (int64_t{4} << 39) - 1));
  NXD_TEST_OK(nxd_data_loader_next(plain, ids.data(), nullptr, 10));
  nxd_data_loader_destroy(plain);
  nxd_data_loader_destroy(labelled);
  nxd_data_loader_destroy(nullptr);
}

// Positions are exact up to 2^53, where there are samples enough for the bound on epochs.
void last_position(nxd_context_t* ctx, int, int, void* user_data) {
  const auto& files = *static_cast<const Files*>(user_data);
  nxd_data_loader_t* loader = open(ctx, files.paths, 1, nullptr, 1);
  constexpr int64_t kLast = int64_t{1} << 53;
  NXD_TEST_OK(nxd_data_loader_set_position(loader, kLast));
  NXD_TEST_REFUSED(nxd_data_loader_set_position(loader, kLast + 1), NXD_ERROR_INVALID_ARGUMENT,
                   "position: expected 0 to 2^53");
  NXD_TEST_CHECK(position_of(loader) == kLast);
  nxd_data_loader_destroy(loader);
}

void test_bad_calls(void**) {
  Files many(kFormats[0], {(1 << 14) + 1});
  nxd_test_run_ranks(1, 0, last_position, &many);
  Files files(kFormats[0], {4 * kLength});
  nxd_test_run_ranks(1, 0, bad_calls, &files);
}

// An id that is none is found when it is read, not before; what came before it is given.
void bad_id(nxd_context_t* ctx, int, int, void* user_data) {
  const auto& path = *static_cast<const std::string*>(user_data);
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.vocab_size = 100;
  options.shuffle = NXD_TOGGLE_OFF;
  nxd_data_loader_t* loader = open(ctx, {path}, 1, &options);
  Tokens ids(2 * kLength);
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, kLength));
  NXD_TEST_CHECK(ids[kLength - 1] == 99);
  const char* message = ": token 7: expected an id below the vocabulary's 100, got 100";
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_REFUSED(nxd_data_loader_next(loader, ids.data(), nullptr, kLength), NXD_ERROR_CORRUPT,
                     message);
  }
  NXD_TEST_CHECK(position_of(loader) == 1);
  // Neither of two batches is taken.
  NXD_TEST_OK(nxd_data_loader_set_position(loader, 0));
  NXD_TEST_REFUSED(nxd_data_loader_next(loader, ids.data(), nullptr, 2 * kLength),
                   NXD_ERROR_CORRUPT, message);
  NXD_TEST_CHECK(position_of(loader) == 0);
  NXD_TEST_OK(nxd_data_loader_set_position(loader, 2));
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, kLength));
  nxd_data_loader_destroy(loader);
}

void test_bad_id(void**) {
  TempDir directory;
  std::string path = directory.path() + "/ids.bin";
  write_tokens(path, {0, 1, 2, 3, 99, 5, 6, 100, 8, 9, 10, 11, 12, 13, 14}, 2);
  nxd_test_run_ranks(1, 0, bad_id, &path);
}

// A file that is cut short gives an error, not a signal; when its bytes are back the loader goes
// on. One that is unlinked is read as before.
void changed_files(nxd_context_t* ctx, int, int, void* user_data) {
  const auto& files = *static_cast<const Files*>(user_data);
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.shuffle = NXD_TOGGLE_OFF;
  nxd_data_loader_t* loader = open(ctx, files.paths, 1, &options);
  Tokens ids(kLength);
  fs::resize_file(files.paths[0], 3 * kLength * 2);
  NXD_TEST_OK(nxd_data_loader_set_position(loader, 3));
  for (int i = 0; i < 2; ++i) {
    NXD_TEST_REFUSED(nxd_data_loader_next(loader, ids.data(), nullptr, kLength), NXD_ERROR_CORRUPT,
                     "found the file's end");
  }
  // Nothing is read ahead after an error, which would be that of a file that is whole by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  write_tokens(files.paths[0], files.contents[0], 2);
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, kLength));
  NXD_TEST_CHECK(ids == Tokens(files.contents[0].begin() + 3 * kLength, files.contents[0].end()));
  fs::remove(files.paths[0]);
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, kLength));
  NXD_TEST_CHECK(ids == Tokens(files.contents[0].begin(), files.contents[0].begin() + kLength));
  nxd_data_loader_destroy(loader);
}

void test_changed_files(void**) {
  Files files(kFormats[0], {4 * kLength});
  nxd_test_run_ranks(1, 0, changed_files, &files);
}

// A child has no reading thread: calls say so, and destroying is harmless.
void in_forked_child(nxd_context_t* ctx, int, int, void* user_data) {
  const auto& files = *static_cast<const Files*>(user_data);
  nxd_data_loader_t* loader = open(ctx, files.paths, 2, nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    Tokens ids(2 * kLength);
    const bool refused =
        nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()) == NXD_ERROR_INVALID_STATE;
    nxd_data_loader_destroy(loader);
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  NXD_TEST_CHECK(::waitpid(child, &status, 0) == child && status == 0);
  Tokens ids(2 * kLength);
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()));
  nxd_data_loader_destroy(loader);
}

void test_forked_child(void**) {
  Files files(kFormats[0], {4 * kLength});
  nxd_test_run_ranks(1, 0, in_forked_child, &files);
}

// Batches that are there need no other rank; a loader that is made does.
void lost_rank(nxd_context_t* ctx, int rank, int, void* user_data) {
  const auto& files = *static_cast<const Files*>(user_data);
  nxd_data_loader_t* loader = open(ctx, files.paths, 2, nullptr);
  const char* path = files.paths[0].c_str();
  nxd_data_loader_t* second = nullptr;
  if (rank == 0) NXD_TEST_OK(nxd_context_abort(ctx));
  const nxd_status_t status = rank == 0 ? NXD_ERROR_ABORTED : NXD_ERROR_PEER_LOST;
  NXD_TEST_REFUSED(nxd_data_loader_create(ctx, &path, 1, 2, kLength, nullptr, &second), status,
                   rank == 0 ? "aborted" : "rank 0");
  NXD_TEST_CHECK(second == nullptr);
  Tokens ids(2 * kLength);
  NXD_TEST_OK(nxd_data_loader_next(loader, ids.data(), nullptr, ids.size()));
  nxd_data_loader_destroy(loader);
}

void test_lost_rank(void**) {
  Files files(kFormats[0], {4 * kLength});
  nxd_test_run_ranks(3, 0, lost_rank, &files);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_forked_child), cmocka_unit_test(test_batches),
      cmocka_unit_test(test_layout),       cmocka_unit_test(test_epochs_and_positions),
      cmocka_unit_test(test_bad_loaders),  cmocka_unit_test(test_bad_calls),
      cmocka_unit_test(test_bad_id),       cmocka_unit_test(test_changed_files),
      cmocka_unit_test(test_lost_rank),    cmocka_unit_test(test_moves)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
