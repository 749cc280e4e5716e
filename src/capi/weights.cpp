// nxd/weights.h: shards of weights, over buffers.
#include "capi/layer_calls.h"
#include "capi/shard_options.h"
#include "core/tensor_parallel/weight_shard.h"

using namespace nxd;

namespace {

const char* text_argument(const char* text, const char* name) {
  check_argument(text, name, ": expected a text, got NULL");
  return text;
}

}  // namespace

nxd_status_t nxd_shard_options_init(nxd_shard_options_t* options, size_t size) {
  return guard([&] { init_options(options, size, kShardDefaults, "options"); });
}

nxd_status_t nxd_shard_initialize(nxd_context_t* ctx, const char* name, nxd_init_t init, double a,
                                  double b, const nxd_shard_options_t* options, DLTensor* shard) {
  return guard([&] {
    initialize_shard(unwrap(ctx), text_argument(name, "name"), {init, a, b},
                     resolve(options, "options"), read_array(shard, "shard", Data::kNeeded));
  });
}

nxd_status_t nxd_shard_set_full(nxd_context_t* ctx, const DLTensor* full,
                                const nxd_shard_options_t* options, DLTensor* shard) {
  return guard([&] {
    set_full(unwrap(ctx), read_array(full, "full", Data::kNeeded), resolve(options, "options"),
             read_array(shard, "shard", Data::kNeeded));
  });
}

nxd_status_t nxd_shard_gather_full(nxd_context_t* ctx, const DLTensor* shard,
                                   const nxd_shard_options_t* options, DLTensor* full) {
  return run_plan(ctx, "shard_gather_full", [&](const Context&, const ProcessGroup& group) {
    return ShardGather(group, read_array(shard, "shard", Data::kNeeded),
                       resolve(options, "options"), read_array(full, "full", Data::kNeeded));
  });
}

nxd_status_t nxd_shard_load_safetensors(nxd_context_t* ctx, const char* path, const char* name,
                                        const nxd_shard_options_t* options, DLTensor* shard) {
  return guard([&] {
    load_shard(unwrap(ctx), text_argument(path, "path"), text_argument(name, "name"),
               resolve(options, "options"), read_array(shard, "shard", Data::kNeeded));
  });
}
