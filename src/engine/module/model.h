#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/module/module.h"

namespace nxd {

// A built-in model: the root of its tree.
class Model : public Module {
 public:
  using Module::Module;

  // Floating-point operations of one training step on batch sequences, all ranks together: see
  // nxd_model_get_step_flops.
  virtual double step_flops(int64_t batch, int64_t sequence) const = 0;
  // Class of the layers that the model repeats.
  virtual const char* transformer_layer_class() const = 0;
  // Names of parameters that transformers keeps beside another name of the same parameter, but does
  // not compute with. Files are written with both; of two values, that of the other name counts.
  virtual std::vector<std::string> unused_names() const { return {}; }
  // The part of the tree that Hugging Face saves alone as a bare model, whose files lack this in
  // front of their names: "model." for instance.
  virtual std::string body_prefix() const = 0;
  // Names of the forward's inputs, as Hugging Face has them.
  virtual std::vector<std::string> input_names() const = 0;
  // True if a position predicts the label behind it, so that a row's first one predicts nothing.
  virtual bool shifts_labels() const { return true; }
};

}  // namespace nxd
