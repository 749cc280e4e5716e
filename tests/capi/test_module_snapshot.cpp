// Snapshots of modules: the file is that of their moment, whatever the parameters do next.
#include "support/model_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr const char* kFile = "model.safetensors";

using Checkpoint = std::unique_ptr<nxd_checkpoint_t, Destroyer<nxd_checkpoint_destroy>>;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

Checkpoint begin(nxd_context_t* ctx, const std::string& root, int64_t step) {
  nxd_checkpoint_t* out = nullptr;
  NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), step, &out));
  return Checkpoint(out);
}

// Over TP 2, and DP 2 x TP 2, whose second copy keeps nothing.
void of_the_moment(void**) {
  for (const int size : {2, 4}) {
    const TempDir directory;
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.timeout_ms = 60000;
    nxd_test_run_ranks_with(
        &options, size, 2,
        [](nxd_context_t* ctx, int, int, void* user_data) {
          const std::string& root = static_cast<TempDir*>(user_data)->path();
          const std::string same = root + "/same.safetensors";
          const Module model = load_model(ctx, oracle().directory, Layout{2});
          NXD_TEST_OK(nxd_module_save_safetensors(model.get(), same.c_str()));
          const Checkpoint checkpoint = begin(ctx, root, 1);
          NXD_TEST_OK(nxd_module_snapshot(model.get(), checkpoint.get(), kFile));
          NXD_TEST_OK(nxd_module_initialize(model.get(), 99));
          NXD_TEST_OK(nxd_checkpoint_publish_async(checkpoint.get(), 0));
          for (int i = 0; i < 3; ++i) run_backward(model.get(), oracle());
          NXD_TEST_OK(nxd_checkpoint_wait(checkpoint.get(), -1));
          // Every rank's share is in a file of its own; what is loaded from them is the whole.
          const std::string path = root + "/step-000000000001/" + kFile + ".shares.json";
          const std::string again = root + "/again.safetensors";
          NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
          NXD_TEST_OK(nxd_module_save_safetensors(model.get(), again.c_str()));
        },
        const_cast<TempDir*>(&directory));
    // The second copy does not wait for the first, which writes.
    assert_true(read_file(directory.path() + "/again.safetensors") ==
                read_file(directory.path() + "/same.safetensors"));
  }
}

void bad_calls(void**) {
  const TempDir directory;
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    int32_t rank = 0;
    NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
    const bool bad = rank == 1;
    const Module model = create_model(ctx, oracle().config, Layout{2});
    const Checkpoint checkpoint = begin(ctx, directory.path(), 1);
    nxd_checkpoint_t* to = checkpoint.get();
    const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT;
    NXD_TEST_REFUSED(nxd_module_snapshot(model.get(), nullptr, kFile), argument, "checkpoint");
    NXD_TEST_REFUSED(nxd_module_snapshot(bad ? nullptr : model.get(), to, kFile), argument, "root");
    NXD_TEST_REFUSED(nxd_module_snapshot(model.get(), to, bad ? nullptr : kFile), argument, "name");
    if (bad) NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_META));
    NXD_TEST_REFUSED(nxd_module_snapshot(model.get(), to, kFile), argument, "meta device");
    if (bad) NXD_TEST_OK(nxd_move_model_to_device(model.get(), NXD_DEVICE_CPU));
    NXD_TEST_OK(nxd_module_snapshot(model.get(), to, kFile));
    NXD_TEST_OK(nxd_checkpoint_publish(to, 0));
    return 0;
  });
  // A module of another context in the same process.
  on_ranks<int>(Layout{1}, 0, [&](nxd_context_t* ctx) {
    const Checkpoint checkpoint = begin(ctx, directory.path(), 2);
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.size = 1;
    nxd_store_t* store = nullptr;
    nxd_context_t* other = nullptr;
    NXD_TEST_OK(nxd_store_create_local(&store));
    options.store = store;
    NXD_TEST_OK(nxd_context_create(&options, &other));
    NXD_TEST_OK(nxd_init_model_parallel(other, nullptr));
    {
      const Module model = create_model(other, oracle().config, Layout{1});
      NXD_TEST_REFUSED(nxd_module_snapshot(model.get(), checkpoint.get(), kFile),
                       NXD_ERROR_INVALID_ARGUMENT, "of another");
    }
    nxd_context_destroy(other);
    nxd_store_destroy(store);
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(of_the_moment), cmocka_unit_test(bad_calls)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
