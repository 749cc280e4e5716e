// A file of nxd_optimizer_save, as nxd_optimizer_load reads it. The first byte chooses the
// optimizer. Loading fails, or what it has loaded can be saved and used.
#include "fuzz.h"
#include "support/temp_dir.h"

namespace {

using nxd_fuzz::expect;

void check(nxd_status_t status) { expect(status == NXD_OK, "the set-up fails", nxd_last_error()); }

// A world of one rank with two parameters, one of them BF16.
struct Rank {
  float weight[6] = {1, 2, 3, 4, 5, 6}, weight_grad[6] = {1, 1, 1, 1, 1, 1};
  uint16_t bias[2] = {0x3f80, 0x4000}, bias_grad[2] = {0x3f80, 0x3f80};
  int64_t weight_shape[2] = {2, 3}, bias_shape[1] = {2};
  nxd_context_t* ctx = nullptr;
  nxd_ddp_t* ddp = nullptr;
  nxd_optimizer_t* optimizers[3] = {};

  Rank() {
    nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
    options.rendezvous = NXD_RENDEZVOUS_STORE;
    options.size = 1;
    check(nxd_context_create(&options, &ctx));
    check(nxd_init_model_parallel(ctx, nullptr));
    const auto tensor = [](void* data, int64_t* shape, int32_t ndim, DLDataType dtype) {
      return DLTensor{data, {kDLCPU, 0}, ndim, dtype, shape, nullptr, 0};
    };
    const DLDataType f32{kDLFloat, 32, 1}, bf16{kDLBfloat, 16, 1};
    DLTensor values[2] = {tensor(weight, weight_shape, 2, f32), tensor(bias, bias_shape, 1, bf16)};
    DLTensor grads[2] = {tensor(weight_grad, weight_shape, 2, f32),
                         tensor(bias_grad, bias_shape, 1, bf16)};
    DLTensor* value_list[2] = {&values[0], &values[1]};
    DLTensor* grad_list[2] = {&grads[0], &grads[1]};
    const char* names[2] = {"weight", "bias"};
    check(nxd_ddp_create_buffers(ctx, nullptr, names, value_list, grad_list, 2, nullptr, &ddp));
    check(nxd_optimizer_create_adamw_ddp(ddp, nullptr, &optimizers[0]));
    nxd_sgd_options_t sgd = NXD_SGD_OPTIONS_INIT;
    sgd.momentum = 0.9;
    check(nxd_optimizer_create_sgd_ddp(ddp, &sgd, &optimizers[1]));
    nxd_adamw_options_t nearest = NXD_ADAMW_OPTIONS_INIT;
    nearest.bf16_update = NXD_BF16_UPDATE_NEAREST;
    check(nxd_optimizer_create_adamw_ddp(ddp, &nearest, &optimizers[2]));
  }
  ~Rank() {
    for (nxd_optimizer_t* optimizer : optimizers) nxd_optimizer_destroy(optimizer);
    nxd_ddp_destroy(ddp);
    nxd_context_destroy(ctx);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rank rank;
  static nxd_fuzz::MemoryFile file;
  static const nxd_test::TempDir directory;
  nxd_fuzz::Input in(data, size);
  nxd_optimizer_t* optimizer = rank.optimizers[in.choice(0, 2)];
  file.set(in.rest());
  const nxd_status_t status = nxd_optimizer_load(optimizer, file.path().c_str());
  if (status != NXD_OK) {
    expect(nxd_fuzz::is_rejection(status), "an input gives a status", nxd_last_error());
    return 0;
  }
  static int saves = 0;
  if (saves++ % 16 == 0) check(nxd_optimizer_save(optimizer, (directory.path() + "/s").c_str()));
  check(nxd_optimizer_step(optimizer, nullptr, nullptr));
  return 0;
}
