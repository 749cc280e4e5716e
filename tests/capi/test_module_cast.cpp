// Casts of live modules: a model that is cast has the values and the loss of one that was made so,
// and its parameters keep what else they have.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "support/check.h"
#include "support/model_support.h"

extern "C" {
#include <cmocka.h>
}

using namespace nxd_test;

namespace {

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

// Values of bf16 are those of f32 rounded to nearest even; an f64 has drawn other bits.
void as_made_so(void**) {
  for (const int tp : {1, 2}) {
    const Layout wide{tp, tp == 2}, narrow{tp, tp == 2, NXD_DTYPE_BF16};
    on_ranks<int>(wide, 7, [&](nxd_context_t* ctx) {
      const Module made = create_model(ctx, oracle().config, narrow);
      const Module cast = create_model(ctx, oracle().config, wide);
      run_backward(cast.get(), oracle()); /* gradients are cast as well */
      const Named before = whole_gradients(cast.get());
      NXD_TEST_OK(nxd_module_cast(cast.get(), NXD_DTYPE_BF16));
      NXD_TEST_CHECK(whole_parameters(cast.get()) == whole_parameters(made.get()));
      check_named("cast gradient", whole_gradients(cast.get()), before, 4e-3);
      NXD_TEST_CHECK(run_backward(cast.get(), oracle()) == run_backward(made.get(), oracle()));
      NXD_TEST_CHECK(whole_gradients(cast.get()) == whole_gradients(made.get()));
      // And back: nothing is lost by widening.
      const Named rounded = whole_parameters(cast.get());
      NXD_TEST_OK(nxd_module_cast(cast.get(), NXD_DTYPE_F64));
      NXD_TEST_CHECK(whole_parameters(cast.get()) == rounded);
      NXD_TEST_CHECK(std::isfinite(run_backward(cast.get(), oracle())));
      return 0;
    });
  }
}

// On the meta device the cast model gets the values of one that was made in that dtype.
void before_there_are_values(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    Layout meta;
    meta.device = NXD_DEVICE_META;
    const Module made = create_model(ctx, oracle().config, {1, false, NXD_DTYPE_F64});
    const Module cast = create_model(ctx, oracle().config, meta);
    NXD_TEST_OK(nxd_module_cast(cast.get(), NXD_DTYPE_F64));
    NXD_TEST_OK(nxd_move_model_to_device(cast.get(), NXD_DEVICE_CPU));
    NXD_TEST_CHECK(whole_parameters(cast.get()) == whole_parameters(made.get()));
    return 0;
  });
}

struct Hooked {
  int calls = 0;
};

void attributes_stay(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, {});
    nxd_parameter_t *hooked = nullptr, *frozen = nullptr, *again = nullptr;
    Hooked counted;
    NXD_TEST_OK(nxd_module_find_parameter(model.get(), "model.norm.weight", &hooked));
    NXD_TEST_OK(
        nxd_module_find_parameter(model.get(), "model.layers.0.mlp.up_proj.weight", &frozen));
    NXD_TEST_OK(nxd_parameter_set_grad_hook(
        hooked,
        [](nxd_parameter_t*, void* user_data) -> nxd_status_t {
          ++static_cast<Hooked*>(user_data)->calls;
          return NXD_OK;
        },
        &counted, nullptr));
    // One that was frozen after it had a hook stays so.
    NXD_TEST_OK(nxd_parameter_set_grad_hook(
        frozen, [](nxd_parameter_t*, void*) -> nxd_status_t { return NXD_ERROR_USER; }, nullptr,
        nullptr));
    NXD_TEST_OK(nxd_parameter_set_trainable(frozen, 0));
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F64));
    NXD_TEST_OK(nxd_module_find_parameter(model.get(), "model.norm.weight", &again));
    NXD_TEST_CHECK(again == hooked);
    nxd_tensor_t* tensor = nullptr;
    nxd_dtype_t dtype = NXD_DTYPE_INVALID;
    NXD_TEST_OK(nxd_parameter_get_tensor(frozen, &tensor));
    NXD_TEST_OK(nxd_tensor_get_dtype(tensor, &dtype));
    NXD_TEST_CHECK(dtype == NXD_DTYPE_F64);
    run_backward(model.get(), oracle());
    NXD_TEST_CHECK(counted.calls == 1);
    nxd_tensor_t* grad = nullptr;
    NXD_TEST_OK(nxd_tensor_share_grad(tensor, &grad));
    NXD_TEST_CHECK(grad == nullptr);
    return 0;
  });
}

// A norm without parameters goes by the dtype of the tree that it is in.
void without_parameters(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    nxd_norm_options_t options = NXD_NORM_OPTIONS_INIT;
    options.affine = NXD_TOGGLE_OFF;
    nxd_module_t* made = nullptr;
    NXD_TEST_OK(nxd_layer_create_rms_norm(ctx, 2, &options, &made));
    const Module norm(made);
    const double values[] = {3, 4};
    const int64_t shape[] = {1, 2};
    nxd_tensor_t *x = nullptr, *y = nullptr;
    NXD_TEST_OK(nxd_tensor_from_data(values, sizeof values, shape, 2, NXD_DTYPE_F64, &x));
    const Tensor input(x);
    NXD_TEST_REFUSED(nxd_module_forward(norm.get(), &x, 1, &y, 1), NXD_ERROR_INVALID_ARGUMENT,
                     "expected dtype f32");
    NXD_TEST_OK(nxd_module_cast(norm.get(), NXD_DTYPE_F64));
    NXD_TEST_OK(nxd_module_forward(norm.get(), &x, 1, &y, 1));
    const Tensor output(y);
    return 0;
  });
}

// One child of a model that is cast alone, as norms of a BF16 model to F32: kernels that read the
// weight in the dtype of the activations would find other numbers in it, and memory behind its end.
void norms_of_another_dtype(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, {});
    const double loss = run_backward(model.get(), oracle());
    const std::vector<Tensor> inputs = oracle().inputs();
    for (const char* const name : {"model.layers.0.input_layernorm",
                                   "model.layers.0.post_attention_layernorm", "model.norm"}) {
      nxd_module_t* norm = nullptr;
      NXD_TEST_OK(nxd_module_find_module(model.get(), name, &norm));
      const std::pair<nxd_dtype_t, const char*> casts[] = {
          {NXD_DTYPE_BF16, "RMSNorm: input: expected dtype bf16, that of the weight"},
          {NXD_DTYPE_F64, "RMSNorm: input: expected dtype f64, that of the weight"}};
      for (const auto& [dtype, message] : casts) {
        NXD_TEST_OK(nxd_module_cast(norm, dtype));
        nxd_tensor_t* out = nullptr;
        NXD_TEST_REFUSED(
            nxd_module_forward(model.get(), handles(inputs).data(), inputs.size(), &out, 1),
            NXD_ERROR_INVALID_ARGUMENT, message);
      }
      NXD_TEST_OK(nxd_module_cast(norm, NXD_DTYPE_F32));
      NXD_TEST_CHECK(run_backward(model.get(), oracle()) == loss);
    }
    return 0;
  });
}

// A weight that is cast by way of another module that it is tied to.
void norms_with_tied_weights(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    for (const auto create : {nxd_layer_create_layer_norm, nxd_layer_create_rms_norm}) {
      nxd_module_t* children[2] = {};
      for (nxd_module_t*& child : children) NXD_TEST_OK(create(ctx, 8, nullptr, &child));
      const Module first(children[0]), second(children[1]);
      nxd_module_t* made = nullptr;
      NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, &made));
      const Module both(made);
      NXD_TEST_OK(nxd_module_tie(made, "0.weight", "1.weight"));
      NXD_TEST_OK(nxd_module_cast(first.get(), NXD_DTYPE_BF16));
      const int64_t shape[] = {3, 8};
      nxd_tensor_t *x = nullptr, *y = nullptr;
      NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &x));
      const Tensor input(x);
      NXD_TEST_REFUSED(nxd_module_forward(second.get(), &x, 1, &y, 1), NXD_ERROR_INVALID_ARGUMENT,
                       "input: expected dtype bf16, that of the weight, got f32");
      NXD_TEST_OK(nxd_module_cast(made, NXD_DTYPE_F32));
      NXD_TEST_OK(nxd_module_forward(second.get(), &x, 1, &y, 1));
      const Tensor output(y);
    }
    return 0;
  });
}

void bad_calls(void**) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT, state = NXD_ERROR_INVALID_STATE;
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, {});
    const Named before = whole_parameters(model.get());
    NXD_TEST_REFUSED(nxd_module_cast(nullptr, NXD_DTYPE_F64), bad, "root");
    for (const nxd_dtype_t dtype : {NXD_DTYPE_INVALID, NXD_DTYPE_I64, NXD_DTYPE_F16}) {
      NXD_TEST_REFUSED(nxd_module_cast(model.get(), dtype), bad, "expected F32, F64 or BF16");
    }
    // An optimizer that knows the parameters as they were does not touch them.
    const Optimizer optimizer = make_adamw(model.get());
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F64));
    run_backward(model.get(), oracle());
    NXD_TEST_REFUSED(nxd_optimizer_step(optimizer.get(), nullptr, nullptr), state, "expected");
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F32));
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    nxd_ddp_t* ddp = nullptr;
    NXD_TEST_OK(nxd_ddp_create(model.get(), nullptr, &ddp));
    NXD_TEST_REFUSED(nxd_module_cast(model.get(), NXD_DTYPE_BF16), state, "a ddp has its values");
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_F32));
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    nxd_ddp_destroy(ddp);
    // A ddp over the last of its modules keeps all of them as they are.
    nxd_module_t* last = nullptr;
    NXD_TEST_OK(nxd_module_find_module(model.get(), "lm_head", &last));
    NXD_TEST_OK(nxd_ddp_create(last, nullptr, &ddp));
    NXD_TEST_REFUSED(nxd_module_cast(model.get(), NXD_DTYPE_BF16), state, "a ddp has its values");
    NXD_TEST_REFUSED(nxd_move_model_to_device(model.get(), NXD_DEVICE_META), state,
                     "a ddp has its values");
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    nxd_ddp_destroy(ddp);
    NXD_TEST_OK(nxd_module_cast(model.get(), NXD_DTYPE_BF16));
    return 0;
  });
}

// A graph of the parameters as they were has nowhere to leave gradients.
void between_forward_and_backward(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    for (const bool moves : {false, true}) {
      nxd_module_t* made = nullptr;
      NXD_TEST_OK(nxd_layer_create_linear(ctx, 2, 3, nullptr, &made));
      const Module linear(made);
      const int64_t shape[] = {1, 2};
      nxd_tensor_t *x = nullptr, *y = nullptr, *loss = nullptr;
      NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &x));
      const auto forward = [&] {
        NXD_TEST_OK(nxd_module_forward(made, &x, 1, &y, 1));
        NXD_TEST_OK(nxd_op_call("sum", "", &y, 1, &loss, 1));
        nxd_tensor_destroy(y);
      };
      forward();
      if (moves) {
        NXD_TEST_OK(nxd_move_model_to_device(made, NXD_DEVICE_META));
        NXD_TEST_OK(nxd_move_model_to_device(made, NXD_DEVICE_CPU));
      } else {
        NXD_TEST_OK(nxd_module_cast(made, NXD_DTYPE_F64));
        NXD_TEST_OK(nxd_module_cast(made, NXD_DTYPE_F32));
      }
      NXD_TEST_REFUSED(nxd_backward(&loss, nullptr, 1, 0), NXD_ERROR_INVALID_STATE,
                       "was cast, moved or padded since the forward");
      nxd_tensor_destroy(loss);
      forward();
      NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
      nxd_tensor_destroy(loss);
      nxd_tensor_destroy(x);
    }
    return 0;
  });
}

// The second run of a forward finds its layers as they are cast, whatever they go by.
void between_forward_and_recomputation(void**) {
  on_ranks<int>({}, 7, [&](nxd_context_t* ctx) {
    nxd_norm_options_t plain = NXD_NORM_OPTIONS_INIT;
    plain.affine = NXD_TOGGLE_OFF;
    for (const nxd_norm_options_t* const options :
         {static_cast<nxd_norm_options_t*>(nullptr), &plain}) {
      nxd_module_t* children[2] = {};
      NXD_TEST_OK(nxd_layer_create_layer_norm(ctx, 4, options, &children[0]));
      NXD_TEST_OK(nxd_layer_create_linear(ctx, 4, 3, nullptr, &children[1]));
      const Module norm(children[0]), linear(children[1]);
      nxd_module_t* made = nullptr;
      NXD_TEST_OK(nxd_module_create_sequential(ctx, children, 2, &made));
      const Module block(made);
      const char* const all[] = {"Sequential"};
      NXD_TEST_OK(nxd_apply_checkpoint(made, all, 1, 1));
      const int64_t shape[] = {2, 4};
      nxd_tensor_t *x = nullptr, *y = nullptr, *loss = nullptr;
      NXD_TEST_OK(nxd_tensor_create(shape, 2, NXD_DTYPE_F32, NXD_DEVICE_CPU, &x));
      const Tensor input(x);
      NXD_TEST_OK(nxd_module_forward(made, &x, 1, &y, 1));
      const Tensor output(y);
      NXD_TEST_OK(nxd_op_call("sum", "", &y, 1, &loss, 1));
      const Tensor sum(loss);
      NXD_TEST_OK(nxd_module_cast(made, NXD_DTYPE_BF16));
      NXD_TEST_REFUSED(nxd_backward(&loss, nullptr, 1, 0), NXD_ERROR_INVALID_STATE,
                       "was cast since");
    }
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(as_made_so),
      cmocka_unit_test(before_there_are_values),
      cmocka_unit_test(attributes_stay),
      cmocka_unit_test(without_parameters),
      cmocka_unit_test(bad_calls),
      cmocka_unit_test(between_forward_and_backward),
      cmocka_unit_test(norms_of_another_dtype),
      cmocka_unit_test(norms_with_tied_weights),
      cmocka_unit_test(between_forward_and_recomputation),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
