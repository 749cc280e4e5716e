// Reading and writing safetensors files: oracle, slices, conversions, and files that are not what
// they say.
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/checkpoint/float_convert.h"
#include "core/checkpoint/safetensors.h"
#include "support/check.h"
#include "support/paths.h"
#include "support/safetensors_file.h"
#include "support/temp_dir.h"
#include "support/working_directory.h"

using nxd::SafetensorsReader;
using nxd::ShardSpec;
using nxd_test::TempDir;

namespace {

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

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  memcpy(file.data(), &length, 8);
  return file + header + std::string(data, 'x');
}

const std::string kLlama = nxd_test::oracles() + "/llama_tiny/model.safetensors";

// The bytes of a tensor of the oracle, found without the reader under test.
std::vector<float> oracle_tensor(const std::string& name) {
  std::ifstream in(kLlama, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  const auto entry = nlohmann::json::parse(text)[name];
  const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
  std::vector<float> values((end - begin) / 4);
  in.seekg(static_cast<std::streamoff>(8 + length + begin));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
  return values;
}

void test_oracle(void**) {
  const SafetensorsReader reader(kLlama);
  const SafetensorsReader by_directory(nxd_test::oracles() + "/llama_tiny");
  assert_true(reader.tensors().size() > 10);
  assert_int_equal(by_directory.tensors().size(), reader.tensors().size());
  for (const auto& [name, tensor] : reader.tensors()) {
    assert_int_equal(tensor.dtype, NXD_DTYPE_F32);
    const std::vector<float> expected = oracle_tensor(name);
    std::vector<ShardSpec> specs = {ShardSpec::replicated(tensor.shape)};
    for (int dim = 0; dim < static_cast<int>(tensor.shape.size()); ++dim) {
      specs.push_back(ShardSpec::split(tensor.shape, dim, 1, 2));
      specs.push_back(
          ShardSpec::padded(tensor.shape, dim, tensor.shape[static_cast<size_t>(dim)] + 2, 1, 2));
    }
    for (const ShardSpec& spec : specs) {
      std::vector<float> got(static_cast<size_t>(spec.local_size()), -7);
      std::vector<double> wide(got.size(), -7);
      reader.read_slice(name, spec, got.data(), NXD_DTYPE_F32);
      by_directory.read_slice(name, spec, wide.data(), NXD_DTYPE_F64);
      std::vector<float> slice(got.size(), 0);
      spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
        memcpy(&slice[static_cast<size_t>(local)], &expected[static_cast<size_t>(global)],
               static_cast<size_t>(count) * 4);
      });
      assert_true(got == slice);
      assert_true(wide == std::vector<double>(slice.begin(), slice.end()));
    }
  }
}

void test_round_trip(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/a.safetensors";
  std::vector<float> f(200003);
  for (size_t i = 0; i < f.size(); ++i) f[i] = static_cast<float>(i) * 0.5f;
  const std::vector<int64_t> ids = {1, -2, 3};
  const std::vector<uint8_t> flags = {1, 0, 1, 1, 0};
  const double scalar = 0.1;
  nxd_test::write_safetensors(path,
                              {{"flags", NXD_DTYPE_BOOL, {5}, flags.data()},
                               {"ключ \"q\"", NXD_DTYPE_F32, {200003}, f.data()},
                               {"ids", NXD_DTYPE_I64, {3, 1}, ids.data()},
                               {"empty", NXD_DTYPE_F32, {0, 4}, nullptr},
                               {"scalar", NXD_DTYPE_F64, {}, &scalar}},
                              {{"format", "pt"}, {"step", "7"}});
  const SafetensorsReader reader(path);
  assert_int_equal(reader.tensors().size(), 5);
  assert_string_equal(reader.metadata().at("step").c_str(), "7");
  assert_int_equal(reader.tensor("ids").begin % 8, 0);
  std::vector<float> f2(f.size());
  reader.read_slice("ключ \"q\"", ShardSpec::replicated({200003}), f2.data(), NXD_DTYPE_F32);
  assert_true(f2 == f);
  // Longer than one round of the conversion buffer.
  std::vector<double> d(f.size());
  reader.read_slice("ключ \"q\"", ShardSpec::replicated({200003}), d.data(), NXD_DTYPE_F64);
  assert_true(d == std::vector<double>(f.begin(), f.end()));
  std::vector<int64_t> ids2(3);
  reader.read_slice("ids", ShardSpec::replicated({3, 1}), ids2.data(), NXD_DTYPE_I64);
  assert_true(ids2 == ids);
  float rounded = 0;
  reader.read_slice("scalar", ShardSpec::replicated({}), &rounded, NXD_DTYPE_F32);
  assert_true(rounded == 0.1f);
  reader.read_slice("empty", ShardSpec::replicated({0, 4}), nullptr, NXD_DTYPE_F32);

  // Replacing a file leaves no second one behind, and its access is that of any file.
  nxd_test::write_safetensors(path, {{"one", NXD_DTYPE_U8, {1}, flags.data()}}, {});
  assert_int_equal(SafetensorsReader(path).tensors().size(), 1);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++files;
  assert_int_equal(files, 1);
  struct stat status = {};
  const mode_t mask = umask(0);
  umask(mask);
  assert_int_equal(stat(path.c_str(), &status), 0);
  assert_int_equal(status.st_mode & 0777, 0666 & ~mask);
}

// Every 16-bit value to f32 and f64 and back is itself; values between two neighbours go to the
// nearer one, ties to even.
void check_16_bit(nxd_dtype_t dtype, uint32_t infinity) {
  const auto load = [&](uint32_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    double value;
    nxd::convert_elements(&half, dtype, &value, NXD_DTYPE_F64, 1);
    return value;
  };
  const auto store = [&](double value) {
    uint16_t half;
    nxd::convert_elements(&value, NXD_DTYPE_F64, &half, dtype, 1);
    const auto narrow = static_cast<float>(value);
    if (narrow == value || value != value) {
      uint16_t of_float;
      nxd::convert_elements(&narrow, NXD_DTYPE_F32, &of_float, dtype, 1);
      assert_int_equal(half, of_float);
    }
    return uint32_t{half};
  };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = load(bits);
    if ((bits & 0x7fff) > infinity) {
      assert_true(std::isnan(value));
      assert_true((store(value) & 0x7fff) > infinity);
      continue;
    }
    assert_int_equal(store(value), bits);
    if ((bits & 0x7fff) + 1 >= infinity) continue;
    const double middle = (value + load(bits + 1)) / 2;
    assert_int_equal(store(middle), bits % 2 ? bits + 1 : bits);
    // A little off the middle, less than f32 can tell.
    const double away = std::signbit(value) ? -HUGE_VAL : HUGE_VAL;
    assert_int_equal(store(std::nextafter(middle, away)), bits + 1);
    assert_int_equal(store(std::nextafter(middle, -away)), bits);
  }
  assert_int_equal(store(HUGE_VAL), infinity);
  assert_int_equal(store(-1e300), infinity | 0x8000);
}

void test_conversions(void**) {
  check_16_bit(NXD_DTYPE_BF16, 0x7f80);
  check_16_bit(NXD_DTYPE_F16, 0x7c00);
  uint16_t bits;
  const float values[] = {1.0f, -2.5f, 65504.0f, 65520.0f, 6e-8f};
  const uint16_t f16[] = {0x3c00, 0xc100, 0x7bff, 0x7c00, 0x0001};
  for (size_t i = 0; i < 5; ++i) {
    nxd::convert_elements(&values[i], NXD_DTYPE_F32, &bits, NXD_DTYPE_F16, 1);
    assert_int_equal(bits, f16[i]);
  }
  const int32_t number = 0;
  float out = 0;
  refused([&] { nxd::convert_elements(&number, NXD_DTYPE_I32, &out, NXD_DTYPE_F32, 1); },
          NXD_ERROR_INVALID_ARGUMENT, "i32 as stored, got f32");
}

void test_sharded_set(void**) {
  const TempDir dir;
  const float a[] = {1, 2}, b[] = {3, 4, 5};
  nxd_test::write_safetensors(dir.path() + "/m-1.safetensors", {{"a", NXD_DTYPE_F32, {2}, a}}, {});
  nxd_test::write_safetensors(dir.path() + "/m-2.safetensors", {{"b", NXD_DTYPE_F32, {3}, b}}, {});
  const std::string index = dir.path() + "/model.safetensors.index.json";
  write_file(index, R"({"metadata": {"total_size": 20},
                        "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const SafetensorsReader reader(dir.path());
  float got[3] = {};
  reader.read_slice("b", ShardSpec::replicated({3}), got, NXD_DTYPE_F32);
  assert_true(got[2] == 5);
  reader.read_slice("a", ShardSpec::replicated({2}), got, NXD_DTYPE_F32);
  assert_true(got[1] == 2);

  const auto broken = [&](const char* text, nxd_status_t status, const char* part) {
    write_file(index, text);
    refused([&] { SafetensorsReader again(dir.path()); }, status, part);
  };
  broken(R"({"weight_map": {"c": "m-1.safetensors"}})", NXD_ERROR_CORRUPT, "\"c\" is not in");
  broken(R"({"weight_map": {"a": "m-3.safetensors"}})", NXD_ERROR_IO, "m-3.safetensors");
  broken(R"({"weight_map": {"a": "../m-1.safetensors"}})", NXD_ERROR_CORRUPT, "file name");
  broken(R"({"weight_map": {"a": 3}})", NXD_ERROR_CORRUPT, "file name");
  broken(R"({"weight_map": {"a": "m\nnxd error: b"}})", NXD_ERROR_CORRUPT,
         "file name, got \"m\\u000a");
  broken(R"({"weight_map": []})", NXD_ERROR_CORRUPT, "weight_map");
  broken(R"({"weight_map": {"a": "m-1.safetensors\u0000.x"}})", NXD_ERROR_CORRUPT, "NUL");
  broken("{\"weight_map\": {\"a\\u001b[31m\": 3}}", NXD_ERROR_CORRUPT, "\"a\\u001b[31m\"");
  broken("\xef\xbb\xbf{}", NXD_ERROR_CORRUPT, "byte-order mark");
  broken("{\"weight_map\": {}} x", NXD_ERROR_CORRUPT, "expected JSON: ");
  broken(R"([)", NXD_ERROR_CORRUPT, "expected JSON: ");
  broken(R"([])", NXD_ERROR_CORRUPT, "JSON object");
}

float only_value(const std::string& path) {
  float value = 0;
  SafetensorsReader(path).read_slice("w", ShardSpec::replicated({1}), &value, NXD_DTYPE_F32);
  return value;
}

// A directory that had a model in pieces, and then the whole model saved into it.
void test_file_beside_index(void**) {
  const TempDir dir;
  const std::string file = dir.path() + "/model.safetensors", index = file + ".index.json";
  const std::string map = R"({"weight_map": {"w": "model-1.safetensors"}})";
  const float old_value = 1, new_value = 2;
  nxd_test::write_safetensors(dir.path() + "/model-1.safetensors",
                              {{"w", NXD_DTYPE_F32, {1}, &old_value}}, {});
  write_file(index, map);
  assert_true(only_value(dir.path()) == old_value);
  const auto save = [&](const std::string& path) {
    nxd_test::write_safetensors(path, {{"w", NXD_DTYPE_F32, {1}, &new_value}}, {});
  };
  // Under another name it is not the directory's model.
  save(dir.path() + "/new.safetensors");
  assert_true(std::filesystem::exists(index));
  assert_true(only_value(dir.path()) == old_value);
  save(file);
  assert_false(std::filesystem::exists(index));
  assert_true(only_value(dir.path()) == new_value);
  // Another program may have left both. As in transformers, the file is read.
  write_file(index, map);
  assert_true(only_value(dir.path()) == new_value);
  std::filesystem::remove(file);
  assert_true(only_value(dir.path()) == old_value);
}

// A path that is no file is rejected by its name, and nothing waits in its open.
void test_no_files(void**) {
  const TempDir dir;
  const std::string file = dir.path() + "/model.safetensors", index = file + ".index.json";
  assert_int_equal(mkfifo(file.c_str(), 0600), 0);
  const nxd_status_t io = NXD_ERROR_IO;
  refused([&] { SafetensorsReader reader(file); }, io, "model.safetensors: expected a regular");
  refused([&] { SafetensorsReader reader(dir.path()); }, io, "got a FIFO");
  refused([&] { nxd::read_text(file, 100); }, io, "got a FIFO");
  std::filesystem::remove(file);
  assert_int_equal(mkfifo(index.c_str(), 0600), 0);
  refused([&] { SafetensorsReader reader(dir.path()); }, io, "index.json: expected a regular");
  refused([&] { nxd::read_text(dir.path(), 100); }, io, "got a directory");
  refused([&] { nxd::read_text("/dev/null", 100); }, io, "got a device");
}

// An older model's directory.
void test_pickles(void**) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const TempDir dir;
    write_file(dir.path() + "/" + name, "PK");
    refused([&] { SafetensorsReader reader(dir.path()); }, NXD_ERROR_IO,
            std::string("got ").append(name).append(", of pickles").c_str());
  }
}

// More files than stay open: the others are opened again when they are read, wherever the program
// is by then.
void test_very_many_files(void**) {
  constexpr int kFiles = 300;
  const TempDir dir;
  nxd_test::WorkingDirectory here(dir.path());
  std::filesystem::create_directory("many");
  std::filesystem::create_directory("elsewhere");
  std::string map;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = std::to_string(i), file = name + ".safetensors";
    const auto value = static_cast<float>(i);
    nxd_test::write_safetensors("many/" + file, {{name, NXD_DTYPE_F32, {1}, &value}}, {});
    map += (i > 0 ? ",\"" : "\"") + name + "\":\"" + file + "\"";
  }
  write_file("many/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const SafetensorsReader reader("many");
  here.change("elsewhere");
  for (int i = 0; i < kFiles; ++i) {
    float got = -1;
    reader.read_slice(std::to_string(i), ShardSpec::replicated({1}), &got, NXD_DTYPE_F32);
    assert_true(got == static_cast<float>(i));
  }
}

// A header is read in time as its length: with the square of it this would take an hour.
void test_very_many_tensors(void**) {
  const TempDir dir;
#ifdef __SANITIZE_ADDRESS__  // which takes a minute for as many as there may be
  constexpr size_t kTensors = 50000;
#else
  constexpr size_t kTensors = 500000;
#endif
  const uint8_t byte = 7;
  std::vector<nxd_test::TensorToStore> tensors;
  for (size_t i = 0; i < kTensors; ++i) {
    tensors.push_back({"layers." + std::to_string(i) + ".weight", NXD_DTYPE_U8, {1}, &byte});
  }
  const std::string path = dir.path() + "/x.safetensors";
  nxd_test::write_safetensors(path, tensors, {});
  const SafetensorsReader reader(path);
  assert_int_equal(reader.tensors().size(), kTensors);
  assert_true(reader.contains("layers." + std::to_string(kTensors - 1) + ".weight"));
}

void test_metadata_of_null(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  write_file(path, file_of(R"({"__metadata__":null,)"
                           R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                           1));
  const SafetensorsReader reader(path);
  assert_true(reader.metadata().empty());
  assert_true(reader.contains("w"));
}

void test_broken_files(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const auto broken = [&](const std::string& content, nxd_status_t status, const char* part) {
    write_file(path, content);
    refused([&] { SafetensorsReader reader(path); }, status, part);
    refused([&] { SafetensorsReader reader(path); }, status, "x.safetensors");
  };
  const auto corrupt = [&](const std::string& header, size_t data, const char* part) {
    broken(file_of(header, data), NXD_ERROR_CORRUPT, part);
  };
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string("{\"w\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  broken("", NXD_ERROR_CORRUPT, "0 bytes");
  broken("1234567", NXD_ERROR_CORRUPT, "7 bytes");
  broken(std::string(8, '\xff') + "{}", NXD_ERROR_CORRUPT, "header of 18446744073709551615");
  broken(file_of("{}", 0).substr(0, 9), NXD_ERROR_CORRUPT, "does not fit");
  corrupt("", 0, "expected JSON: ");
  corrupt("{\"w\"", 0, "expected JSON: ");
  corrupt("{\"\xff\":1}", 0, "expected JSON: ");
  corrupt(std::string("{}\0garbage", 10), 0, "NUL at byte 2");
  corrupt("{\"w\":1}", 0, "tensor \"w\"");
  corrupt("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
  corrupt(std::string(100000, '['), 0, "nested");
  corrupt("{\"a\":" + std::string(100000, '[') + "}", 0, "nested");
  corrupt(entry("F32", "[2]", "[0,4]"), 4, "expected 8 bytes");
  corrupt(entry("F32", "[1]", "[0,8]"), 8, "expected 4 bytes");
  corrupt(entry("F32", "[2]", "[0,8]"), 4, "outside the file's 4 bytes");
  corrupt(entry("F32", "[1]", "[4,0]"), 4, "outside");
  corrupt(entry("F32", "[1]", "[0,18446744073709551615]"), 4, "outside");
  corrupt(entry("F32", "[1]", "[-4,0]"), 4, "two offsets");
  corrupt(entry("F32", "[1]", "[0.5,4]"), 4, "two offsets");
  corrupt(entry("F32", "[1]", "[0,4,8]"), 4, "data_offsets");
  corrupt(entry("F32", "[-1]", "[0,4]"), 4, "extents");
  corrupt(entry("F32", "[1.5]", "[0,4]"), 4, "extents");
  corrupt(entry("F32", "[4611686018427387904,4]", "[0,0]"), 0, "extents");
  corrupt(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0, "too large");
  for (const char* shape : {"[0,4294967296,4294967296]", "[4294967296,4294967296,0]"}) {
    corrupt(entry("F32", shape, "[0,0]"), 0, "too large");
  }
  corrupt(entry("F32", "[1]", "[0,4]"), 8, "last 4 bytes belong to no tensor");
  corrupt(entry("F32", "[1]", "[4,8]"), 8, "tensor \"w\": the data before it");
  corrupt(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
          R"("w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12, "tensor \"w\": its data overlap");
  corrupt(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
          R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1, "appears twice");
  corrupt(R"({"__metadata__":{"a":1}})", 0, "expected a string for \"a\"");
  corrupt(R"({"__metadata__":3})", 0, "__metadata__");
  corrupt(entry("F4", "[3]", "[0,2]"), 2, "expected whole bytes, got shape [3] of F4");
  corrupt(entry("F6_E2M3", "[4]", "[0,4]"), 4, "expected 3 bytes for shape [4] of F6_E2M3");
  broken(file_of(entry("F128", "[1]", "[0,16]"), 16), NXD_ERROR_UNSUPPORTED,
         "tensor \"w\": unknown dtype \"F128\"");
  refused([&] { SafetensorsReader reader(dir.path() + "/none.safetensors"); }, NXD_ERROR_IO,
          "No such file");
  refused([&] { SafetensorsReader reader("/dev/zero"); }, NXD_ERROR_IO, "regular file");
}

// A file may have any bytes as booleans; a program's are 0 or 1.
void test_booleans(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  std::string file = file_of(R"({"b":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})", 4);
  file.replace(file.size() - 3, 3, std::string("\0\1\2", 3));
  write_file(path, file);
  const SafetensorsReader reader(path);
  uint8_t out[4] = {9, 9, 9, 9};
  reader.read_slice("b", ShardSpec::replicated({4}), out, NXD_DTYPE_BOOL);
  assert_memory_equal(out, "\1\0\1\1", 4);
  uint8_t padded[4] = {9, 9, 9, 9};
  reader.read_slice("b", ShardSpec::padded({4}, 0, 8, 1, 2), padded, NXD_DTYPE_BOOL);
  assert_memory_equal(padded, "\0\0\0\0", 4);
}

void test_bad_reads(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const std::string header = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("n":{"dtype":"I32","shape":[2],"data_offsets":[16,24]},)"
                             R"("u":{"dtype":"U16","shape":[2],"data_offsets":[24,28]},)"
                             R"("f":{"dtype":"F4","shape":[2,3],"data_offsets":[28,31]}})";
  write_file(path, file_of(header, 31));
  const SafetensorsReader reader(path);
  float out[4];
  const auto read = [&](const char* name, const ShardSpec& spec, void* to, nxd_dtype_t dtype) {
    return [=, &reader] { reader.read_slice(name, spec, to, dtype); };
  };
  const ShardSpec two = ShardSpec::replicated({2}), square = ShardSpec::replicated({2, 2});
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  refused(read("v", two, out, NXD_DTYPE_F32), bad, "no tensor \"v\"; near names: f, n, u, w");
  refused(read("w", two, out, NXD_DTYPE_F32), bad, "expected shape [2], the file has [2, 2]");
  refused(read("w", square, nullptr, NXD_DTYPE_F32), bad, "out");
  refused(read("w", square, out, NXD_DTYPE_I32), bad, "F32 cannot be read as i32");
  refused(read("n", two, out, NXD_DTYPE_F32), bad, "I32 cannot be read as f32");
  refused(read("n", two, out, 77), bad, "dtype");
  refused(read("u", two, out, NXD_DTYPE_I16), NXD_ERROR_UNSUPPORTED, "U16");
  refused(read("f", ShardSpec::replicated({2, 3}), out, NXD_DTYPE_U8), NXD_ERROR_UNSUPPORTED, "F4");
  // Truncated after it was opened.
  std::filesystem::resize_file(path, 8 + header.size() + 7);
  refused(read("w", square, out, NXD_DTYPE_F32), NXD_ERROR_CORRUPT, "the file's end");
}

void test_bad_writes(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const float one = 1;
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  using Tensors = std::vector<nxd_test::TensorToStore>;
  const auto write = [&](const Tensors& tensors) {
    return [=, &path] { nxd_test::write_safetensors(path, tensors, {}); };
  };
  refused(write({{"w", NXD_DTYPE_F32, {-1}, &one}}), bad, "negative");
  refused(write({{"w", 99, {1}, &one}, {"v", NXD_DTYPE_F32, {1}, &one}}), bad, "dtype");
  refused(write({{"__metadata__", NXD_DTYPE_F32, {1}, &one}}), bad, "taken");
  refused(write({{"w", NXD_DTYPE_F32, {1}, &one}, {"w", NXD_DTYPE_F32, {1}, &one}}), bad, "taken");
  refused(write({{"\xff", NXD_DTYPE_F32, {1}, &one}}), bad, "UTF-8");
  refused([&] { nxd_test::write_safetensors(dir.path() + "/no/x", {}, {}); }, NXD_ERROR_IO,
          "No such file");
  assert_true(std::filesystem::is_empty(dir.path()));
  // A full disk, as a limit on the size of files shows it: the old file stays.
  nxd_test::write_safetensors(path, {{"w", NXD_DTYPE_F32, {1}, &one}}, {});
  rlimit old = {};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 100;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<float> many(1000, 2);
  refused(
      [&] {
        nxd_test::write_safetensors(path, {{"w", NXD_DTYPE_F32, {1000}, many.data()}}, {});
      },
      NXD_ERROR_IO, "cannot write");
  setrlimit(RLIMIT_FSIZE, &old);
  float got = 0;
  SafetensorsReader(path).read_slice("w", ShardSpec::replicated({1}), &got, NXD_DTYPE_F32);
  assert_true(got == 1);
  assert_int_equal(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

// Flipped and cut files are read or rejected, never anything else.
void test_damage(void**) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const float w[6] = {1, 2, 3, 4, 5, 6};
  const int64_t n[2] = {1, 2};
  nxd_test::write_safetensors(path, {{"w", NXD_DTYPE_F32, {2, 3}, w}, {"n", NXD_DTYPE_I64, {2}, n}},
                              {{"format", "pt"}});
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(7);
  int opened = 0, refusals = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bad = good;
    if (i % 4 == 0) bad.resize(random() % good.size());
    for (int flips = i % 3 + 1; flips > 0 && !bad.empty(); --flips) {
      char& byte = bad[random() % bad.size()];
      byte = static_cast<char>(i % 2 ? byte ^ (1 << random() % 8) : static_cast<int>(random()));
    }
    write_file(path, bad);
    try {
      const SafetensorsReader reader(path);
      ++opened;
      for (const auto& [name, tensor] : reader.tensors()) {
        const ShardSpec spec = ShardSpec::replicated(tensor.shape);
        std::vector<char> out(static_cast<size_t>(tensor.end - tensor.begin));
        if (tensor.dtype != NXD_DTYPE_INVALID)
          reader.read_slice(name, spec, out.data(), tensor.dtype);
      }
    } catch (const nxd::Error& e) {
      ++refusals;
      assert_true(e.status() == NXD_ERROR_CORRUPT || e.status() == NXD_ERROR_UNSUPPORTED);
    }
  }
  assert_true(opened > 50 && refusals > 50);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_oracle),           cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_metadata_of_null), cmocka_unit_test(test_conversions),
      cmocka_unit_test(test_sharded_set),      cmocka_unit_test(test_file_beside_index),
      cmocka_unit_test(test_no_files),         cmocka_unit_test(test_pickles),
      cmocka_unit_test(test_very_many_files),  cmocka_unit_test(test_very_many_tensors),
      cmocka_unit_test(test_broken_files),     cmocka_unit_test(test_bad_reads),
      cmocka_unit_test(test_bad_writes),       cmocka_unit_test(test_damage),
      cmocka_unit_test(test_booleans)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
