#pragma once

#include <memory>
#include <string>

#include "engine/module/module.h"

// Modules of TorchScript files, which a user of PyTorch writes by torch.jit.save. The file has the
// forward's code as well as the values: nobody writes the model a second time.
namespace nxd {

// A tree of the file's names and classes, with its parameters, whole on each rank, and its buffers.
// A forward that calls submodules calls them one by one, so that recomputation and the stages of a
// pipeline may begin at each (torchscript_forward.h says which calls); any other is called as a
// whole. Gradients come from libtorch's autograd, operator by operator. Dropouts draw as the layer
// Dropout does, at the site of the module's path, and differ from call to call of a forward.
//
// INVALID_ARGUMENT for what is no such file; UNSUPPORTED, with the name, for a parameter that is no
// dense F32, F64 or BF16, and for a forward that draws other random numbers.
std::shared_ptr<Module> load_torchscript(const std::shared_ptr<Context>& context,
                                         const std::string& path);

// Writes such a file with the values as they are now, crash-safe. INVALID_ARGUMENT for a root that
// is none of load_torchscript, or whose parameters are not all here.
void save_torchscript(Module& root, const std::string& path);

}  // namespace nxd
