#include "engine/module/module_tree.h"

#include <unordered_map>

#include "core/base/suggestions.h"
#include "engine/module/attributes.h"
#include "engine/module/buffers.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

template <class Visit>
void walk(const Module& module, const std::string& path, const Visit& visit) {
  for (const auto& [name, parameter] : module.parameters()) {
    visit({join_path(path, name), parameter, module.is_alias(name)});
  }
  for (const auto& [name, child] : module.children()) walk(*child, join_path(path, name), visit);
}

// {path of the module, name in it}.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

void name_sites(Module& module, const std::string& path) {
  module.set_site(path);
  for (const auto& [name, child] : module.children()) name_sites(*child, join_path(path, name));
}

void tell_cast(Module& module, at::ScalarType dtype) {
  module.parameters_were_cast(dtype);
  for (const auto& [name, child] : module.children()) tell_cast(*child, dtype);
}

void add_options(const Module& module, const std::string& path, Hash& hash) {
  if (module.options()) hash.add(path).add(module.options()->value());
  for (const auto& [name, child] : module.children()) {
    add_options(*child, join_path(path, name), hash);
  }
}

}  // namespace

uint32_t options_digest(const Module& root) {
  Hash hash;
  add_options(root, "", hash);
  return hash.folded();
}

Module::Modes modes_used(const Module& root) {
  Module::Modes modes = root.modes_used();
  for (const auto& [name, child] : root.children()) modes.add(modes_used(*child));
  return modes;
}

std::vector<NamedParameter> all_parameter_names(const Module& root) {
  std::vector<NamedParameter> result;
  walk(root, "", [&](NamedParameter entry) { result.push_back(std::move(entry)); });
  return result;
}

std::vector<NamedParameter> named_parameters(const Module& root) {
  std::vector<NamedParameter> result;
  std::unordered_map<const Parameter*, size_t> places;
  walk(root, "", [&](NamedParameter entry) {
    const auto [place, is_new] = places.emplace(entry.parameter.get(), result.size());
    if (is_new) {
      result.push_back(std::move(entry));
    } else if (NamedParameter& known = result[place->second]; known.is_alias && !entry.is_alias) {
      known = std::move(entry);
    }
  });
  return result;
}

std::shared_ptr<Parameter> find_parameter(const Module& root, const std::string& path) {
  std::vector<std::string> known;
  for (const NamedParameter& entry : all_parameter_names(root)) {
    if (entry.name == path) return entry.parameter;
    known.push_back(entry.name);
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "name: ", root.class_name(), " has no parameter \"", path, "\"",
       suggestions(path, known));
}

std::shared_ptr<Module> find_module(const std::shared_ptr<Module>& root, const std::string& path) {
  std::shared_ptr<Module> module = root;
  size_t begin = 0;
  while (!path.empty() && begin <= path.size()) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, dot - begin);
    const auto& children = module->children();
    const auto next = std::find_if(children.begin(), children.end(),
                                   [&](const auto& child) { return child.first == name; });
    if (next == children.end()) {
      std::vector<std::string> known;
      for (const auto& child : children) known.push_back(child.first);
      fail(NXD_ERROR_INVALID_ARGUMENT, "path: ", module->class_name(), " has no child \"", name,
           "\" (of \"", path, "\")", suggestions(name, known));
    }
    module = next->second;
    begin = dot + 1;
  }
  return module;
}

void initialize(Module& root, uint64_t seed) {
  for (const NamedParameter& entry : named_parameters(root)) {
    entry.parameter->initialize(seed, entry.name);
  }
  name_sites(root, "");
}

// Once for each step: without the names, which named_parameters() makes.
void zero_grad(const Module& root) {
  for (const auto& [name, parameter] : root.parameters()) parameter->forget_gradient();
  for (const auto& [name, child] : root.children()) zero_grad(*child);
}

void set_initial_values(const Module& root, const InitialValues& values) {
  for (const NamedParameter& entry : named_parameters(root)) {
    entry.parameter->set_initial_values(values);
  }
}

void move_to_device(const Module& root, nxd_device_t device) {
  const at::Device target = to_device(device);
  const std::vector<NamedParameter> parameters = named_parameters(root);
  for (const NamedParameter& entry : parameters) {
    if (entry.parameter->tensor().device() != target) entry.parameter->check_movable();
  }
  const bool has_views = target.is_cpu() || target.is_meta();
  check_views(named_buffers(root), has_views);
  if (!has_views) check_attributes_apart(root, named_buffers(root));
  for (const NamedParameter& entry : parameters) entry.parameter->move_to(target);
  // Buffers keep their values, which nothing could draw anew.
  replace_values(named_buffers(root), [&](const at::Tensor& value) {
    return target.is_meta() || value.device() == target ? at::Tensor() : value.to(target);
  });
}

void cast_parameters(Module& root, nxd_dtype_t dtype) {
  const at::ScalarType target = parameter_scalar_type(dtype);
  const std::vector<NamedParameter> parameters = named_parameters(root);
  for (const NamedParameter& entry : parameters) {
    if (entry.parameter->tensor().scalar_type() == target) continue;
    entry.parameter->check_uncut("nxd_module_cast");
    entry.parameter->check_movable();
  }
  const auto changes = [&](const at::Tensor& value) {
    return value.is_floating_point() && value.scalar_type() != target;
  };
  std::vector<NamedBuffer> leaving = named_buffers(root);
  check_views(leaving, true);
  std::erase_if(leaving, [&](const NamedBuffer& entry) { return !changes(entry.buffer->value); });
  check_attributes_apart(root, leaving);
  for (const NamedParameter& entry : parameters) entry.parameter->cast_to(target);
  replace_values(leaving, [&](const at::Tensor& value) { return value.to(target); });
  tell_cast(root, target);
}

std::vector<std::shared_ptr<void>> tie(const std::shared_ptr<Module>& root,
                                       const std::string& owner_path,
                                       const std::string& alias_path) {
  const std::shared_ptr<Parameter> owner = find_parameter(*root, owner_path);
  const std::shared_ptr<Parameter> alias = find_parameter(*root, alias_path);
  owner->check_uncut("nxd_module_tie");
  alias->check_uncut("nxd_module_tie");
  check_argument(owner->shard() == alias->shard() &&
                     owner->tensor().scalar_type() == alias->tensor().scalar_type(),
                 "alias_path: expected \"", alias_path,
                 "\" to have the shape, sharding and dtype of \"", owner_path,
                 "\": ", shape_text(owner->shard().shape()), ", got ",
                 shape_text(alias->shard().shape()));
  if (owner == alias) return {};  // tied already
  alias->check_untrained("nxd_module_tie");
  std::vector<std::shared_ptr<void>> lent;
  for (const NamedParameter& entry : all_parameter_names(*root)) {
    if (entry.parameter != alias) continue;
    const auto [module_path, name] = split_path(entry.name);
    lent.push_back(find_module(root, module_path)->alias_parameter(name, owner));
  }
  return lent;
}

}  // namespace nxd
