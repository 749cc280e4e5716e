#include "engine/module/sequential.h"

#include <string>

namespace nxd {

Module::Tensors Sequential::forward(const Tensors& inputs, size_t n_outputs) {
  check_state(!children().empty(), class_name(), ": expected children to call, it has none");
  Tensors values = inputs;
  for (size_t i = 0; i < children().size(); ++i) {
    values = children()[i].second->call(values, i + 1 == children().size() ? n_outputs : 1);
  }
  name_outputs(children().back().second->output_paths());
  return values;
}

std::shared_ptr<Module> make_sequential(const std::shared_ptr<Context>& context,
                                        const std::vector<std::shared_ptr<Module>>& children) {
  auto made = std::make_shared<Sequential>(context);
  for (size_t i = 0; i < children.size(); ++i) made->add_child(std::to_string(i), children[i]);
  return made;
}

}  // namespace nxd
