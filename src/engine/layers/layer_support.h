#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "engine/functional/mappings.h"
#include "engine/layers/layer_context.h"

// Functions that the constructors and forwards of built-in layers share.
namespace nxd {

// The context's tensor-parallel group; INVALID_STATE before nxd_init_model_parallel.
GroupRef tensor_group(const Context& context);

// A rank's rows of a table whose rows are the vocabulary, padded to a multiple of the ranks.
ShardSpec vocabulary_shard(ShardSpec::Shape shape, const ProcessGroup& group);

// A rank's part of features that need not divide by the ranks, of which each has some.
ShardSpec::Range own_features(const ProcessGroup& group, int64_t features);

// Marks a replicated parameter: with sequence parallelism its gradient is summed over the group.
void mark_replicated(Parameter& parameter, const GroupRef& group, bool sequence_parallel);

// Fails, on all ranks, unless ids are from 0 to below limit: "LAYER: EXPECTED 0 to 9, got 12".
void check_ids_below(const GroupRef& group, const char* layer, const char* expected,
                     const at::Tensor& ids, int64_t limit);

// Fails, on all ranks, unless an input is on the device of the layer's parameter.
void check_device(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                  const at::Tensor& parameter);

// Checks an input's last dimension, and its dtype and device by those of a parameter, on all ranks
// of the group alike.
void check_features(ProcessGroup& group, const std::string& layer, const at::Tensor& x,
                    int64_t features, const at::Tensor& parameter);

}  // namespace nxd
