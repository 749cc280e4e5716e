// Programs compiled and run by a real plug-in: products against sums in double, memory that is
// shared and donated, bad arguments, and processes that are forked.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/base/dtype.h"
#include "core/pjrt/pjrt_client.h"
#include "pjrt_support.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd_test;
using nxd::HostMemory;
using nxd::PjrtBuffer;

std::shared_ptr<nxd::PjrtClient> client() { return nxd::PjrtClient::load(plugin_path()); }

const std::string kProduct =
    module_of("%a: tensor<3x4xf32>, %b: tensor<4x2xf32>", "tensor<3x2xf32>", R"(
    %0 = "stablehlo.dot_general"(%a, %b) {dot_dimension_numbers = #stablehlo.dot<
        lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}
        : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
    func.return %0 : tensor<3x2xf32>)");

// w becomes w - 0.5 * g, in w's memory.
const std::string kUpdate = module_of(
    "%w: tensor<16xf32> {tf.aliasing_output = 0 : i32}, %g: tensor<16xf32>", "tensor<16xf32>", R"(
    %k = stablehlo.constant dense<0.5> : tensor<16xf32>
    %0 = stablehlo.multiply %g, %k : tensor<16xf32>
    %1 = stablehlo.subtract %w, %0 : tensor<16xf32>
    func.return %1 : tensor<16xf32>)");

void multiplies(void**) {
  std::vector<float> a(12), b(8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(3 * i));
  const auto program = client()->compile(kProduct, fast());
  assert_int_equal(program->num_outputs(), 1);
  PjrtBuffer left = client()->import_host(a.data(), f32({3, 4}), HostMemory::kCopied);
  PjrtBuffer right = client()->import_host(b.data(), f32({4, 2}), HostMemory::kCopied);
  const auto execution = run(*program, {&left, &right});
  const PjrtBuffer& product = execution->outputs().at(0);
  assert_true(product.type().shape == (std::vector<int64_t>{3, 2}));
  assert_int_equal(product.type().dtype, NXD_DTYPE_F32);
  const std::vector<float> got = values_of(product);
  assert_memory_equal(product.data(), got.data(), got.size() * sizeof(float));
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      double want = 0;
      for (size_t k = 0; k < 4; ++k) want += double{a[4 * i + k]} * double{b[2 * k + j]};
      assert_true(std::fabs(want - double{got[2 * i + j]}) < 1e-6);
    }
  }
}

void updates_in_place(void**) {
  AlignedFloats weight(std::vector<float>(16, 8)), gradient(std::vector<float>(16, 2));
  const auto program = client()->compile(kUpdate, fast());
  PjrtBuffer w = client()->import_host(weight.data(), f32({16}), HostMemory::kDonatable);
  PjrtBuffer g = client()->import_host(gradient.data(), f32({16}), HostMemory::kShared);
  assert_ptr_equal(w.data(), weight.data());
  assert_ptr_equal(g.data(), gradient.data());
  for (int step = 1; step <= 5; ++step) {
    const auto execution = run(*program, {&w, &g});
    assert_true(w.is_donated());
    assert_false(g.is_donated());
    w = std::move(execution->outputs().at(0));
    assert_ptr_equal(w.data(), weight.data());
    assert_true(weight.values() == std::vector<float>(16, static_cast<float>(8 - step)));
  }
  // Memory that is only shared stays as it is, also when the program would write it.
  AlignedFloats kept(std::vector<float>(16, 3));
  PjrtBuffer shared = client()->import_host(kept.data(), f32({16}), HostMemory::kShared);
  const auto execution = run(*program, {&shared, &g});
  assert_true(values_of(execution->outputs().at(0)) == std::vector<float>(16, 2));
  assert_true(kept.values() == std::vector<float>(16, 3));
}

// The owner of shared memory is held by the buffer, and by what reads it until that has ended.
void holds_owners(void**) {
  const auto program = client()->compile(kUpdate, fast());
  auto owner = std::make_shared<AlignedFloats>(std::vector<float>(16, 8));
  AlignedFloats gradient(std::vector<float>(16, 2));
  PjrtBuffer g = client()->import_host(gradient.data(), f32({16}), HostMemory::kShared);
  std::shared_ptr<nxd::PjrtExecution> execution;
  {
    PjrtBuffer w = client()->import_host(owner->data(), f32({16}), HostMemory::kShared, owner);
    assert_int_equal(owner.use_count(), 2);
    execution = program->execute({&w, &g}, nullptr);
    assert_int_equal(owner.use_count(), 3);
  }
  assert_int_equal(owner.use_count(), 2);
  execution->wait();
  assert_int_equal(owner.use_count(), 1);
}

void knows_dtypes(void**) {
  alignas(nxd::kPjrtAlignment) char bytes[64];
  for (int i = 0; i < 64; ++i) bytes[i] = static_cast<char>(i % 2);
  for (nxd_dtype_t dtype = NXD_DTYPE_F32; dtype <= NXD_DTYPE_BOOL; ++dtype) {
    const nxd::PjrtType type{dtype, {2, 3}};
    const PjrtBuffer buffer = client()->import_host(bytes, type, HostMemory::kShared);
    assert_int_equal(buffer.type().dtype, dtype);
    assert_true(buffer.type().shape == type.shape);
    assert_ptr_equal(buffer.data(), bytes);
    char back[64] = {};
    assert_int_equal(type.bytes(), 6 * nxd::dtype_size(dtype));
    buffer.copy_to_host(back, type.bytes());
    assert_memory_equal(back, bytes, type.bytes());
  }
  const PjrtBuffer none = client()->import_host(nullptr, f32({0, 4}), HostMemory::kShared);
  assert_true(none.type().shape == (std::vector<int64_t>{0, 4}));
  none.copy_to_host(nullptr, 0);
  const PjrtBuffer scalar = client()->import_host(bytes, f32({}), HostMemory::kCopied);
  assert_true(scalar.type().shape.empty());
}

void serializes(void**) {
  const std::string code = client()->compile(kUpdate, fast())->serialize();
  const auto program = client()->deserialize(code);
  AlignedFloats weight(std::vector<float>(16, 8)), gradient(std::vector<float>(16, 2));
  PjrtBuffer w = client()->import_host(weight.data(), f32({16}), HostMemory::kDonatable);
  PjrtBuffer g = client()->import_host(gradient.data(), f32({16}), HostMemory::kShared);
  run(*program, {&w, &g});
  assert_true(weight.values() == std::vector<float>(16, 7));
  // Releases of XLA do not agree on the status.
  std::string message;
  try {
    client()->deserialize(code.substr(0, code.size() / 2));
  } catch (const nxd::Error& error) {
    message = error.what();
  }
  assert_true(message.starts_with("PJRT: load a compiled program: "));
}

void leaves_out_unknown_flags(void**) {
  nxd::PjrtOptions options = fast();
  options.flags = {{"xla_no_such_flag", "true"}, {"xla_cpu_enable_fast_math", "false"}};
  assert_int_equal(client()->compile(kProduct, options)->num_outputs(), 1);
  // Only those: a known one with a bad value is an error all the same.
  options.flags["xla_backend_optimization_level"] = "high";
  expect_error(NXD_ERROR_INVALID_ARGUMENT, "xla_backend_optimization_level",
               [&] { client()->compile(kProduct, options); });
}

void rejects(void**) {
  const auto bad = NXD_ERROR_INVALID_ARGUMENT;
  AlignedFloats values(std::vector<float>(16, 1));
  const auto import = [&](void* data, nxd::PjrtType type, HostMemory memory) {
    client()->import_host(data, type, memory);
  };
  expect_error(bad, "address that 64 divides",
               [&] { import(values.data() + 1, f32({2}), HostMemory::kDonatable); });
  expect_error(bad, "expected 8 bytes, got NULL",
               [&] { import(nullptr, f32({2}), HostMemory::kCopied); });
  expect_error(bad, "expected sizes of 0 or more, got -1",
               [&] { import(values.data(), f32({-1}), HostMemory::kCopied); });
  expect_error(bad, "more bytes than memory", [&] {
    import(values.data(), f32({int64_t{1} << 62, 2}), HostMemory::kCopied);
  });
  expect_error(bad, "dtype", [&] {
    import(values.data(), {static_cast<nxd_dtype_t>(77), { 2 }}, HostMemory::kCopied);
  });

  PjrtBuffer buffer = client()->import_host(values.data(), f32({16}), HostMemory::kCopied);
  char out[64];
  expect_error(bad, "expected 64 bytes, got 60", [&] { buffer.copy_to_host(out, 60); });
  expect_error(bad, "out: expected memory, got NULL", [&] { buffer.copy_to_host(nullptr, 64); });

  const auto program = client()->compile(kUpdate, fast());
  expect_error(bad, "PJRT: execute", [&] { program->execute({&buffer}, nullptr); });
  expect_error(bad, "expected a buffer, got none", [&] {
    program->execute({&buffer, nullptr}, nullptr);
  });
  PjrtBuffer small = client()->import_host(values.data(), f32({4}), HostMemory::kCopied);
  expect_error(bad, "PJRT: execute", [&] { run(*program, {&buffer, &small}); });
  expect_error(NXD_ERROR_INTERNAL, "PJRT: compile", [] { client()->compile("no module"); });
  // An element type without a dtype can be computed with, and not asked for.
  const auto unsigned_program =
      client()->compile(module_of("", "tensor<2xui32>",
                                  "    %0 = stablehlo.constant dense<7> : tensor<2xui32>\n"
                                  "    func.return %0 : tensor<2xui32>"),
                        fast());
  const auto execution = run(*unsigned_program, {});
  expect_error(NXD_ERROR_UNSUPPORTED, "no dtype", [&] { execution->outputs().at(0).type(); });

  PjrtBuffer gradient = client()->import_host(values.data(), f32({16}), HostMemory::kShared);
  run(*program, {&buffer, &gradient});
  expect_error(bad, "PJRT: execute", [&] { run(*program, {&buffer, &gradient}); });
}

void runs_on_threads(void**) {
  std::vector<std::thread> threads;
  std::vector<float> sums(3);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&sums, t] {
      const auto program = client()->compile(kUpdate, fast());
      AlignedFloats gradient(std::vector<float>(16, 2));
      AlignedFloats weight(std::vector<float>(16, static_cast<float>(100 * t)));
      PjrtBuffer w = client()->import_host(weight.data(), f32({16}), HostMemory::kDonatable);
      PjrtBuffer g = client()->import_host(gradient.data(), f32({16}), HostMemory::kShared);
      for (int step = 0; step < 50; ++step) {
        w = std::move(run(*program, {&w, &g})->outputs().at(0));
      }
      sums[t] = weight[15];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < sums.size(); ++t) {
    assert_true(sums[t] == static_cast<float>(100 * t) - 50);
  }
}

// A forked process is told that it cannot use the client, and drops objects without a call.
void refuses_forks(void**) {
  auto program = client()->compile(kUpdate, fast());
  AlignedFloats values(std::vector<float>(16, 8));
  auto buffer = std::make_unique<PjrtBuffer>(
      client()->import_host(values.data(), f32({16}), HostMemory::kShared));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto is_refused = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const nxd::Error& error) {
        return error.status() == NXD_ERROR_INVALID_STATE && std::strstr(error.what(), "forked");
      }
      return false;
    };
    const bool refused = is_refused([] { client(); }) &&
                         is_refused([&] { program->execute({buffer.get()}, nullptr); }) &&
                         is_refused([&] { buffer->data(); }) &&
                         is_refused([&] { program->serialize(); });
    buffer.reset();
    program.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_true(values_of(*buffer) == values.values());
}

void describes_itself(void**) {
  assert_string_equal(client()->platform().c_str(), "cpu");
  assert_ptr_equal(client().get(), client().get());
  const std::string description = client()->description();
  assert_true(description.find("PJRT interface 0.") != std::string::npos);
  assert_true(description.find(client()->plugin().path()) != std::string::npos);
}

}  // namespace

int main() {
  ::setenv("NEURON_CC_FLAGS", "--no_cache", 1);  // test_pjrt_compile_cache.cpp has the cache
  if (!nxd_test_pjrt_plugin()) return kNoPjrtPlugin;
  const CMUnitTest tests[] = {
      cmocka_unit_test(describes_itself), cmocka_unit_test(multiplies),
      cmocka_unit_test(updates_in_place), cmocka_unit_test(holds_owners),
      cmocka_unit_test(knows_dtypes),     cmocka_unit_test(serializes),
      cmocka_unit_test(rejects),          cmocka_unit_test(leaves_out_unknown_flags),
      cmocka_unit_test(runs_on_threads),  cmocka_unit_test(refuses_forks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
