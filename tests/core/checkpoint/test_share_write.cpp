// Shares of ranks: files without padding and without copies, that any other layout reads as the
// whole they came from. Ranks are threads; each layout of 8 ranks or fewer writes what a table of
// shards names, and one thread reads it back.
#include "core/checkpoint/share_write.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "capi/handles.h"

#include "core/checkpoint/convert_weights.h"
#include "core/checkpoint/share_index.h"
#include "core/world/context.h"
#include "support/ranks.h"
#include "support/safetensors_file.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/told.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

namespace fs = std::filesystem;
using nxd::SafetensorsReader;
using nxd::ShardSpec;
using nxd::TensorShare;
using nxd_test::TempDir;
using Range = ShardSpec::Range;

struct Layout {
  int tensor, pipeline, data;
  bool data_shares;  // each data-parallel rank has a part of every shard
  int size() const { return tensor * pipeline * data; }
};

struct Row {
  const char* name;
  std::vector<int64_t> shape;
  // That of a rank among so many.
  ShardSpec (*shard)(const std::vector<int64_t>& shape, int rank, int size);
  int stage;  // among so many, the last one where there are fewer; -1: all have it
};

ShardSpec rows_of(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::split(shape, 0, rank, size);
}
ShardSpec columns_of(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::split(shape, 1, rank, size);
}
ShardSpec padded_rows(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::padded(shape, 0, (shape[0] + size - 1) / size * size, rank, size);
}
ShardSpec padded_columns(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::padded(shape, 1, (shape[1] + size - 1) / size * size, rank, size);
}
ShardSpec two_heads(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::heads(shape, 0, 2, rank, size);
}
// Three heads: several ranks have one in common, and none all.
ShardSpec three_heads(const std::vector<int64_t>& shape, int rank, int size) {
  const int64_t first = rank * 3 / size, end = (rank * 3 + 3 + size - 1) / size;
  return ShardSpec::ranges(shape, 0, {{first * 2, std::min<int64_t>(end, 3) * 2}}, shape[0]);
}
ShardSpec fused(const std::vector<int64_t>& shape, int rank, int size) {
  return ShardSpec::strided(shape, 0, rank, size, 3);
}
ShardSpec whole(const std::vector<int64_t>& shape, int, int) {
  return ShardSpec::replicated(shape);
}

const Row kRows[] = {{"rows", {8, 3}, rows_of, 0},
                     {"columns", {5, 8}, columns_of, 0},
                     {"vocabulary", {5, 3}, padded_rows, -1},
                     {"padded.columns", {3, 5}, padded_columns, 1},
                     {"kv", {6, 4}, two_heads, 1},
                     {"kv3", {6, 2}, three_heads, 0},
                     {"fused", {24, 2}, fused, 1},
                     {"deep", {2, 8, 3}, columns_of, 0},
                     {"norm", {7}, whole, 1},
                     {"scalar", {}, whole, 0},
                     {"empty", {0, 4}, whole, 0},
                     {"none", {8, 0}, rows_of, 1}};

float value_at(size_t row, int64_t index) {
  return static_cast<float>(row) * 1000 + static_cast<float>(index);
}

int64_t elements_of(const Row& row) { return ShardSpec::replicated(row.shape).global_size(); }

// A rank's shares, with padding that is no zero.
struct Brought {
  Brought(const Layout& layout, int tensor, int pipeline, int data) {
    for (size_t r = 0; r < std::size(kRows); ++r) {
      const Row& row = kRows[r];
      const int stage = std::min(row.stage, layout.pipeline - 1);
      if (row.stage >= 0 && stage != pipeline) continue;
      if (data != 0 && !layout.data_shares) continue;
      const ShardSpec shard = row.shard(row.shape, tensor, layout.tensor);
      std::vector<float> local(static_cast<size_t>(shard.local_size()), -1);
      shard.for_each_run([&](int64_t global, int64_t at, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          local[static_cast<size_t>(at + i)] = value_at(r, global + i);
        }
      });
      const int64_t parts = layout.data_shares ? layout.data : 1;
      const int64_t begin = shard.local_size() * data / parts;
      const int64_t end = shard.local_size() * (data + 1) / parts;
      values.emplace_back(local.begin() + begin, local.begin() + end);
      shares.push_back(
          {{row.name, NXD_DTYPE_F32, row.shape}, shard, begin, end - begin, values.back().data()});
    }
  }
  std::vector<std::vector<float>> values;
  std::vector<TensorShare> shares;
};

void write_as(const Layout& layout, const std::string& path) {
  struct Given {
    const Layout& layout;
    const std::string& path;
  } given{layout, path};
  nxd_test_run_ranks(
      layout.size(), 0,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        const auto& [made, to] = *static_cast<Given*>(user_data);
        nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
        options.tensor_parallel_size = made.tensor;
        options.pipeline_parallel_size = made.pipeline;
        if (!NXD_TEST_OK(nxd_init_model_parallel(ctx, &options))) return;
        const auto parallel = ctx->value->parallel();
        const auto group = [&](nxd_axis_t axis) { return parallel->group(axis).get(); };
        const int data = parallel->rank(NXD_AXIS_DATA);
        if (data != 0 && !made.data_shares) return;
        const Brought brought(made, parallel->rank(NXD_AXIS_TENSOR),
                              parallel->rank(NXD_AXIS_PIPELINE), data);
        const std::string stage = "stage " + std::to_string(parallel->rank(NXD_AXIS_PIPELINE));
        const nxd_test::Told told = nxd_test::told_by([&] {
          nxd::write_shares(
              to,
              {group(NXD_AXIS_TENSOR), made.data_shares ? group(NXD_AXIS_DATA) : nullptr,
               group(NXD_AXIS_PIPELINE), rank},
              brought.shares, {{stage, "there"}});
        });
        if (told.status != NXD_OK) {
          nxd_test_fail(__FILE__, __LINE__, "rank %d: %s", rank, told.message.c_str());
        }
      },
      &given);
}

void check_slices(const SafetensorsReader& reader) {
  for (size_t r = 0; r < std::size(kRows); ++r) {
    const Row& row = kRows[r];
    for (const int size : {1, 2, 4}) {
      for (int rank = 0; rank < size; ++rank) {
        const ShardSpec shard = row.shard(row.shape, rank, size);
        const auto count = static_cast<size_t>(shard.local_size());
        std::vector<float> expected(count, 0), got(count, -7);
        shard.for_each_run([&](int64_t global, int64_t local, int64_t run) {
          for (int64_t i = 0; i < run; ++i) {
            expected[static_cast<size_t>(local + i)] = value_at(r, global + i);
          }
        });
        reader.read_slice(row.name, shard, got.data(), NXD_DTYPE_F32);
        assert_true(got == expected);
        std::vector<double> wide(count, -7);
        reader.read_slice(row.name, shard, wide.data(), NXD_DTYPE_F64);
        assert_true(wide == std::vector<double>(expected.begin(), expected.end()));
        for (size_t begin = 0; begin < count; begin += 3) {
          const size_t n = std::min<size_t>(5, count - begin);
          std::vector<float> span(n, -7);
          reader.read_span(row.name, shard, static_cast<int64_t>(begin), static_cast<int64_t>(n),
                           span.data(), NXD_DTYPE_F32);
          assert_true(std::equal(span.begin(), span.end(),
                                 expected.begin() + static_cast<std::ptrdiff_t>(begin)));
        }
      }
    }
    // Bytes of the whole, from any element on.
    const auto all = static_cast<size_t>(elements_of(row));
    for (size_t begin = 0; begin < all; begin += 2) {
      std::vector<float> bytes(std::min<size_t>(7, all - begin));
      reader.read_bytes(reader.tensor(row.name), begin * 4, bytes.data(), bytes.size() * 4);
      for (size_t i = 0; i < bytes.size(); ++i) {
        assert_true(bytes[i] == value_at(r, static_cast<int64_t>(begin + i)));
      }
    }
  }
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Elements in files are those of the tensors: no padding, and no second copy but for the heads that
// ranks share in part.
void check_volume(const std::string& directory) {
  int64_t stored = 0, expected = 0;
  for (const std::string& name : files_in(directory)) {
    if (!name.ends_with(".safetensors")) continue;
    const SafetensorsReader reader(directory + "/" + name);
    for (const auto& [tensor, entry] : reader.tensors()) {
      if (tensor != "kv3") stored += static_cast<int64_t>((entry.end - entry.begin) / 4);
    }
  }
  for (const Row& row : kRows) {
    if (std::string(row.name) != "kv3") expected += elements_of(row);
  }
  assert_int_equal(stored, expected);
}

void test_layouts(void**) {
  for (const Layout& layout :
       {Layout{1, 1, 1, false}, Layout{2, 1, 1, false}, Layout{4, 1, 1, false},
        Layout{1, 2, 1, false}, Layout{2, 2, 1, false}, Layout{4, 2, 1, false},
        Layout{2, 2, 2, false}, Layout{1, 1, 3, true}, Layout{2, 1, 2, true}, Layout{2, 2, 2, true},
        Layout{4, 1, 2, true}}) {
    const TempDir directory;
    const std::string path = directory.path() + "/model.safetensors";
    write_as(layout, path);
    const bool plain = layout.size() == 1;
    assert_true(fs::exists(path) == plain);
    assert_true(fs::exists(path + ".shares.json") != plain);
    const SafetensorsReader reader(plain ? path : path + ".shares.json");
    assert_int_equal(reader.tensors().size(), std::size(kRows));
    assert_int_equal(reader.metadata().size(), static_cast<size_t>(layout.pipeline));
    check_slices(reader);
    check_slices(SafetensorsReader(directory.path()));  // found in it
    if (layout.data == 3) {  // larger than a header may be, as an index of thousands of ranks is
      const size_t spaces = kSanitized ? 100'000 : 100'000'001;
      std::ofstream(path + ".shares.json", std::ios::app) << std::string(spaces, ' ');
      check_slices(SafetensorsReader(directory.path()));
    }
    check_volume(directory.path());
    // Converted, they are one file of whole tensors.
    const std::string one = directory.path() + "/one.safetensors";
    nxd::convert_weights(directory.path(), one, {}, {});
    check_slices(SafetensorsReader(one));
    if (layout.tensor == 2 && layout.size() == 2) {
      assert_true(fs::exists(directory.path() + "/model.share-00002-of-00002.safetensors"));
    }
  }
}

// A tensor large enough that its runs are read in more than one piece.
void test_large(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/model.safetensors";
  struct Given {
    std::string path;
  } given{path};
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        const ShardSpec shard = ShardSpec::split({300, 1000}, 1, rank, 2);
        std::vector<float> local(static_cast<size_t>(shard.local_size()));
        shard.for_each_run([&](int64_t global, int64_t at, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            local[static_cast<size_t>(at + i)] = value_at(0, global + i);
          }
        });
        nxd::write_shares(
            static_cast<Given*>(user_data)->path,
            {ctx->value->parallel()->group(NXD_AXIS_TENSOR).get(), nullptr, nullptr, rank},
            {{{"w", NXD_DTYPE_F32, {300, 1000}}, shard, 0, shard.local_size(), local.data()}}, {});
      },
      &given);
  const SafetensorsReader reader(path + ".shares.json");
  std::vector<float> f(300000, -1);
  reader.read_slice("w", ShardSpec::replicated({300, 1000}), f.data(), NXD_DTYPE_F32);
  for (size_t i = 0; i < f.size(); ++i) assert_true(f[i] == value_at(0, static_cast<int64_t>(i)));
  const ShardSpec other = ShardSpec::split({300, 1000}, 0, 1, 3);
  std::vector<double> d(100000, -1);
  reader.read_slice("w", other, d.data(), NXD_DTYPE_F64);
  for (size_t i = 0; i < d.size(); ++i) {
    assert_true(d[i] == static_cast<double>(value_at(0, static_cast<int64_t>(100000 + i))));
  }
}

// Shares of more ranks than a process may have files at a time.
void test_many_files(void**) {
  constexpr int64_t kFiles = 320;
  const TempDir directory;
  const std::string path = directory.path() + "/model.safetensors";
  nxd::ShareIndex index;
  nxd::ShareIndex::Tensor& tensor = index.tensors["w"];
  tensor.shape = {kFiles};
  tensor.shards.push_back({});
  for (int64_t i = 0; i < kFiles; ++i) {
    index.files.push_back("share-" + std::to_string(i));
    tensor.shards[0].parts.push_back({static_cast<size_t>(i), i, 1});
    const auto value = static_cast<float>(i);
    nxd_test::write_safetensors(directory.path() + "/" + index.files.back(),
                                {{"w", NXD_DTYPE_F32, {1}, &value}}, {});
  }
  std::ofstream(path + ".shares.json") << nxd::share_index_text(index);
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const struct rlimit low { 300, limit.rlim_max };
  ::setrlimit(RLIMIT_NOFILE, &low);
  {
    const SafetensorsReader reader(path + ".shares.json");
    std::vector<float> values(kFiles, -1);
    const auto read = [&] {
      reader.read_slice("w", ShardSpec::replicated({kFiles}), values.data(), NXD_DTYPE_F32);
    };
    read();
    for (int64_t i = 0; i < kFiles; ++i) {
      assert_true(values[static_cast<size_t>(i)] == static_cast<float>(i));
    }
    // One that had to be opened again, and is another by then.
    const float other = -1;
    nxd_test::write_safetensors(directory.path() + "/share-310",
                                {{"w", NXD_DTYPE_F32, {1}, &other}}, {});
    const nxd_test::Told told = nxd_test::told_by(read);
    assert_int_equal(told.status, NXD_ERROR_CORRUPT);
    assert_true(told.message.find("share-310") != std::string::npos);
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Ranks that have a tensor not alike, or not at all, hear of it together.
void test_rejections(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/model.safetensors";
  struct Given {
    std::string path;
  } given{path};
  assert_int_equal(::mkfifo((path + ".pipe.shares.json").c_str(), 0600), 0);
  nxd_test_run_ranks(
      2, 2,
      [](nxd_context_t* ctx, int rank, int, void* user_data) {
        const std::string& to = static_cast<Given*>(user_data)->path;
        nxd::ProcessGroup* group = ctx->value->parallel()->group(NXD_AXIS_TENSOR).get();
        const float values[8] = {};
        const auto write = [&](const std::vector<int64_t>& shape, const ShardSpec& shard,
                               const std::string& where) {
          return nxd_test::told_by([&] {
            nxd::write_shares(where, {group, nullptr, nullptr, rank},
                              {{{"w", NXD_DTYPE_F32, shape}, shard, 0, shard.local_size(), values}},
                              {});
          });
        };
        const std::vector<int64_t> shape = {rank == 0 ? 4 : 2, 2};
        auto told = write(shape, ShardSpec::replicated(shape), to);
        NXD_TEST_CHECK(told.status == NXD_ERROR_INVALID_ARGUMENT);
        NXD_TEST_CHECK(told.message.find("of shape [2, 2] in stage") != std::string::npos);
        told = write({4, 2}, ShardSpec::split({4, 2}, rank, 0, 2), to);
        NXD_TEST_CHECK(told.message.find("one sharded dimension") != std::string::npos);
        told = write({4, 2}, ShardSpec::split({4, 2}, 0, 0, 2), to);
        NXD_TEST_CHECK(told.status == NXD_ERROR_CORRUPT);
        NXD_TEST_CHECK(told.message.find("no shard has index 2") != std::string::npos);
        told = write({4, 2}, ShardSpec::split({4, 2}, 0, rank, 2), to + "/none/x");
        NXD_TEST_CHECK(told.status == NXD_ERROR_IO);
        told = write({4, 2}, ShardSpec::split({4, 2}, 0, rank, 2), to + ".pipe");
        NXD_TEST_CHECK(told.status == NXD_ERROR_IO);
        NXD_TEST_CHECK(told.message.find("expected a regular file, got a FIFO") !=
                       std::string::npos);
        told = write({4, 2}, ShardSpec::split({4, 2}, 0, rank, 2), to);
        NXD_TEST_CHECK(told.status == NXD_OK);
      },
      &given);
  assert_true(fs::exists(path + ".shares.json"));
  // Where the index could not be, no share was written either.
  assert_int_equal(files_in(directory.path()).size(), 4);
}

void replace(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream in(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(in), {}};
  const size_t at = content.find(from);
  assert_true(at != std::string::npos);
  content.replace(at, from.size(), to);
  std::ofstream(path, std::ios::binary) << content;
}

// An index that is not as its files are.
void test_damage(void**) {
  const struct {
    const char *file, *from, *to, *part;
  } cases[] = {
      {"model.safetensors.shares.json", "\"nxd-shares\"", "\"other\"", "format"},
      {"model.safetensors.shares.json", "\"version\":1", "\"version\":2", "version"},
      {"model.safetensors.shares.json", "model.share-00001", "../odel.share-001", "names of files"},
      {"model.safetensors.shares.json", "model.share-00001", "m\\n", "names of files"},
      {"model.safetensors.shares.json", "model.share-00001", "model.share-00003", "No such file"},
      {"model.safetensors.shares.json", "model.share-00001", "model.share-00002", "each file once"},
      {"model.safetensors.shares.json", "\"norm\":{", "\"nonn\":{", "expected a part of it"},
      {"model.safetensors.shares.json", "\"shape\":[7]", "\"shape\":[8]", "8 elements"},
      {"model.safetensors.shares.json", "[[0,4]]", "[[0,3]]", "elements"},
      {"model.safetensors.shares.json", "[[0,4]]", "[[0,9]]", "within 0 to 8"},
      {"model.safetensors.shares.json", "\"parts\":[[0,", "\"parts\":[[7,", "file, begin and"},
      {"model.safetensors.shares.json", "\"dim\":1", "\"dim\":2", "dim: expected"},
      {"model.share-00001-of-00002.safetensors", "\"norm\"", "\"nonn\"", "expected a part of it"},
      {"model.share-00001-of-00002.safetensors", "[5,4]", "[4,4]", "bytes for shape"}};
  for (const auto& c : cases) {
    const TempDir directory;
    const std::string path = directory.path() + "/model.safetensors";
    write_as({2, 1, 1, false}, path);
    replace(directory.path() + "/" + c.file, c.from, c.to);
    const nxd_test::Told told =
        nxd_test::told_by([&] { SafetensorsReader reader(directory.path()); });
    const bool unsupported = std::string(c.part) == "version";
    if (told.status != (unsupported ? NXD_ERROR_UNSUPPORTED : NXD_ERROR_CORRUPT) &&
        told.status != NXD_ERROR_IO) {
      fail_msg("%s: got %d \"%s\"", c.to, told.status, told.message.c_str());
    }
    if (told.message.find(c.part) == std::string::npos) {
      fail_msg("%s: expected \"%s\", got \"%s\"", c.to, c.part, told.message.c_str());
    }
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts), cmocka_unit_test(test_large),
                                     cmocka_unit_test(test_many_files),
                                     cmocka_unit_test(test_rejections),
                                     cmocka_unit_test(test_damage)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
