// Models, their inputs, and what trains them. Every rank makes the same, in the same order; where a
// call fails, as without model parallelism, the rank has less.
#include <array>
#include <cstdio>

#include "draw.h"

namespace nxd_fuzz {
namespace {

constexpr int64_t kRows = 2, kColumns = 8;

const char* const kLlama =
    R"({"model_type":"llama","hidden_size":16,"num_hidden_layers":2,"num_attention_heads":2,)"
    R"("intermediate_size":16,"vocab_size":16,"rms_norm_eps":1e-5,"hidden_act":"silu",)"
    R"("max_position_embeddings":64,"tie_word_embeddings":false})";

template <class T, size_t N>
nxd_tensor_t* tensor(Draw& draw, const std::array<T, N>& values, const std::vector<int64_t>& shape,
                     nxd_dtype_t dtype) {
  nxd_tensor_t* out = nullptr;
  nxd_tensor_from_data(values.data(), sizeof values, shape.data(),
                       static_cast<int32_t>(shape.size()), dtype, &out);
  draw.keep(out, nullptr);
  return out;
}

nxd_module_t* model(Draw& draw, nxd_context_t* ctx) {
  nxd_module_t* out = nullptr;
  nxd_model_create(ctx, kLlama, nullptr, &out);
  if (out) nxd_module_initialize(out, 1);
  draw.keep(out, nullptr);
  return out;
}

// For nxd_model_from_pretrained: the folder "model".
void save(nxd_module_t* module, int rank) {
  nxd_module_save_safetensors(module, "model");
  if (rank > 0) return;
  if (FILE* file = std::fopen("model/config.json", "w")) {
    std::fputs(kLlama, file);
    std::fclose(file);
  }
}

void train(Draw& draw, nxd_module_t* module, nxd_tensor_t* const* inputs) {
  nxd_tensor_t* loss = nullptr;
  nxd_tape_t* tape = nullptr;
  if (nxd_module_forward_tape(module, inputs, 2, &loss, 1, &tape) == NXD_OK) {
    draw.keep(loss, nullptr);
    draw.keep(tape, nullptr);
  }
  nxd_optimizer_t* optimizer = nullptr;
  if (nxd_optimizer_create_adamw(module, nullptr, &optimizer) == NXD_OK)
    draw.keep(optimizer, nullptr);
}

void make_pipeline(Draw& draw, nxd_module_t* module, nxd_tensor_t* const* inputs) {
  nxd_pp_options_t options = NXD_PP_OPTIONS_INIT;
  options.num_microbatches = static_cast<int32_t>(kRows);
  options.return_mb_loss = 1;
  nxd_pp_t* pp = nullptr;
  if (nxd_pp_create(module, inputs, 2, &options, &pp) != NXD_OK) return;
  draw.keep(pp, nullptr);
  double loss = 0;
  nxd_pp_run_train(pp, inputs, 2, &loss);
}

void make_operator(Draw& draw, nxd_tensor_t* x) {
  nxd_op_t* op = nullptr;
  if (nxd_op_create("aten::add", "Tensor", &op) != NXD_OK) return;
  draw.keep(op, nullptr);
  nxd_op_set_tensor(op, "self", x);
  nxd_op_set_tensor(op, "other", x);
  nxd_op_run(op);
}

// For nxd_pad_model: layers of three heads.
void make_layers(Draw& draw, nxd_context_t* ctx) {
  nxd_linear_options_t options = NXD_LINEAR_OPTIONS_INIT;
  options.gather_output = NXD_TOGGLE_OFF;
  options.input_is_parallel = 1;
  nxd_module_t *layers[2] = {nullptr, nullptr}, *root = nullptr;
  nxd_layer_create_column_parallel_linear(ctx, kColumns, 12, &options, &layers[0]);
  nxd_layer_create_row_parallel_linear(ctx, 12, kColumns, &options, &layers[1]);
  if (nxd_module_create_sequential(ctx, layers, 2, &root) == NXD_OK) draw.keep(root, nullptr);
  for (nxd_module_t* layer : layers) nxd_module_destroy(layer);
}

void make_file(Draw& draw, nxd_context_t* ctx, nxd_tensor_t* x) {
  const char* const name = "x";
  nxd_serialization_t* file = nullptr;
  nxd_save(ctx, "tensors", &name, &x, 1, nullptr);
  if (nxd_serialization_load("tensors", &file) == NXD_OK) draw.keep(file, nullptr);
}

}  // namespace

void furnish(Draw& draw, nxd_context_t* ctx) {
  std::array<int64_t, kRows * kColumns> ids;
  std::array<float, kRows * kColumns> values;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i);
    values[i] = static_cast<float>(i) / 8;
  }
  nxd_tensor_t* inputs[] = {tensor(draw, ids, {kRows, kColumns}, NXD_DTYPE_I64),
                            tensor(draw, ids, {kRows, kColumns}, NXD_DTYPE_I64)};
  nxd_tensor_t* x = tensor(draw, values, {kRows, kColumns}, NXD_DTYPE_F32);
  nxd_tensor_set_requires_grad(x, 1);
  if (nxd_module_t* module = model(draw, ctx)) {
    save(module, draw.rank());
    train(draw, module, inputs);
  }
  if (nxd_module_t* module = model(draw, ctx)) make_pipeline(draw, module, inputs);
  make_operator(draw, x);
  make_layers(draw, ctx);
  make_file(draw, ctx, x);
}

}  // namespace nxd_fuzz
