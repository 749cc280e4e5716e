#include "sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_bits(uint64_t seed, uint64_t draw) {
  uint64_t z = (seed + 1) * 0xD1B54A32D192ED03ULL + (draw + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/* Logits of bytes as f32, without the words that round the vocabulary up to a multiple of ranks. */
static nxd_status_t copy_logits(nxd_tensor_t* whole, float out_logits[256]) {
  nxd_op_t *narrow = NULL, *widen = NULL;
  nxd_tensor_t *bytes = NULL, *wide = NULL;
  nxd_status_t status = nxd_op_create("aten::narrow", NULL, &narrow);
  if (status == NXD_OK) status = nxd_op_set_tensor(narrow, "self", whole);
  if (status == NXD_OK) status = nxd_op_set_int(narrow, "dim", 2);
  if (status == NXD_OK) status = nxd_op_set_int(narrow, "start", 0);
  if (status == NXD_OK) status = nxd_op_set_int(narrow, "length", 256);
  if (status == NXD_OK) status = nxd_op_run(narrow);
  if (status == NXD_OK) status = nxd_op_share_tensor(narrow, 0, &bytes);
  if (status == NXD_OK) status = nxd_op_create("aten::to", "dtype", &widen);
  if (status == NXD_OK) status = nxd_op_set_tensor(widen, "self", bytes);
  if (status == NXD_OK) status = nxd_op_set_dtype(widen, "dtype", NXD_DTYPE_F32);
  if (status == NXD_OK) status = nxd_op_run(widen);
  if (status == NXD_OK) status = nxd_op_share_tensor(widen, 0, &wide);
  if (status == NXD_OK) status = nxd_tensor_copy_to_host(wide, out_logits, 256 * sizeof(float));
  nxd_op_destroy(widen);
  nxd_op_destroy(narrow);
  nxd_tensor_destroy(wide);
  nxd_tensor_destroy(bytes);
  return status;
}

/* Logits of all bytes behind the last of the tokens. Tokens after them are padding, which a causal
 * model does not see. */
static nxd_status_t last_logits(const sample_t* s, const int64_t* tokens, int64_t count,
                                float out_logits[256]) {
  const int64_t shape[2] = {1, s->window};
  const int64_t last[1] = {count - 1};
  const int64_t one[1] = {1};
  nxd_tensor_t *ids = NULL, *parts = NULL, *row = NULL, *whole = NULL, *index = NULL;
  nxd_status_t status = nxd_tensor_from_data(tokens, (size_t)s->window * sizeof *tokens, shape, 2,
                                             NXD_DTYPE_I64, &ids);
  if (status == NXD_OK) status = nxd_module_forward(s->model, &ids, 1, &parts, 1);
  if (status == NXD_OK) {
    status = nxd_tensor_from_data(last, sizeof last, one, 1, NXD_DTYPE_I64, &index);
  }
  nxd_op_t* select = NULL;
  if (status == NXD_OK) status = nxd_op_create("aten::index_select", NULL, &select);
  if (status == NXD_OK) status = nxd_op_set_tensor(select, "self", parts);
  if (status == NXD_OK) status = nxd_op_set_int(select, "dim", 1);
  if (status == NXD_OK) status = nxd_op_set_tensor(select, "index", index);
  if (status == NXD_OK) status = nxd_op_run(select);
  if (status == NXD_OK) status = nxd_op_share_tensor(select, 0, &row);
  if (status == NXD_OK) status = nxd_gather_from_tensor_region(s->ctx, row, &whole);
  if (status == NXD_OK) status = copy_logits(whole, out_logits);
  nxd_op_destroy(select);
  nxd_tensor_destroy(whole);
  nxd_tensor_destroy(row);
  nxd_tensor_destroy(index);
  nxd_tensor_destroy(parts);
  nxd_tensor_destroy(ids);
  return status;
}

static int draw_token(const float logits[256], double temperature, double u) {
  double weights[256], sum = 0;
  float most = logits[0];
  for (int i = 1; i < 256; ++i) most = logits[i] > most ? logits[i] : most;
  for (int i = 0; i < 256; ++i) {
    weights[i] = exp((double)(logits[i] - most) / temperature);
    sum += weights[i];
  }
  double left = u * sum;
  for (int i = 0; i < 255; ++i) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return 255;
}

nxd_status_t write_sample(const sample_t* s, const char* prompt, char** out_text) {
  const size_t prompt_size = strlen(prompt), size = prompt_size + (size_t)s->length;
  char* text = calloc(size + 1, 1);
  int64_t* tokens = calloc((size_t)s->window, sizeof *tokens);
  int32_t recorded = 0;
  *out_text = NULL;
  nxd_status_t status =
      text && tokens ? nxd_set_grad_enabled(0, &recorded) : NXD_ERROR_OUT_OF_MEMORY;
  const int is_off = status == NXD_OK;
  if (status == NXD_OK) status = nxd_module_set_training(s->model, 0);
  if (status == NXD_OK) memcpy(text, prompt, prompt_size);
  for (size_t n = prompt_size; n < size && status == NXD_OK; ++n) {
    /* The last bytes, as many as the model sees at once. */
    const size_t room = (size_t)s->window;
    const size_t first = n > room ? n - room : 0;
    float logits[256];
    for (size_t i = 0; i < room; ++i) {
      tokens[i] = first + i < n ? (unsigned char)text[first + i] : 0;
    }
    status = last_logits(s, tokens, (int64_t)(n - first), logits);
    const double u = (double)(random_bits(s->seed ^ 0x5A17u, n) >> 11) * 0x1p-53;
    if (status == NXD_OK) text[n] = (char)draw_token(logits, s->temperature, u);
  }
  if (is_off) {
    nxd_set_grad_enabled(recorded, NULL);
    nxd_module_set_training(s->model, 1);
  }
  free(tokens);
  if (status == NXD_OK) {
    *out_text = text;
  } else {
    free(text);
  }
  return status;
}
