/* The engine's tests on the recorded device. The linker puts these functions before those of the
 * header (--wrap). With NXD_TEST_DEVICE=xla the device that a test calls the CPU is device XLA:
 * tensors, layers and models that it makes lie there, and what it asks the device of says CPU.
 * Otherwise nothing changes. Tests that cannot run so are in tests/device_exceptions. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nxd.h"
#include "support/pjrt.h"
#include "support/variant.h"

/* Declares what the linker calls the function itself, and what it calls in its place. */
#define WRAP(name) extern __typeof__(name) __real_##name, __wrap_##name

static int on_device(void) {
  const char* device = getenv("NXD_TEST_DEVICE");
  return device && !strcmp(device, "xla");
}

static atomic_int num_placed; /* tensors and modules that went to the device in place of the CPU */

static nxd_device_t placed(nxd_device_t device) {
  if (!on_device() || device != NXD_DEVICE_CPU) return device;
  atomic_fetch_add(&num_placed, 1);
  return NXD_DEVICE_XLA;
}

/* --- Tensors -------------------------------------------------------------------------------- */

WRAP(nxd_tensor_create);
WRAP(nxd_tensor_from_data);
WRAP(nxd_tensor_from_dltensor);
WRAP(nxd_tensor_to_device);
WRAP(nxd_tensor_get_device);
WRAP(nxd_tensor_get_data);
WRAP(nxd_tensor_mark_modified);
WRAP(nxd_tensor_destroy);
WRAP(nxd_op_set_string);
WRAP(nxd_serialization_create_tensor);
WRAP(nxd_parameter_gather_full);
WRAP(nxd_parameter_gather_full_grad);

/* Puts a tensor on the device that the library has made on the CPU. A trace, which lets nothing be
 * moved, keeps it where it is. */
static void drop_image(const nxd_tensor_t* tensor);

static nxd_status_t move(nxd_status_t status, nxd_tensor_t** tensor) {
  nxd_tensor_t* there = NULL;
  if (status != NXD_OK || !on_device() || !*tensor) return status;
  if (__real_nxd_tensor_to_device(*tensor, NXD_DEVICE_XLA, &there) != NXD_OK) return NXD_OK;
  __real_nxd_tensor_destroy(*tensor);
  *tensor = there;
  drop_image(there);
  atomic_fetch_add(&num_placed, 1);
  return NXD_OK;
}

nxd_status_t __wrap_nxd_tensor_create(const int64_t* shape, int32_t ndim, nxd_dtype_t dtype,
                                      nxd_device_t device, nxd_tensor_t** out_tensor) {
  const nxd_status_t status =
      __real_nxd_tensor_create(shape, ndim, dtype, placed(device), out_tensor);
  if (status == NXD_OK) drop_image(*out_tensor);
  return status;
}

nxd_status_t __wrap_nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape,
                                         int32_t ndim, nxd_dtype_t dtype,
                                         nxd_tensor_t** out_tensor) {
  return move(__real_nxd_tensor_from_data(data, bytes, shape, ndim, dtype, out_tensor), out_tensor);
}

nxd_status_t __wrap_nxd_tensor_from_dltensor(const DLTensor* source, nxd_tensor_t** out_tensor) {
  return move(__real_nxd_tensor_from_dltensor(source, out_tensor), out_tensor);
}

/* Whole values are on the CPU. */
nxd_status_t __wrap_nxd_parameter_gather_full(nxd_parameter_t* parameter, nxd_tensor_t** out_full) {
  return move(__real_nxd_parameter_gather_full(parameter, out_full), out_full);
}

nxd_status_t __wrap_nxd_parameter_gather_full_grad(nxd_parameter_t* parameter,
                                                   nxd_tensor_t** out_full) {
  return move(__real_nxd_parameter_gather_full_grad(parameter, out_full), out_full);
}

nxd_status_t __wrap_nxd_serialization_create_tensor(nxd_serialization_t* serialization,
                                                    const char* name, nxd_device_t device,
                                                    nxd_tensor_t** out_tensor) {
  return __real_nxd_serialization_create_tensor(serialization, name, placed(device), out_tensor);
}

nxd_status_t __wrap_nxd_tensor_to_device(nxd_tensor_t* tensor, nxd_device_t device,
                                         nxd_tensor_t** out_tensor) {
  return __real_nxd_tensor_to_device(tensor, placed(device), out_tensor);
}

nxd_status_t __wrap_nxd_tensor_get_device(nxd_tensor_t* tensor, nxd_device_t* out_device) {
  const nxd_status_t status = __real_nxd_tensor_get_device(tensor, out_device);
  if (status == NXD_OK && on_device() && *out_device == NXD_DEVICE_XLA)
    *out_device = NXD_DEVICE_CPU;
  return status;
}

nxd_status_t __wrap_nxd_op_set_string(nxd_op_t* op, const char* name, const char* value) {
  const int is_device = on_device() && value && !strcmp(value, "cpu");
  return __real_nxd_op_set_string(op, name, is_device ? "xla" : value);
}

/* A tensor on the device has no memory that a test could look at: it gets a copy, which
 * nxd_tensor_mark_modified writes back. A new handle may lie where one lay that the library has let
 * go of, and then drops the image of that. */
typedef struct image {
  struct image* next;
  nxd_tensor_t* tensor;
  size_t bytes;
  void* data;
  long asked; /* when the test asked for it last, in looks of the process */
} image_t;

static pthread_mutex_t images_mutex = PTHREAD_MUTEX_INITIALIZER;
static image_t* images;
static long num_looks;

/* The place of the tensor's image in the list, or its end. */
static image_t** find_image(const nxd_tensor_t* tensor) {
  image_t** at = &images;
  while (*at && (*at)->tensor != tensor) at = &(*at)->next;
  return at;
}

static image_t* image_of(nxd_tensor_t* tensor, size_t bytes) {
  image_t** at = find_image(tensor);
  if (!*at) {
    *at = calloc(1, sizeof **at);
    if (!*at) abort();
    (*at)->tensor = tensor;
  }
  if (!(*at)->data || (*at)->bytes != bytes) {
    free((*at)->data);
    (*at)->data = calloc(1, bytes ? bytes : 1);
    (*at)->bytes = bytes;
    if (!(*at)->data) abort();
  }
  return *at;
}

static void drop_image(const nxd_tensor_t* tensor) {
  pthread_mutex_lock(&images_mutex);
  image_t** at = find_image(tensor);
  image_t* found = *at;
  if (found) *at = found->next;
  pthread_mutex_unlock(&images_mutex);
  if (!found) return;
  free(found->data);
  free(found);
}

static size_t bytes_of(nxd_tensor_t* tensor) {
  static const size_t sizes[] = {
      [NXD_DTYPE_F32] = 4, [NXD_DTYPE_F64] = 8, [NXD_DTYPE_BF16] = 2, [NXD_DTYPE_F16] = 2,
      [NXD_DTYPE_I64] = 8, [NXD_DTYPE_I32] = 4, [NXD_DTYPE_U8] = 1,   [NXD_DTYPE_BOOL] = 1,
      [NXD_DTYPE_I8] = 1,  [NXD_DTYPE_I16] = 2};
  int64_t count = 0;
  nxd_dtype_t dtype = NXD_DTYPE_INVALID;
  if (nxd_tensor_get_element_count(tensor, &count) || nxd_tensor_get_dtype(tensor, &dtype) ||
      dtype < 0 || (size_t)dtype >= sizeof sizes / sizeof *sizes || !sizes[dtype]) {
    fprintf(stderr, "on_device: bytes of dtype %d are not known\n", dtype);
    abort();
  }
  return (size_t)count * sizes[dtype];
}

nxd_status_t __wrap_nxd_tensor_get_data(nxd_tensor_t* tensor, void** out_data) {
  nxd_device_t device = NXD_DEVICE_CPU;
  if (!on_device() || !tensor || !out_data || __real_nxd_tensor_get_device(tensor, &device) ||
      device != NXD_DEVICE_XLA) {
    return __real_nxd_tensor_get_data(tensor, out_data);
  }
  const size_t bytes = bytes_of(tensor);
  pthread_mutex_lock(&images_mutex);
  image_t* const image = image_of(tensor, bytes);
  image->asked = ++num_looks;
  *out_data = image->data;
  pthread_mutex_unlock(&images_mutex);
  return nxd_tensor_copy_to_host(tensor, *out_data, bytes);
}

nxd_status_t __wrap_nxd_tensor_mark_modified(nxd_tensor_t* tensor) {
  pthread_mutex_lock(&images_mutex);
  const image_t* found = *find_image(tensor);
  pthread_mutex_unlock(&images_mutex);
  if (found) return nxd_tensor_copy_from_host(tensor, found->data, found->bytes);
  return __real_nxd_tensor_mark_modified(tensor);
}

void __wrap_nxd_tensor_destroy(nxd_tensor_t* tensor) {
  if (tensor) drop_image(tensor);
  __real_nxd_tensor_destroy(tensor);
}

/* --- Layers and models ----------------------------------------------------------------------- */

WRAP(nxd_module_add_parameter);
WRAP(nxd_move_model_to_device);
WRAP(nxd_layer_create_parallel_embedding);
WRAP(nxd_layer_create_column_parallel_linear);
WRAP(nxd_layer_create_row_parallel_linear);
WRAP(nxd_layer_create_linear);
WRAP(nxd_layer_create_layer_norm);
WRAP(nxd_layer_create_rms_norm);
WRAP(nxd_layer_create_attention);
WRAP(nxd_layer_create_qkv_linear);
WRAP(nxd_layer_create_gated_mlp);
WRAP(nxd_model_create);
WRAP(nxd_model_from_pretrained);
WRAP(nxd_model_from_torchscript);
WRAP(nxd_pp_create);

/* The caller's options, or a copy in room that says device XLA. Options of a size that the header
 * does not have stay what they are: the library rejects them, or knows better. */
static const void* place(void* room, size_t size, const void* given, const void* defaults,
                         size_t device_at) {
  if (!on_device()) return given;
  if (!given) given = defaults;
  size_t given_size = 0;
  memcpy(&given_size, given, sizeof given_size);
  if (given_size < device_at + sizeof(nxd_device_t) || given_size > size) return given;
  memcpy(room, given, given_size);
  nxd_device_t device = NXD_DEVICE_CPU;
  memcpy(&device, (char*)room + device_at, sizeof device);
  device = placed(device);
  memcpy((char*)room + device_at, &device, sizeof device);
  return room;
}

/* Puts options with a device in place of the given ones, in the function that it is used in. */
#define PLACE(type, options, ...)            \
  static const type defaults_ = __VA_ARGS__; \
  type room_;                                \
  options = place(&room_, sizeof room_, options, &defaults_, offsetof(type, device))

nxd_status_t __wrap_nxd_module_add_parameter(nxd_module_t* module, const char* name,
                                             const int64_t* global_shape, int32_t ndim,
                                             const nxd_parameter_options_t* options,
                                             nxd_parameter_t** out_parameter) {
  PLACE(nxd_parameter_options_t, options, NXD_PARAMETER_OPTIONS_INIT);
  return __real_nxd_module_add_parameter(module, name, global_shape, ndim, options, out_parameter);
}

nxd_status_t __wrap_nxd_move_model_to_device(nxd_module_t* root, nxd_device_t device) {
  return __real_nxd_move_model_to_device(root, placed(device));
}

nxd_status_t __wrap_nxd_layer_create_parallel_embedding(nxd_context_t* ctx, int64_t num_embeddings,
                                                        int64_t embedding_dim,
                                                        const nxd_embedding_options_t* options,
                                                        nxd_module_t** out_module) {
  PLACE(nxd_embedding_options_t, options, NXD_EMBEDDING_OPTIONS_INIT);
  return __real_nxd_layer_create_parallel_embedding(ctx, num_embeddings, embedding_dim, options,
                                                    out_module);
}

/* A layer or model that a context, two sizes or one, and options make. */
#define WRAP_LAYER(name, first, second, type, init)                             \
  nxd_status_t __wrap_##name(nxd_context_t* ctx, int64_t first, int64_t second, \
                             const type* options, nxd_module_t** out_module) {  \
    PLACE(type, options, init);                                                 \
    return __real_##name(ctx, first, second, options, out_module);              \
  }
WRAP_LAYER(nxd_layer_create_column_parallel_linear, in_features, out_features, nxd_linear_options_t,
           NXD_LINEAR_OPTIONS_INIT)
WRAP_LAYER(nxd_layer_create_row_parallel_linear, in_features, out_features, nxd_linear_options_t,
           NXD_LINEAR_OPTIONS_INIT)
WRAP_LAYER(nxd_layer_create_linear, in_features, out_features, nxd_linear_options_t,
           NXD_LINEAR_OPTIONS_INIT)
WRAP_LAYER(nxd_layer_create_attention, hidden_size, num_heads, nxd_attention_options_t,
           NXD_ATTENTION_OPTIONS_INIT)
WRAP_LAYER(nxd_layer_create_qkv_linear, hidden_size, num_heads, nxd_qkv_options_t,
           NXD_QKV_OPTIONS_INIT)
WRAP_LAYER(nxd_layer_create_gated_mlp, hidden_size, intermediate_size, nxd_mlp_options_t,
           NXD_MLP_OPTIONS_INIT)

nxd_status_t __wrap_nxd_layer_create_layer_norm(nxd_context_t* ctx, int64_t size,
                                                const nxd_norm_options_t* options,
                                                nxd_module_t** out_module) {
  PLACE(nxd_norm_options_t, options, NXD_NORM_OPTIONS_INIT);
  return __real_nxd_layer_create_layer_norm(ctx, size, options, out_module);
}

nxd_status_t __wrap_nxd_layer_create_rms_norm(nxd_context_t* ctx, int64_t size,
                                              const nxd_norm_options_t* options,
                                              nxd_module_t** out_module) {
  PLACE(nxd_norm_options_t, options, NXD_NORM_OPTIONS_INIT);
  return __real_nxd_layer_create_rms_norm(ctx, size, options, out_module);
}

nxd_status_t __wrap_nxd_model_create(nxd_context_t* ctx, const char* config_json,
                                     const nxd_model_options_t* options, nxd_module_t** out_model) {
  PLACE(nxd_model_options_t, options, NXD_MODEL_OPTIONS_INIT);
  return __real_nxd_model_create(ctx, config_json, options, out_model);
}

nxd_status_t __wrap_nxd_model_from_pretrained(nxd_context_t* ctx, const char* directory,
                                              const nxd_model_options_t* options,
                                              nxd_module_t** out_model) {
  PLACE(nxd_model_options_t, options, NXD_MODEL_OPTIONS_INIT);
  return __real_nxd_model_from_pretrained(ctx, directory, options, out_model);
}

nxd_status_t __wrap_nxd_model_from_torchscript(nxd_context_t* ctx, const char* path,
                                               nxd_module_t** out_module) {
  const nxd_status_t status = __real_nxd_model_from_torchscript(ctx, path, out_module);
  if (status != NXD_OK || !on_device()) return status;
  atomic_fetch_add(&num_placed, 1);
  return __real_nxd_move_model_to_device(*out_module, NXD_DEVICE_XLA);
}

/* A stage whose parameters were on the meta device gets them on the CPU. */
nxd_status_t __wrap_nxd_pp_create(nxd_module_t* model, nxd_tensor_t* const* inputs,
                                  size_t num_inputs, const nxd_pp_options_t* options,
                                  nxd_pp_t** out_pp) {
  nxd_module_t* local = NULL;
  nxd_status_t status = __real_nxd_pp_create(model, inputs, num_inputs, options, out_pp);
  if (status != NXD_OK || !on_device()) return status;
  status = nxd_pp_get_local_module(*out_pp, &local);
  return status == NXD_OK ? __real_nxd_move_model_to_device(local, NXD_DEVICE_XLA) : status;
}

/* --- Functions of a test's own --------------------------------------------------------------- */

WRAP(nxd_function_create);

static long looks_so_far(void) {
  pthread_mutex_lock(&images_mutex);
  const long looks = num_looks;
  pthread_mutex_unlock(&images_mutex);
  return looks;
}

/* The images of what callbacks give are written back, too: a new tensor needs no
 * nxd_tensor_mark_modified. An image that was asked for before the callback is of a handle that lay
 * at the same address. The user data of the wrapped callbacks are the options that were given. */
static nxd_status_t write_back(nxd_status_t status, long before, nxd_tensor_t** tensors,
                               size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!tensors[i]) continue;
    pthread_mutex_lock(&images_mutex);
    const image_t* const image = *find_image(tensors[i]);
    const int written = image && image->asked > before;
    pthread_mutex_unlock(&images_mutex);
    if (written && status == NXD_OK) status = __wrap_nxd_tensor_mark_modified(tensors[i]);
    drop_image(tensors[i]); /* the handle is the library's now */
  }
  return status;
}

static nxd_status_t run_forward(nxd_function_call_t* call, nxd_tensor_t* const* inputs,
                                size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs,
                                void* user_data) {
  const nxd_function_options_t* given = user_data;
  const long before = looks_so_far();
  const nxd_status_t status =
      given->forward(call, inputs, num_inputs, outputs, num_outputs, given->user_data);
  return write_back(status, before, outputs, num_outputs);
}

static nxd_status_t run_backward(nxd_function_call_t* call, nxd_tensor_t* const* grad_outputs,
                                 size_t num_outputs, nxd_tensor_t** grad_inputs, size_t num_inputs,
                                 void* user_data) {
  const nxd_function_options_t* given = user_data;
  const long before = looks_so_far();
  const nxd_status_t status =
      given->backward(call, grad_outputs, num_outputs, grad_inputs, num_inputs, given->user_data);
  return write_back(status, before, grad_inputs, num_inputs);
}

static nxd_status_t run_shape(nxd_tensor_t* const* inputs, size_t num_inputs,
                              nxd_tensor_t** outputs, size_t num_outputs, void* user_data) {
  const nxd_function_options_t* given = user_data;
  return given->shape(inputs, num_inputs, outputs, num_outputs, given->user_data);
}

static void destroy_callbacks(void* user_data) {
  nxd_function_options_t* given = user_data;
  if (given->destroy) given->destroy(given->user_data);
  free(given);
}

nxd_status_t __wrap_nxd_function_create(const nxd_function_options_t* options,
                                        nxd_function_t** out_function) {
  if (!on_device() || !options || options->struct_size != sizeof *options || !options->forward)
    return __real_nxd_function_create(options, out_function);
  nxd_function_options_t wrapped = *options;
  nxd_function_options_t* given = malloc(sizeof *given);
  if (!given) abort();
  *given = *options;
  wrapped.forward = run_forward;
  if (options->backward) wrapped.backward = run_backward;
  if (options->shape) wrapped.shape = run_shape;
  wrapped.user_data = given;
  wrapped.destroy = destroy_callbacks;
  const nxd_status_t status = __real_nxd_function_create(&wrapped, out_function);
  if (status != NXD_OK) free(given);
  return status;
}

/* --- Errors at the call ----------------------------------------------------------------------- */

/* An error of values, or of another rank, comes when the graph runs. In a test that expects it at
 * the call, which tests/device_exceptions marks by "each_call", these end their step. */
static int is_each_call;

static nxd_status_t end_call(nxd_status_t status, nxd_tensor_t** outputs, size_t count) {
  if (status != NXD_OK || !is_each_call) return status;
  status = nxd_mark_step(1);
  for (size_t i = 0; status != NXD_OK && i < count; ++i) {
    __real_nxd_tensor_destroy(outputs[i]);
    outputs[i] = NULL;
  }
  return status;
}

WRAP(nxd_op_run);
WRAP(nxd_module_forward);
WRAP(nxd_parallel_cross_entropy);
WRAP(nxd_linear_cross_entropy);
WRAP(nxd_copy_to_tensor_region);
WRAP(nxd_reduce_from_tensor_region);
WRAP(nxd_scatter_to_tensor_region);
WRAP(nxd_gather_from_tensor_region);
WRAP(nxd_scatter_to_sequence_region);
WRAP(nxd_gather_from_sequence_region);
WRAP(nxd_reduce_scatter_to_sequence_region);

nxd_status_t __wrap_nxd_op_run(nxd_op_t* op) { return end_call(__real_nxd_op_run(op), NULL, 0); }

nxd_status_t __wrap_nxd_module_forward(nxd_module_t* module, nxd_tensor_t* const* inputs,
                                       size_t num_inputs, nxd_tensor_t** outputs,
                                       size_t num_outputs) {
  return end_call(__real_nxd_module_forward(module, inputs, num_inputs, outputs, num_outputs),
                  outputs, num_outputs);
}

nxd_status_t __wrap_nxd_parallel_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* logits,
                                               nxd_tensor_t* labels,
                                               const nxd_cross_entropy_options_t* options,
                                               nxd_tensor_t** out_loss) {
  return end_call(__real_nxd_parallel_cross_entropy(ctx, logits, labels, options, out_loss),
                  out_loss, 1);
}

nxd_status_t __wrap_nxd_linear_cross_entropy(nxd_context_t* ctx, nxd_tensor_t* x,
                                             nxd_tensor_t* weight, nxd_tensor_t* labels,
                                             int32_t sequence_dim,
                                             const nxd_cross_entropy_options_t* options,
                                             nxd_tensor_t** out_loss) {
  return end_call(
      __real_nxd_linear_cross_entropy(ctx, x, weight, labels, sequence_dim, options, out_loss),
      out_loss, 1);
}

nxd_status_t __wrap_nxd_gather_from_sequence_region(nxd_context_t* ctx, nxd_tensor_t* x,
                                                    int32_t dim, int32_t to_model_parallel,
                                                    nxd_tensor_t** out_y) {
  return end_call(__real_nxd_gather_from_sequence_region(ctx, x, dim, to_model_parallel, out_y),
                  out_y, 1);
}

/* The other mappings, of all of a tensor and of a dimension. */
#define WRAP_MAPPING(name)                                                                \
  nxd_status_t __wrap_##name(nxd_context_t* ctx, nxd_tensor_t* x, nxd_tensor_t** out_y) { \
    return end_call(__real_##name(ctx, x, out_y), out_y, 1);                              \
  }
#define WRAP_MAPPING_OF_DIM(name)                                              \
  nxd_status_t __wrap_##name(nxd_context_t* ctx, nxd_tensor_t* x, int32_t dim, \
                             nxd_tensor_t** out_y) {                           \
    return end_call(__real_##name(ctx, x, dim, out_y), out_y, 1);              \
  }
WRAP_MAPPING(nxd_copy_to_tensor_region)
WRAP_MAPPING(nxd_reduce_from_tensor_region)
WRAP_MAPPING(nxd_scatter_to_tensor_region)
WRAP_MAPPING(nxd_gather_from_tensor_region)
WRAP_MAPPING_OF_DIM(nxd_scatter_to_sequence_region)
WRAP_MAPPING_OF_DIM(nxd_reduce_scatter_to_sequence_region)

/* --- Exceptions, and what shows that the device was used -------------------------------------- */

enum { kExceptions = 256, kLine = 512 };
typedef struct {
  char test[96], where[16], reason[400];
} exception_t;
static exception_t exceptions[kExceptions];
static int num_exceptions;

/* The lines of tests/device_exceptions for this program. */
static void read_exceptions(void) {
  const size_t program = strlen(program_invocation_short_name);
  char line[kLine], name[160];
  FILE* file = fopen(NXD_DEVICE_EXCEPTIONS, "r");
  if (!file) {
    perror(NXD_DEVICE_EXCEPTIONS);
    exit(1);
  }
  while (fgets(line, sizeof line, file)) {
    exception_t* next = &exceptions[num_exceptions];
    if (num_exceptions == kExceptions) abort();
    if (sscanf(line, "%159s %15s %399[^\n]", name, next->where, next->reason) < 3) continue;
    if (strncmp(name, program_invocation_short_name, program) != 0 || name[program] != '.')
      continue;
    snprintf(next->test, sizeof next->test, "%s", name + program + 1);
    ++num_exceptions;
  }
  fclose(file);
}

/* The test's line for a place, or for both backends; NULL if it has none. */
static const exception_t* find_exception(const char* test, const char* where) {
  for (int i = 0; where && i < num_exceptions; ++i) {
    const exception_t* one = &exceptions[i];
    if (!strcmp(one->test, test) && !strcmp(one->where, where)) return one;
  }
  return NULL;
}

/* NXD_TEST_ONLY=NAME runs one test alone, an exception too. */
static const char* why_not(const char* test) {
  const char* only = getenv("NXD_TEST_ONLY");
  if (only) return strcmp(only, test) ? "another was asked for" : NULL;
  const exception_t* found = find_exception(test, "both");
  if (!found) found = find_exception(test, getenv("NXD_XLA_BACKEND"));
  return found ? found->reason : NULL;
}

static void begin(const char* test) { is_each_call = find_exception(test, "each_call") != NULL; }

/* Tests that had nothing on the device would have shown nothing. scripts/device_suites adds the
 * counts up. */
static int conclude(void) {
  nxd_device_metrics_t m = {.struct_size = sizeof m};
  if (nxd_device_get_metrics(&m) != NXD_OK) return 1;
  printf("device xla: %d placed, %llu recorded, %llu graphs, %llu executions, %llu fallbacks\n",
         atomic_load(&num_placed), (unsigned long long)m.recorded, (unsigned long long)m.graphs,
         (unsigned long long)m.executions, (unsigned long long)m.fallbacks);
  if (atomic_load(&num_placed)) return 0;
  fprintf(stderr, "nothing was placed on device xla\n");
  return 1;
}

__attribute__((constructor)) static void set_variant(void) {
  static const nxd_test_variant_t variant = {why_not, begin, conclude};
  if (!on_device()) return;
  const int missing = nxd_test_set_pjrt_plugin();
  if (missing) exit(missing);
  read_exceptions();
  nxd_test_set_variant(&variant);
}
