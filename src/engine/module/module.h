#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/world/context.h"
#include "engine/module/attachment.h"
#include "engine/module/parameter.h"

namespace nxd {

struct NamedParameter {
  std::string name;  // path from the root
  std::shared_ptr<Parameter> parameter;
  bool is_alias = false;  // a name that was tied to the owner's
};

// Node of a named tree. Built-in layers and the caller's own are subclasses. An undefined tensor
// among the inputs stands for one that was left out.
class Module : public std::enable_shared_from_this<Module> {
 public:
  using Tensors = std::vector<at::Tensor>;
  template <class T>
  using Named = std::vector<std::pair<std::string, T>>;

  Module(std::shared_ptr<Context> context, std::string class_name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Asked for in place of a number of outputs: all that the forward's code gives. Only of a module
  // whose counts_outputs holds.
  static constexpr size_t kAllOutputs = SIZE_MAX;

  // Checks the context, then runs the module, under the eyes of this thread's CallTracer if there
  // is one; n_outputs results are asked for and given.
  Tensors call(const Tensors& inputs, size_t n_outputs = 1);
  // INVALID_STATE, of which the tensor-parallel peers are told, unless the own parameters are of
  // one step, and have values where there are values to compute. Each call begins with it; a module
  // that computes with a child's parameters asks for the child's.
  void check_parameters(const Tensors& inputs) const;
  // For modules with one input and one output.
  at::Tensor operator()(const at::Tensor& input) { return call({input})[0]; }

  const std::shared_ptr<Context>& context() const { return context_; }
  const std::string& class_name() const { return class_name_; }
  bool training() const { return training_; }
  virtual void set_training(bool training);  // with all modules below
  void set_own_training(bool training) { training_ = training; }

  // True if calls keep their inputs alone and run the forward again in backward; see
  // recomputation.h.
  bool recomputes() const { return recomputes_; }
  void set_recomputes(bool recomputes) { recomputes_ = recomputes; }

  // Names are free of dots, not empty, and unique among children and parameters.
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  Parameter& add_parameter(const std::string& name, std::shared_ptr<Parameter> parameter);
  // From now on nothing is added: the forward finds what it has by other means than this tree.
  void close() { is_closed_ = true; }
  // INVALID_ARGUMENT for a closed module, with the name that was to be added.
  void check_open(const std::string& name) const;
  // Makes a parameter of this module another name of the owner's. Gives what the boundary had
  // attached to the parameter that was there first, which lives as long as this module; or null.
  std::shared_ptr<void> alias_parameter(const std::string& name, std::shared_ptr<Parameter> owner);
  bool is_alias(const std::string& name) const;

  const Named<std::shared_ptr<Module>>& children() const { return children_; }
  const Named<std::shared_ptr<Parameter>>& parameters() const { return parameters_; }
  // Fails with near names when there is none.
  std::shared_ptr<Parameter> parameter(const std::string& name) const;
  // The value of an own parameter, undefined when there is none. Layers ask for it anew each time:
  // a parameter may have been tied to another since.
  at::Tensor parameter_value(std::string_view name) const;

  // True if a trace calls it as one node. It need not where the forward only calls modules,
  // operators, and functions that go through call_opaque: a trace records these one by one.
  virtual bool is_leaf() const { return true; }
  // Appends the modes that what the forward calls depends on: a trace has what it calls in these.
  virtual void add_branch_modes(std::vector<bool>& modes) const { (void)modes; }

  // True if the forward knows itself how many outputs it has.
  virtual bool counts_outputs() const { return false; }
  // The path of each output of the last forward: names, keys and positions that lead to it in the
  // result, joined by dots. A list has "0", "1" and so on. A module that names its outputs lists
  // all that it can give, asked for or not.
  const std::vector<std::string>& output_paths() const { return output_paths_; }

  // The module that this one is a part of, and keeps alive beside its own children; null for most.
  virtual const Module* whole() const { return nullptr; }

  // The module's path becomes its name: what random sites are keyed on besides parameters.
  virtual void set_site(const std::string& path) { (void)path; }

  // The parameters of this module have another dtype now.
  virtual void parameters_were_cast(at::ScalarType dtype) { (void)dtype; }

  // Differs where note_options had other values; nothing where there were none.
  const std::optional<Hash>& options() const { return options_; }

  // The modes of the last forward with gradients, of a module that computes otherwise in each.
  struct Modes {
    bool evaluation = false, training = false;
    bool none() const { return !evaluation && !training; }
    void add(Modes others) {
      evaluation = evaluation || others.evaluation;
      training = training || others.training;
    }
  };
  Modes modes_used() const { return modes_used_; }

  Attachment& attachment() { return attachment_; }
  // named_parameters() of this root, kept so that names can be borrowed until the tree changes.
  const std::vector<NamedParameter>& tree_parameters();

 protected:
  virtual Tensors forward(const Tensors& inputs, size_t n_outputs) = 0;

  // Numbers that results depend on beside inputs and parameters, and that are the same on all ranks
  // which hold parts or copies of this module: ranks compare them as they finish gradients.
  template <class... T>
  void note_options(T... values) {
    if (!options_) options_.emplace();
    (options_->add(std::bit_cast<uint64_t>(static_cast<double>(values))), ...);
  }

  // To be called by forwards whose results depend on modes. Ranks compare them as the options.
  void note_modes(Modes used);

  // For forwards whose outputs are no plain list: the paths of all that they can give.
  void name_outputs(std::vector<std::string> paths);

  // For subclasses: fails unless the number of inputs and outputs is in range, on all ranks of the
  // group that the forward communicates in, if any.
  void check_arity(const Tensors& inputs, size_t n_outputs, size_t min_inputs, size_t max_inputs,
                   size_t max_outputs, ProcessGroup* group = nullptr) const;

 private:
  void check_name(const std::string& name) const;
  void number_outputs(size_t count);

  std::shared_ptr<Context> context_;
  std::string class_name_;
  bool training_ = true;
  bool recomputes_ = false;
  bool names_outputs_ = false;
  bool is_closed_ = false;
  std::vector<std::string> output_paths_;
  std::optional<Hash> options_;
  Modes modes_used_;
  Named<std::shared_ptr<Module>> children_;
  Named<std::shared_ptr<Parameter>> parameters_;
  Named<std::shared_ptr<void>> replaced_;  // attachments of those that others stand for
  Attachment attachment_;
  std::vector<NamedParameter> tree_parameters_;
  // The last change of any tree that they show. Threads may list one module.
  std::atomic<uint64_t> tree_parameters_as_of_ = 0;
};

// A layer's initial name joined with a member's.
std::string join_path(const std::string& path, const std::string& name);

}  // namespace nxd
