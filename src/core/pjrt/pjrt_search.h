#pragma once

#include <string>

namespace nxd {

// Path of the plug-in that the environment names, else of Neuron's where it is installed.
// UNSUPPORTED says what was looked for.
std::string find_pjrt_plugin();

}  // namespace nxd
