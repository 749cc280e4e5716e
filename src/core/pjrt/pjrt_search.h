#pragma once

#include <string>

namespace nxd {

// The first place that has a plug-in: the path that the environment names, which need not exist, or
// Neuron's where it is installed.
struct PluginSearch {
  std::string path{};   // "": there is none
  std::string tried{};  // then: what was looked for
};

PluginSearch search_pjrt_plugin();
// UNSUPPORTED where there is none.
std::string find_pjrt_plugin();

}  // namespace nxd
