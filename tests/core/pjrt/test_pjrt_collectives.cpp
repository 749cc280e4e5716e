// Two ways for the collectives of a program: StableHLO's own, of two devices in one process, and
// calls back into this library from two processes. A tensor-parallel step trains alike, and as it
// does in double; a rank that dies in a step is an error of the other. The parent makes no client,
// since its children could not have one then.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/pjrt/pjrt_client.h"
#include "nxd.h"
#include "pjrt_support.h"
#include "support/pjrt.h"

#include "support/check.h"
#include "support/temp_dir.h"

namespace {

using namespace nxd_test;
using nxd::HostMemory;
using nxd::PjrtBuffer;

constexpr size_t kIn = 4, kHidden = 8, kRanks = 2, kShard = kHidden / kRanks, kSteps = 12;
constexpr double kRate = 0.02;

std::vector<float> weights(size_t count, float frequency) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = std::sin(frequency * static_cast<float>(i + 1)) / 2;
  return values;
}
const std::vector<float> kInput = weights(kIn * kIn, 0.7f), kFirst = weights(kIn * kHidden, 1.3f),
                         kSecond = weights(kHidden * kIn, 2.1f);

// Columns of the first weight and rows of the second.
std::vector<float> first_of(size_t rank) {
  std::vector<float> shard;
  for (size_t i = 0; i < kIn; ++i) {
    const auto row = kFirst.begin() + static_cast<std::ptrdiff_t>(i * kHidden + rank * kShard);
    shard.insert(shard.end(), row, row + kShard);
  }
  return shard;
}
std::vector<float> second_of(size_t rank) {
  const auto begin = kSecond.begin() + static_cast<std::ptrdiff_t>(rank * kShard * kIn);
  return {begin, begin + kShard * kIn};
}

// A step of y = relu(x w1) w2 with loss sum(y^2) / 2, whose gradient in y is y.
std::string step_with(const std::string& all_reduce) {
  const auto product = [](const char* out, const char* a, const char* b, int left, int right,
                          const char* types) {
    return std::string("    ") + out + " = stablehlo.dot_general " + a + ", " + b +
           ", contracting_dims = [" + std::to_string(left) + "] x [" + std::to_string(right) +
           "] : " + types + "\n";
  };
  const char* const t = "(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>";
  static_assert(kIn == 4 && kShard == 4, "all matrices have this shape");
  return "module @step attributes {mhlo.num_replicas = 2 : i32} {\n  func.func @main("
         "%w1: tensor<4x4xf32> {tf.aliasing_output = 0 : i32}, "
         "%w2: tensor<4x4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<4x4xf32>) -> "
         "(tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) {\n"
         "    %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>\n"
         "    %rate = stablehlo.constant dense<0.02> : tensor<4x4xf32>\n"
         "    %none = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "    %half = stablehlo.constant dense<0.5> : tensor<f32>\n" +
         product("%a", "%x", "%w1", 1, 0, t) +
         "    %h = stablehlo.maximum %a, %zero : tensor<4x4xf32>\n" +
         product("%p", "%h", "%w2", 1, 0, t) + all_reduce +
         "    %yy = stablehlo.multiply %y, %y : tensor<4x4xf32>\n"
         "    %sum = stablehlo.reduce(%yy init: %none) applies stablehlo.add across dimensions = "
         "[0, 1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<f32>\n"
         "    %loss = stablehlo.multiply %sum, %half : tensor<f32>\n" +
         product("%g2", "%h", "%y", 0, 0, t) + product("%gh", "%y", "%w2", 1, 1, t) +
         "    %on = stablehlo.compare GT, %a, %zero : (tensor<4x4xf32>, tensor<4x4xf32>) -> "
         "tensor<4x4xi1>\n"
         "    %ga = stablehlo.select %on, %gh, %zero : tensor<4x4xi1>, tensor<4x4xf32>\n" +
         product("%g1", "%x", "%ga", 0, 0, t) +
         "    %d1 = stablehlo.multiply %g1, %rate : tensor<4x4xf32>\n"
         "    %d2 = stablehlo.multiply %g2, %rate : tensor<4x4xf32>\n"
         "    %n1 = stablehlo.subtract %w1, %d1 : tensor<4x4xf32>\n"
         "    %n2 = stablehlo.subtract %w2, %d2 : tensor<4x4xf32>\n"
         "    func.return %n1, %n2, %loss : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>\n  "
         "}\n}\n";
}

const char* const kNative =
    "    %y = \"stablehlo.all_reduce\"(%p) ({\n"
    "    ^bb0(%l: tensor<f32>, %r: tensor<f32>):\n"
    "      %s = stablehlo.add %l, %r : tensor<f32>\n"
    "      stablehlo.return %s : tensor<f32>\n"
    "    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x4xf32>) -> "
    "tensor<4x4xf32>\n";
const char* const kCallBack =
    "    %y = \"stablehlo.custom_call\"(%p) {call_target_name = \"nxd_call\", api_version = 4 : "
    "i32, has_side_effect = true, backend_config = {function = \"test_all_reduce\"}} : "
    "(tensor<4x4xf32>) -> tensor<4x4xf32>\n";

// The losses of steps on the devices of a client, each with a shard; the first is that of rank.
std::vector<float> train(nxd::PjrtClient& client, const std::string& step, size_t devices,
                         size_t rank, void* rank_data) {
  nxd::PjrtOptions options = fast();
  options.replicas = static_cast<int>(devices);
  const auto program = client.compile(step, options);
  std::vector<AlignedFloats> memory;
  std::vector<std::vector<PjrtBuffer>> state(devices);
  for (size_t device = 0; device < devices; ++device) {
    for (const auto& values : {first_of(rank + device), second_of(rank + device), kInput}) {
      memory.emplace_back(values);
      const bool is_input = state[device].size() == 2;
      state[device].push_back(client.import_host(
          memory.back().data(), f32({4, 4}),
          is_input ? HostMemory::kShared : HostMemory::kDonatable, nullptr, device));
    }
  }
  std::vector<float> losses;
  for (size_t i = 0; i < kSteps; ++i) {
    std::vector<std::vector<PjrtBuffer*>> inputs(devices);
    for (size_t device = 0; device < devices; ++device) {
      for (PjrtBuffer& buffer : state[device]) inputs[device].push_back(&buffer);
    }
    const auto execution = program->execute_on_devices(inputs, rank_data);
    execution->wait();
    for (size_t device = 0; device < devices; ++device) {
      auto& outputs = execution->outputs(device);
      const float loss = values_of(outputs.at(2)).at(0);
      if (device == 0) losses.push_back(loss);
      if (loss != losses.back()) losses.back() = NAN;  // devices know one loss
      for (size_t k = 0; k < 2; ++k) state[device][k] = std::move(outputs[k]);
    }
  }
  return losses;
}

std::vector<double> losses_in_double() {
  std::vector<double> w1(kFirst.begin(), kFirst.end()), w2(kSecond.begin(), kSecond.end()), losses;
  for (size_t step = 0; step < kSteps; ++step) {
    double loss = 0;
    std::vector<double> g1(w1.size()), g2(w2.size());
    for (size_t row = 0; row < kIn; ++row) {
      std::vector<double> h(kHidden), y(kIn);
      for (size_t j = 0; j < kHidden; ++j) {
        for (size_t k = 0; k < kIn; ++k)
          h[j] += double{kInput[row * kIn + k]} * w1[k * kHidden + j];
        h[j] = std::max(h[j], 0.0);
        for (size_t i = 0; i < kIn; ++i) y[i] += h[j] * w2[j * kIn + i];
      }
      for (const double value : y) loss += value * value / 2;
      for (size_t j = 0; j < kHidden; ++j) {
        double gradient = 0;
        for (size_t i = 0; i < kIn; ++i) {
          g2[j * kIn + i] += h[j] * y[i];
          gradient += y[i] * w2[j * kIn + i];
        }
        if (h[j] <= 0) continue;
        for (size_t k = 0; k < kIn; ++k) {
          g1[k * kHidden + j] += double{kInput[row * kIn + k]} * gradient;
        }
      }
    }
    losses.push_back(loss);
    for (size_t i = 0; i < w1.size(); ++i) w1[i] -= kRate * g1[i];
    for (size_t i = 0; i < w2.size(); ++i) w2[i] -= kRate * g2[i];
  }
  return losses;
}

// A child's end of a pipe: what its body gives, as far as it got. Status is as waitpid gives it.
struct Child {
  pid_t pid;
  int fd;
  int status = -1;
  std::vector<float> values;
};

Child start(const std::function<std::vector<float>()>& body) {
  int ends[2];
  assert_int_equal(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    std::vector<float> values;
    try {
      values = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    const size_t size = values.size() * sizeof(float);
    ::_exit(::write(ends[1], values.data(), size) == static_cast<ssize_t>(size) ? 0 : 1);
  }
  ::close(ends[1]);
  return {pid, ends[0], -1, {}};
}

void finish(Child& child) {
  float value;
  while (::read(child.fd, &value, sizeof value) == sizeof value) child.values.push_back(value);
  ::close(child.fd);
  assert_int_equal(::waitpid(child.pid, &child.status, 0), child.pid);
}

void all_reduce(const nxd::CustomCall& call) {
  const auto& in = call.inputs().at(0);
  const nxd_status_t status =
      nxd_all_reduce(static_cast<nxd_group_t*>(call.rank_data()), in.data,
                     call.outputs().at(0).data, in.bytes / sizeof(float), in.dtype, NXD_REDUCE_SUM);
  if (status != NXD_OK) throw nxd::Error(status, nxd_last_error());
}

// The group of a child that is a rank of two.
nxd_group_t* join(const std::string& store_path, int rank, int64_t timeout_ms) {
  nxd_store_t* store = nullptr;
  nxd_context_t* context = nullptr;
  nxd_group_t* group = nullptr;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.rendezvous = NXD_RENDEZVOUS_STORE;
  options.rank = rank;
  options.size = static_cast<int>(kRanks);
  options.timeout_ms = timeout_ms;
  const bool joined = nxd_store_create_file(store_path.c_str(), &store) == NXD_OK &&
                      (options.store = store, true) &&
                      nxd_context_create(&options, &context) == NXD_OK &&
                      nxd_context_get_world_group(context, &group) == NXD_OK;
  if (!joined) throw std::runtime_error(nxd_last_error());
  return group;
}

std::shared_ptr<nxd::PjrtClient> client(int devices) {
  return nxd::PjrtClient::load(plugin_path(), devices);
}

void trains_alike(void**) {
  Child native = start([] { return train(*client(2), step_with(kNative), 2, 0, nullptr); });
  finish(native);
  assert_int_equal(native.status, 0);

  const TempDir dir;
  std::vector<Child> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(start([&dir, rank] {
      nxd::register_custom_call("test_all_reduce", &all_reduce);
      nxd_group_t* group = join(dir.path() + "/store", static_cast<int>(rank), 60000);
      return train(*client(1), step_with(kCallBack), 1, rank, group);
    }));
  }
  const std::vector<double> wanted = losses_in_double();
  for (Child& rank : ranks) {
    finish(rank);
    assert_int_equal(rank.status, 0);
    assert_int_equal(rank.values.size(), kSteps);
    // Two addends have one sum, whoever adds them.
    assert_true(rank.values == native.values);
  }
  for (size_t i = 0; i < kSteps; ++i) {
    assert_true(std::fabs(native.values[i] - wanted[i]) < 1e-5 * wanted[i]);
  }
  assert_true(wanted.back() < 0.9 * wanted.front());
}

// Rank 1 ends in its third call. The other's step fails with the library's own error, and the next
// does not wait again.
void loses_a_rank(void**) {
  const TempDir dir;
  Child dies = start([&dir] {
    nxd::register_custom_call("test_all_reduce", [](const nxd::CustomCall& call) {
      static int calls = 0;
      if (++calls == 3) ::kill(::getpid(), SIGKILL);
      all_reduce(call);
    });
    return train(*client(1), step_with(kCallBack), 1, 1, join(dir.path() + "/store", 1, 20000));
  });
  Child survives = start([&dir] {
    static int calls = 0;
    nxd::register_custom_call("test_all_reduce", [](const nxd::CustomCall& call) {
      ++calls;
      all_reduce(call);
    });
    nxd_group_t* group = join(dir.path() + "/store", 0, 20000);
    std::vector<float> statuses;
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        train(*client(1), step_with(kCallBack), 1, 0, group);
      } catch (const nxd::Error& error) {
        statuses.push_back(static_cast<float>(error.status()));
      }
      statuses.push_back(static_cast<float>(calls));
    }
    return statuses;
  });
  finish(dies);
  finish(survives);
  assert_true(WIFSIGNALED(dies.status) && WTERMSIG(dies.status) == SIGKILL);
  assert_int_equal(survives.status, 0);
  const float lost = NXD_ERROR_PEER_LOST;
  assert_true(survives.values == (std::vector<float>{lost, 3, lost, 4}));
}

void rejects_devices(void**) {
  Child child = start([] {
    const auto bad = NXD_ERROR_INVALID_ARGUMENT;
    expect_error(bad, "expected 1 or more", [] { client(0); });
    AlignedFloats values(std::vector<float>(16, 1));
    const auto import = [&](size_t device) {
      return client(2)->import_host(values.data(), f32({4, 4}), HostMemory::kCopied, nullptr,
                                    device);
    };
    expect_error(bad, "device: expected 0 to 1, got 2", [&] { import(2); });
    nxd::PjrtOptions options = fast();
    options.replicas = 0;
    expect_error(bad, "options.replicas", [&] { client(2)->compile("", options); });
    options.replicas = 2;
    const auto program = client(2)->compile(step_with(kNative), options);
    PjrtBuffer one = import(0), other = import(1);
    expect_error(bad, "inputs: expected those of a device",
                 [&] { program->execute_on_devices({}, nullptr); });
    expect_error(bad, "inputs of device 1: expected 3 as device 0 has, got 1", [&] {
      program->execute_on_devices({{&one, &one, &one}, {&other}}, nullptr);
    });
    expect_error(bad, "PJRT: execute", [&] { program->execute({&one, &one, &one}, nullptr); });
    return std::vector<float>{1};
  });
  finish(child);
  assert_int_equal(child.status, 0);
  assert_int_equal(child.values.size(), 1);
}

}  // namespace

int main() {
  if (!nxd_test_pjrt_plugin()) return kNoPjrtPlugin;
  ::setenv("NEURON_CC_FLAGS", "--no_cache", 1);
  const CMUnitTest tests[] = {cmocka_unit_test(trains_alike), cmocka_unit_test(loses_a_rank),
                              cmocka_unit_test(rejects_devices)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
