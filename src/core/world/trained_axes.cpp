#include "core/world/trained_axes.h"

namespace nxd {

void check_trained_axes(const Context& context, const char* what) {
  if (const auto parallel = context.find_parallel()) check_trained_axes(*parallel, what);
}

void check_trained_axes(const ParallelState& parallel, const char* what) {
  const RankLayout& layout = parallel.layout();
  const auto check = [&](int size, const char* option) {
    if (size == 1) return;
    fail(NXD_ERROR_UNSUPPORTED, what, ": expected a layout with ", option, " 1, got ", size,
         ": nothing is reduced over its ranks");
  };
  check(layout.group_size(NXD_AXIS_CONTEXT), "context_parallel_size");
  check(layout.group_size(NXD_AXIS_EXPERT_MODEL), "expert_parallel_size");
}

}  // namespace nxd
