// Weights copied between files, shards and dtypes: every element against the source's, bounded
// memory, values out of range, sources that are not what they say, and conversions that are killed.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/checkpoint/convert_weights.h"
#include "core/checkpoint/float_convert.h"
#include "core/checkpoint/safetensors.h"
#include "support/check.h"
#include "support/paths.h"
#include "support/safetensors_file.h"
#include "support/temp_dir.h"

using nxd::convert_weights;
using nxd::SafetensorsReader;
using nxd::ShardSpec;
using nxd::WeightConversion;
using nxd_test::TempDir;

namespace {

// Once: just before a conversion's directory gets its name, or just before the next lock.
std::function<void()> before_rename, before_lock;

void call_once(std::function<void()>& call) {
  if (const auto now = std::exchange(call, nullptr)) now();
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// They stand before the system's in this process.
extern "C" {

int rename(const char* from, const char* to) noexcept {
  static auto* system = next<int(const char*, const char*)>("rename");
  if (std::string_view(from).ends_with(".partial")) call_once(before_rename);
  return system(from, to);
}

int flock(int fd, int operation) noexcept {
  static auto* system = next<int(int, int)>("flock");
  if ((operation & LOCK_EX) != 0) call_once(before_lock);
  return system(fd, operation);
}
}

namespace {

namespace fs = std::filesystem;

const std::string kLlama = nxd_test::oracles() + "/llama_tiny";

void refused(const std::function<void()>& call, nxd_status_t status, const char* part) {
  try {
    call();
  } catch (const nxd::Error& e) {
    if (e.status() != status || !strstr(e.what(), part))
      fail_msg("expected %d and \"%s\", got %d \"%s\"", status, part, e.status(), e.what());
    return;
  }
  fail_msg("not refused: %s", part);
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

size_t entries_in(const std::string& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), {}));
}

WeightConversion to_dtype(nxd_dtype_t dtype) {
  WeightConversion conversion;
  conversion.dtype = dtype;
  return conversion;
}

std::vector<float> values(const SafetensorsReader& reader, const std::string& name) {
  const ShardSpec whole = ShardSpec::replicated(reader.tensor(name).shape);
  std::vector<float> out(static_cast<size_t>(whole.global_size()));
  reader.read_slice(name, whole, out.data(), NXD_DTYPE_F32);
  return out;
}

void check_equal(const std::string& a, const std::string& b) {
  const SafetensorsReader first(a), second(b);
  assert_int_equal(first.tensors().size(), second.tensors().size());
  for (const auto& [name, tensor] : first.tensors()) {
    assert_true(tensor.shape == second.tensor(name).shape);
    assert_true(values(first, name) == values(second, name));
  }
}

// The index as a reader of JSON has it, and the files as they are.
void check_index(const std::string& directory, uint64_t most) {
  const auto index = nlohmann::json::parse(read(directory + "/model.safetensors.index.json"));
  std::map<std::string, size_t> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const SafetensorsReader reader(directory + "/" + file.get<std::string>());
    assert_true(reader.contains(name));
    assert_string_equal(reader.metadata().at("format").c_str(), "pt");
    files[file] = reader.tensors().size();
  }
  size_t tensors = 0;
  uint64_t total = 0;
  for (const auto& [file, count] : files) {
    tensors += count;
    uint64_t bytes = 0;
    const SafetensorsReader reader(directory + "/" + file);
    for (const auto& [name, tensor] : reader.tensors()) bytes += tensor.end - tensor.begin;
    assert_true(bytes <= most || count == 1);
    total += bytes;
  }
  assert_int_equal(tensors, index["weight_map"].size());
  assert_int_equal(total, index["metadata"]["total_size"].get<uint64_t>());
  assert_true(files.size() > 2);
  assert_true(files.count("model-00001-of-0000" + std::to_string(files.size()) + ".safetensors"));
}

// To shards of a wider type and back to one file: the values are those of before.
void test_oracle_and_back(void**) {
  const TempDir dir;
  const std::string shards = dir.path() + "/shards", whole = dir.path() + "/whole";
  WeightConversion conversion = to_dtype(NXD_DTYPE_F64);
  conversion.max_shard_bytes = 500000;
  uint64_t last = 0, all = 0;
  convert_weights(kLlama, shards + "//", conversion, [&](uint64_t done, uint64_t total) {
    assert_true(done >= last && done <= total);
    last = done;
    all = total;
  });
  assert_true(last == all && all > 0);
  check_index(shards, conversion.max_shard_bytes);
  check_equal(kLlama, shards);
  const SafetensorsReader wide(shards);
  for (const auto& [name, tensor] : wide.tensors()) assert_int_equal(tensor.dtype, NXD_DTYPE_F64);
  convert_weights(shards, whole, to_dtype(NXD_DTYPE_F32), {});
  assert_true(fs::exists(whole + "/model.safetensors") && entries_in(whole) == 2);
  check_equal(kLlama, whole);
  assert_int_equal(entries_in(dir.path()), 2);
  // The type that the configuration says, where it says one, is that of the weights.
  write(shards + "/config.json", R"({"dtype": "float64", "model_type": "llama"})");
  write(shards + "/tokenizer.json", std::string(3000000, 't'));
  write(shards + "/other.bin", "o");
  convert_weights(shards, dir.path() + "/half", to_dtype(NXD_DTYPE_BF16), {});
  assert_string_equal(read(dir.path() + "/half/config.json").c_str(),
                      R"({"dtype": "bfloat16", "model_type": "llama"})");
  assert_true(read(dir.path() + "/half/tokenizer.json") == std::string(3000000, 't'));
  assert_int_equal(entries_in(dir.path() + "/half"), 3);
}

// All that transformers reads a tokenizer from goes along, and nothing else.
void test_tokenizers(void**) {
  const TempDir dir;
  const std::string from = dir.path() + "/from", to = dir.path() + "/to";
  convert_weights(kLlama, from, {}, {});
  fs::create_directory(from + "/additional_chat_templates");
  const std::vector<std::string> names = {"tekken.json",
                                          "tiktoken.model",
                                          "tokenizer.model",
                                          "tokenizer.model.v3",
                                          "chat_template.json",
                                          "chat_template.jinja",
                                          "additional_chat_templates/rag.jinja",
                                          "additional_chat_templates/tool_use.jinja"};
  for (const std::string& name : names) write(from + "/" + name, "text of " + name);
  write(from + "/additional_chat_templates/notes.txt", "n");
  convert_weights(from, to, {}, {});
  for (const std::string& name : names) {
    assert_string_equal(read(to + "/" + name).c_str(), ("text of " + name).c_str());
  }
  assert_int_equal(entries_in(to), 6 + 3);
  assert_int_equal(entries_in(to + "/additional_chat_templates"), 2);
}

// Longer than what is held at a time, by a few elements.
constexpr size_t kLong = (size_t{1} << 19U) + 13;

void write_mixed(const std::string& path, const std::vector<double>& numbers) {
  const std::vector<int64_t> ids = {1, -2, 3};
  const double scalar = 0.1;
  nxd_test::write_safetensors(
      path,
      {{"ids", NXD_DTYPE_I64, {3}, ids.data()},
       {"long", NXD_DTYPE_F64, {static_cast<int64_t>(kLong)}, numbers.data()},
       {"empty", NXD_DTYPE_F64, {0, 4}, nullptr},
       {"scalar", NXD_DTYPE_F64, {}, &scalar}},
      {{"step", "7"}});
}

std::vector<double> many_numbers() {
  std::vector<double> numbers(kLong);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(-60000, 60000);
  for (double& number : numbers) number = uniform(random);
  numbers[5] = std::numeric_limits<double>::infinity();
  numbers[6] = -numbers[5];
  numbers[7] = std::numeric_limits<double>::quiet_NaN();
  return numbers;
}

void test_dtypes(void**) {
  const TempDir dir;
  const std::string from = dir.path() + "/from.safetensors", to = dir.path() + "/to.safetensors";
  const std::vector<double> numbers = many_numbers();
  write_mixed(from, numbers);
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16}) {
    convert_weights(from, to, to_dtype(dtype), {});
    const SafetensorsReader reader(to);
    assert_int_equal(reader.tensors().size(), 4);
    assert_string_equal(reader.metadata().at("step").c_str(), "7");
    assert_int_equal(reader.tensor("ids").dtype, NXD_DTYPE_I64);
    const nxd::StoredTensor& stored = reader.tensor("long");
    assert_int_equal(stored.dtype, dtype);
    std::vector<char> expected(stored.end - stored.begin), found(expected.size());
    nxd::convert_elements(numbers.data(), NXD_DTYPE_F64, expected.data(), dtype, kLong);
    reader.read_bytes(stored, 0, found.data(), found.size());
    assert_true(found == expected);
  }
  convert_weights(from, to, {}, {});
  assert_int_equal(SafetensorsReader(to).tensor("long").dtype, NXD_DTYPE_F64);
}

// A value that would become infinite is an error, and what TO had stays.
void test_range(void**) {
  const TempDir dir;
  const std::string from = dir.path() + "/from.safetensors", to = dir.path() + "/to.safetensors";
  std::vector<double> numbers = many_numbers();
  const std::pair<double, nxd_dtype_t> cases[] = {
      {65520, NXD_DTYPE_F16}, {-1e39, NXD_DTYPE_F32}, {3.4e38, NXD_DTYPE_BF16}};
  for (const auto& [number, dtype] : cases) {
    numbers[kLong - 1] = number;
    write_mixed(from, numbers);
    write(to, "old");
    refused([&] { convert_weights(from, to, to_dtype(dtype), {}); }, NXD_ERROR_INVALID_ARGUMENT,
            "tensor \"long\": a value of f64 is beyond the range");
    assert_string_equal(read(to).c_str(), "old");
  }
  assert_int_equal(entries_in(dir.path()), 2);
}

std::string header_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  memcpy(file.data(), &length, 8);
  return file + header + std::string(data, 'x');
}

// Each is named, and leaves nothing behind.
void test_bad_sources(void**) {
  const TempDir dir;
  const std::string from = dir.path() + "/from", to = dir.path() + "/to";
  const auto make = [&](const std::string& content) {
    fs::remove_all(from);
    fs::create_directory(from);
    write(from + "/config.json", "{}");
    write(from + "/model.safetensors", content);
  };
  const auto f32 = [](const char* name, int begin, int end) {
    return std::string("\"") + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  struct Case {
    std::string content;
    nxd_status_t status;
    const char* part;
  };
  const Case cases[] = {
      {header_of("{" + f32("a", 0, 8) + "}", 4), NXD_ERROR_CORRUPT, "lie outside"},
      {header_of("{" + f32("a", 0, 8) + "," + f32("b", 4, 12) + "}", 12), NXD_ERROR_CORRUPT,
       "overlap"},
      {header_of("{" + f32("a", 0, 8) + "," + f32("a", 8, 16) + "}", 16), NXD_ERROR_CORRUPT,
       "appears twice"},
      {header_of("{" + f32("a", 0, 8) + "}", 9), NXD_ERROR_CORRUPT, "belong to no tensor"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}", NXD_ERROR_CORRUPT, "a header of"},
      {header_of(R"({"a":{"dtype":"U32","shape":[2],"data_offsets":[0,8]}})", 8),
       NXD_ERROR_UNSUPPORTED,
       "/from/model.safetensors: tensor \"a\": dtype U32 cannot be converted"},
  };
  for (const Case& test : cases) {
    make(test.content);
    refused([&] { convert_weights(from, to, {}, {}); }, test.status, test.part);
    assert_int_equal(entries_in(dir.path()), 1);
  }
  make("");
  fs::remove(from + "/model.safetensors");
  write(from + "/model.safetensors.index.json",
        R"({"weight_map":{"a":"../from/model.safetensors"}})");
  refused([&] { convert_weights(from, to, {}, {}); }, NXD_ERROR_CORRUPT, "expected a file name");
  make(header_of("{" + f32("a", 0, 8) + "}", 8));
  refused([&] { convert_weights(from, from, {}, {}); }, NXD_ERROR_INVALID_ARGUMENT,
          "expected a directory that is not there yet");
  fs::create_symlink("absent", to);
  refused([&] { convert_weights(from, to, {}, {}); }, NXD_ERROR_INVALID_ARGUMENT,
          "expected a directory that is not there yet");
  fs::remove(to);
  refused([&] { convert_weights(from, dir.path() + "/..", {}, {}); }, NXD_ERROR_INVALID_ARGUMENT,
          "expected the name of a new directory");
  refused([&] { convert_weights(from, to, to_dtype(NXD_DTYPE_I64), {}); },
          NXD_ERROR_INVALID_ARGUMENT, "dtype: expected F32, F64, BF16 or F16");
  WeightConversion sized;
  sized.max_shard_bytes = 8;
  refused([&] { convert_weights(from, to + ".safetensors", sized, {}); },
          NXD_ERROR_INVALID_ARGUMENT, "shards of a size need a directory");
  refused([&] { convert_weights(from + "/model.safetensors", to, {}, {}); },
          NXD_ERROR_INVALID_ARGUMENT, "config.json");
  fs::remove(from + "/config.json");
  refused([&] { convert_weights(from, to, {}, {}); }, NXD_ERROR_IO, "config.json");
  assert_int_equal(entries_in(dir.path()), 1);
}

// One tensor of forty times what is held at a time.
void test_memory(void**) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::puts(
      "skip: memory of a conversion: sanitizers keep memory of their own; build without them");
  skip();
#endif
  const TempDir dir;
  const std::string from = dir.path() + "/from.safetensors", to = dir.path() + "/to.safetensors";
  constexpr size_t kBytes = size_t{160} << 20U;
  write(from, header_of(R"({"a":{"dtype":"F32","shape":[)" + std::to_string(kBytes / 4) +
                            R"(],"data_offsets":[0,)" + std::to_string(kBytes) + "]}}",
                        0));
  fs::resize_file(from, fs::file_size(from) + kBytes);  // zeros that take no room
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    convert_weights(from, to, to_dtype(NXD_DTYPE_BF16), {});
    ::getrusage(RUSAGE_SELF, &after);
    std::printf("%zu MiB, grew by %ld KiB\n", kBytes >> 20U, after.ru_maxrss - before.ru_maxrss);
    std::fflush(stdout);
    ::_exit(after.ru_maxrss - before.ru_maxrss < 8192 ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(fs::file_size(to) % (kBytes / 2) < 200, 1);
}

// TO is complete whenever it is there, and the next conversion removes what is left.
void test_killed(void**) {
  const TempDir dir;
  const std::string to = dir.path() + "/to";
  WeightConversion conversion = to_dtype(NXD_DTYPE_BF16);
  conversion.max_shard_bytes = 100000;
  std::mt19937 random(11);
  const auto start = std::chrono::steady_clock::now();
  convert_weights(kLlama, to, conversion, {});
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  fs::remove_all(to);
  // Some moments are behind the end.
  std::uniform_int_distribution<unsigned> moments(0, static_cast<unsigned>(whole.count() * 5 / 4));
  int complete = 0;
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        convert_weights(kLlama, to, conversion, {});
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::usleep(moments(random));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    if (!fs::exists(to)) continue;
    ++complete;
    assert_int_equal(SafetensorsReader(to).tensors().size(),
                     SafetensorsReader(kLlama).tensors().size());
    assert_true(fs::exists(to + "/config.json") && !fs::exists(to + "/.lock"));
    fs::remove_all(to);
  }
  const std::string partial = dir.path() + "/.to.partial";
  fs::create_directories(partial + "/folder");
  write(partial + "/model-00009-of-00009.safetensors", "of another conversion");
  convert_weights(kLlama, to, conversion, {});
  assert_int_equal(entries_in(dir.path()), 1);
  assert_false(fs::exists(to + "/folder") || fs::exists(to + "/model-00009-of-00009.safetensors"));
  std::printf("%d of 60 were complete\n", complete);
}

void check_alone(const TempDir& dir) {
  assert_int_equal(entries_in(dir.path()), 1);
  assert_int_equal(entries_in(dir.path() + "/to"), 2);
  check_equal(kLlama, dir.path() + "/to");
}

// One has the directory to itself up to its new name; another may have opened its lock by then.
void test_two_at_a_time(void**) {
  const TempDir dir;
  const std::string to = dir.path() + "/to";
  const auto convert = [&to](const nxd::ConversionProgress& progress) {
    convert_weights(kLlama, to, {}, progress);
  };
  int refusals = 0;
  const auto second = [&] {
    refused([&] { convert({}); }, NXD_ERROR_INVALID_STATE, "another conversion to ");
    ++refusals;
  };
  convert([&](uint64_t done, uint64_t total) {
    if (done == total) second();
  });
  assert_true(refusals > 0);
  check_alone(dir);
  fs::remove_all(to);
  refusals = 0;
  before_rename = second;
  convert({});
  assert_int_equal(refusals, 1);
  check_alone(dir);
  fs::remove_all(to);
  before_lock = [&] { convert({}); };
  refused([&] { convert({}); }, NXD_ERROR_INVALID_ARGUMENT, "that is not there yet");
  check_alone(dir);
}

// The new directory may lie behind a link.
void test_behind_a_link(void**) {
  const TempDir dir;
  fs::create_directory(dir.path() + "/disk");
  fs::create_directory_symlink("disk", dir.path() + "/link");
  const std::string to = dir.path() + "/link/to";
  convert_weights(kLlama, to, to_dtype(NXD_DTYPE_BF16), {});
  assert_int_equal(SafetensorsReader(to).tensors().size(),
                   SafetensorsReader(kLlama).tensors().size());
}

void test_config_of_dtype(void**) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"torch_dtype":"float32"})", R"({"torch_dtype":"float16"})"},
      {"{\n \"dtype\" : \"a\\\"b\" ,\"x\":1}", "{\n \"dtype\" : \"float16\" ,\"x\":1}"},
      {R"({"a":"dtype","b":{"dtype":"float32"},"c":["dtype"]})",
       R"({"a":"dtype","b":{"dtype":"float32"},"c":["dtype"]})"},
      {R"({"d\u0074ype":"float32"})", R"({"d\u0074ype":"float16"})"},
      {R"({"torch_dtype":null})", R"({"torch_dtype":null})"},
      {R"({"x":"\"dtype\":\"y\""})", R"({"x":"\"dtype\":\"y\""})"},
  };
  for (const auto& [text, expected] : cases) {
    assert_string_equal(nxd::config_of_dtype(text, NXD_DTYPE_F16, "config").c_str(), expected);
  }
  for (const char* bad : {"", "[", "\"dtype", "{\"dtype\":\"", "[]"}) {
    refused([&] { nxd::config_of_dtype(bad, NXD_DTYPE_F16, "config"); }, NXD_ERROR_CORRUPT,
            "config");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),        cmocka_unit_test(test_oracle_and_back),
      cmocka_unit_test(test_tokenizers),    cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_range),         cmocka_unit_test(test_bad_sources),
      cmocka_unit_test(test_killed),        cmocka_unit_test(test_two_at_a_time),
      cmocka_unit_test(test_behind_a_link), cmocka_unit_test(test_config_of_dtype)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
