#include <algorithm>

#include "core/base/suggestions.h"
#include "engine/ops/op_call.h"

namespace nxd {
namespace {

std::string qualified(std::string_view name) {
  const bool has_namespace = name.find("::") != std::string_view::npos;
  return has_namespace ? std::string(name) : "aten::" + std::string(name);
}

// Overloads of one name, sorted; the names of all operators go to all_names.
std::vector<std::string> overloads_of(const std::string& name,
                                      std::vector<std::string>& all_names) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> overloads;
  for (const c10::OperatorName& known : dispatcher.getAllOpNames()) {
    if (!dispatcher.findSchema(known)) continue;
    all_names.push_back(known.name);
    if (known.name == name) overloads.push_back(known.overload_name);
  }
  std::sort(overloads.begin(), overloads.end());
  return overloads;
}

std::string listed(const std::vector<std::string>& overloads) {
  std::string out;
  for (const std::string& overload : overloads) {
    if (!out.empty()) out += ", ";
    out += overload.empty() ? "\"\"" : overload;
  }
  return out;
}

}  // namespace

c10::OperatorHandle find_operator(std::string_view name, std::string_view overload) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const std::string full_name = qualified(name);
  if (auto found = dispatcher.findSchema({full_name, std::string(overload)})) return *found;

  std::vector<std::string> all_names;
  const std::vector<std::string> overloads = overloads_of(full_name, all_names);
  if (overload.empty() && overloads.size() == 1) {
    return *dispatcher.findSchema({full_name, overloads[0]});
  }
  check_argument(!overloads.empty(), "name: no operator ", full_name,
                 Suggestions(full_name, all_names));
  check_argument(!overload.empty(), "overload: ", full_name,
                 " has none without a name; expected one of ", listed(overloads));
  fail(NXD_ERROR_INVALID_ARGUMENT, "overload: ", full_name, " has no overload ", overload,
       suggestions(overload, overloads), "; overloads: ", listed(overloads));
}

}  // namespace nxd
