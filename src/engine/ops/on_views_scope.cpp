#include "engine/ops/on_views_scope.h"

#include <mutex>

#include "engine/device/operator_arguments.h"
#include "engine/operator_library.h"
#include "engine/ops/written_views.h"

namespace nxd {
namespace {

// One of the keys that libtorch leaves to others, and not that of a trace; no tensor has it, so
// that calls meet it only on threads that include it.
constexpr c10::DispatchKey kOnViewsKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void run_in_scope(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kOnViewsKey);
  on_own_arguments(op.schema().arguments().size(), *stack,
                   [&](torch::jit::Stack& own) { run_on_views(op, own); });
}

c10::DispatchKey registered_on_views_key() {
  static OperatorLibrary hook;
  static std::once_flag once;
  std::call_once(once, [] {
    hook.open(kOnViewsKey, "_")
        .fallback(torch::CppFunction::makeFromBoxedFunction<&run_in_scope>());
  });
  return kOnViewsKey;
}

}  // namespace

OnViewsScope::OnViewsScope() : include_(registered_on_views_key()) {}

}  // namespace nxd
