// Ranks that would finish gradients of one model in different ways, or weigh losses by different
// rules, are told so, all of them and at once.
#include "support/model_support.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

Module make_holder(nxd_context_t* ctx) {
  nxd_module_t* out = nullptr;
  NXD_TEST_OK(nxd_module_create(ctx, "Holder", nullptr, nullptr, nullptr, &out));
  return Module(out);
}

// Two elements of each tensor-parallel rank, with a gradient.
nxd_tensor_t* add(nxd_module_t* module, const char* name, int tensor_ranks, bool trainable = true) {
  nxd_parameter_options_t options = NXD_PARAMETER_OPTIONS_INIT;
  options.has_shard_dim = 1;
  const int64_t whole[] = {2 * tensor_ranks}, own[] = {2};
  const float ones[] = {1, 1};
  nxd_parameter_t* parameter = nullptr;
  nxd_tensor_t *tensor = nullptr, *grad = nullptr;
  NXD_TEST_OK(nxd_module_add_parameter(module, name, whole, 1, &options, &parameter));
  NXD_TEST_OK(nxd_parameter_get_tensor(parameter, &tensor));
  NXD_TEST_OK(nxd_tensor_from_data(ones, sizeof ones, own, 1, NXD_DTYPE_F32, &grad));
  NXD_TEST_OK(nxd_tensor_set_grad(tensor, grad));
  nxd_tensor_destroy(grad);
  if (!trainable) NXD_TEST_OK(nxd_parameter_set_trainable(parameter, 0));
  return tensor;
}

// Two tensor-parallel ranks whose data-parallel ranks made ddps of other options: norms, and the
// sums over data-parallel ranks, would be those of no model.
void ddps_of_tensor_ranks(nxd_context_t* ctx, int, int, void*) {
  struct Difference {
    void (*apply)(nxd_ddp_options_t& options);
    const char* part;
  };
  static const Difference differences[] = {
      {[](nxd_ddp_options_t& o) { o.zero_stage = 1; },
       "zero_stage of the ddp, or 0 without one: expected the same on all ranks"},
      {[](nxd_ddp_options_t& o) { o.reduce = NXD_REDUCE_AVG; },
       "reduce of the ddp, or data_parallel_reduce without one: expected the same on all ranks"}};
  int32_t tensor_rank = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &tensor_rank));
  for (const Difference& difference : differences) {
    const Module module = make_holder(ctx);
    nxd_tensor_t* const parameter = add(module.get(), "w", 2);
    nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
    if (tensor_rank == 1) difference.apply(options);
    nxd_ddp_t* ddp = nullptr;
    nxd_optimizer_t* optimizer = nullptr;
    if (!NXD_TEST_OK(nxd_ddp_create(module.get(), &options, &ddp))) return;
    NXD_TEST_OK(nxd_optimizer_create_adamw_ddp(ddp, nullptr, &optimizer));
    const std::vector<double> before = values(parameter);
    NXD_TEST_REFUSED(nxd_optimizer_step(optimizer, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     difference.part);
    NXD_TEST_CHECK(values(parameter) == before);
    nxd_optimizer_destroy(optimizer);
    nxd_ddp_destroy(ddp);
  }
}

// A ddp whose ranks have parts cannot finish here, and the ranks with the other ddp hear of it.
void finish_of_parts(nxd_context_t* ctx, int, int, void*) {
  int32_t tensor_rank = 0;
  NXD_TEST_OK(nxd_parallel_get_rank(ctx, NXD_AXIS_TENSOR, &tensor_rank));
  const Module module = make_holder(ctx);
  add(module.get(), "w", 2);
  nxd_ddp_options_t options = NXD_DDP_OPTIONS_INIT;
  options.zero_stage = tensor_rank;
  nxd_ddp_t* ddp = nullptr;
  if (!NXD_TEST_OK(nxd_ddp_create(module.get(), &options, &ddp))) return;
  NXD_TEST_REFUSED(nxd_ddp_finish(ddp, nullptr, nullptr),
                   tensor_rank == 1 ? NXD_ERROR_INVALID_STATE : NXD_ERROR_INVALID_ARGUMENT,
                   "ddp: with zero_stage 1 each rank has a part of the gradients");
  nxd_ddp_destroy(ddp);
}

// As many parameters on each rank, but not the same ones.
void frozen_parameters(nxd_context_t* ctx, int rank, int, void*) {
  const Module module = make_holder(ctx);
  add(module.get(), "a", 2, rank == 0);
  add(module.get(), "b", 2, rank == 1);
  double norm = 7;
  NXD_TEST_REFUSED(nxd_finish_grads(module.get(), nullptr, &norm), NXD_ERROR_INVALID_ARGUMENT,
                   "names of the trainable parameters: expected the same on all ranks, got another "
                   "on rank 1 than on rank 0");
  NXD_TEST_CHECK(norm == 0);
}

// Parts of one model on two ranks, of which the last has another option: its parts would compute
// otherwise without a word.
void layers_of_other_options(nxd_context_t* ctx, int rank, int size, void*) {
  const nlohmann::json llama = {{"model_type", "llama"},    {"vocab_size", 8},
                                {"hidden_size", 8},         {"intermediate_size", 8},
                                {"num_hidden_layers", 1},   {"num_attention_heads", 2},
                                {"num_key_value_heads", 2}, {"max_position_embeddings", 8}};
  const nlohmann::json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 8},
                               {"n_embd", 8},          {"n_layer", 1},    {"n_head", 2}};
  nlohmann::json neox = llama, bert = llama;
  neox["model_type"] = "gpt_neox";
  neox["rotary_pct"] = 0.5;
  bert["model_type"] = "bert";
  const std::pair<nlohmann::json, nlohmann::json> cases[] = {
      {llama, {{"rms_norm_eps", 0.25}}},
      {llama, {{"rope_theta", 500.0}}},
      {llama, {{"hidden_act", "gelu"}}},
      {gpt2, {{"attn_pdrop", 0.5}}},
      {gpt2, {{"activation_function", "relu"}}},
      {gpt2, {{"scale_attn_weights", false}}},
      {neox, {{"use_parallel_residual", false}}},
      {neox, {{"hidden_act", "relu"}}},
      {neox, {{"rotary_pct", 1.0}}},
      {bert, {{"hidden_act", "relu"}}},
      {bert, {{"hidden_dropout_prob", 0.5}}}};
  for (const auto& [config, change] : cases) {
    nlohmann::json own = config;
    if (rank == size - 1) own.update(change);
    nxd_module_t* out = nullptr;
    if (!NXD_TEST_OK(nxd_model_create(ctx, own.dump().c_str(), nullptr, &out))) return;
    const Module model(out);
    NXD_TEST_REFUSED(nxd_finish_grads(model.get(), nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                     "options of the layers, such as eps, p and activation: expected the same on "
                     "all ranks, got another on rank 1 than on rank 0");
  }
}

void forward_and_back(nxd_module_t* model) {
  const Tensor ids = make_i64({1, 2, 3, 4, 5, 6}, {2, 3});
  nxd_tensor_t* const inputs[] = {ids.get(), ids.get()};
  nxd_tensor_t* loss = nullptr;
  NXD_TEST_OK(nxd_module_zero_grad(model));
  if (!NXD_TEST_OK(nxd_module_forward(model, inputs, 2, &loss, 1))) return;
  NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
  nxd_tensor_destroy(loss);
}

// The last rank computes without dropout, and the other with it. A mode that nothing depends on may
// differ, and so may that of a forward which records no gradient.
void forwards_in_other_modes(nxd_context_t* ctx, int rank, int size, void*) {
  const nlohmann::json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 8},
                               {"n_embd", 8},          {"n_layer", 1},    {"n_head", 2}};
  const nlohmann::json without = {{"attn_pdrop", 0.0}, {"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}};
  const nlohmann::json attention = {{"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}};
  const bool is_other = rank == size - 1;
  for (const nlohmann::json& change : {nlohmann::json::object(), attention, without}) {
    for (const bool recomputed : {false, true}) {
      nlohmann::json config = gpt2;
      config.update(change);
      nxd_module_t* out = nullptr;
      if (!NXD_TEST_OK(nxd_model_create(ctx, config.dump().c_str(), nullptr, &out))) return;
      const Module model(out);
      if (recomputed) {
        const char* const name = "GPT2Block";
        NXD_TEST_OK(nxd_apply_checkpoint(out, &name, 1, 1));
      }
      NXD_TEST_OK(nxd_module_set_training(out, is_other ? 0 : 1));
      forward_and_back(out);
      NXD_TEST_OK(nxd_module_set_training(out, 1));
      if (change == without) {
        NXD_TEST_OK(nxd_finish_grads(out, nullptr, nullptr));
        continue;
      }
      NXD_TEST_REFUSED(nxd_finish_grads(out, nullptr, nullptr), NXD_ERROR_INVALID_ARGUMENT,
                       "mode of the last forward, training (1), evaluation (0) or both (2): "
                       "expected the same on all ranks, got 0 on rank 1 and 1 on rank 0");
      forward_and_back(out);
      int32_t before = 1;
      NXD_TEST_OK(nxd_set_grad_enabled(0, &before));
      NXD_TEST_OK(nxd_module_set_training(out, is_other ? 0 : 1));
      const Tensor ids = make_i64({1, 2}, {1, 2});
      nxd_tensor_t *const inputs[] = {ids.get(), ids.get()}, *loss = nullptr;
      NXD_TEST_OK(nxd_module_forward(out, inputs, 2, &loss, 1));
      nxd_tensor_destroy(loss);
      NXD_TEST_OK(nxd_set_grad_enabled(before, nullptr));
      NXD_TEST_OK(nxd_finish_grads(out, nullptr, nullptr));
    }
  }
}

// One rank has destroyed its ddp, and the other has not.
void ddp_of_one_rank(nxd_context_t* ctx, int rank, int, void*) {
  const Module module = make_holder(ctx);
  add(module.get(), "w", 1);
  nxd_ddp_t* ddp = nullptr;
  nxd_optimizer_t* optimizer = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(module.get(), nullptr, &optimizer));
  if (!NXD_TEST_OK(nxd_ddp_create(module.get(), nullptr, &ddp))) return;
  if (rank == 0) nxd_ddp_destroy(ddp);
  const char* const part = "a ddp reduces its gradient";
  NXD_TEST_REFUSED(nxd_finish_grads(module.get(), nullptr, nullptr), NXD_ERROR_INVALID_STATE, part);
  NXD_TEST_REFUSED(nxd_optimizer_step(optimizer, nullptr, nullptr), NXD_ERROR_INVALID_STATE, part);
  NXD_TEST_REFUSED(nxd_optimizer_save(optimizer, "/dev/null/none"), NXD_ERROR_INVALID_STATE, part);
  if (rank == 1) nxd_ddp_destroy(ddp);
  NXD_TEST_OK(nxd_optimizer_step(optimizer, nullptr, nullptr));
  nxd_optimizer_destroy(optimizer);
}

void weights(nxd_context_t* ctx, int rank, int size, void*) {
  const Tensor labels = make_i64({1, 2, 3, -100}, {1, 4});
  nxd_tensor_t* given = labels.get();
  double weight = 7;
  const bool mine = rank == size - 1;
  NXD_TEST_REFUSED(nxd_loss_weights(ctx, &given, 1, mine ? 3 : -100, 0, &weight),
                   NXD_ERROR_INVALID_ARGUMENT, "ignore_index: expected the same on all ranks");
  NXD_TEST_CHECK(weight == 0);
  NXD_TEST_REFUSED(nxd_loss_weights(ctx, &given, 1, -100, mine ? 1 : 0, &weight),
                   NXD_ERROR_INVALID_ARGUMENT, "shifted: expected the same on all ranks");
  NXD_TEST_OK(nxd_loss_weights(ctx, &given, 1, -100, 0, &weight));
  NXD_TEST_CHECK(weight == 1.0 / size);
}

void test_ddps_of_tensor_ranks(void**) { nxd_test_run_ranks(4, 2, ddps_of_tensor_ranks, nullptr); }
void test_finish_of_parts(void**) { nxd_test_run_ranks(4, 2, finish_of_parts, nullptr); }
void test_frozen_parameters(void**) { nxd_test_run_ranks(2, 2, frozen_parameters, nullptr); }
void test_layers_of_other_options(void**) {
  for (const int tensor : {1, 2}) nxd_test_run_ranks(2, tensor, layers_of_other_options, nullptr);
}
void test_forwards_in_other_modes(void**) {
  for (const int tensor : {1, 2}) nxd_test_run_ranks(2, tensor, forwards_in_other_modes, nullptr);
}
void test_ddp_of_one_rank(void**) { nxd_test_run_ranks(2, 1, ddp_of_one_rank, nullptr); }
void test_weights(void**) {
  for (const int size : {2, 3}) nxd_test_run_ranks(size, 1, weights, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ddps_of_tensor_ranks),
      cmocka_unit_test(test_finish_of_parts),
      cmocka_unit_test(test_frozen_parameters),
      cmocka_unit_test(test_layers_of_other_options),
      cmocka_unit_test(test_forwards_in_other_modes),
      cmocka_unit_test(test_ddp_of_one_rank),
      cmocka_unit_test(test_weights),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
