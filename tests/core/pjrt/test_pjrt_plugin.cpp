// Plug-ins that are none, too old or broken, by one of our own that computes nothing: each failure
// is an error with the plug-in's message, and every object that it gave is given back.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

#include "core/pjrt/pjrt_client.h"
#include "pjrt_support.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;
using nxd::PjrtBuffer;

constexpr int kClient = 1;  // which stays as long as the process

// A process has a plug-in once for each path, so each kind is a file of its own.
std::string fake(const nxd_test::TempDir& dir, const std::string& mode,
                 const std::string& name = "") {
  const std::string path = dir.path() + "/" + (name.empty() ? mode : name) + ".so";
  std::filesystem::copy_file(NXD_FAKE_PJRT_PLUGIN, path);
  ::setenv("NXD_FAKE_PJRT", mode.c_str(), 1);
  return path;
}

int number_of(const std::string& path, const char* function) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  return reinterpret_cast<int (*)()>(::dlsym(library, function))();
}

int live_objects(const std::string& path) { return number_of(path, "nxd_fake_live_objects"); }

void rejects_libraries(void**) {
  const TempDir dir;
  const auto load = [](const std::string& path) { return [path] { nxd::PjrtClient::load(path); }; };
  expect_error(NXD_ERROR_IO, "cannot be loaded", load(dir.path() + "/missing.so"));
  expect_error(NXD_ERROR_INVALID_ARGUMENT, "expected one, got none", load(""));
  expect_error(NXD_ERROR_UNSUPPORTED, "no PJRT plug-in", load("libm.so.6"));
  const auto unsupported = NXD_ERROR_UNSUPPORTED;
  expect_error(unsupported, "GetPjrtApi returned NULL", load(fake(dir, "null")));
  expect_error(unsupported, "interface 1.81, expected 0.54", load(fake(dir, "major")));
  expect_error(unsupported, "interface 0.40, expected 0.54", load(fake(dir, "old")));
  expect_error(NXD_ERROR_INTERNAL, "initialize: fake error", load(fake(dir, "init")));
}

void fails_with_plugins(void**) {
  const TempDir dir;
  const auto load = [](const std::string& path) { return [path] { nxd::PjrtClient::load(path); }; };
  const std::string full = fake(dir, "create");
  expect_error(NXD_ERROR_OUT_OF_MEMORY, "create a client: fake error of create", load(full));
  assert_int_equal(live_objects(full), 0);
  expect_error(NXD_ERROR_INTERNAL, "the plug-in threw fake exception", load(fake(dir, "throw")));
  const std::string empty = fake(dir, "devices");
  expect_error(NXD_ERROR_UNSUPPORTED, "expected 1 devices or more, it has 0", load(empty));
  assert_int_equal(live_objects(empty), 0);

  const auto client = nxd::PjrtClient::load(fake(dir, "short"));
  expect_error(NXD_ERROR_UNSUPPORTED,
               "compile: PJRT interface 0.81 of this plug-in has no function",
               [&] { client->compile("0,0,0 1"); });
}

// A plug-in that does not know the option is asked without it.
void creates_without_options(void**) {
  const TempDir dir;
  const std::string path = fake(dir, "option");
  const auto client = nxd::PjrtClient::load(path);
  assert_string_equal(client->platform().c_str(), "fake");
  assert_false(client->has_custom_calls());
  assert_int_equal(live_objects(path), kClient);
}

// Neuron's plug-in lists devices in no order, so that a rank would have another's.
void sorts_the_devices_of_neuron(void**) {
  const TempDir dir;
  const auto numbers = [&](const std::string& name) {
    const std::string path = fake(dir, "unordered", name);
    const auto client = nxd::PjrtClient::load(path, 3);
    std::vector<int> found;
    AlignedFloats value({1});
    for (size_t device = 0; device < 3; ++device) {
      client->import_host(value.data(), f32({1}), nxd::HostMemory::kCopied, nullptr, device);
      found.push_back(number_of(path, "nxd_fake_last_device"));
    }
    return found;
  };
  assert_true((numbers("libneuronpjrt") == std::vector<int>{0, 1, 2}));
  assert_true((numbers("another") == std::vector<int>{2, 0, 1}));
}

void fails_with_programs(void**) {
  const TempDir dir;
  const std::string path = fake(dir, "works");
  const auto client = nxd::PjrtClient::load(path);
  const struct {
    int code;
    nxd_status_t status;
  } codes[] = {
      {1, NXD_ERROR_INTERNAL},        {2, NXD_ERROR_INTERNAL},      {3, NXD_ERROR_INVALID_ARGUMENT},
      {4, NXD_ERROR_TIMEOUT},         {8, NXD_ERROR_OUT_OF_MEMORY}, {9, NXD_ERROR_INVALID_STATE},
      {10, NXD_ERROR_ABORTED},        {12, NXD_ERROR_UNSUPPORTED},  {13, NXD_ERROR_INTERNAL},
      {14, NXD_ERROR_PEER_LOST},      {15, NXD_ERROR_CORRUPT},      {99, NXD_ERROR_INTERNAL},
      {1013, NXD_ERROR_OUT_OF_MEMORY}};
  for (const auto& row : codes) {
    const std::string code = std::to_string(row.code);
    expect_error(row.status, "PJRT: compile: fake error of compile",
                 [&] { client->compile(code + ",0,0 1"); });
    const auto fails_at_once = client->compile("0," + code + ",0 1");
    expect_error(row.status, "PJRT: execute: fake error of execute",
                 [&] { fails_at_once->execute({}, nullptr); });
    const auto fails_later = client->compile("0,0," + code + " 2");
    const auto execution = fails_later->execute({}, nullptr);
    assert_int_equal(execution->outputs().size(), 2);
    for (int i = 0; i < 2; ++i) {
      expect_error(row.status, "PJRT: execute: fake error of event", [&] { execution->wait(); });
    }
  }
  expect_error(NXD_ERROR_UNSUPPORTED, "number of outputs", [&] { client->compile("0,0,0 -1"); });
  expect_error(NXD_ERROR_UNSUPPORTED, "serialize",
               [&] { client->compile("0,0,0 1")->serialize(); });
  expect_error(NXD_ERROR_UNSUPPORTED, "load a compiled program",
               [&] { client->deserialize("code"); });
  assert_int_equal(live_objects(path), kClient);
}

// A failure that is kept is the next compilation's, and says so; but not one for want of memory,
// and not where Neuron's compiler is asked for other code.
void keeps_failures_of_programs(void**) {
  const TempDir dir;
  const std::string path = fake(dir, "failures");
  const auto client = nxd::PjrtClient::load(path);
  nxd::CompileCacheOptions options;
  options.directory = dir.path() + "/cache";
  const nxd::CompileCache cache(options);
  const auto is_kept = [&](const char* program, nxd_status_t status) {
    try {
      client->compile(program, {}, cache);
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), status);
      return std::string(error.what()).find("--retry_failed_compilation") != std::string::npos;
    }
    fail_msg("%s was compiled", program);
    return false;
  };
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(is_kept("3,0,0 1", NXD_ERROR_INVALID_ARGUMENT), i);
    assert_false(is_kept("-1,0,0 1", NXD_ERROR_OUT_OF_MEMORY));
  }
  for (const char* name : {"NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG"}) {
    ::setenv(name, "1", 1);
    assert_false(is_kept("3,0,0 1", NXD_ERROR_INVALID_ARGUMENT));
    ::unsetenv(name);
    assert_true(is_kept("3,0,0 1", NXD_ERROR_INVALID_ARGUMENT));
  }
  // An update of the plug-in is for the processes that load it.
  std::filesystem::remove(path);
  assert_true(is_kept("3,0,0 1", NXD_ERROR_INVALID_ARGUMENT));
  std::ofstream(path) << "another";
  assert_true(is_kept("3,0,0 1", NXD_ERROR_INVALID_ARGUMENT));
  // A plug-in whose file is gone before the first program compiles, and keeps nothing.
  const std::string gone = fake(dir, "gone");
  const auto other = nxd::PjrtClient::load(gone);
  std::filesystem::remove(gone);
  assert_int_equal(other->compile("0,0,0 1", {}, cache)->num_outputs(), 1);
}

void fails_with_buffers(void**) {
  const TempDir dir;
  const std::string path = fake(dir, "buffers");
  const auto client = nxd::PjrtClient::load(path);
  {
    AlignedFloats values(std::vector<float>(16, 1));
    const PjrtBuffer copied =
        client->import_host(values.data(), f32({16}), nxd::HostMemory::kCopied);
    PjrtBuffer shared = client->import_host(values.data(), f32({16}), nxd::HostMemory::kShared);
    expect_error(NXD_ERROR_UNSUPPORTED, "its memory is a device's", [&] { shared.data(); });
    expect_error(NXD_ERROR_CORRUPT, "copy to the host: fake error of event",
                 [&] { shared.copy_to_host(values.data(), 64); });
    expect_error(NXD_ERROR_UNSUPPORTED, "wait", [&] { shared.wait(); });
    // An execution that nobody waits for, and results that are taken from it.
    const auto program = client->compile("0,0,14 2");
    auto execution = program->execute({&shared}, nullptr);
    shared = std::move(execution->outputs().at(1));
    assert_true(live_objects(path) > kClient);
  }
  assert_int_equal(live_objects(path), kClient);
}

}  // namespace

int main() {
  ::setenv("NEURON_CC_FLAGS", "--no_cache", 1);  // test_pjrt_compile_cache.cpp has the cache
  const CMUnitTest tests[] = {
      cmocka_unit_test(rejects_libraries),       cmocka_unit_test(fails_with_plugins),
      cmocka_unit_test(creates_without_options), cmocka_unit_test(sorts_the_devices_of_neuron),
      cmocka_unit_test(fails_with_programs),     cmocka_unit_test(keeps_failures_of_programs),
      cmocka_unit_test(fails_with_buffers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
