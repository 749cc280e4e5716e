// Ties: one parameter under several names, whatever their order in the tree and that of the calls.
#include <initializer_list>

#include "support/temp_dir.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

constexpr nxd_status_t kBad = NXD_ERROR_INVALID_ARGUMENT;

Module container(nxd_context_t* ctx) {
  Module module;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, module.out()));
  return module;
}

nxd_parameter_t* add(const Module& module, const char* name, const std::vector<int64_t>& shape) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module.get(), name, shape.data(),
                                       static_cast<int32_t>(shape.size()), nullptr, &parameter));
  return parameter;
}

nxd_parameter_t* find(const Module& module, const std::string& name) {
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_find_parameter(module.get(), name.c_str(), &parameter));
  return parameter;
}

void tie(nxd_context_t* ctx, int, int size, void*) {
  Module root = container(ctx), embed, head;
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  linear.bias = NXD_TOGGLE_OFF;
  NXD_TEST_OK(nxd_layer_create_parallel_embedding(ctx, 12, 8, nullptr, embed.out()));
  NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 12, &linear, head.out()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "embed", embed.get()));
  NXD_TEST_OK(nxd_module_add_child(root.get(), "head", head.get()));
  add(root, "other", {8, 12});
  NXD_TEST_CHECK(root.parameters().size() == 3);
  NXD_TEST_OK(nxd_module_tie(root.get(), "embed.weight", "head.weight"));
  NXD_TEST_CHECK(root.parameters().size() == 2);
  NXD_TEST_CHECK(find(root, "head.weight") == find(root, "embed.weight"));
  NXD_TEST_OK(nxd_module_initialize(root.get(), 11));

  const Tensor ids = from_ints({1, 5, 5, 0}, {4});
  const Tensor y = head({embed({ids})});
  if (!y) return;
  const Tensor g = wave({4, 12}, NXD_DTYPE_F32, 2);
  backward(y, g);
  // Against ATen with one weight in both places.
  const Tensor w = leaf(whole(find(root, "embed.weight")), NXD_DTYPE_F32, true);
  const Tensor rows = op("embedding", {{"weight", w}, {"indices", ids}});
  const Tensor unsharded = op("linear", {{"input", rows}, {"weight", w}, {"bias", Tensor()}});
  NXD_TEST_CLOSE("output", y, unsharded, 1e-5);
  backward(unsharded, g);
  NXD_TEST_CLOSE("gradient", whole_grad(find(root, "head.weight")), w.grad(), 1e-5);

  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "embed.weight", "other"), kBad, "alias_path");
  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "embed.weigt", "head.weight"), kBad, "embed.weight");
  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "embed.weight", "hed.weight"), kBad, "head.weight");
  (void)size;
}

void test_tie(void**) {
  for (const int size : {1, 2, 4}) nxd_test_run_ranks(size, size, tie, nullptr);
}

// An owner that stands behind its alias in the tree gives it its name, in lists, initial values and
// files.
void owner_behind(nxd_context_t* ctx, int, int, void*) {
  const TempDir directory;
  const std::string path = directory.path() + "/model.safetensors";
  const Module first = container(ctx), behind = container(ctx), alone = container(ctx);
  for (const Module* root : {&first, &behind}) {
    add(*root, root == &first ? "owner" : "alias", {4, 4});
    add(*root, root == &first ? "alias" : "owner", {4, 4});
    NXD_TEST_OK(nxd_module_tie(root->get(), "owner", "alias"));
    NXD_TEST_CHECK(root->parameters().size() == 1 && root->parameters()[0].first == "owner");
    NXD_TEST_OK(nxd_module_initialize(root->get(), 7));
  }
  NXD_TEST_CHECK(values(whole(find(first, "alias"))) == values(whole(find(behind, "alias"))));
  NXD_TEST_OK(nxd_module_save_safetensors(behind.get(), path.c_str()));
  add(alone, "owner", {4, 4});
  NXD_TEST_OK(nxd_module_load_safetensors(alone.get(), path.c_str(), 1, nullptr));
  NXD_TEST_CHECK(values(whole(find(alone, "owner"))) == values(whole(find(behind, "owner"))));
}

// Names that were tied to one that is tied then go with it, and so do handles.
void chain(nxd_context_t* ctx, int, int, void*) {
  for (const bool last_first : {false, true}) {
    const Module root = container(ctx);
    nxd_parameter_t* handles[3];
    const char* const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; ++i) handles[i] = add(root, names[i], {2, 3});
    const auto tie_pair = [&](bool last) {
      NXD_TEST_OK(nxd_module_tie(root.get(), last ? "b" : "a", last ? "c" : "b"));
    };
    tie_pair(last_first);
    if (last_first) {
      tie_pair(false);
    } else {
      NXD_TEST_OK(nxd_module_tie(root.get(), "c", "a"));
    }
    NXD_TEST_CHECK(root.parameters().size() == 1);
    NXD_TEST_CHECK(root.parameters()[0].first == (last_first ? "a" : "c"));
    NXD_TEST_OK(nxd_module_initialize(root.get(), 3));
    const std::vector<double> expected = values(whole(root.parameters()[0].second));
    for (nxd_parameter_t* const handle : handles) {
      NXD_TEST_CHECK(values(whole(handle)) == expected);
    }
  }
}

struct Lent {
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t* shard = nullptr;

  Tensor value() const {
    nxd_tensor_t* retained = nullptr;
    NXD_TEST_OK(nxd_tensor_retain(shard, &retained));
    return Tensor(retained);
  }
};

// Handles that were lent before a tie lead to the owner, whatever is tied to what later.
void lent_handles(nxd_context_t* ctx, int, int, void*) {
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

// Files of an optimizer name the parameters that it was made with: none of them leaves the tree.
void trained(nxd_context_t* ctx, int, int, void*) {
  const Module root = container(ctx);
  add(root, "a", {4});
  nxd_parameter_t* const b = add(root, "b", {4});
  add(root, "c", {4});
  nxd_optimizer_t* optimizer = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_sgd(root.get(), nullptr, &optimizer));
  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "a", "b"), NXD_ERROR_INVALID_STATE, "parameter b");
  NXD_TEST_CHECK(root.parameters().size() == 3 && find(root, "b") == b);
  nxd_optimizer_destroy(optimizer);
  nxd_ddp_t* ddp = nullptr;
  NXD_TEST_OK(nxd_ddp_create(root.get(), nullptr, &ddp));
  NXD_TEST_REFUSED(nxd_module_tie(root.get(), "a", "b"), NXD_ERROR_INVALID_STATE, "parameter b");
  nxd_ddp_destroy(ddp);
  NXD_TEST_OK(nxd_finish_grads(root.get(), nullptr, nullptr));
  NXD_TEST_OK(nxd_module_tie(root.get(), "a", "b"));
  // One that is frozen has no state.
  NXD_TEST_OK(nxd_parameter_set_trainable(find(root, "c"), 0));
  NXD_TEST_OK(nxd_optimizer_create_sgd(root.get(), nullptr, &optimizer));
  NXD_TEST_OK(nxd_module_tie(root.get(), "a", "c"));
  NXD_TEST_CHECK(root.parameters().size() == 1);
  nxd_optimizer_destroy(optimizer);
}

// A file of untied values: the mismatch speaks of the names, and of no configuration.
void untied_file(nxd_context_t* ctx, int, int, void*) {
  const TempDir directory;
  const std::string path = directory.path() + "/untied.safetensors";
  const Module apart = container(ctx), root = container(ctx);
  for (const char* name : {"a", "b"}) {
    add(apart, name, {4});
    add(root, name, {4});
  }
  NXD_TEST_OK(nxd_parameter_set_full(find(apart, "b"), wave({4}, NXD_DTYPE_F32, 3).get()));
  NXD_TEST_OK(nxd_module_save_safetensors(apart.get(), path.c_str()));
  NXD_TEST_OK(nxd_module_tie(root.get(), "a", "b"));
  NXD_TEST_REFUSED(nxd_module_load_safetensors(root.get(), path.c_str(), 1, nullptr), kBad,
                   "b: expected the values of a, to which it is tied, the file has others");
  NXD_TEST_CHECK(std::string(nxd_last_error()).find("tie_word_embeddings") == std::string::npos);
}

void test_owner_behind(void**) { nxd_test_run_ranks(1, 1, owner_behind, nullptr); }
void test_chain(void**) { nxd_test_run_ranks(1, 1, chain, nullptr); }
void test_untied_file(void**) { nxd_test_run_ranks(1, 1, untied_file, nullptr); }
void test_trained(void**) { nxd_test_run_ranks(1, 1, trained, nullptr); }
void test_lent_handles(void**) { nxd_test_run_ranks(1, 1, lent_handles, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_tie),     cmocka_unit_test(test_owner_behind),
      cmocka_unit_test(test_chain),   cmocka_unit_test(test_lent_handles),
      cmocka_unit_test(test_trained), cmocka_unit_test(test_untied_file),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
