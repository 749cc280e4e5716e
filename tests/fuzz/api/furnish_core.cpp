// Two parameters in memory of the caller with their optimizer, files of tokens, and a checkpoint.
// Every rank makes the same, in the same order; where a call fails the rank has less.
#include <cstdio>

#include "draw.h"

namespace nxd_fuzz {
namespace {

constexpr int64_t kExtents[] = {4, 8};

DLTensor array(Draw& draw) {
  auto* shape = draw.room<int64_t>(2);
  shape[0] = kExtents[0];
  shape[1] = kExtents[1];
  return {draw.memory(sizeof(float) * 32), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
}

void train(Draw& draw, nxd_context_t* ctx) {
  const char* const names[] = {"weight", "bias"};
  DLTensor params[] = {array(draw), array(draw)}, grads[] = {array(draw), array(draw)};
  DLTensor* const param_list[] = {&params[0], &params[1]};
  DLTensor* const grad_list[] = {&grads[0], &grads[1]};
  nxd_group_t* group = nullptr;
  nxd_ddp_t* ddp = nullptr;
  if (nxd_parallel_get_group(ctx, NXD_AXIS_DATA, &group) != NXD_OK ||
      nxd_ddp_create_buffers(ctx, group, names, param_list, grad_list, 2, nullptr, &ddp) != NXD_OK)
    return;
  draw.keep(ddp, nullptr);
  nxd_optimizer_t* optimizer = nullptr;
  if (nxd_optimizer_create_adamw_ddp(ddp, nullptr, &optimizer) == NXD_OK)
    draw.keep(optimizer, nullptr);
}

// By the names that Draw::strings gives mostly.
void write_tokens() {
  for (const char* name : {"p0", "p1", "p2", "p3"}) {
    FILE* file = std::fopen(name, "w");
    if (!file) return;
    for (int i = 0; i < 512; ++i) std::fputc(i % 2 == 0 ? i / 2 : 0, file);
    std::fclose(file);
  }
}

void publish(nxd_context_t* ctx) {
  nxd_checkpoint_t* checkpoint = nullptr;
  if (nxd_checkpoint_create(ctx, "model", 1, &checkpoint) == NXD_OK)
    nxd_checkpoint_publish(checkpoint, 0);
  nxd_checkpoint_destroy(checkpoint);
}

}  // namespace

void furnish(Draw& draw, nxd_context_t* ctx) {
  if (draw.rank() == 0) write_tokens();
  train(draw, ctx);
  publish(ctx);
}

}  // namespace nxd_fuzz
