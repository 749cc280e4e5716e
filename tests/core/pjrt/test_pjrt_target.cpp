// Facts of a plug-in that programs are written by: Neuron's dtypes and quirks, as docs/neuron.md
// has them, and none of them for another.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/pjrt/pjrt_target.h"
#include "support/paths.h"

#include "support/check.h"

namespace {

using namespace nxd;

PjrtTarget neuron(const std::map<std::string, std::string>& variables = {}) {
  return PjrtTarget::neuron([variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

void test_dtypes(void**) {
  const nxd_dtype_t all[] = {NXD_DTYPE_F32, NXD_DTYPE_F64, NXD_DTYPE_BF16, NXD_DTYPE_F16,
                             NXD_DTYPE_I32, NXD_DTYPE_I64, NXD_DTYPE_U8,   NXD_DTYPE_I8,
                             NXD_DTYPE_I16, NXD_DTYPE_BOOL};
  const std::map<nxd_dtype_t, nxd_dtype_t> mapped = {{NXD_DTYPE_F64, NXD_DTYPE_F32},
                                                     {NXD_DTYPE_I16, NXD_DTYPE_I32}};
  for (const nxd_dtype_t dtype : all) {
    assert_int_equal(PjrtTarget().on_device(dtype), dtype);
    const auto found = mapped.find(dtype);
    const nxd_dtype_t want = found == mapped.end() ? dtype : found->second;
    assert_int_equal(neuron().on_device(dtype), want);
    assert_int_equal(neuron({{"XLA_USE_32BIT_LONG", "0"}}).on_device(dtype), want);
    assert_int_equal(neuron({{"XLA_USE_32BIT_LONG", "1"}}).on_device(dtype),
                     dtype == NXD_DTYPE_I64 ? NXD_DTYPE_I32 : want);
  }
}

void test_quirks(void**) {
  assert_false(PjrtTarget().is_neuron());
  assert_true(neuron().is_neuron());
  for (const QuirkOfTarget& known : neuron_quirks()) {
    assert_false(PjrtTarget().has(known.quirk));
    assert_true(neuron().has(known.quirk));
  }
}

// Both tables, row by row.
void test_both_are_documented(void**) {
  std::vector<std::string> wanted;
  for (const DtypeMapping& mapping : neuron_dtypes()) {
    wanted.push_back(
        text("| ", dtype_name(mapping.dtype), " | ", dtype_name(mapping.on_device), " | ",
             mapping.variable ? text("with `", mapping.variable, "=1`") : "always", " |"));
  }
  for (const QuirkOfTarget& known : neuron_quirks()) {
    wanted.push_back(text("| ", known.what, " | ", known.remedy, " | ", known.source, " |"));
  }
  std::vector<std::string> found;
  std::ifstream page(nxd_test::oracles() + "/../../docs/neuron.md");
  bool is_in_table = false;
  for (std::string line; std::getline(page, line);) {
    const bool begins = line.starts_with("| dtype |") || line.starts_with("| the plug-in");
    is_in_table = begins || (is_in_table && line.starts_with("|"));
    if (is_in_table && !begins && !line.starts_with("|---")) found.push_back(line);
  }
  for (size_t i = 0; i < wanted.size() && i < found.size(); ++i) {
    assert_string_equal(found[i].c_str(), wanted[i].c_str());
  }
  assert_int_equal(found.size(), wanted.size());
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_quirks),
      cmocka_unit_test(test_both_are_documented),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
