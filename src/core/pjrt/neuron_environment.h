#pragma once

#include <map>
#include <string>

#include "core/launch/launcher.h"

namespace nxd {

// Neuron's plug-in, by the name of its file.
bool is_neuron_plugin(const std::string& path);

// Variables that Neuron's runtime needs of a rank, and that are not set yet: its core, the address
// where ranks find each other, and how many devices each process has, which is one.
// INVALID_ARGUMENT when NEURON_RT_VISIBLE_CORES is no list of cores, or has fewer than the host has
// ranks; INVALID_STATE when the launcher does not say which rank of its host this is.
std::map<std::string, std::string> neuron_environment(const Launch& launch,
                                                      const Variables& variables);

// Sets them in this process, as its launcher says. To be called before the plug-in is loaded.
void set_neuron_environment();

}  // namespace nxd
