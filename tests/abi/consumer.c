/* A program of the first release: it declares what it uses as nxd.h had it then, and is linked with
 * the library as it is now. Nothing here may follow the header. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct nxd_store nxd_store_t;
typedef struct nxd_context nxd_context_t;
typedef struct nxd_group nxd_group_t;
typedef struct nxd_ddp nxd_ddp_t;
typedef struct nxd_optimizer nxd_optimizer_t;
typedef struct nxd_tensor nxd_tensor_t;

typedef struct {
  size_t struct_size;
  int32_t status;
  int32_t root_rank;
  uint64_t sequence;
  const char* group;
  const char* operation;
} error_info;

typedef struct {
  size_t struct_size;
  uint64_t bytes_in_use, bytes_reserved, peak_bytes_in_use, allocations, system_allocations;
} memory_stats;

typedef struct {
  size_t struct_size;
  int32_t rendezvous, rank, size, local_rank;
  nxd_store_t* store;
  int64_t timeout_ms;
  const char* interface_name;
  uint64_t seed;
  int32_t plain_kernels, transport;
  const char* host_id;
  int32_t (*interrupt)(void* user_data);
  void* interrupt_data;
} context_options;

typedef struct {
  size_t struct_size;
  double learning_rate, beta1, beta2, eps, weight_decay;
} adamw_options;

typedef struct {
  size_t struct_size;
  double norm, learning_rate;
  int64_t updates;
  int32_t skipped, reserved;
} step_report;

typedef struct {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

enum { OK = 0, INVALID_ARGUMENT = -1, F32 = 0, RENDEZVOUS_STORE = 1, REDUCE_SUM = 0 };

uint32_t nxd_abi_version(void);
const char* nxd_last_error(void);
int32_t nxd_last_error_info(error_info* out_info);
int32_t nxd_store_create_local(nxd_store_t** out_store);
void nxd_store_destroy(nxd_store_t* store);
int32_t nxd_context_options_init(context_options* options, size_t size);
int32_t nxd_context_create(const context_options* options, nxd_context_t** out_ctx);
int32_t nxd_context_get_world_group(nxd_context_t* ctx, nxd_group_t** out_group);
int32_t nxd_context_finalize(nxd_context_t* ctx);
void nxd_context_destroy(nxd_context_t* ctx);
int32_t nxd_all_reduce(nxd_group_t* group, const void* send, void* recv, size_t count,
                       int32_t dtype, int32_t reduce);
int32_t nxd_memory_get_stats(memory_stats* out_stats);
int32_t nxd_ddp_create_buffers(nxd_context_t* ctx, nxd_group_t* group, const char* const* names,
                               dl_tensor* const* params, dl_tensor* const* grads, size_t n,
                               const void* options, nxd_ddp_t** out_ddp);
void nxd_ddp_destroy(nxd_ddp_t* ddp);
int32_t nxd_optimizer_create_adamw_ddp(nxd_ddp_t* ddp, const adamw_options* options,
                                       nxd_optimizer_t** out_optimizer);
int32_t nxd_optimizer_step(nxd_optimizer_t* optimizer, const void* options,
                           step_report* out_report);
void nxd_optimizer_destroy(nxd_optimizer_t* optimizer);
int32_t nxd_tensor_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim,
                             int32_t dtype, nxd_tensor_t** out_tensor);
int32_t nxd_op_call(const char* name, const char* overload, nxd_tensor_t* const* inputs,
                    size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs);
int32_t nxd_tensor_get_item(nxd_tensor_t* tensor, double* out_value);
void nxd_tensor_destroy(nxd_tensor_t* tensor);

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, nxd_last_error()); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

/* A struct of the caller's, and what lies behind it. */
#define GUARDED(type)         \
  struct {                    \
    type value;               \
    unsigned char behind[64]; \
  }

static int untouched(const unsigned char* behind) {
  for (int i = 0; i < 64; ++i)
    if (behind[i] != 0xab) return 0;
  return 1;
}

static int errors(nxd_group_t* world) {
  float x = 1;
  GUARDED(error_info) info;
  memset(&info, 0xab, sizeof info);
  info.value.struct_size = sizeof info.value;
  CHECK(nxd_all_reduce(world, &x, NULL, 1, F32, REDUCE_SUM) == INVALID_ARGUMENT);
  CHECK(nxd_last_error_info(&info.value) == OK && untouched(info.behind));
  CHECK(info.value.status == INVALID_ARGUMENT && !strcmp(info.value.operation, "all_reduce"));
  CHECK(!strcmp(info.value.group, "world"));
  return 0;
}

static int training(nxd_context_t* ctx) {
  float value = 1, gradient = 2;
  int64_t shape[] = {1};
  dl_tensor param = {&value, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, grad = param;
  dl_tensor *params[] = {&param}, *grads[] = {&grad};
  const adamw_options options = {sizeof options, 0.5, 0, 0, 0, 0};
  GUARDED(step_report) report;
  nxd_ddp_t* ddp = NULL;
  nxd_optimizer_t* adamw = NULL;
  grad.data = &gradient;
  memset(&report, 0xab, sizeof report);
  report.value.struct_size = sizeof report.value;
  CHECK(nxd_ddp_create_buffers(ctx, NULL, NULL, params, grads, 1, NULL, &ddp) == OK);
  CHECK(nxd_optimizer_create_adamw_ddp(ddp, &options, &adamw) == OK);
  CHECK(nxd_optimizer_step(adamw, NULL, &report.value) == OK && untouched(report.behind));
  CHECK(report.value.norm == 2 && report.value.updates == 1 && report.value.learning_rate == 0.5);
  CHECK(value > 0.49F && value < 0.51F);
  nxd_optimizer_destroy(adamw);
  nxd_ddp_destroy(ddp);
  return 0;
}

static int tensors(void) {
  const float numbers[] = {1, 2, 3.5F};
  const int64_t shape[] = {3};
  GUARDED(memory_stats) stats;
  nxd_tensor_t *x = NULL, *sum = NULL;
  double item = 0;
  memset(&stats, 0xab, sizeof stats);
  stats.value.struct_size = sizeof stats.value;
  CHECK(nxd_tensor_from_data(numbers, sizeof numbers, shape, 1, F32, &x) == OK);
  CHECK(nxd_memory_get_stats(&stats.value) == OK && untouched(stats.behind));
  CHECK(stats.value.bytes_in_use >= sizeof numbers && stats.value.allocations >= 1);
  CHECK(nxd_op_call("aten::sum", "", &x, 1, &sum, 1) == OK);
  CHECK(nxd_tensor_get_item(sum, &item) == OK && item == 6.5);
  nxd_tensor_destroy(sum);
  nxd_tensor_destroy(x);
  return 0;
}

int main(void) {
  context_options options;
  nxd_context_t* ctx = NULL;
  nxd_group_t* world = NULL;
  float x = 3, y = 0;
  CHECK(nxd_abi_version() == 0);
  CHECK(nxd_context_options_init(&options, sizeof options) == OK);
  CHECK(nxd_store_create_local(&options.store) == OK);
  options.rendezvous = RENDEZVOUS_STORE;
  options.size = 1;
  CHECK(nxd_context_create(&options, &ctx) == OK);
  nxd_store_destroy(options.store);
  CHECK(nxd_context_get_world_group(ctx, &world) == OK);
  CHECK(nxd_all_reduce(world, &x, &y, 1, F32, REDUCE_SUM) == OK && y == 3);
  CHECK(errors(world) == 0 && training(ctx) == 0 && tensors() == 0);
  CHECK(nxd_context_finalize(ctx) == OK);
  nxd_context_destroy(ctx);
  return 0;
}
