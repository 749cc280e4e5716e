// Handles that were lent on a parameter before another stands for it.
#include <initializer_list>

#include "support/check.h"
#include "support/tensor.h"

using namespace nxd_test;

namespace {

struct Lent {
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t* shard = nullptr;

  Tensor value() const {
    nxd_tensor_t* retained = nullptr;
    NXD_TEST_OK(nxd_tensor_retain(shard, &retained));
    return Tensor(retained);
  }
};

nxd_parameter_t* find(const Module& root, const char* name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(root.get(), name, &parameter));
  return parameter;
}

// They lead to the owner, whatever is tied to what later.
void ties(nxd_context_t* ctx, int, int, void*) {
  Module root;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, root.out()));
  const int64_t shape[] = {2, 3};
  const char* const names[] = {"a", "b", "c"};
  Lent lent[3];
  for (const int i : {0, 1, 2}) {
    NXD_TEST_OK(
        nxd_module_add_parameter(root.get(), names[i], shape, 2, nullptr, &lent[i].parameter));
    NXD_TEST_OK(nxd_parameter_get_tensor(lent[i].parameter, &lent[i].shard));
  }
  const auto check_same = [&](std::initializer_list<int> same, int phase) {
    const Tensor written = wave({2, 3}, NXD_DTYPE_F32, phase);
    NXD_TEST_OK(nxd_parameter_set_full(lent[*same.begin()].parameter, written.get()));
    for (const int i : same) {
      NXD_TEST_CLOSE("found", whole(find(root, names[i])), written, 0);
      NXD_TEST_CLOSE("lent", whole(lent[i].parameter), written, 0);
      NXD_TEST_CLOSE("lent tensor", lent[i].value(), written, 0);
    }
  };
  NXD_TEST_OK(nxd_module_tie(root.get(), "a", "b"));
  NXD_TEST_OK(nxd_module_tie(root.get(), "a", "b"));  // is tied already
  check_same({1, 0}, 1);
  NXD_TEST_OK(nxd_module_tie(root.get(), "c", "b"));
  check_same({1, 2}, 2);
  check_same({0}, 3);
  NXD_TEST_OK(nxd_module_tie(root.get(), "c", "a"));
  check_same({0, 1, 2}, 4);
  NXD_TEST_CHECK(root.parameters().size() == 1);
  nxd_parameter_options_t wide = NXD_PARAMETER_OPTIONS_INIT;
  wide.dtype = NXD_DTYPE_F64;
  NXD_TEST_OK(nxd_module_add_parameter(root.get(), "d", shape, 2, &wide, nullptr));
  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "a", "d"), NXD_ERROR_INVALID_ARGUMENT, "dtype");
  NXD_TEST_CHECK(root.parameters().size() == 2);
}

void test_ties(void**) { nxd_test_run_ranks(1, 1, ties, nullptr); }

}  // namespace

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ties)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
