#pragma once

#include <string>
#include <vector>

// The engine's part of nxd-neuron-selftest: a Llama of four layers, whose steps are recorded,
// compiled by a plug-in and run there.

// Losses of the steps on the CPU, eagerly, or through the plug-in, as the environment says
// (NXD_PJRT_PLUGIN). The ranks that a launcher has started are tensor parallel. A call of the
// library that fails is an nxd::Error.
std::vector<double> train_llama(bool on_device);

// The losses that were recorded: train_llama(false) on one rank.
const std::vector<double>& recorded_llama_losses();

// True if this many ranks have parts of the model.
bool divides_llama(int ranks);
