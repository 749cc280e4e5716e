// nxd-neuron-selftest: what works with a PJRT plug-in, such as Neuron's, for owners of its
// hardware.
#include <getopt.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/launch/launcher.h"
#include "core/pjrt/pjrt_client.h"
#include "core/pjrt/pjrt_search.h"
#include "standard_output.h"
#ifdef NXD_SELFTEST_ENGINE
#include "selftest_llama.h"
#endif

namespace {

using nxd::HostMemory;
using nxd::PjrtBuffer;

constexpr char kName[] = "nxd-neuron-selftest";
constexpr char kUsage[] =
    "usage: nxd-neuron-selftest [OPTION...] [PLUGIN]\n"
    "\n"
    "Tries a PJRT plug-in and its device: a product, an update in place, a program that is saved\n"
    "and loaded, an all-reduce over the ranks that a launcher has started, rounding to bf16, and\n"
    "training steps of a small network and of a Llama against losses that were recorded. Each\n"
    "check is a line, ok, skipped or FAILED. Without PLUGIN it takes the one of NXD_PJRT_PLUGIN "
    "or\n"
    "NEURON_LIBRARY_PATH, or Neuron's where it is installed.\n"
    "\n"
    "exit status: 0 all checks passed, 1 one failed, 2 wrong arguments, 77 there is no plug-in\n"
    "\n"
    "  -e, --eager       trains the Llama on the CPU without a plug-in, and prints its losses\n"
    "  -h, --help        this text\n";

constexpr int kWrongArguments = 2, kNoPlugin = 77;

// A check that this plug-in or world has nothing for.
struct Skipped {
  std::string why;
};

struct Session {
  std::shared_ptr<nxd::PjrtClient> client;
  nxd::Launch launch;
};

// Memory that a plug-in can share.
struct alignas(nxd::kPjrtAlignment) Matrix {
  float values[64];
};

Matrix wave(float frequency) {
  Matrix out{};
  for (size_t i = 0; i < 64; ++i)
    out.values[i] = std::sin(frequency * static_cast<float>(i + 1)) / 2;
  return out;
}

nxd::PjrtType f32(std::vector<int64_t> shape) { return {NXD_DTYPE_F32, std::move(shape)}; }

PjrtBuffer copied(Session& session, Matrix& matrix, std::vector<int64_t> shape) {
  return session.client->import_host(matrix.values, f32(std::move(shape)), HostMemory::kCopied);
}

std::vector<float> values_of(const PjrtBuffer& buffer) {
  std::vector<float> values(buffer.type().bytes() / sizeof(float));
  buffer.copy_to_host(values.data(), values.size() * sizeof(float));
  return values;
}

template <class... Parts>
void expect(bool holds, const Parts&... parts) {
  if (!holds) nxd::fail(NXD_ERROR_INTERNAL, parts...);
}

// The larger error; a NaN is the largest of all.
double worse(double worst, double off) {
  return std::isnan(off) ? INFINITY : std::max(worst, std::fabs(off));
}

std::string device(Session& session) { return session.client->description(); }

// 8 by 8, against sums in double; with bf16 the operands are rounded before.
std::string product(Session& session, bool bf16) {
  const char* const from = bf16 ? "bf16" : "f32";
  const std::string operand = std::string("tensor<8x8x") + from + ">";
  std::string body;
  for (const char* name : {"a", "b"}) {
    body += std::string("    %") + name + "c = stablehlo.convert %" + name +
            " : (tensor<8x8xf32>) -> " + operand + "\n";
  }
  const auto program = session.client->compile(
      "module @product {\n  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> "
      "tensor<8x8xf32> {\n" +
      body + "    %0 = stablehlo.dot_general %ac, %bc, contracting_dims = [1] x [0] : (" + operand +
      ", " + operand + ") -> tensor<8x8xf32>\n    func.return %0 : tensor<8x8xf32>\n  }\n}\n");
  Matrix a = wave(0.7f), b = wave(1.3f);
  PjrtBuffer left = copied(session, a, {8, 8}), right = copied(session, b, {8, 8});
  const auto execution = program->execute({&left, &right}, nullptr);
  execution->wait();
  const auto got = values_of(execution->outputs().at(0));
  double worst = 0;
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double want = 0;
      for (size_t k = 0; k < 8; ++k)
        want += double{a.values[8 * i + k]} * double{b.values[8 * k + j]};
      worst = worse(worst, want - double{got[8 * i + j]});
    }
  }
  // Eight terms below 1/4; a bf16 operand is off by 1/256 of itself at most.
  const double bound = bf16 ? 8.0 / 4 * 2 / 256 : 1e-5;
  expect(worst <= bound, "off by ", worst, ", expected at most ", bound);
  return nxd::text("off by ", worst);
}

std::string update(Session& session) {
  const auto program = session.client->compile(
      "module @update {\n  func.func @main(%w: tensor<64xf32> {tf.aliasing_output = 0 : i32}, "
      "%g: tensor<64xf32>) -> tensor<64xf32> {\n"
      "    %0 = stablehlo.subtract %w, %g : tensor<64xf32>\n"
      "    func.return %0 : tensor<64xf32>\n  }\n}\n");
  Matrix w = wave(0.7f), g = wave(1.3f);
  const Matrix first = w;
  PjrtBuffer weight = session.client->import_host(w.values, f32({64}), HostMemory::kDonatable);
  PjrtBuffer gradient = copied(session, g, {64});
  for (int step = 0; step < 3; ++step) {
    const auto execution = program->execute({&weight, &gradient}, nullptr);
    execution->wait();
    expect(weight.is_donated(), "the weight's memory was not donated");
    weight = std::move(execution->outputs().at(0));
  }
  const auto got = values_of(weight);
  for (size_t i = 0; i < 64; ++i) {
    const float want = first.values[i] - g.values[i] - g.values[i] - g.values[i];
    expect(std::fabs(got[i] - want) <= 1e-5f, "element ", i, " is ", got[i], ", expected ", want);
  }
  const bool is_shared = std::memcmp(w.values, got.data(), sizeof w) == 0;
  return is_shared ? "in the host's memory" : "in the device's memory";
}

const char* const kDouble =
    "module @double {\n  func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {\n"
    "    %0 = stablehlo.add %a, %a : tensor<64xf32>\n"
    "    func.return %0 : tensor<64xf32>\n  }\n}\n";

std::string serialization(Session& session) {
  std::string code;
  try {
    code = session.client->compile(kDouble)->serialize();
  } catch (const nxd::Error& error) {
    if (error.status() == NXD_ERROR_UNSUPPORTED) throw Skipped{error.what()};
    throw;
  }
  const auto program = session.client->deserialize(code);
  Matrix a = wave(0.7f);
  PjrtBuffer in = copied(session, a, {64});
  const auto execution = program->execute({&in}, nullptr);
  execution->wait();
  const auto got = values_of(execution->outputs().at(0));
  for (size_t i = 0; i < 64; ++i) expect(got[i] == 2 * a.values[i], "element ", i, " is ", got[i]);
  return nxd::text(code.size(), " bytes");
}

std::string all_reduce(Session& session) {
  const int size = session.launch.size;
  if (size > 1 && session.client->platform() == "cpu") {
    throw Skipped{"the CPU plug-in has no collectives between processes"};
  }
  std::string ranks;
  for (int rank = 0; rank < size; ++rank) ranks += (rank ? ", " : "") + std::to_string(rank);
  nxd::PjrtOptions options;
  options.replicas = size;
  const auto program = session.client->compile(
      nxd::text("module @sum attributes {mhlo.num_replicas = ", size, " : i32} {\n",
                "  func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {\n",
                "    %0 = \"stablehlo.all_reduce\"(%a) ({\n",
                "    ^bb0(%l: tensor<f32>, %r: tensor<f32>):\n",
                "      %s = stablehlo.add %l, %r : tensor<f32>\n",
                "      stablehlo.return %s : tensor<f32>\n    }) {replica_groups = dense<[[", ranks,
                "]]> : tensor<1x", size, "xi64>} : (tensor<64xf32>) -> tensor<64xf32>\n",
                "    func.return %0 : tensor<64xf32>\n  }\n}\n"),
      options);
  Matrix own{};
  for (float& value : own.values) value = static_cast<float>(session.launch.rank + 1);
  PjrtBuffer in = copied(session, own, {64});
  const auto execution = program->execute({&in}, nullptr);
  execution->wait();
  const auto want = static_cast<float>(size) * static_cast<float>(size + 1) / 2;
  for (const float got : values_of(execution->outputs().at(0))) {
    expect(got == want, "the sum is ", got, ", expected ", want);
  }
  return nxd::text("over ", size, size == 1 ? " rank" : " ranks");
}

// An eighth of the way from 1 to the next number of bf16.
std::string rounding(Session& session) {
  const auto program = session.client->compile(
      "module @round {\n  func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
      "    %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<65536xf32>\n"
      "    %1 = stablehlo.convert %0 : (tensor<65536xf32>) -> tensor<65536xbf16>\n"
      "    %2 = stablehlo.convert %1 : (tensor<65536xbf16>) -> tensor<65536xf32>\n"
      "    %3 = stablehlo.constant dense<1.0> : tensor<65536xf32>\n"
      "    %4 = stablehlo.compare GT, %2, %3 : (tensor<65536xf32>, tensor<65536xf32>) -> "
      "tensor<65536xi1>\n"
      "    %5 = stablehlo.convert %4 : (tensor<65536xi1>) -> tensor<65536xf32>\n"
      "    %6 = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "    %7 = stablehlo.reduce(%5 init: %6) applies stablehlo.add across dimensions = [0] : "
      "(tensor<65536xf32>, tensor<f32>) -> tensor<f32>\n"
      "    func.return %7 : tensor<f32>\n  }\n}\n");
  Matrix value{};
  value.values[0] = 1 + std::ldexp(1.0f, -10);
  PjrtBuffer in = copied(session, value, {});
  const auto execution = program->execute({&in}, nullptr);
  execution->wait();
  const double share = double{values_of(execution->outputs().at(0)).at(0)} / 65536;
  if (share == 0) return "to the nearest";
  expect(std::fabs(share - 0.125) < 0.01, "a share of ", share,
         " was rounded up, expected 0 to the nearest or 0.125 at random");
  return nxd::text("at random, ", share, " of them up");
}

// tests/core/pjrt/test_pjrt_collectives.cpp trains the same, divided over two ranks.
constexpr double kLosses[] = {0.001068483, 0.001028276, 0.000990004, 0.000953565,
                              0.000918864, 0.000885809, 0.000854314, 0.000824297,
                              0.000795683, 0.000768398, 0.000742373, 0.000717544};

std::string training(Session& session) {
  const char* const a = "tensor<4x4xf32>";
  const char* const b = "tensor<4x8xf32>";
  const char* const c = "tensor<8x4xf32>";
  const auto dot = [](const char* names, const char* dims, const char* left, const char* right,
                      const char* out) {
    return nxd::text("    ", names, ", contracting_dims = ", dims, " : (", left, ", ", right,
                     ") -> ", out, "\n");
  };
  const auto program = session.client->compile(
      nxd::text("module @train {\n  func.func @main(%u: ", b,
                " {tf.aliasing_output = 0 : i32}, %v: ", c,
                " {tf.aliasing_output = 1 : i32}, %x: ", a, ") -> (", b, ", ", c,
                ", tensor<f32>) {\n    %zero = stablehlo.constant dense<0.0> : ", b,
                "\n    %ru = stablehlo.constant dense<0.02> : ", b,
                "\n    %rv = stablehlo.constant dense<0.02> : ", c,
                "\n    %none = stablehlo.constant dense<0.0> : tensor<f32>",
                "\n    %half = stablehlo.constant dense<0.5> : tensor<f32>\n") +
      dot("%z = stablehlo.dot_general %x, %u", "[1] x [0]", a, b, b) +
      nxd::text("    %h = stablehlo.maximum %z, %zero : ", b, "\n") +
      dot("%y = stablehlo.dot_general %h, %v", "[1] x [0]", b, c, a) +
      nxd::text("    %yy = stablehlo.multiply %y, %y : ", a,
                "\n    %sum = stablehlo.reduce(%yy init: %none) applies stablehlo.add across ",
                "dimensions = [0, 1] : (", a, ", tensor<f32>) -> tensor<f32>\n",
                "    %loss = stablehlo.multiply %sum, %half : tensor<f32>\n") +
      dot("%gv = stablehlo.dot_general %h, %y", "[0] x [0]", b, a, c) +
      dot("%gh = stablehlo.dot_general %y, %v", "[1] x [1]", a, c, b) +
      nxd::text("    %on = stablehlo.compare GT, %z, %zero : (", b, ", ", b,
                ") -> tensor<4x8xi1>\n",
                "    %gz = stablehlo.select %on, %gh, %zero : tensor<4x8xi1>, ", b, "\n") +
      dot("%gu = stablehlo.dot_general %x, %gz", "[0] x [0]", a, b, b) +
      nxd::text("    %du = stablehlo.multiply %gu, %ru : ", b,
                "\n    %dv = stablehlo.multiply %gv, %rv : ", c,
                "\n    %nu = stablehlo.subtract %u, %du : ", b,
                "\n    %nv = stablehlo.subtract %v, %dv : ", c,
                "\n    func.return %nu, %nv, %loss : ", b, ", ", c, ", tensor<f32>\n  }\n}\n"));
  Matrix first = wave(1.3f), second = wave(2.1f), in = wave(0.7f);
  PjrtBuffer u = copied(session, first, {4, 8}), v = copied(session, second, {8, 4});
  PjrtBuffer x = copied(session, in, {4, 4});
  double worst = 0;
  for (const double want : kLosses) {
    const auto execution = program->execute({&u, &v, &x}, nullptr);
    execution->wait();
    auto& outputs = execution->outputs();
    worst = worse(worst, double{values_of(outputs.at(2)).at(0)} / want - 1);
    u = std::move(outputs.at(0));
    v = std::move(outputs.at(1));
  }
  expect(worst < 1e-3, "losses are off by a part of ", worst, ", expected at most 0.001");
  return nxd::text("losses off by a part of ", worst);
}

#ifdef NXD_SELFTEST_ENGINE

// Steps that the engine has recorded. On several ranks their collectives are part of the step.
std::string llama(Session& session) {
  if (!divides_llama(session.launch.size)) throw Skipped{"it is trained by 1 or 2 ranks"};
  ::setenv("NXD_PJRT_PLUGIN", session.client->plugin().path().c_str(), 1);
  ::setenv("NXD_XLA_BACKEND", "pjrt", 1);
  const std::vector<double> losses = train_llama(true);
  double worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    worst = worse(worst, losses[i] / recorded_llama_losses()[i] - 1);
  }
  expect(worst < 1e-3, "losses are off by a part of ", worst, ", expected at most 0.001; ",
         "the compiler may round products to bf16, which NEURON_CC_FLAGS=--auto-cast=none stops");
  return nxd::text(losses.size(), " steps, losses off by a part of ", worst);
}

int print_eager_losses() {
  try {
    const std::vector<double> losses = train_llama(false);
    for (size_t i = 0; i < losses.size(); ++i) {
      std::printf("%.7f, recorded %.7f\n", losses[i], recorded_llama_losses()[i]);
    }
    return 0;
  } catch (const nxd::Error& error) {
    std::printf("FAILED  Llama, eagerly: %s\n", error.what());
    return 1;
  }
}

#else

std::string llama(Session&) { throw Skipped{"this build has no libnxd"}; }

int print_eager_losses() {
  std::printf("skipped Llama, eagerly: this build has no libnxd\n");
  return 0;
}

#endif

int run_all(const std::string& plugin) {
  struct Check {
    const char* name;
    std::function<std::string(Session&)> run;
  };
  const Check checks[] = {{"device", device},
                          {"product, f32", [](Session& s) { return product(s, false); }},
                          {"product, bf16", [](Session& s) { return product(s, true); }},
                          {"update in place", update},
                          {"saved program", serialization},
                          {"all-reduce", all_reduce},
                          {"rounding to bf16", rounding},
                          {"training", training},
                          {"Llama", llama}};
  Session session;
  try {
    session.launch = nxd::detect_launch();
    session.client = nxd::PjrtClient::load(plugin);
  } catch (const nxd::Error& error) {
    std::printf("FAILED  plug-in: %s\n", error.what());
    return 1;
  }
  int failed = 0;
  for (const Check& check : checks) {
    try {
      std::printf("ok      %s: %s\n", check.name, check.run(session).c_str());
    } catch (const Skipped& skipped) {
      std::printf("skipped %s: %s\n", check.name, skipped.why.c_str());
    } catch (const std::exception& error) {
      std::printf("FAILED  %s: %s\n", check.name, error.what());
      ++failed;
    }
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const option known[] = {{"eager", no_argument, nullptr, 'e'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "eh", known, nullptr)) != -1;) {
    if (c == 'e') return end_output(kName, print_eager_losses());
    if (c != 'h') return kWrongArguments;
    std::fputs(kUsage, stdout);
    return end_output(kName, 0);
  }
  if (argc - optind > 1) {
    std::fputs(kUsage, stderr);
    return kWrongArguments;
  }
  try {
    return end_output(kName, run_all(optind < argc ? argv[optind] : nxd::find_pjrt_plugin()));
  } catch (const nxd::Error& error) {
    std::fprintf(stderr, "skip: PJRT plug-in: %s\n", error.what());
    return kNoPlugin;
  }
}
