// The parameters of a large tree, gone through by index, also while the tree grows.
#include <string>
#include <vector>

#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

Module container(nxd_context_t* ctx) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, module.out()));
  return module;
}

nxd_parameter_t* add(const Module& module, const std::string& name) {
  const int64_t shape[] = {1};
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), name.c_str(), shape, 1, nullptr, &parameter));
  return parameter;
}

struct Entry {
  std::string name;
  nxd_parameter_t* parameter;
  bool operator==(const Entry&) const = default;
};

std::vector<Entry> listed(const Module& root) {
  size_t count = 0;
  NXD_TEST_OK(nxd_module_get_parameter_count(root.get(), &count));
  std::vector<Entry> out;
  for (size_t i = 0; i < count; ++i) {
    nxd_parameter_t* parameter = nullptr;
    const char* name = nullptr;
    NXD_TEST_OK(nxd_module_get_parameter(root.get(), i, &parameter, &name));
    out.push_back({name, parameter});
  }
  return out;
}

void parameters_of_a_large_tree_are_listed(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        constexpr int kChildren = 100, kOfEach = 200;
        const Module root = container(ctx);
        std::vector<Entry> expected;
        std::vector<Module> children;
        for (int c = 0; c < kChildren; ++c) {
          const std::string path = "c" + std::to_string(c);
          children.push_back(container(ctx));
          for (int p = 0; p < kOfEach; ++p) {
            const std::string name = "p" + std::to_string(p);
            expected.push_back({path + "." + name, add(children.back(), name)});
          }
          NXD_TEST_OK(nxd_module_add_child(root.get(), path.c_str(), children.back().get()));
        }
        NXD_TEST_CHECK(listed(root) == expected);
        expected.push_back({"c99.last", add(children.back(), "last")});
        NXD_TEST_CHECK(listed(root) == expected);
        const Module more = container(ctx);
        expected.push_back({"more.w", add(more, "w")});
        NXD_TEST_OK(nxd_module_add_child(root.get(), "more", more.get()));
        NXD_TEST_CHECK(listed(root) == expected);
        // A tied parameter is listed once, by its owner's name.
        NXD_TEST_OK(nxd_module_tie(root.get(), "c0.p0", "more.w"));
        expected.pop_back();
        NXD_TEST_CHECK(listed(root) == expected);
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(parameters_of_a_large_tree_are_listed)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
