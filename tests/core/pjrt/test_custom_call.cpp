// Calls out of a program that a real plug-in runs: attributes, results in place, their order, and
// errors, which come back as they were thrown.
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "core/pjrt/custom_call.h"
#include "core/pjrt/pjrt_client.h"
#include "pjrt_support.h"
#include "support/pjrt.h"

#include "support/check.h"

namespace {

using namespace nxd_test;
using nxd::CustomCall;
using nxd::HostMemory;
using nxd::PjrtBuffer;

std::shared_ptr<nxd::PjrtClient> client() { return nxd::PjrtClient::load(plugin_path()); }

// The rank of the test: custom calls note here what they were given.
struct Rank {
  float addend = 0;
  std::mutex mutex;
  std::vector<int64_t> order;
  bool in_place = false;
};

std::string call_of(const std::string& attributes, const std::string& operands,
                    const std::string& results, const std::string& signature,
                    const std::string& more = "") {
  return "    " + results + " = \"stablehlo.custom_call\"(" + operands +
         ") {call_target_name = \"nxd_call\", api_version = 4 : i32, has_side_effect = true, "
         "backend_config = {" +
         attributes + "}" + more + "} : " + signature + "\n";
}

const std::string kFour = "tensor<4xf32>";

std::shared_ptr<nxd::PjrtExecutable> calling(const std::string& attributes,
                                             const std::string& more = "") {
  return client()->compile(
      module_of("%a: " + kFour, kFour,
                "    %0 = stablehlo.add %a, %a : " + kFour + "\n" +
                    call_of(attributes, "%0", "%1", "(" + kFour + ") -> " + kFour, more) +
                    "    func.return %1 : " + kFour),
      fast());
}

std::vector<float> called(nxd::PjrtExecutable& program, void* rank_data) {
  std::vector<float> ones(4, 1);
  PjrtBuffer a = client()->import_host(ones.data(), f32({4}), HostMemory::kCopied);
  return values_of(run(program, {&a}, rank_data)->outputs().at(0));
}

void register_all() {
  nxd::register_custom_call("test_add", [](const CustomCall& call) {
    nxd::check_argument(call.inputs().size() == 1 && call.outputs().size() == 1,
                        "a token is given");
    auto& rank = *static_cast<Rank*>(call.rank_data());
    const auto* in = static_cast<const float*>(call.inputs().at(0).data);
    auto* out = static_cast<float*>(call.outputs().at(0).data);
    rank.in_place = in == out;
    for (size_t i = 0; i < call.inputs()[0].bytes / sizeof(float); ++i) {
      out[i] = in[i] + rank.addend;
    }
    if (!call.has("n")) return;
    const std::lock_guard<std::mutex> lock(rank.mutex);
    rank.order.push_back(call.integer("n"));
  });
  nxd::register_custom_call("test_attributes", [](const CustomCall& call) {
    const auto& in = call.inputs().at(0);
    nxd::check_argument(in.dtype == NXD_DTYPE_F32 && in.shape == std::vector<int64_t>{4} &&
                            in.bytes == 16 && call.inputs().size() == 1,
                        "bad input");
    auto* out = static_cast<float*>(call.outputs().at(0).data);
    out[0] = static_cast<float>(call.integer("count"));
    out[1] = static_cast<float>(call.number("scale"));
    out[2] = static_cast<float>(call.text("group").size());
    out[3] = 0;
    for (const int64_t value : call.integers("dims"))
      out[3] = out[3] * 10 + static_cast<float>(value);
  });
  nxd::register_custom_call("test_integer", [](const CustomCall& call) { call.integer("group"); });
  nxd::register_custom_call("test_missing", [](const CustomCall& call) { call.text("nothing"); });
  nxd::register_custom_call("test_lost", [](const CustomCall&) {
    nxd::ErrorContext context;
    context.root_rank = 3;
    context.group = "tp";
    throw nxd::Error(NXD_ERROR_PEER_LOST, "rank 3 is gone", context);
  });
  nxd::register_custom_call("test_throws",
                            [](const CustomCall&) { throw std::runtime_error("something else"); });
  nxd::register_custom_call("test_type", [](const CustomCall& call) {
    for (size_t i = 0; i < call.inputs().size(); ++i) {
      call.rank_data();
      static_cast<int32_t*>(call.outputs().at(0).data)[i] = call.inputs()[i].dtype;
    }
  });
}

void passes_rank_data(void**) {
  const auto program = calling("function = \"test_add\"");
  Rank one, two;
  one.addend = 1;
  two.addend = 20;
  assert_true(called(*program, &one) == std::vector<float>(4, 3));
  assert_true(called(*program, &two) == std::vector<float>(4, 22));
  // After the machine code has been away, too.
  const auto loaded = client()->deserialize(program->serialize());
  assert_true(called(*loaded, &two) == std::vector<float>(4, 22));
}

void writes_in_place(void**) {
  const auto program = calling(
      "function = \"test_add\"",
      ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], "
      "operand_index = 0, operand_tuple_indices = []>]");
  Rank rank;
  assert_true(called(*program, &rank) == std::vector<float>(4, 2));
  assert_true(rank.in_place);
}

void reads_attributes(void**) {
  const auto program = calling(
      "function = \"test_attributes\", count = 7 : i64, scale = 2.5 : f64, group = \"data\", "
      "dims = array<i64: 1, 2, 3>");
  assert_true(called(*program, nullptr) == (std::vector<float>{7, 2.5, 4, 123}));
}

void knows_element_types(void**) {
  const std::string types[] = {"f32", "f64", "bf16", "f16", "i32", "i64",
                               "ui8", "i8",  "i16",  "i1",  "ui32"};
  std::string constants, operands, signature;
  for (size_t i = 0; i < std::size(types); ++i) {
    const std::string name = "%c" + std::to_string(i), tensor = "tensor<2x" + types[i] + ">";
    const char* value = types[i] == "i1" ? "true" : types[i].find('f') < 2 ? "1.0" : "1";
    constants += "    " + name + " = stablehlo.constant dense<" + value + "> : " + tensor + "\n";
    operands += (i ? ", " : "") + name;
    signature += (i ? ", " : "") + tensor;
  }
  const auto program =
      client()->compile(module_of("", "tensor<11xi32>",
                                  constants +
                                      call_of("function = \"test_type\"", operands, "%r",
                                              "(" + signature + ") -> tensor<11xi32>") +
                                      "    func.return %r : tensor<11xi32>"),
                        fast());
  const auto execution = run(*program, {});
  std::vector<int32_t> got(11);
  execution->outputs().at(0).copy_to_host(got.data(), 44);
  for (int32_t i = 0; i < 10; ++i) assert_int_equal(got[static_cast<size_t>(i)], i);
  assert_int_equal(got[10], NXD_DTYPE_INVALID);
}

// A token puts calls that do not depend on each other into the program's order; it is no input.
void keeps_the_order_of_tokens(void**) {
  constexpr int kCalls = 24;
  std::string body = "    %t0 = stablehlo.create_token : !stablehlo.token\n";
  for (int i = 0; i < kCalls; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    body += call_of("function = \"test_add\", n = " + n + " : i64", "%a, %t" + n,
                    "%r" + n + ", %t" + next,
                    "(" + kFour + ", !stablehlo.token) -> (" + kFour + ", !stablehlo.token)");
  }
  const auto program = client()->compile(
      module_of("%a: " + kFour, kFour, body + "    func.return %r0 : " + kFour), fast());
  Rank rank;
  rank.addend = 4;
  assert_true(called(*program, &rank) == std::vector<float>(4, 5));
  assert_int_equal(rank.order.size(), kCalls);
  for (int i = 0; i < kCalls; ++i) assert_int_equal(rank.order[static_cast<size_t>(i)], i);
}

void brings_errors_back(void**) {
  const auto bad = NXD_ERROR_INVALID_ARGUMENT;
  const auto fails = [](const std::string& attributes) {
    return [program = calling(attributes)] { called(*program, nullptr); };
  };
  expect_error(NXD_ERROR_UNSUPPORTED, "no function \"test_none\" was registered",
               fails("function = \"test_none\""));
  expect_error(bad, "expected an attribute function", fails("n = 1 : i64"));
  expect_error(bad, "expected an attribute nothing", fails("function = \"test_missing\""));
  expect_error(bad, "attribute group: expected XLA's kind",
               fails("function = \"test_integer\", group = \"tp\""));
  expect_error(NXD_ERROR_INTERNAL, "something else", fails("function = \"test_throws\""));
  try {
    fails("function = \"test_lost\"")();
    fail_msg("a lost rank is an error");
  } catch (const nxd::Error& error) {
    assert_int_equal(error.status(), NXD_ERROR_PEER_LOST);
    assert_string_equal(error.what(), "rank 3 is gone");
    assert_int_equal(error.context().root_rank, 3);
    assert_string_equal(error.context().group.c_str(), "tp");
  }
}

// A call after long work fails when the execution has returned. The results and those that depend
// on them fail with it.
void fails_late(void**) {
  const std::string large = "tensor<512x512xf32>";
  std::string body, last = "%a";
  for (int i = 0; i < 8; ++i) {
    const std::string next = "%p" + std::to_string(i);
    body += "    " + next + " = stablehlo.dot_general " + last +
            ", %a, contracting_dims = [1] x [0] : (" + large + ", " + large + ") -> " + large +
            "\n";
    last = next;
  }
  body += call_of("function = \"test_lost\"", last, "%r", "(" + large + ") -> " + large);
  const auto program =
      client()->compile(module_of("%a: " + large, large, body + "    func.return %r : " + large));
  std::vector<float> values(512 * 512, 1e-3f);
  PjrtBuffer a = client()->import_host(values.data(), f32({512, 512}), HostMemory::kCopied);
  const auto lost = NXD_ERROR_PEER_LOST;
  auto execution = program->execute({&a}, nullptr);
  PjrtBuffer& result = execution->outputs().at(0);
  auto dependent = program->execute({&result}, nullptr);
  expect_error(lost, "rank 3 is gone", [&] { execution->wait(); });
  expect_error(lost, "rank 3 is gone", [&] { execution->wait(); });
  expect_error(lost, "rank 3 is gone", [&] { result.wait(); });
  expect_error(lost, "rank 3 is gone", [&] { dependent->wait(); });
  // The program itself is as it was.
  expect_error(lost, "rank 3 is gone", [&] { program->execute({&a}, nullptr)->wait(); });
}

void rejects_registrations(void**) {
  const auto bad = NXD_ERROR_INVALID_ARGUMENT;
  expect_error(bad, "there is one of this name",
               [] { nxd::register_custom_call("test_add", [](const CustomCall&) {}); });
  expect_error(bad, "expected a function, got none",
               [] { nxd::register_custom_call("test_null", nullptr); });
  expect_error(bad, "expected some",
               [] { nxd::register_custom_call("", [](const CustomCall&) {}); });
}

}  // namespace

int main() {
  ::setenv("NEURON_CC_FLAGS", "--no_cache", 1);  // test_pjrt_compile_cache.cpp has the cache
  if (!nxd_test_pjrt_plugin()) return kNoPjrtPlugin;
  register_all();
  const CMUnitTest tests[] = {
      cmocka_unit_test(passes_rank_data),   cmocka_unit_test(writes_in_place),
      cmocka_unit_test(reads_attributes),   cmocka_unit_test(knows_element_types),
      cmocka_unit_test(brings_errors_back), cmocka_unit_test(keeps_the_order_of_tokens),
      cmocka_unit_test(fails_late),         cmocka_unit_test(rejects_registrations),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
