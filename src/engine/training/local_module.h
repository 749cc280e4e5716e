#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/module/buffers.h"
#include "engine/module/module.h"

namespace nxd {

// The part of a model that a rank of a pipeline has: a tree of the same names, classes, parameters
// and buffers. Modules of which all these are this rank's are the model's own; others are
// containers that cannot be run, which hold those that are this rank's. A parameter has all the
// names here that it has in the whole, its owner's first, so that copies of a tied one that lie in
// several stages have one name.
class LocalModule : public Module, public BufferHolder {
 public:
  // parameters, buffers: of the whole, any order; it has no other buffers. paths: of modules to be
  // there even if they hold none of these. INVALID_ARGUMENT for a parameter or path that the whole
  // does not have.
  static std::shared_ptr<LocalModule> create(
      const std::shared_ptr<Module>& model,
      const std::vector<std::shared_ptr<Parameter>>& parameters,
      const std::vector<std::string>& paths,
      const std::vector<std::shared_ptr<Buffer>>& buffers = {});

  LocalModule(std::shared_ptr<Module> model, const std::string& class_name);

  const Module& model() const { return *model_; }
  Module& model() { return *model_; }
  // The pipeline-parallel ranks of the layout that it was made in, which have the other parts; none
  // without a layout.
  const std::vector<int>& pipeline_ranks() const { return pipeline_ranks_; }
  // Also of the parts in other stages: what each rank traces.
  void set_training(bool training) override;
  const Module* whole() const override { return model_.get(); }

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  std::shared_ptr<Module> model_;
  std::vector<int> pipeline_ranks_;
};

// The model that a tree is part of; the tree itself unless it is a local one.
const Module& full_model(const Module& root);
Module& full_model(Module& root);

}  // namespace nxd
