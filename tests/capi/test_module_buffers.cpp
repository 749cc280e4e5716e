// Buffers of modules: shared with the caller, saved and loaded with the parameters, cast and moved
// with the module.
#include <algorithm>

#include "support/model_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

using namespace nxd_test;

namespace {

Tensor floats(std::vector<float> data) {
  const int64_t shape[] = {static_cast<int64_t>(data.size())};
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_tensor_from_data(data.data(), data.size() * sizeof(float), shape, 1,
                                   NXD_DTYPE_F32, &out));
  return Tensor(out);
}

nxd_dtype_t dtype_of(const Tensor& tensor) {
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  NXD_TEST_OK(nxd_tensor_get_dtype(tensor.get(), &dtype));
  return dtype;
}

// A root without values of its own, and a child "norm" with a parameter and three buffers.
struct Tree {
  explicit Tree(nxd_context_t* ctx, float start) {
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Root", nullptr, nullptr, nullptr, &made));
    root.reset(made);
    NXD_TEST_OK(nxd_module_create(ctx, "Norm", nullptr, nullptr, nullptr, &made));
    norm.reset(made);
    NXD_TEST_OK(nxd_module_add_child(root.get(), "norm", norm.get()));
    const int64_t shape[] = {3};
    NXD_TEST_OK(nxd_module_add_parameter(norm.get(), "weight", shape, 1, nullptr, nullptr));
    mean = floats({start, start + 1, start + 2});
    count = make_i64({static_cast<int64_t>(start)}, {1});
    scratch = floats({start});
    NXD_TEST_OK(nxd_module_add_buffer(norm.get(), "mean", mean.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(norm.get(), "count", count.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(norm.get(), "scratch", scratch.get(), 0));
  }
  Tensor buffer(const char* name) const {
    nxd_tensor_t* out = nullptr;
    NXD_TEST_OK(nxd_module_share_buffer(root.get(), name, &out));
    return Tensor(out);
  }
  std::string name(size_t index) const {
    char text[64] = "";
    size_t needed = 0;
    NXD_TEST_OK(nxd_module_get_buffer_name(root.get(), index, text, sizeof text, &needed));
    return text;
  }

  Module root, norm;
  Tensor mean, count, scratch;
};

void saved_and_loaded(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/m.safetensors", root = directory.path() + "/run";
  on_ranks<int>(Layout{2}, 3, [&](nxd_context_t* ctx) {
    const Tree from(ctx, 5);
    size_t number = 0;
    NXD_TEST_OK(nxd_module_get_buffer_count(from.root.get(), &number));
    NXD_TEST_CHECK(number == 3 && from.name(0) == "norm.mean" && from.name(2) == "norm.scratch");
    NXD_TEST_OK(nxd_module_save_safetensors(from.root.get(), path.c_str()));
    const Tree to(ctx, 1);
    NXD_TEST_OK(nxd_module_load_safetensors(to.root.get(), path.c_str(), 1, nullptr));
    // Into the tensors that the caller gave.
    NXD_TEST_CHECK(values(to.mean.get()) == values(from.mean.get()));
    NXD_TEST_CHECK(item(to.buffer("norm.count").get()) == 5);
    NXD_TEST_CHECK(values(to.scratch.get()) == std::vector<double>{1});
    nxd_checkpoint_t* checkpoint = nullptr;
    NXD_TEST_OK(nxd_checkpoint_create(ctx, root.c_str(), 1, &checkpoint));
    NXD_TEST_OK(nxd_module_snapshot(from.root.get(), checkpoint, "model.safetensors"));
    NXD_TEST_OK(nxd_checkpoint_publish(checkpoint, 0));
    nxd_checkpoint_destroy(checkpoint);
    const Tree third(ctx, 2);
    const std::string published = root + "/step-000000000001/model.safetensors";
    NXD_TEST_OK(nxd_module_load_safetensors(third.root.get(), published.c_str(), 1, nullptr));
    NXD_TEST_CHECK(item(third.count.get()) == 5);
    // A file without it, and one of another shape.
    nxd_module_t* bare = nullptr;
    NXD_TEST_OK(nxd_module_create(ctx, "Norm", nullptr, nullptr, nullptr, &bare));
    const Module lacking(bare);
    const int64_t shape[] = {3};
    NXD_TEST_OK(nxd_module_add_parameter(bare, "weight", shape, 1, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_add_buffer(bare, "mean", to.count.get(), 1));
    const std::string other = directory.path() + "/other.safetensors";
    NXD_TEST_OK(nxd_module_save_safetensors(bare, other.c_str()));
    NXD_TEST_REFUSED(nxd_module_load_safetensors(to.norm.get(), other.c_str(), 1, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT, "mean: expected shape [3]");
    NXD_TEST_REFUSED(nxd_module_load_safetensors(to.norm.get(), other.c_str(), 1, nullptr),
                     NXD_ERROR_INVALID_ARGUMENT, "missing: count");
    NXD_TEST_CHECK(values(to.mean.get()) == values(from.mean.get()));
    // Integers in the file where the module has floats, behind another buffer: none is read.
    NXD_TEST_OK(nxd_module_create(ctx, "Norm", nullptr, nullptr, nullptr, &bare));
    const Module integers(bare);
    const Tensor one = floats({9});
    NXD_TEST_OK(nxd_module_add_buffer(bare, "first", one.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(bare, "count", from.count.get(), 1));
    NXD_TEST_OK(nxd_module_save_safetensors(bare, other.c_str()));
    NXD_TEST_OK(nxd_module_create(ctx, "Norm", nullptr, nullptr, nullptr, &bare));
    const Module numbers(bare);
    const Tensor first = floats({1}), count = floats({2});
    NXD_TEST_OK(nxd_module_add_buffer(bare, "first", first.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(bare, "count", count.get(), 1));
    NXD_TEST_REFUSED(nxd_module_load_safetensors(bare, other.c_str(), 1, nullptr),
                     NXD_ERROR_UNSUPPORTED, "count: expected f32");
    NXD_TEST_CHECK(item(first.get()) == 1 && item(count.get()) == 2);
    return 0;
  });
}

void cast_and_moved(void**) {
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tree tree(ctx, 5);
    const std::vector<double> mean = values(tree.mean.get());
    NXD_TEST_OK(nxd_module_cast(tree.root.get(), NXD_DTYPE_F64));
    NXD_TEST_CHECK(dtype_of(tree.buffer("norm.mean")) == NXD_DTYPE_F64);
    NXD_TEST_CHECK(dtype_of(tree.buffer("norm.count")) == NXD_DTYPE_I64);
    // No seed and no name could draw it anew.
    NXD_TEST_OK(nxd_move_model_to_device(tree.root.get(), NXD_DEVICE_META));
    NXD_TEST_CHECK(values(tree.buffer("norm.mean").get()) == mean);
    NXD_TEST_OK(nxd_move_model_to_device(tree.root.get(), NXD_DEVICE_CPU));
    NXD_TEST_CHECK(values(tree.buffer("norm.mean").get()) == mean);
    return 0;
  });
}

Tensor part_of(const Tensor& x, int64_t start, int64_t length) {
  nxd_op_t* op = nullptr;
  nxd_tensor_t* out = nullptr;
  NXD_TEST_OK(nxd_op_create("narrow", "", &op));
  NXD_TEST_OK(nxd_op_set_tensor(op, "self", x.get()));
  NXD_TEST_OK(nxd_op_set_int(op, "dim", 0));
  NXD_TEST_OK(nxd_op_set_int(op, "start", start));
  NXD_TEST_OK(nxd_op_set_int(op, "length", length));
  if (NXD_TEST_OK(nxd_op_run(op))) NXD_TEST_OK(nxd_op_share_tensor(op, 0, &out));
  nxd_op_destroy(op);
  return Tensor(out);
}

void add_one(const Tensor& x) {
  const Tensor one = floats({1});
  nxd_tensor_t *in[] = {x.get(), one.get()}, *sum = nullptr;
  NXD_TEST_OK(nxd_op_call("add_", "Tensor", in, 2, &sum, 1));
  nxd_tensor_destroy(sum);
}

// Buffers that are parts of one tensor, with elements in common, have them after a cast, too. The
// recorded device has no views, so that a move to it is rejected, and changes nothing.
void views_of_one_tensor(void**) {
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const Tree tree(ctx, 5);
    const Tensor whole = floats({1, 2, 3, 4, 5, 6});
    const Tensor first = part_of(whole, 1, 3), second = part_of(whole, 2, 3);
    const Tensor apart = part_of(whole, 5, 1);
    nxd_module_t* norm = tree.norm.get();
    NXD_TEST_OK(nxd_module_add_buffer(norm, "first", first.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(norm, "second", second.get(), 1));
    NXD_TEST_OK(nxd_module_add_buffer(norm, "again", second.get(), 0));
    NXD_TEST_OK(nxd_module_add_buffer(norm, "apart", apart.get(), 1));
    NXD_TEST_REFUSED(nxd_move_model_to_device(tree.root.get(), NXD_DEVICE_XLA),
                     NXD_ERROR_UNSUPPORTED, "buffers norm.first and norm.second have elements");
    NXD_TEST_OK(nxd_module_cast(tree.root.get(), NXD_DTYPE_F64));
    NXD_TEST_CHECK(dtype_of(tree.buffer("norm.first")) == NXD_DTYPE_F64);
    add_one(tree.buffer("norm.first"));
    NXD_TEST_CHECK(values(tree.buffer("norm.first").get()) == (std::vector<double>{3, 4, 5}));
    NXD_TEST_CHECK(values(tree.buffer("norm.second").get()) == (std::vector<double>{4, 5, 5}));
    add_one(tree.buffer("norm.again"));
    NXD_TEST_CHECK(values(tree.buffer("norm.second").get()) == (std::vector<double>{5, 6, 6}));
    NXD_TEST_CHECK(values(tree.buffer("norm.first").get()) == (std::vector<double>{3, 5, 6}));
    NXD_TEST_CHECK(values(tree.buffer("norm.apart").get()) == std::vector<double>{6});
    NXD_TEST_CHECK(values(whole.get()) == (std::vector<double>{1, 2, 3, 4, 5, 6}));
    return 0;
  });
}

void refused(void**) {
  on_ranks<int>(Layout{1}, 3, [&](nxd_context_t* ctx) {
    const nxd_status_t argument = NXD_ERROR_INVALID_ARGUMENT;
    const Tree tree(ctx, 5);
    nxd_module_t* norm = tree.norm.get();
    nxd_tensor_t *tensor = tree.mean.get(), *out = nullptr;
    for (const char* taken : {"mean", "weight", "", "a.b"}) {
      NXD_TEST_REFUSED(nxd_module_add_buffer(norm, taken, tensor, 1), argument, "name");
    }
    NXD_TEST_REFUSED(nxd_module_add_buffer(tree.root.get(), "norm", tensor, 1), argument, "taken");
    NXD_TEST_REFUSED(nxd_module_add_buffer(norm, nullptr, tensor, 1), argument, "name");
    NXD_TEST_REFUSED(nxd_module_add_buffer(norm, "x", nullptr, 1), argument, "tensor");
    NXD_TEST_REFUSED(nxd_module_add_buffer(norm, "x", tensor, 2), argument, "is_saved");
    NXD_TEST_REFUSED(nxd_module_add_buffer(nullptr, "x", tensor, 1), argument, "module");
    const int64_t shape[] = {3};
    NXD_TEST_REFUSED(nxd_module_add_parameter(norm, "mean", shape, 1, nullptr, nullptr), argument,
                     "taken");
    NXD_TEST_REFUSED(nxd_module_share_buffer(norm, "meen", &out), argument, "mean");
    NXD_TEST_REFUSED(nxd_module_share_buffer(norm, "mean", nullptr), argument, "out_tensor");
    char text[4];
    size_t needed = 0;
    NXD_TEST_REFUSED(nxd_module_get_buffer_name(norm, 3, text, sizeof text, &needed), argument,
                     "index");
    NXD_TEST_REFUSED(nxd_module_get_buffer_name(norm, 0, text, sizeof text, &needed), argument,
                     "cap");
    NXD_TEST_CHECK(needed == 5);
    nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
    nxd_module_t* layer = nullptr;
    NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, 3, &options, &layer));
    const Module built_in(layer);
    NXD_TEST_REFUSED(nxd_module_add_buffer(layer, "x", tensor, 1), argument, "nxd_module_create");
    return 0;
  });
}

// x weight, and counts its calls in a buffer.
nxd_status_t counting_forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t,
                              nxd_tensor_t** outputs, size_t, void*) {
  nxd_tensor_t *calls = nullptr, *weight = nullptr, *sum = nullptr;
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_share_buffer(self, "calls", &calls));
  const Tensor one = floats({1});
  nxd_tensor_t* in[] = {calls, one.get()};
  NXD_TEST_OK(nxd_op_call("add_", "Tensor", in, 2, &sum, 1));
  nxd_tensor_destroy(sum);
  nxd_tensor_destroy(calls);
  NXD_TEST_OK(nxd_module_find_parameter(self, "weight", &parameter));
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &weight));
  nxd_tensor_t* factors[] = {inputs[0], weight};
  return nxd_op_call("mul", "Tensor", factors, 2, outputs, 1);
}

// A forward that is made again in the backward pass has written to its buffers once.
void written_once_with_recomputation(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        nxd_module_t* made = nullptr;
        NXD_TEST_OK(nxd_module_create(ctx, "Counting", counting_forward, nullptr, nullptr, &made));
        const Module module(made);
        const int64_t shape[] = {3};
        NXD_TEST_OK(nxd_module_add_parameter(made, "weight", shape, 1, nullptr, nullptr));
        const Tensor calls = floats({0}), x = floats({1, 2, 3});
        NXD_TEST_OK(nxd_module_add_buffer(made, "calls", calls.get(), 1));
        const char* const name = "Counting";
        NXD_TEST_OK(nxd_apply_checkpoint(made, &name, 1, 1));
        for (int pass = 1; pass <= 2; ++pass) {
          nxd_tensor_t *in = x.get(), *y = nullptr, *loss = nullptr;
          NXD_TEST_OK(nxd_module_forward(made, &in, 1, &y, 1));
          NXD_TEST_OK(nxd_op_call("sum", "", &y, 1, &loss, 1));
          NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
          nxd_tensor_destroy(loss);
          nxd_tensor_destroy(y);
          nxd_tensor_t* shared = nullptr;
          NXD_TEST_OK(nxd_module_share_buffer(made, "calls", &shared));
          NXD_TEST_CHECK(values(Tensor(shared).get()) == std::vector<double>{double(pass)});
          NXD_TEST_CHECK(values(calls.get()) == std::vector<double>{double(pass)});
        }
        nxd_parameter_t* weight = nullptr;
        nxd_tensor_t* grad = nullptr;
        NXD_TEST_OK(nxd_module_find_parameter(made, "weight", &weight));
        NXD_TEST_OK(nxd_parameter_gather_full_grad(weight, &grad));
        NXD_TEST_CHECK((values(Tensor(grad).get()) == std::vector<double>{2, 4, 6}));
      },
      nullptr);
}

// x weight mean, where the buffer mean takes over half of x's first: the values of a call depend on
// what it finds there.
nxd_status_t averaging_forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t,
                               nxd_tensor_t** outputs, size_t, void*) {
  nxd_tensor_t *shared = nullptr, *weight = nullptr, *out = nullptr;
  nxd_parameter_t* parameter = nullptr;
  NXD_TEST_OK(nxd_module_share_buffer(self, "mean", &shared));
  const Tensor mean(shared), half = floats({0.5});
  nxd_tensor_t* halved[] = {mean.get(), half.get()};
  NXD_TEST_OK(nxd_op_call("mul_", "Tensor", halved, 2, &out, 1));
  nxd_tensor_destroy(out);
  nxd_tensor_t* added[] = {mean.get(), inputs[0]};
  NXD_TEST_OK(nxd_op_call("add_", "Tensor", added, 2, &out, 1));
  nxd_tensor_destroy(out);
  NXD_TEST_OK(nxd_module_find_parameter(self, "weight", &parameter));
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &weight));
  nxd_tensor_t* factors[] = {inputs[0], weight};
  NXD_TEST_OK(nxd_op_call("mul", "Tensor", factors, 2, &out, 1));
  const Tensor product(out);
  // The buffer goes on to change: what is computed with is a copy.
  NXD_TEST_OK(nxd_op_call("clone", "", &shared, 1, &out, 1));
  const Tensor now(out);
  nxd_tensor_t* last[] = {product.get(), now.get()};
  return nxd_op_call("mul", "Tensor", last, 2, outputs, 1);
}

// The second forward finds in a buffer what the first found, whatever was written there since.
void read_as_before_with_recomputation(void**) {
  nxd_test_run_ranks(
      1, 1,
      [](nxd_context_t* ctx, int, int, void*) {
        for (const int on : {0, 1}) {
          nxd_module_t* made = nullptr;
          NXD_TEST_OK(
              nxd_module_create(ctx, "Averaging", averaging_forward, nullptr, nullptr, &made));
          const Module module(made);
          const int64_t shape[] = {3};
          NXD_TEST_OK(nxd_module_add_parameter(made, "weight", shape, 1, nullptr, nullptr));
          const Tensor mean = floats({8, 8, 8}), x = floats({1, 2, 3});
          NXD_TEST_OK(nxd_module_add_buffer(made, "mean", mean.get(), 1));
          const char* const name = "Averaging";
          NXD_TEST_OK(nxd_apply_checkpoint(made, &name, 1, on));
          std::vector<Tensor> losses;
          for (int call = 0; call < 2; ++call) {
            nxd_tensor_t *in = x.get(), *y = nullptr, *loss = nullptr;
            NXD_TEST_OK(nxd_module_forward(made, &in, 1, &y, 1));
            NXD_TEST_OK(nxd_op_call("sum", "", &y, 1, &loss, 1));
            nxd_tensor_destroy(y);
            losses.emplace_back(loss);
          }
          for (const Tensor& loss : losses) {
            nxd_tensor_t* each = loss.get();
            NXD_TEST_OK(nxd_backward(&each, nullptr, 1, 0));
          }
          // Means of 5, 6, 7 and of 3.5, 5, 6.5.
          nxd_parameter_t* weight = nullptr;
          nxd_tensor_t* grad = nullptr;
          NXD_TEST_OK(nxd_module_find_parameter(made, "weight", &weight));
          NXD_TEST_OK(nxd_parameter_gather_full_grad(weight, &grad));
          NXD_TEST_CHECK((values(Tensor(grad).get()) == std::vector<double>{8.5, 22, 40.5}));
          NXD_TEST_CHECK((values(mean.get()) == std::vector<double>{3.5, 5, 6.5}));
        }
      },
      nullptr);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {cmocka_unit_test(saved_and_loaded),
                              cmocka_unit_test(cast_and_moved),
                              cmocka_unit_test(views_of_one_tensor),
                              cmocka_unit_test(refused),
                              cmocka_unit_test(written_once_with_recomputation),
                              cmocka_unit_test(read_as_before_with_recomputation)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
