#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/agree/outcome.h"
#include "core/layout/head_padding.h"
#include "engine/module/module.h"

namespace nxd {

// The arguments of nxd_pad_model.
struct PadRequest {
  int64_t tp_degree = 1, num_heads = 1;
  std::vector<std::string> wrapped_classes{};  // none: all of the tree
  std::function<void(Module& module, const HeadPadding& heads)> hook{};
};

// See nxd_pad_model. given: all ranks fail with one whose arguments are none. Collective over the
// tensor-parallel group.
void pad_model(Module& root, const PadRequest& request, const Outcome& given);

}  // namespace nxd
