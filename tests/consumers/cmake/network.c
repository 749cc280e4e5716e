#include "network.h"

static nxd_status_t forward(nxd_module_t* self, nxd_tensor_t* const* inputs, size_t num_inputs,
                            nxd_tensor_t** outputs, size_t num_outputs, void* user_data) {
  const network* n = user_data;
  nxd_tensor_t *up = NULL, *active = NULL, *down = NULL;
  (void)self;
  if (num_inputs != 2 || num_outputs != 1) return NXD_ERROR_USER;
  nxd_status_t status = nxd_module_forward(n->up, inputs, 1, &up, 1);
  if (!status) status = nxd_op_call("gelu", NULL, &up, 1, &active, 1);
  if (!status) status = nxd_module_forward(n->down, &active, 1, &down, 1);
  nxd_tensor_t* pair[2] = {down, inputs[1]};
  if (!status) status = nxd_op_call("mse_loss", NULL, pair, 2, outputs, 1);
  nxd_tensor_destroy(down);
  nxd_tensor_destroy(active);
  nxd_tensor_destroy(up);
  return status;
}

nxd_status_t network_create(nxd_context_t* ctx, int features, int hidden, network* out) {
  nxd_linear_options_t linear = NXD_LINEAR_OPTIONS_INIT;
  nxd_status_t status = nxd_module_create(ctx, "Network", forward, out, NULL, &out->root);
  linear.name = "up";
  linear.gather_output = NXD_TOGGLE_OFF;
  if (!status)
    status = nxd_layer_create_column_parallel_linear(ctx, features, hidden, &linear, &out->up);
  if (!status) status = nxd_module_add_child(out->root, "up", out->up);
  linear.name = "down";
  linear.gather_output = NXD_TOGGLE_DEFAULT;
  linear.input_is_parallel = 1;
  if (!status)
    status = nxd_layer_create_row_parallel_linear(ctx, hidden, features, &linear, &out->down);
  if (!status) status = nxd_module_add_child(out->root, "down", out->down);
  return status;
}

void network_destroy(network* n) {
  nxd_module_destroy(n->down);
  nxd_module_destroy(n->up);
  nxd_module_destroy(n->root);
}
