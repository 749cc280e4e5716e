// Bad calls of modules: NULL for each pointer, wrong shapes, names, indices and options. Outputs
// are cleared, and what is rejected leaves nothing behind.
#include "support/paths.h"
#include "support/tensor.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

#define BAD(call, part) NXD_TEST_REFUSED(call, NXD_ERROR_INVALID_ARGUMENT, part)

// A handle that was never made: a call that leaves it in an output did not clear it.
template <class T>
T* sentinel() {
  return reinterpret_cast<T*>(uintptr_t{16});
}

// Runs call(output), which has to be rejected and to clear the output.
template <class T, class Call>
void refused(const char* file, int line, T* before, nxd_status_t expected, const char* part,
             const Call& call) {
  T* out = before;
  nxd_test_refused(file, line, "the call", call(&out), expected, part);
  if (out) nxd_test_fail(file, line, "the output was not cleared");
}
#define REFUSED_OUT(T, expected, part, call) \
  refused(__FILE__, __LINE__, sentinel<T>(), expected, part, [&](T** out) { return call; })
#define BAD_OUT(T, part, call) REFUSED_OUT(T, NXD_ERROR_INVALID_ARGUMENT, part, call)

struct Fixture {
  Module root, layer;
  nxd_parameter_t* weight = nullptr;
  Tensor x = wave({2, 8}, NXD_DTYPE_F32, 1);

  explicit Fixture(nxd_context_t* ctx) {
    NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, root.out()));
    NXD_TEST_OK(nxd_layer_create_column_parallel_linear(ctx, 8, 8, nullptr, layer.out()));
    NXD_TEST_OK(nxd_module_add_child(root.get(), "layer", layer.get()));
    NXD_TEST_OK(nxd_module_find_parameter(root.get(), "layer.weight", &weight));
  }
  size_t count() const { return root.parameters().size(); }
};

void creation(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  int destroyed = 0;
  const nxd_destroy_fn destroy = [](void* data) { ++*static_cast<int*>(data); };
  BAD_OUT(nxd_module_t, "ctx", nxd_module_create(nullptr, "A", nullptr, &destroyed, destroy, out));
  BAD_OUT(nxd_module_t, "class_name",
          nxd_module_create(ctx, nullptr, nullptr, &destroyed, destroy, out));
  BAD(nxd_module_create(ctx, "A", nullptr, &destroyed, destroy, nullptr), "out_module");
  NXD_TEST_CHECK(destroyed == 0);
  nxd_module_destroy(nullptr);
  nxd_tape_destroy(nullptr);
  nxd_load_report_destroy(nullptr);

  BAD(nxd_module_add_child(nullptr, "a", f.layer.get()), "parent");
  BAD(nxd_module_add_child(f.root.get(), nullptr, f.layer.get()), "name");
  BAD(nxd_module_add_child(f.root.get(), "a", nullptr), "child");

  const int64_t shape[] = {4, 6}, negative[] = {4, -1};
  nxd_module_t* root = f.root.get();
  const auto add = [&](nxd_module_t* module, const char* name, const int64_t* sizes, int32_t ndim,
                       const nxd_parameter_options_t* options, nxd_parameter_t** out) {
    return nxd_module_add_parameter(module, name, sizes, ndim, options, out);
  };
  BAD_OUT(nxd_parameter_t, "module", add(nullptr, "p", shape, 2, nullptr, out));
  BAD_OUT(nxd_parameter_t, "name", add(root, nullptr, shape, 2, nullptr, out));
  BAD_OUT(nxd_parameter_t, "name", add(root, "a.b", shape, 2, nullptr, out));
  BAD_OUT(nxd_parameter_t, "global_shape", add(root, "p", nullptr, 2, nullptr, out));
  BAD_OUT(nxd_parameter_t, "ndim", add(root, "p", shape, -1, nullptr, out));
  BAD_OUT(nxd_parameter_t, "ndim", add(root, "p", shape, 65, nullptr, out));
  BAD_OUT(nxd_parameter_t, "global_shape", add(root, "p", negative, 2, nullptr, out));
  using Options = nxd_parameter_options_t;
  const auto changed = [&](const std::function<void(Options&)>& change) {
    Options options = NXD_PARAMETER_OPTIONS_INIT;
    change(options);
    return options;
  };
  const auto bad_option = [&](const char* part, const std::function<void(Options&)>& change) {
    const Options options = changed(change);
    BAD_OUT(nxd_parameter_t, part, add(root, "p", shape, 2, &options, out));
  };
  bad_option("dtype", [](Options& o) { o.dtype = NXD_DTYPE_I64; });
  bad_option("dtype", [](Options& o) { o.dtype = NXD_DTYPE_F16; });
  bad_option("dtype", [](Options& o) { o.dtype = 77; });
  bad_option("shard_dim", [](Options& o) { o.has_shard_dim = 1, o.shard_dim = 2; });
  bad_option("shard_dim", [](Options& o) { o.has_shard_dim = 1, o.shard_dim = -1; });
  bad_option("has_shard_dim", [](Options& o) { o.has_shard_dim = 2; });
  bad_option("sequence_parallel", [](Options& o) { o.has_shard_dim = o.sequence_parallel = 1; });
  bad_option("init", [](Options& o) { o.init = 9; });
  bad_option("init", [](Options& o) { o.init = NXD_INIT_INVALID; });
  bad_option("init_b", [](Options& o) { o.init = NXD_INIT_NORMAL, o.init_b = -1; });
  bad_option("init_a", [](Options& o) { o.init = NXD_INIT_UNIFORM, o.init_a = 1; });
  bad_option("init_a", [](Options& o) { o.init = NXD_INIT_CONSTANT, o.init_a = NAN; });
  const Options small = changed([](Options& o) { o.struct_size = 4; });
  REFUSED_OUT(nxd_parameter_t, NXD_ERROR_ABI_MISMATCH, "struct_size",
              add(root, "p", shape, 2, &small, out));
  BAD(nxd_parameter_options_init(nullptr, sizeof(Options)), "options");
  Options options;
  NXD_TEST_REFUSED(nxd_parameter_options_init(&options, 4), NXD_ERROR_ABI_MISMATCH, "size");
  NXD_TEST_CHECK(f.count() == 2);  // nothing was added

  BAD(nxd_module_tie(nullptr, "a", "b"), "root");
  BAD(nxd_module_tie(root, nullptr, "layer.weight"), "owner_path");
  BAD(nxd_module_tie(root, "layer.weight", nullptr), "alias_path");
  BAD(nxd_module_tie(root, "layer.weight", "layer.bias"), "alias_path");
}

// A split dimension that does not divide is rejected on every rank, which all can tell by
// themselves.
void indivisible(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.has_shard_dim = 1;
  const int64_t odd[] = {5, 6};
  BAD_OUT(nxd_parameter_t, "divisible by 2",
          nxd_module_add_parameter(f.root.get(), "p", odd, 2, &options, out));
  NXD_TEST_CHECK(f.count() == 2);
}

void tree(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  nxd_module_t* root = f.root.get();
  BAD_OUT(const char, "module", nxd_module_get_class_name(nullptr, out));
  BAD(nxd_module_get_class_name(root, nullptr), "out_name");
  BAD_OUT(nxd_module_t, "root", nxd_module_find_module(nullptr, "layer", out));
  BAD_OUT(nxd_module_t, "path", nxd_module_find_module(root, nullptr, out));
  BAD_OUT(nxd_module_t, "layer", nxd_module_find_module(root, "lyer", out));
  for (const char* path : {".", "layer.", ".layer"}) {
    BAD_OUT(nxd_module_t, "has no child \"\"", nxd_module_find_module(root, path, out));
  }
  BAD(nxd_module_find_module(root, "layer", nullptr), "out_module");
  size_t count = 7;
  BAD(nxd_module_get_child_count(nullptr, &count), "module");
  NXD_TEST_CHECK(count == 0);
  BAD(nxd_module_get_child_count(root, nullptr), "out_count");
  const char* name = "x";
  BAD_OUT(nxd_module_t, "module", nxd_module_get_child(nullptr, 0, out, &name));
  NXD_TEST_CHECK(name == nullptr);
  name = "x";
  BAD_OUT(nxd_module_t, "index: expected less than 1", nxd_module_get_child(root, 1, out, &name));
  NXD_TEST_CHECK(name == nullptr);
  BAD(nxd_module_set_training(nullptr, 1), "module");
  BAD(nxd_module_initialize(nullptr, 1), "root");
  BAD(nxd_module_zero_grad(nullptr), "root");
  BAD(nxd_move_model_to_device(nullptr, NXD_DEVICE_CPU), "root");
  BAD(nxd_move_model_to_device(root, NXD_DEVICE_INVALID), "device");
  BAD(nxd_move_model_to_device(root, 4), "device");
  NXD_TEST_REFUSED(nxd_move_model_to_device(root, NXD_DEVICE_NEURON), NXD_ERROR_UNSUPPORTED,
                   "NXD_DEVICE_NEURON");
  count = 7;
  BAD(nxd_module_get_parameter_count(nullptr, &count), "root");
  NXD_TEST_CHECK(count == 0);
  BAD(nxd_module_get_parameter_count(root, nullptr), "out_count");
  name = "x";
  BAD_OUT(nxd_parameter_t, "root", nxd_module_get_parameter(nullptr, 0, out, &name));
  NXD_TEST_CHECK(name == nullptr);
  BAD_OUT(nxd_parameter_t, "index: expected less than 2",
          nxd_module_get_parameter(root, 2, out, &name));
  NXD_TEST_OK(nxd_module_get_parameter(root, 0, nullptr, nullptr));
  BAD_OUT(nxd_parameter_t, "root", nxd_module_find_parameter(nullptr, "a", out));
  BAD_OUT(nxd_parameter_t, "name", nxd_module_find_parameter(root, nullptr, out));
  BAD_OUT(nxd_parameter_t, "layer.weight", nxd_module_find_parameter(root, "layer.wight", out));
  BAD(nxd_module_find_parameter(root, "layer.weight", nullptr), "out_parameter");
}

void parameters(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  BAD_OUT(nxd_tensor_t, "parameter", nxd_parameter_get_tensor(nullptr, out));
  BAD(nxd_parameter_get_tensor(f.weight, nullptr), "out_tensor");
  int64_t shape[2] = {7, 7};
  size_t n = 7;
  BAD(nxd_parameter_get_global_shape(nullptr, shape, 2, &n), "parameter");
  NXD_TEST_CHECK(n == 0);
  BAD(nxd_parameter_get_global_shape(f.weight, nullptr, 2, &n), "shape");
  BAD(nxd_parameter_get_global_shape(f.weight, shape, 2, nullptr), "out_ndim");
  BAD(nxd_parameter_get_global_shape(f.weight, shape, 1, &n), "at least 2");
  NXD_TEST_CHECK(n == 2 && shape[0] == 7);
  NXD_TEST_OK(nxd_parameter_get_global_shape(f.weight, nullptr, 0, &n));
  int32_t dim = 7;
  int64_t begin = 7, end = 7;
  BAD(nxd_parameter_get_shard(nullptr, &dim, &begin, &end, 1, &n), "parameter");
  NXD_TEST_CHECK(dim == 0 && n == 0);
  BAD(nxd_parameter_get_shard(f.weight, nullptr, &begin, &end, 1, &n), "out_dim");
  BAD(nxd_parameter_get_shard(f.weight, &dim, nullptr, &end, 1, &n), "begins");
  begin = 7;
  BAD(nxd_parameter_get_shard(f.weight, &dim, &begin, nullptr, 1, &n), "ends");
  NXD_TEST_CHECK(n == 0 && begin == 7);
  BAD(nxd_parameter_get_shard(f.weight, &dim, &begin, &end, 1, nullptr), "out_ranges");
  NXD_TEST_OK(nxd_parameter_get_shard(f.weight, &dim, nullptr, nullptr, 0, &n));
  BAD(nxd_parameter_set_full(nullptr, f.x.get()), "parameter");
  BAD(nxd_parameter_set_full(f.weight, nullptr), "full");
  BAD(nxd_parameter_set_full(f.weight, f.x.get()), "[8, 8]");
  BAD_OUT(nxd_tensor_t, "parameter", nxd_parameter_gather_full(nullptr, out));
  BAD(nxd_parameter_gather_full(f.weight, nullptr), "out_full");
  BAD_OUT(nxd_tensor_t, "parameter", nxd_parameter_gather_full_grad(nullptr, out));
  BAD(nxd_parameter_gather_full_grad(f.weight, nullptr), "out_full");
  BAD(nxd_parameter_set_trainable(nullptr, 1), "parameter");
  int destroyed = 0;
  const nxd_grad_hook_fn hook = [](nxd_parameter_t*, void*) { return nxd_status_t{NXD_OK}; };
  const nxd_destroy_fn destroy = [](void* data) { ++*static_cast<int*>(data); };
  BAD(nxd_parameter_set_grad_hook(nullptr, hook, &destroyed, destroy), "parameter");
  NXD_TEST_CHECK(destroyed == 0);
}

void running(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  nxd_module_t* layer = f.layer.get();
  nxd_tensor_t* in[2] = {f.x.get(), f.x.get()};
  nxd_tensor_t* none[1] = {nullptr};
  BAD_OUT(nxd_tensor_t, "module", nxd_module_forward(nullptr, in, 1, out, 1));
  BAD_OUT(nxd_tensor_t, "inputs", nxd_module_forward(layer, nullptr, 1, out, 1));
  BAD_OUT(nxd_tensor_t, "input 0: expected a tensor", nxd_module_forward(layer, none, 1, out, 1));
  BAD_OUT(nxd_tensor_t, "expected 1 inputs, got 2", nxd_module_forward(layer, in, 2, out, 1));
  BAD_OUT(nxd_tensor_t, "expected 1 inputs, got 0", nxd_module_forward(layer, in, 0, out, 1));
  BAD(nxd_module_forward(layer, in, 1, nullptr, 1), "outputs");
  nxd_tensor_t* two[2] = {sentinel<nxd_tensor_t>(), sentinel<nxd_tensor_t>()};
  BAD(nxd_module_forward(layer, in, 1, two, 2), "2 were asked for");
  NXD_TEST_CHECK(!two[0] && !two[1]);
  BAD(nxd_module_forward(layer, in, 1, nullptr, 0), "0 were asked for");
  nxd_tensor_t* y = nullptr;
  BAD_OUT(nxd_tape_t, "module", nxd_module_forward_tape(nullptr, in, 1, &y, 1, out));
  BAD_OUT(nxd_tape_t, "inputs", nxd_module_forward_tape(layer, nullptr, 1, &y, 1, out));
  BAD_OUT(nxd_tape_t, "outputs", nxd_module_forward_tape(layer, in, 1, nullptr, 1, out));
  BAD_OUT(nxd_tape_t, "expected 1 inputs", nxd_module_forward_tape(layer, in, 2, &y, 1, out));
  BAD(nxd_module_forward_tape(layer, in, 1, &y, 1, nullptr), "out_tape");
  NXD_TEST_CHECK(y == nullptr);
  BAD(nxd_tape_backward(nullptr, in, 1, &y, 1), "tape");
}

void files(nxd_context_t* ctx, int, int, void*) {
  Fixture f(ctx);
  nxd_module_t* root = f.root.get();
  BAD_OUT(nxd_load_report_t, "root", nxd_module_load_safetensors(nullptr, "a", 1, out));
  BAD_OUT(nxd_load_report_t, "path", nxd_module_load_safetensors(root, nullptr, 1, out));
  REFUSED_OUT(nxd_load_report_t, NXD_ERROR_IO, "/nowhere",
              nxd_module_load_safetensors(root, "/nowhere/at.safetensors", 1, out));
  BAD(nxd_module_save_safetensors(nullptr, "/tmp/a.safetensors"), "root");
  BAD(nxd_module_save_safetensors(root, nullptr), "path");
  NXD_TEST_REFUSED(nxd_module_save_safetensors(root, "/nowhere/at.safetensors"), NXD_ERROR_IO,
                   "/nowhere");
  size_t count = 7;
  BAD(nxd_load_report_get_count(nullptr, NXD_MISMATCH_MISSING, &count), "report");
  NXD_TEST_CHECK(count == 0);
  BAD_OUT(const char, "report", nxd_load_report_get_name(nullptr, NXD_MISMATCH_MISSING, 0, out));
  // A report to ask wrongly: of a file that has neither parameter.
  nxd_load_report_t* report = nullptr;
  BAD(nxd_module_load_safetensors(root, (oracles() + "/llama_tiny").c_str(), 1, &report),
      "layer.weight");
  if (!NXD_TEST_CHECK(report != nullptr)) return;
  NXD_TEST_OK(nxd_load_report_get_count(report, NXD_MISMATCH_MISSING, &count));
  NXD_TEST_CHECK(count == 2);
  BAD(nxd_load_report_get_count(report, NXD_MISMATCH_MISSING, nullptr), "out_count");
  BAD(nxd_load_report_get_count(report, NXD_MISMATCH_INVALID, &count), "kind");
  NXD_TEST_CHECK(count == 0);
  BAD(nxd_load_report_get_count(report, 3, &count), "kind");
  BAD_OUT(const char, "index", nxd_load_report_get_name(report, NXD_MISMATCH_MISSING, 2, out));
  BAD_OUT(const char, "kind", nxd_load_report_get_name(report, 3, 0, out));
  BAD(nxd_load_report_get_name(report, NXD_MISMATCH_MISSING, 0, nullptr), "out_name");
  nxd_load_report_destroy(report);
}

// Before nxd_init_model_parallel modules of replicated parameters work; what needs a group does
// not.
void too_early(nxd_context_t* ctx, int, int, void*) {
  Module root;
  NXD_TEST_OK(nxd_module_create(ctx, "Early", nullptr, nullptr, nullptr, root.out()));
  const int64_t shape[] = {4};
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  NXD_TEST_OK(nxd_module_add_parameter(root.get(), "p", shape, 1, &options, nullptr));
  options.has_shard_dim = 1;
  REFUSED_OUT(nxd_parameter_t, NXD_ERROR_INVALID_STATE, "nxd_init_model_parallel",
              nxd_module_add_parameter(root.get(), "q", shape, 1, &options, out));
}

// A layer that has no values on one rank: the other one, which goes on to the sum, does not wait.
void valueless(nxd_context_t* ctx, int rank, int, void*) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  if (rank == 1) options.device = NXD_DEVICE_META;
  Module layer, root;
  NXD_TEST_OK(nxd_layer_create_row_parallel_linear(ctx, 8, 4, &options, layer.out()));
  nxd_module_t* child = layer.get();
  NXD_TEST_OK(nxd_module_create_sequential(ctx, &child, 1, root.out()));
  const Tensor x = wave({2, 8}, NXD_DTYPE_F32, 1);
  nxd_tensor_t* in = x.get();
  for (nxd_module_t* module : {layer.get(), root.get()}) {
    REFUSED_OUT(nxd_tensor_t, rank == 1 ? NXD_ERROR_INVALID_STATE : NXD_ERROR_INVALID_ARGUMENT,
                "it has no values", nxd_module_forward(module, &in, 1, out, 1));
  }
  NXD_TEST_OK(nxd_move_model_to_device(root.get(), NXD_DEVICE_CPU));
  NXD_TEST_CHECK(root({x}));
}

// Modules of one context do not take those of another.
void two_contexts(nxd_context_t* ctx, int, int, void* user_data) {
  auto* other = static_cast<nxd_module_t**>(user_data);
  Module mine;
  NXD_TEST_OK(nxd_module_create(ctx, "Mine", nullptr, nullptr, nullptr, mine.out()));
  if (!*other) {
    *other = std::exchange(*mine.out(), nullptr);
    return;
  }
  BAD(nxd_module_add_child(mine.get(), "other", *other), "context");
  nxd_training_state_t* state = nullptr;
  NXD_TEST_OK(nxd_training_state_create(ctx, &state));
  BAD(nxd_training_state_add_module(state, "model", *other), "context");
  nxd_training_state_destroy(state);
}

void test_creation(void**) { nxd_test_run_ranks(1, 1, creation, nullptr); }
void test_indivisible(void**) { nxd_test_run_ranks(2, 2, indivisible, nullptr); }
void test_tree(void**) { nxd_test_run_ranks(1, 1, tree, nullptr); }
void test_parameters(void**) { nxd_test_run_ranks(1, 1, parameters, nullptr); }
void test_running(void**) { nxd_test_run_ranks(1, 1, running, nullptr); }
void test_files(void**) { nxd_test_run_ranks(1, 1, files, nullptr); }
void test_too_early(void**) { nxd_test_run_ranks(1, 0, too_early, nullptr); }
void test_valueless(void**) { nxd_test_run_ranks(2, 2, valueless, nullptr); }
void test_two_contexts(void**) {
  nxd_module_t* other = nullptr;
  nxd_test_run_ranks(1, 1, two_contexts, &other);
  nxd_test_run_ranks(1, 1, two_contexts, &other);
  nxd_module_destroy(other);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_creation),  cmocka_unit_test(test_indivisible),
      cmocka_unit_test(test_tree),      cmocka_unit_test(test_parameters),
      cmocka_unit_test(test_running),   cmocka_unit_test(test_files),
      cmocka_unit_test(test_too_early), cmocka_unit_test(test_two_contexts),
      cmocka_unit_test(test_valueless),
  };
  return cmocka_run_group_tests_name("bad_calls_modules", tests, nullptr, nullptr);
}
