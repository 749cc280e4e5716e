#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/module/module.h"

// Questions about a whole tree of modules.
namespace nxd {

// Every parameter once, depth first, a module's own before its children's, in the order in which
// they are met. A tied parameter has its owner's name, wherever that stands in the tree; or the
// first one, where the tree has aliases alone.
std::vector<NamedParameter> named_parameters(const Module& root);
// The same with every name that leads to a parameter.
std::vector<NamedParameter> all_parameter_names(const Module& root);

// Differs where the options of the tree's modules do, or their places in it.
uint32_t options_digest(const Module& root);
// The modes of all modules of the tree together.
Module::Modes modes_used(const Module& root);

// By path; INVALID_ARGUMENT with near names when there is none.
std::shared_ptr<Parameter> find_parameter(const Module& root, const std::string& path);
std::shared_ptr<Module> find_module(const std::shared_ptr<Module>& root, const std::string& path);

// Draws all parameters anew under their paths from the root, and names the random sites.
void initialize(Module& root, uint64_t seed);

// Forgets the gradients of all parameters.
void zero_grad(const Module& root);

// All parameters of the tree draw by these values from now on; empty ones: by their layers' own.
void set_initial_values(const Module& root, const InitialValues& values);

// Moves all parameters and buffers: see nxd_move_model_to_device.
void move_to_device(const Module& root, nxd_device_t device);

// Casts all parameters, and buffers of floats: see nxd_module_cast.
void cast_parameters(Module& root, nxd_dtype_t dtype);

// Makes alias_path another name of the parameter at owner_path, and with it all names that led to
// the parameter there; see Module::alias_parameter, which gives something for each.
std::vector<std::shared_ptr<void>> tie(const std::shared_ptr<Module>& root,
                                       const std::string& owner_path,
                                       const std::string& alias_path);

}  // namespace nxd
