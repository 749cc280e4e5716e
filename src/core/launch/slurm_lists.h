#pragma once

#include <string>
#include <vector>

namespace nxd {

// The hosts of Slurm's short form, in order: "a[1-2,07],b" is a1, a2, a07, b. Empty when it is
// malformed.
std::vector<std::string> expand_host_list(const std::string& list);

// Tasks of the index-th node by Slurm's "2(x3),1"; -1 when that does not say.
int tasks_of_node(const std::string& tasks_per_node, int index);

}  // namespace nxd
