// Files of a caller's tensors and texts: any dtype, shape and order of elements, the recorded
// device, the memory that it takes; which ranks write, what they disagree on, and what fails.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "support/device.h"
#include "support/handles.h"
#include "support/temp_dir.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

namespace fs = std::filesystem;
constexpr nxd_status_t kArgument = NXD_ERROR_INVALID_ARGUMENT;

using File = std::unique_ptr<nxd_serialization_t, Destroyer<nxd_serialization_destroy>>;
using Save = decltype(&nxd_save);

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Named {
  std::vector<const char*> names{};
  std::vector<nxd_tensor_t*> handles{};
  std::vector<Tensor> kept{};

  void add(const char* name, Tensor tensor) {
    names.push_back(name);
    handles.push_back(tensor.get());
    kept.push_back(std::move(tensor));
  }
};

nxd_status_t save(Save function, nxd_context_t* ctx, const std::string& path, const Named& named,
                  const nxd_save_options_t* options = nullptr) {
  return function(ctx, path.c_str(), named.names.data(), named.handles.data(), named.names.size(),
                  options);
}

File load(const std::string& path) {
  nxd_serialization_t* out = nullptr;
  NXD_TEST_OK(nxd_serialization_load(path.c_str(), &out));
  return File(out);
}

Tensor read(const File& file, const char* name, nxd_device_t device = NXD_DEVICE_CPU) {
  Tensor tensor;
  NXD_TEST_OK(nxd_serialization_create_tensor(file.get(), name, device, tensor.out()));
  return tensor;
}

Tensor zeros(const std::vector<int64_t>& shape, nxd_dtype_t dtype) {
  Tensor tensor;
  NXD_TEST_OK(nxd_tensor_create(shape.data(), static_cast<int32_t>(shape.size()), dtype,
                                NXD_DEVICE_CPU, tensor.out()));
  return tensor;
}

Tensor on_device(const Tensor& x) {
  Tensor moved;
  NXD_TEST_OK(nxd_tensor_to_device(x.get(), NXD_DEVICE_XLA, moved.out()));
  return moved;
}

Tensor transposed(const Tensor& x) {
  return op("transpose", "int", {{"self", x}, {"dim0", 0}, {"dim1", 1}});
}

// ---- One rank.

long most_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Before anything else of this process: what it has taken once, it has.
void test_memory(void**) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::puts(
      "skip: memory of a serialization: sanitizers keep memory of their own; build without them");
  skip();
#endif
  constexpr long kMiB = 8;
  constexpr int kTensors = 16;
  const TempDir directory;
  const std::string path = directory.path() + "/a.safetensors";
  const pid_t child = ::fork();
  if (child == 0) {
    nxd_context_t* ctx = nullptr;
    if (nxd_context_create(nullptr, &ctx) != NXD_OK) ::_exit(2);
    const char* const names[kTensors] = {"0", "1", "2", "3", "4", "5", "6", "7",
                                         "8", "9", "a", "b", "c", "d", "e", "f"};
    Named named;
    const Tensor row = wave({1, 1024}, NXD_DTYPE_F32, 1);
    for (const char* name : names) {  // of one row each, until they are written
      named.add(name,
                op("expand", {{"self", row}, {"size", std::vector<int64_t>{kMiB << 8, 1024}}}));
    }
    const long before = most_kib();
    if (save(nxd_serialization_save, ctx, path, named) != NXD_OK) ::_exit(3);
    const long streamed = most_kib();
    if (save(nxd_save, ctx, path, named) != NXD_OK) ::_exit(4);
    const long at_once = most_kib();
    const long copied = most_kib();
    const File file = load(path);
    for (const char* name : names) {
      if (read(file, name).count() != kMiB << 18) ::_exit(5);
    }
    std::printf("%d tensors of %ld MiB: %ld KiB streamed, %ld at once, %ld to read them\n",
                kTensors, kMiB, streamed - before, at_once - before, most_kib() - copied);
    std::fflush(stdout);
    const bool good =
        streamed - before < 3 * kMiB * 1024 && at_once - before > (kTensors - 2) * kMiB * 1024;
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// The format, read without this library: a header's length, JSON, then elements.
void check_header(const std::string& path) {
  const std::string bytes = bytes_of(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  assert_true(header["__metadata__"] == (nlohmann::json{{"epoch", "3"}, {"", "none"}}));
  assert_true(header["turned"]["shape"] == (nlohmann::json{3, 2}));
  assert_true(header["turned"]["dtype"] == "F64");
  const size_t begin = 8 + length + header["turned"]["data_offsets"][0].get<size_t>();
  const double want[] = {0, 3, 1, 4, 2, 5};
  assert_memory_equal(bytes.data() + begin, want, sizeof want);
  assert_true(header["half"]["dtype"] == "BF16" && header["count"]["dtype"] == "I64");
  assert_true(header["none"]["shape"] == (nlohmann::json{0, 4}));
}

void one_rank(nxd_context_t* ctx, int, int, void* user_data) {
  const std::string directory = *static_cast<std::string*>(user_data);
  Named named;
  named.add("turned", transposed(from_doubles({0, 1, 2, 3, 4, 5}, {2, 3})));
  named.add("half", to(wave({5, 3}, NXD_DTYPE_F32, 1), NXD_DTYPE_BF16));
  named.add("count", from_ints({7}, {}));
  named.add("none", zeros({0, 4}, NXD_DTYPE_F32));
  named.add("flags", op("gt", "Scalar", {{"self", wave({9}, NXD_DTYPE_F32, 2)}, {"other", 0.0}}));
  named.add("trained", leaf(wave({4}, NXD_DTYPE_F32, 3), NXD_DTYPE_F32, true));
  named.add("ways/to.name it", wave({2}, NXD_DTYPE_F32, 4));
  // Recorded, and not yet computed.
  const Tensor x = on_device(wave({3, 4}, NXD_DTYPE_F32, 5));
  named.add("recorded",
            transposed(op("add", "Tensor", {{"self", x}, {"other", x}, {"alpha", 0.5}})));
  const char *const keys[] = {"epoch", ""}, *const values_of[] = {"3", "none"};
  nxd_save_options_t options = NXD_SAVE_OPTIONS_INIT;
  options.keys = keys;
  options.values = values_of;
  options.num_values = 2;
  const std::string path = directory + "/a", other = directory + "/b";
  NXD_TEST_OK(save(nxd_serialization_save, ctx, path, named, &options));
  NXD_TEST_OK(save(nxd_save, ctx, other, named, &options));
  NXD_TEST_CHECK(bytes_of(path) == bytes_of(other));
  const File file = load(path);
  size_t count = 0;
  NXD_TEST_OK(nxd_serialization_get_count(file.get(), &count));
  NXD_TEST_CHECK(count == named.names.size());
  std::vector<std::string> sorted(named.names.begin(), named.names.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    NXD_TEST_OK(nxd_serialization_get_name(file.get(), i, &name));
    NXD_TEST_CHECK(name && sorted[i] == name);
  }
  NXD_TEST_OK(nxd_serialization_get_value_count(file.get(), &count));
  NXD_TEST_CHECK(count == 2);
  const char *key = nullptr, *value = nullptr;
  NXD_TEST_OK(nxd_serialization_get_value(file.get(), 0, nullptr, &value));
  NXD_TEST_CHECK(value && std::string(value) == "none");
  NXD_TEST_OK(nxd_serialization_get_value(file.get(), 1, &key, &value));
  NXD_TEST_CHECK(key && std::string(key) == "epoch" && std::string(value) == "3");
  // A file that is replaced is still read as it was.
  Named replaced;
  replaced.add("turned", zeros({1}, NXD_DTYPE_F32));
  NXD_TEST_OK(save(nxd_save, ctx, path, replaced));
  for (size_t i = 0; i < named.names.size(); ++i) {
    Tensor own;
    NXD_TEST_OK(nxd_tensor_to_device(named.handles[i], NXD_DEVICE_CPU, own.out()));
    const Tensor again = read(file, named.names[i]);
    NXD_TEST_CHECK(again.dtype() == own.dtype() && max_difference(again, own) == 0);
  }
  const Tensor moved = read(file, "trained", NXD_DEVICE_XLA);
  nxd_device_t device = NXD_DEVICE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_device(moved.get(), &device));
  NXD_TEST_CHECK(device == NXD_DEVICE_XLA);
  NXD_TEST_CHECK(values(moved) == values(read(file, "trained")));
  // A module's parameters are among the readers of such files.
  NXD_TEST_OK(save(nxd_save, ctx, path, {}));
  NXD_TEST_CHECK(load(path) != nullptr);
}

void test_one_rank(void**) {
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(1, 1, one_rank, &path);
  check_header(path + "/b");
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(path)) files += entry.exists() ? 1 : 0;
  assert_int_equal(files, 2);  // nothing half-written beside them
}

// ---- Several.

void several_ranks(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const std::string directory = *static_cast<std::string*>(user_data);
  const std::string same = directory + "/same", own = directory + "/" + std::to_string(rank);
  for (const Save function : {nxd_save, nxd_serialization_save}) {
    Named named;
    named.add("rank", from_ints({rank}, {1}));
    // The first rank's, and there for all when the call returns.
    NXD_TEST_OK(save(function, ctx, same, named));
    NXD_TEST_CHECK(values(read(load(same), "rank")) == std::vector<double>{0});
    nxd_save_options_t options = NXD_SAVE_OPTIONS_INIT;
    options.master_only = NXD_TOGGLE_OFF;
    NXD_TEST_OK(save(function, ctx, own, named, &options));
    for (int other = 0; other < size; ++other) {
      const File file = load(directory + "/" + std::to_string(other));
      NXD_TEST_CHECK(values(read(file, "rank")) == std::vector<double>(1, other));
    }
    // Ranks that differ.
    NXD_TEST_REFUSED(save(function, ctx, same, named, &options), kArgument, "one of its own");
    // Other spellings of one file.
    const std::string spelled =
        directory + std::string(static_cast<size_t>(rank) + 1, '/') + "./all";
    NXD_TEST_REFUSED(save(function, ctx, spelled, named, &options), kArgument, "one of its own");
    NXD_TEST_OK(save(function, ctx, rank == 0 ? same : directory + "//same", named));
    NXD_TEST_REFUSED(save(function, ctx, own, named, rank == 1 ? &options : nullptr), kArgument,
                     "the same master_only");
    options.each_host = 1;
    NXD_TEST_REFUSED(save(function, ctx, own, named, &options), kArgument, "each_host");
    options.master_only = NXD_TOGGLE_ON;
    NXD_TEST_OK(save(function, ctx, directory + "/hosts", named, &options));
    NXD_TEST_CHECK(values(read(load(directory + "/hosts"), "rank")) == std::vector<double>(1, 0));
    // One rank alone is wrong, or cannot write.
    const std::string nowhere = directory + "/none/a";
    NXD_TEST_REFUSED(function(ctx, rank == 1 ? nullptr : same.c_str(), named.names.data(),
                              named.handles.data(), 1, nullptr),
                     kArgument, "path");
    NXD_TEST_REFUSED(function(ctx, same.c_str(), rank == 1 ? nullptr : named.names.data(),
                              named.handles.data(), 1, nullptr),
                     kArgument, "names");
    NXD_TEST_REFUSED(save(function, ctx, nowhere, named), NXD_ERROR_IO, "none");
    NXD_TEST_REFUSED(save(function, ctx, rank == 1 ? nowhere : same, named), kArgument,
                     "path: expected the same on all ranks");
    // Also on a rank that does not write.
    Named wrong = named;
    if (rank == 1) wrong.add("rank", from_ints({1}, {1}));
    NXD_TEST_REFUSED(save(function, ctx, same, wrong), kArgument, "taken");
    Named twice = named;
    if (rank == 0) twice.add("rank", from_ints({1}, {1}));
    NXD_TEST_REFUSED(save(function, ctx, same, twice), kArgument, "taken");
    Named reserved;
    reserved.add(rank == 0 ? "__metadata__" : "a", from_ints({1}, {1}));
    NXD_TEST_REFUSED(save(function, ctx, same, reserved), kArgument, "taken");
    Named meta;
    Tensor empty;
    const int64_t extent = 2;
    NXD_TEST_OK(nxd_tensor_create(&extent, 1, NXD_DTYPE_F32,
                                  rank == 1 ? NXD_DEVICE_META : NXD_DEVICE_CPU, empty.out()));
    meta.add("meta", empty);
    NXD_TEST_REFUSED(save(function, ctx, same, meta), kArgument, "meta device");
    NXD_TEST_CHECK(values(read(load(same), "rank")) == std::vector<double>{0});
  }
}

void test_several_ranks(void**) {
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(3, 0, several_ranks, &path);
}

// One rank writes, and all meet in what was recorded, also where one is wrong.
void recorded_ranks(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string path = *static_cast<std::string*>(user_data) + "/recorded";
  const auto sum_of = [&](int phase) {
    Tensor sum;
    const Tensor x = on_device(wave({4}, NXD_DTYPE_F32, phase));
    NXD_TEST_OK(nxd_reduce_from_tensor_region(ctx, x.get(), sum.out()));
    return sum;
  };
  for (const Save function : {nxd_save, nxd_serialization_save}) {
    Named named;
    named.add("sum", sum_of(1));
    NXD_TEST_OK(save(function, ctx, path, named));
    std::vector<double> want = values(wave({4}, NXD_DTYPE_F32, 1));
    for (double& each : want) each *= 2;
    NXD_TEST_CHECK(values(read(load(path), "sum")) == want);
    Named wrong;
    wrong.add(rank == 1 ? "__metadata__" : "sum", sum_of(2));
    NXD_TEST_REFUSED(save(function, ctx, path, wrong), kArgument, "taken");
    NXD_TEST_OK(save(function, ctx, path, {}));
  }
}

void test_recorded_ranks(void**) {
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(2, 2, recorded_ranks, &path);
}

void full_disk(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string path = *static_cast<std::string*>(user_data) + "/a";
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  Named small, large;
  small.add("a", zeros({4}, NXD_DTYPE_F32));
  large.add("a", zeros({4000}, NXD_DTYPE_F32));
  NXD_TEST_OK(save(nxd_save, ctx, path, small));
  const std::string before = bytes_of(path);
  struct rlimit limit {};
  const auto set = [&](rlim_t bytes) {
    NXD_TEST_OK(nxd_barrier(world));
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
    NXD_TEST_OK(nxd_barrier(world));
  };
  set(1000);
  for (const Save function : {nxd_save, nxd_serialization_save}) {
    NXD_TEST_REFUSED(save(function, ctx, path, large), NXD_ERROR_IO, "File too large");
    NXD_TEST_CHECK(bytes_of(path) == before);
  }
  set(RLIM_INFINITY);
  NXD_TEST_OK(save(nxd_save, ctx, path, large));
}

void test_full_disk(void**) {
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(2, 0, full_disk, &path);
  ::signal(SIGXFSZ, old);
}

void lost(nxd_context_t* ctx, int rank, int, void* user_data) {
  const std::string path = *static_cast<std::string*>(user_data) + "/a";
  Named named;
  named.add("a", zeros({4}, NXD_DTYPE_F32));
  NXD_TEST_OK(save(nxd_save, ctx, path, named));
  if (rank == 1) {
    NXD_TEST_OK(nxd_context_abort(ctx));
    return;
  }
  NXD_TEST_REFUSED(save(nxd_save, ctx, path, named), NXD_ERROR_PEER_LOST, "rank 1");
}

void test_lost_rank(void**) {
  const TempDir directory;
  std::string path = directory.path();
  nxd_test_run_ranks(3, 0, lost, &path);
}

// ---- Bad calls of the functions that read.

void test_bad_reads(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/a", absent = directory.path() + "/absent";
  std::string used = path;
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void* to) {
        Named named;
        named.add("layer.weight", zeros({2}, NXD_DTYPE_F32));
        NXD_TEST_OK(save(nxd_save, ctx, *static_cast<std::string*>(to), named));
        nxd_save_options_t options = NXD_SAVE_OPTIONS_INIT;
        const char *const twice[] = {"a", "a"}, *const null[] = {"a", nullptr};
        options.keys = twice;
        options.values = twice;
        options.num_values = 2;
        NXD_TEST_REFUSED(save(nxd_save, ctx, *static_cast<std::string*>(to), named, &options),
                         kArgument, "each key once");
        options.values = null;
        NXD_TEST_REFUSED(save(nxd_save, ctx, *static_cast<std::string*>(to), named, &options),
                         kArgument, "values[1]");
        options.values = nullptr;
        NXD_TEST_REFUSED(save(nxd_save, ctx, *static_cast<std::string*>(to), named, &options),
                         kArgument, "values");
        named.handles[0] = nullptr;
        NXD_TEST_REFUSED(save(nxd_save, ctx, *static_cast<std::string*>(to), named), kArgument,
                         "tensors[0]");
        NXD_TEST_REFUSED(save(nxd_save, nullptr, *static_cast<std::string*>(to), named), kArgument,
                         "ctx");
      },
      &used);
  nxd_save_options_t filled;
  const nxd_save_options_t defaults = NXD_SAVE_OPTIONS_INIT;
  NXD_TEST_OK(nxd_save_options_init(&filled, sizeof filled));
  assert_memory_equal(&filled, &defaults, sizeof filled);
  NXD_TEST_REFUSED(nxd_save_options_init(nullptr, sizeof filled), kArgument, "options");
  nxd_serialization_t* out = nullptr;
  NXD_TEST_REFUSED(nxd_serialization_load(nullptr, &out), kArgument, "path");
  NXD_TEST_REFUSED(nxd_serialization_load(path.c_str(), nullptr), kArgument, "out_serialization");
  NXD_TEST_REFUSED(nxd_serialization_load(absent.c_str(), &out), NXD_ERROR_IO, "absent");
  assert_null(out);
  std::ofstream(absent) << "{\"a\": 1}        ";
  NXD_TEST_REFUSED(nxd_serialization_load(absent.c_str(), &out), NXD_ERROR_CORRUPT, "absent");
  const File file = load(path);
  Tensor tensor;
  NXD_TEST_REFUSED(
      nxd_serialization_create_tensor(file.get(), "layer.weigth", NXD_DEVICE_CPU, tensor.out()),
      kArgument, "near names: layer.weight");
  NXD_TEST_REFUSED(
      nxd_serialization_create_tensor(file.get(), "layer.weight", NXD_DEVICE_META, tensor.out()),
      kArgument, "device");
  NXD_TEST_REFUSED(
      nxd_serialization_create_tensor(file.get(), nullptr, NXD_DEVICE_CPU, tensor.out()), kArgument,
      "name");
  assert_null(tensor.get());
  // A file that became shorter since it was opened.
  fs::resize_file(path, fs::file_size(path) - 1);
  NXD_TEST_REFUSED(
      nxd_serialization_create_tensor(file.get(), "layer.weight", NXD_DEVICE_CPU, tensor.out()),
      NXD_ERROR_CORRUPT, "");
  const char* name = nullptr;
  size_t count = 0;
  NXD_TEST_REFUSED(nxd_serialization_get_name(file.get(), 1, &name), kArgument, "index");
  NXD_TEST_REFUSED(nxd_serialization_get_value(file.get(), 0, &name, nullptr), kArgument, "index");
  NXD_TEST_REFUSED(nxd_serialization_get_count(nullptr, &count), kArgument, "serialization");
  NXD_TEST_REFUSED(nxd_serialization_get_value_count(file.get(), nullptr), kArgument, "out_count");
  nxd_serialization_destroy(nullptr);
}

// A name that is there is looked up; one that is not is compared around the diagonal alone.
void test_long_name(void**) {
  static const TempDir directory;
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        const std::string path = directory.path() + "/long", name(1 << 20, 'n');
        Named named;
        named.add(name.c_str(), zeros({3}, NXD_DTYPE_F32));
        NXD_TEST_OK(save(nxd_save, ctx, path, named));
        const File file = load(path);
        NXD_TEST_CHECK(values(read(file, name.c_str())) == std::vector<double>(3));
        Tensor absent;
        NXD_TEST_REFUSED(nxd_serialization_create_tensor(file.get(), name.c_str() + 1,
                                                         NXD_DEVICE_CPU, absent.out()),
                         kArgument, "near names: nnn");
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),         cmocka_unit_test(test_one_rank),
      cmocka_unit_test(test_several_ranks),  cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_lost_rank),      cmocka_unit_test(test_bad_reads),
      cmocka_unit_test(test_recorded_ranks), cmocka_unit_test(test_long_name),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
