#pragma once

#include <span>

namespace nxd {

// A variable that programs for Neuron devices, or for PyTorch with XLA, are started with.
enum class VariableUse {
  kRead,            // by this library; nxd_environment_table has more of it
  kPassedOn,        // the plug-in reads it, or a library below it
  kNeuron,          // read by this library for Neuron's plug-in; elsewhere it has no effect
  kNeuronOrReplay,  // Neuron's runtime reads it, or the replay; elsewhere it has no effect
  kWithoutEffect    // nobody reads it
};

struct DeviceVariable {
  const char* name;
  VariableUse use;
  const char* note;  // where it has no effect: the thing to use instead
};

std::span<const DeviceVariable> device_variables();

// A line in the log for each variable that is set and has no effect, once in a process.
enum class DeviceBackend {
  kUndecided,  // nothing was placed on the device yet
  kEager,
  kReplay,
  kNeuron,
  kOther
};
void warn_of_device_variables(DeviceBackend backend);

}  // namespace nxd
