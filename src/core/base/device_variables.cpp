#include "core/base/device_variables.h"

#include <array>
#include <atomic>
#include <iterator>

#include "core/base/environment.h"
#include "core/base/log.h"

namespace nxd {
namespace {

// docs/neuron.md has the same rows in the same order.
constexpr DeviceVariable kDeviceVariables[] = {
    {"NXD_CPU_MODE", VariableUse::kRead, "1: train on the CPU, eagerly"},
    {"NEURON_NUM_DEVICES", VariableUse::kRead, "processes that nxd_spawn starts"},
    {"NEURONCORE_NUM_DEVICES", VariableUse::kRead, "the same, where that is not set"},
    {"NEURON_CC_FLAGS", VariableUse::kRead, "the words about the cache; Neuron's compiler has all"},
    {"NEURON_COMPILE_CACHE_URL", VariableUse::kRead, "directory of compiled programs"},
    {"NEURON_EXTRACT_GRAPHS_ONLY", VariableUse::kRead,
     "1: graphs are compiled into the cache, and do not run"},
    {"XLA_COMPILATION_CACHE_SIZE", VariableUse::kRead,
     "graphs that a process keeps compiled; the least recently used leave"},
    {"XLA_FLAGS", VariableUse::kRead, "read by XLA; compiled programs are kept apart by it"},
    {"NEURON_LIBRARY_PATH", VariableUse::kRead,
     "Neuron's plug-in, where NXD_PJRT_PLUGIN is not set"},
    {"NEURON_RT_VISIBLE_CORES", VariableUse::kRead, "each rank of a host takes one of these cores"},
    {"NEURON_RT_ROOT_COMM_ID", VariableUse::kRead, "set for ranks, unless it is set already"},
    {"NEURON_PJRT_PROCESSES_NUM_DEVICES", VariableUse::kRead, "the same"},
    {"NEURON_PJRT_PROCESS_INDEX", VariableUse::kRead, "the same"},
    {"NEURON_PJRT_WORLD_SIZE", VariableUse::kPassedOn, "read by Neuron's plug-in"},
    {"PJRT_LOCAL_PROCESS_COUNT", VariableUse::kPassedOn, "read by Neuron's plug-in"},
    {"PJRT_LOCAL_PROCESS_RANK", VariableUse::kPassedOn, "read by Neuron's plug-in"},
    {"NEURON_INTERNAL_PJRT_C_API_VERSION", VariableUse::kPassedOn,
     "version of the interface that Neuron's plug-in offers"},
    {"NEURON_RT_NUM_CORES", VariableUse::kPassedOn, "read by Neuron's runtime"},
    {"NEURON_LOGICAL_NC_CONFIG", VariableUse::kPassedOn, "cores that make one logical core"},
    {"NEURON_PLATFORM_TARGET_OVERRIDE", VariableUse::kPassedOn, "read by Neuron's compiler"},
    {"NEURON_RT_EXEC_TIMEOUT", VariableUse::kPassedOn, "bound of a program, seconds"},
    {"NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", VariableUse::kPassedOn,
     "programs under way at a time"},
    {"NEURON_RT_LOG_LEVEL", VariableUse::kPassedOn, "read by Neuron's runtime"},
    {"NEURON_RUN_TRIVIAL_COMPUTATION_ON_CPU", VariableUse::kPassedOn, "read by Neuron's plug-in"},
    {"PJRT_NPROC", VariableUse::kPassedOn, "threads of the CPU plug-in; 1 for ranks of one host"},
    {"TF_CPP_MIN_LOG_LEVEL", VariableUse::kPassedOn, "1 silences what XLA says when it starts"},
    {"FI_PROVIDER", VariableUse::kPassedOn, "network of libfabric; efa between Trainium hosts"},
    {"FI_EFA_USE_DEVICE_RDMA", VariableUse::kPassedOn, "read by libfabric"},
    {"FI_EFA_FORK_SAFE", VariableUse::kPassedOn, "read by libfabric"},
    {"NEURON_RT_STOCHASTIC_ROUNDING_EN", VariableUse::kNeuronOrReplay,
     "elsewhere optimizers have the option bf16_update"},
    {"NEURON_RT_STOCHASTIC_ROUNDING_SEED", VariableUse::kNeuronOrReplay,
     "seed of these bits; by default NXD_SEED's"},
    {"XLA_USE_32BIT_LONG", VariableUse::kNeuron,
     "1: i64 is i32 on the device; elsewhere make ids of NXD_DTYPE_I32"},
    {"XLA_USE_BF16", VariableUse::kWithoutEffect,
     "deprecated; make the model in bf16 by the dtype of its options"},
    {"XLA_DOWNCAST_BF16", VariableUse::kWithoutEffect,
     "deprecated; make the model in bf16 by the dtype of its options"},
    {"DISABLE_XLA", VariableUse::kWithoutEffect, "NXD_CPU_MODE=1 trains on the CPU"},
    {"NEURON_FRAMEWORK_DEBUG", VariableUse::kWithoutEffect,
     "nxd_device_get_step_graph has the graph of a step"},
    {"XLA_SAVE_TENSORS_FILE", VariableUse::kWithoutEffect,
     "nxd_device_get_step_graph has the graph of a step"},
    {"XLA_METRICS_FILE", VariableUse::kWithoutEffect, "nxd_device_get_report has the counts"},
    {"PT_XLA_DEBUG", VariableUse::kWithoutEffect, "nxd_device_get_report has the counts"},
    {"PT_XLA_DEBUG_LEVEL", VariableUse::kWithoutEffect, "nxd_device_get_report has the counts"},
    {"XLA_SYNC_WAIT", VariableUse::kWithoutEffect, "nxd_mark_step has the argument wait"},
    {"XLA_ENABLE_PARAM_ALIASING", VariableUse::kWithoutEffect, "parameters are updated in place"},
    {"NEURON_NUM_RECENT_MODELS_TO_KEEP", VariableUse::kWithoutEffect,
     "XLA_COMPILATION_CACHE_SIZE says how many graphs are kept"},
    {"NEURON_PARALLEL_COMPILE_MAX_RETRIES", VariableUse::kWithoutEffect,
     "ranks that start together compile a program once"},
    {"NEURON_TRANSFER_WITH_STATIC_RING_OPS", VariableUse::kWithoutEffect, "the plug-in decides"},
    {"NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING", VariableUse::kWithoutEffect,
     "the plug-in decides"},
    {"NEURON_FUSE_SOFTMAX", VariableUse::kWithoutEffect, "the compiler decides"},
    {"NEURON_CUSTOM_SILU", VariableUse::kWithoutEffect, "the compiler decides"},
    {"ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", VariableUse::kWithoutEffect,
     "data parallelism has the option bucket_bytes"},
    {"ALLREDUCE_BUCKET_CAP_MB", VariableUse::kWithoutEffect,
     "data parallelism has the option bucket_bytes"},
    {"ALL_GATHER_REDUCE_SCATTER_BUCKET_CAP_MB", VariableUse::kWithoutEffect,
     "data parallelism has the option bucket_bytes"},
    {"BUCKET_CAP_MB", VariableUse::kWithoutEffect, "data parallelism has the option bucket_bytes"},
};

bool has_effect(VariableUse use, DeviceBackend backend) {
  const bool may_be_neuron =
      backend == DeviceBackend::kNeuron || backend == DeviceBackend::kUndecided;
  switch (use) {
    case VariableUse::kRead:
    case VariableUse::kPassedOn: return true;
    case VariableUse::kNeuron: return may_be_neuron;
    case VariableUse::kNeuronOrReplay: return may_be_neuron || backend == DeviceBackend::kReplay;
    case VariableUse::kWithoutEffect: break;
  }
  return false;
}

}  // namespace

std::span<const DeviceVariable> device_variables() { return kDeviceVariables; }

// No lock: a log callback may come here again, and a child that is forked meanwhile comes here too.
void warn_of_device_variables(DeviceBackend backend) {
  static std::array<std::atomic<bool>, std::size(kDeviceVariables)> warned;
  for (size_t i = 0; i < warned.size(); ++i) {
    const DeviceVariable& variable = kDeviceVariables[i];
    const bool is_idle = !has_effect(variable.use, backend) && env::get(variable.name);
    if (!is_idle || warned[i].exchange(true)) continue;
    log(NXD_LOG_WARN, "environment variable ", variable.name, " has no effect: ", variable.note);
  }
}

}  // namespace nxd
