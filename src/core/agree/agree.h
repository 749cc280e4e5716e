#pragma once

#include <string>
#include <vector>

#include "core/agree/proposal.h"

namespace nxd {

// Compares what ranks propose, before anything is changed, over one group after another: what a
// group finds travels on to the next. Every rank of the groups takes part, also one that has its
// own reason to reject: all ranks fail together then, so that none waits for another. A rank that
// rejects fails with its own error, the others with its status, number and reason. Values that must
// be the same and are not are INVALID_ARGUMENT with one message on all ranks. Groups that are null
// or of one rank cost nothing, the others one small collective each.
//
// A group whose call fails, as where a rank of it makes another call in its place, ends this rank's
// part at once: ranks of later groups wait. To reject the later calls would not end that, since the
// rank of the other call does not come to them either, and it would wait for ranks that have failed
// elsewhere.
//
// True if values of compare_within() are alike within this rank's parts, in their order.
std::vector<bool> agree(const std::vector<ProcessGroup*>& groups, const Proposal& proposal);

// The texts of all ranks of a group, by rank; own may be of any length. All ranks fail together, as
// above, when one of them brings an outcome that is not good. They also do when one lacks memory
// for the texts of all: the others get INVALID_ARGUMENT with that reason. A group that is null has
// one rank.
std::vector<std::string> gather_texts(ProcessGroup* group, const std::string& own,
                                      const Outcome& outcome);

}  // namespace nxd
