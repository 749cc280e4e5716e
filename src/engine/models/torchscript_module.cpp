#include "engine/models/torchscript_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/checkpoint/file.h"
#include "engine/layers/caller_parameter.h"
#include "engine/models/torchscript_casts.h"
#include "engine/models/torchscript_forward.h"
#include "engine/models/torchscript_outputs.h"
#include "engine/models/torchscript_random.h"
#include "engine/models/torchscript_tensors.h"
#include "engine/models/torchscript_values.h"
#include "engine/module/attributes.h"
#include "engine/module/buffers.h"
#include "engine/module/call_path.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"

namespace nxd {
namespace {

namespace jit = torch::jit;
using Tensors = Module::Tensors;

// "Linear" of "__torch__.torch.nn.modules.linear.___torch_mangle_3.Linear".
std::string script_class_of(const jit::Module& script) {
  const auto& name = script.type()->name();
  return name ? name->name() : "TorchScript";
}

// The message of libtorch's, without the frames of its own code.
std::string message_of(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  return own ? own->what_without_backtrace() : error.what();
}

// The first lines of it: its traces of the interpreter are pages.
std::string first_lines(const std::string& message) { return message.substr(0, 400); }

// The reason of a failed forward, which libtorch has behind the traces, then where they begin.
std::string reason_of(const std::string& message) {
  constexpr std::string_view kReason = "RuntimeError: ";
  constexpr size_t kMost = 300;
  const size_t at = message.rfind(kReason);
  if (at == std::string::npos) return first_lines(message);
  const std::string reason = message.substr(at + kReason.size(), kMost);
  return reason.substr(0, reason.find_last_not_of('\n') + 1) + "\n" + first_lines(message);
}

class TorchscriptModule : public Module, public BufferHolder, public AttributeHolder {
 public:
  // Equal values of two names are one parameter, which the first of them owns.
  using Owners = std::vector<std::pair<at::Tensor, std::shared_ptr<Parameter>>>;
  // A submodule of two names is one module, as in the file: what one call assigns the other finds.
  using Modules = std::map<const c10::ivalue::Object*, std::shared_ptr<TorchscriptModule>>;
  struct Known {
    Owners owners;
    Modules modules;
  };
  TorchscriptModule(const LayerContext& at, jit::Module script, Known& known);

  bool is_leaf() const override { return callees_.empty(); }
  void add_branch_modes(std::vector<bool>& modes) const override {
    for (const TorchscriptModule* module : branches_) modes.push_back(module->training());
  }
  bool counts_outputs() const override { return true; }
  void set_site(const std::string& path) override { site_ = path; }
  const jit::Module& script() const { return script_; }
  // All that a forward runs but for the submodules' calls that are made here; null without one.
  const TorchscriptForward* code() const { return code_.get(); }
  void set_random(const std::string& name) { random_ = name; }
  std::vector<c10::IValue> attributes() const override;
  void set_attributes(std::vector<c10::IValue> values) override;
  // To be called when the tree is whole: finds the parameters that attributes hold, with all below.
  void find_held(const Owners& owners);
  // Parameters, buffers and modes go into the slots of the file's objects, with all below; other
  // tensors there move to the device.
  void fill_slots(at::Device device);
  // Parameters out of there again.
  void empty_slots();
  // Parameters and modes with values of their own, to be saved, which hold nothing of their memory.
  using Copies = std::map<const Parameter*, at::Tensor>;
  void fill_slots_with_copies(Copies& copies);
  // Buffers and other tensors, with all below.
  void add_tensors(std::vector<ScriptTensor>& out) const;

 protected:
  Tensors forward(const Tensors& inputs, size_t n_outputs) override;

 private:
  // A parameter that an attribute holds beside its own slot, as a recurrent layer's list of weights
  // does: alone, or at a place of a list.
  struct HeldParameter {
    std::string attribute;
    std::optional<size_t> place;
    std::shared_ptr<Parameter> parameter;
    std::string name;  // of a parameter of this module, which may be tied; "" of another's
  };

  void add_parameters(const LayerContext& at, Owners& owners);
  void add_children(const LayerContext& at, Known& known);
  std::string own_name(const Parameter& parameter) const;
  void put_held(const HeldParameter& held, const at::Tensor& value);
  void put_parameters(const std::function<at::Tensor(const std::string&, Parameter&)>& value_of);
  void move_attributes(at::Device device);
  void read_code();
  TorchscriptModule* module_at(const TorchscriptForward::Path& path);
  const c10::FunctionSchema& schema() const;
  std::vector<c10::IValue> arguments(const Tensors& inputs) const;
  c10::IValue run_code(std::vector<c10::IValue> arguments, at::Device device);
  ScriptSite site_of(uint64_t earlier, std::optional<size_t> mode) const;
  Tensors run(const Tensors& inputs, size_t n_outputs, at::Device device);
  void take_buffers();

  jit::Module script_;
  const at::Tensor nothing_ = at::empty({0});
  std::string site_;
  std::unique_ptr<TorchscriptForward> code_;
  std::vector<TorchscriptModule*> callees_;   // of the calls that are made here: of this tree
  std::vector<TorchscriptModule*> modes_;     // that its dropouts follow
  std::vector<TorchscriptModule*> branches_;  // whose modes its code asks for otherwise
  std::vector<HeldParameter> held_;
  bool has_found_held_ = false;
  std::vector<std::string> tensors_;  // attributes that are neither parameters nor buffers
  // These, and all others but the mode and what holds parameters.
  std::vector<std::string> attributes_;
  std::string random_;  // an operator that draws while training
};

TorchscriptModule::TorchscriptModule(const LayerContext& at, jit::Module script, Known& known)
    : Module(at.context, script_class_of(script)), script_(std::move(script)), site_(at.path) {
  if (script_.hasattr("training") && script_.attr("training").isBool()) {
    set_own_training(script_.attr("training").toBool());
  }
  add_parameters(at, known.owners);
  for (const auto& entry : script_.named_buffers(false)) {
    check_buffer(join_path(at.path, entry.name), entry.value);
    add_buffer(*this, entry.name, entry.value.detach(), true);
  }
  add_children(at, known);
  if (!forward_name(script_).empty()) read_code();
  close();
}

void TorchscriptModule::add_children(const LayerContext& at, Known& known) {
  for (const auto& entry : script_.named_children()) {
    auto& child = known.modules[entry.value._ivalue().get()];
    if (!child) {
      child = std::make_shared<TorchscriptModule>(at.child(entry.name), entry.value, known);
    }
    add_child(entry.name, child);
  }
}

std::shared_ptr<Parameter> owner_of(const TorchscriptModule::Owners& owners,
                                    const at::Tensor& value) {
  for (const auto& [tensor, parameter] : owners) {
    if (is_same_memory(tensor, value)) return parameter;
  }
  return nullptr;
}

// A tensor that overlaps a parameter otherwise, as its transpose does, would not follow it.
void check_apart(const TorchscriptModule::Owners& owners, std::string_view kind,
                 const std::string& path, const at::Tensor& value) {
  for (const auto& [tensor, parameter] : owners) {
    if (!share_elements(tensor, value)) continue;
    fail(NXD_ERROR_UNSUPPORTED, kind, " ", path, ": expected memory of its own",
         kind == "buffer" ? "" : ", or all of a parameter's in the same shape and order",
         ", the file has it share that of ", parameter->canonical_name());
  }
}

void TorchscriptModule::add_parameters(const LayerContext& at, Owners& owners) {
  for (const auto& entry : script_.named_parameters(false)) {
    const at::Tensor& value = entry.value;
    const std::string path = join_path(at.path, entry.name);
    const at::ScalarType type = value.scalar_type();
    if (value.layout() != at::kStrided ||
        (type != at::kFloat && type != at::kDouble && type != at::kBFloat16)) {
      fail(NXD_ERROR_UNSUPPORTED, "parameter ", path,
           ": expected dense F32, F64 or BF16, the file ", "has ", dtype_text(type));
    }
    if (const auto owner = owner_of(owners, value)) {
      add_parameter(entry.name, owner);
      continue;
    }
    check_apart(owners, "parameter", path, value);
    LayerContext place = at;
    place.dtype = type;
    Parameter& made = add_caller_parameter(*this, place, entry.name, value.sizes().vec());
    made.set_value(value.detach().contiguous());
    made.tensor().set_requires_grad(value.requires_grad());
    owners.emplace_back(value, parameter(entry.name));
  }
}

std::string TorchscriptModule::own_name(const Parameter& parameter) const {
  for (const auto& [name, own] : parameters()) {
    if (own.get() == &parameter) return name;
  }
  return "";
}

void TorchscriptModule::find_held(const Owners& owners) {
  if (std::exchange(has_found_held_, true)) return;
  for (const NamedBuffer& own : own_buffers()) {
    check_apart(owners, "buffer", join_path(site_, own.name), own.buffer->value);
  }
  const auto& type = *script_.type();
  for (size_t slot = 0; slot < type.numAttributes(); ++slot) {
    if (type.is_parameter(slot) || type.is_buffer(slot) || type.getAttribute(slot)->is_module()) {
      continue;
    }
    const std::string& name = type.getAttributeName(slot);
    const c10::IValue held = script_.attr(name);
    const size_t known = held_.size();
    const auto add = [&](const at::Tensor& value, std::optional<size_t> place) {
      if (const auto owner = owner_of(owners, value)) {
        held_.push_back({name, place, owner, own_name(*owner)});
        return;
      }
      check_apart(owners, "attribute", join_path(site_, name), value);
      if (!place) tensors_.push_back(name);
    };
    if (held.isTensor()) {
      add(held.toTensor(), std::nullopt);
    } else if (held.isTensorList()) {
      const auto list = held.toTensorList();
      for (size_t i = 0; i < list.size(); ++i) add(list.get(i), i);
    } else {
      held.visit([&](const c10::IValue& each) {
        if (each.isTensor() && owner_of(owners, each.toTensor())) {
          fail(NXD_ERROR_UNSUPPORTED, class_name(), ": attribute ", name,
               ": parameters are supported in lists of tensors, got one in a ", held.tagKind());
        }
        if (each.isTensor()) {
          check_apart(owners, "attribute", join_path(site_, name), each.toTensor());
        }
        return false;
      });
    }
    if (held_.size() == known && name != "training") attributes_.push_back(name);
  }
  for (const auto& [name, child] : children()) {
    static_cast<TorchscriptModule&>(*child).find_held(owners);
  }
}

void TorchscriptModule::put_held(const HeldParameter& held, const at::Tensor& value) {
  if (held.place) {
    script_.attr(held.attribute).toTensorList().set(*held.place, value);
  } else {
    script_.setattr(held.attribute, value);
  }
}

std::vector<c10::IValue> TorchscriptModule::attributes() const {
  std::vector<c10::IValue> values;
  for (const std::string& name : attributes_) values.push_back(script_.attr(name));
  return values;
}

void TorchscriptModule::set_attributes(std::vector<c10::IValue> values) {
  for (size_t i = 0; i < values.size(); ++i) script_.setattr(attributes_[i], std::move(values[i]));
}

void TorchscriptModule::move_attributes(at::Device device) {
  for (const std::string& name : tensors_) {
    const at::Tensor value = script_.attr(name).toTensor();
    if (value.defined() && value.device() != device) script_.setattr(name, value.to(device));
  }
}

TorchscriptModule* TorchscriptModule::module_at(const TorchscriptForward::Path& path) {
  TorchscriptModule* module = this;
  for (const std::string& name : path) {
    Module* below = nullptr;
    for (const auto& [own, child] : module->children()) {
      if (own == name) below = child.get();
    }
    check_internal(below, module->class_name(), ": the forward uses no child \"", name, "\"");
    module = static_cast<TorchscriptModule*>(below);
  }
  return module;
}

// Calls of submodules are made here, so that each is a module's.
void TorchscriptModule::read_code() {
  code_ = std::make_unique<TorchscriptForward>(script_);
  for (const auto& path : code_->callees()) callees_.push_back(module_at(path));
  for (const auto& path : code_->mode_paths()) modes_.push_back(module_at(path));
  for (const auto& path : code_->branch_paths()) branches_.push_back(module_at(path));
}

void TorchscriptModule::put_parameters(
    const std::function<at::Tensor(const std::string&, Parameter&)>& value_of) {
  for (const auto& [name, parameter] : parameters()) {
    script_.setattr(name, value_of(name, *parameter));
  }
  for (const HeldParameter& held : held_) {
    const auto now = held.name.empty() ? held.parameter : parameter(held.name);
    put_held(held, value_of(now->canonical_name(), *now));
  }
}

void TorchscriptModule::fill_slots(at::Device device) {
  put_parameters([](const std::string&, Parameter& parameter) {
    parameter.check_complete();
    return parameter.tensor();
  });
  for (const NamedBuffer& own : own_buffers()) script_.setattr(own.name, own.buffer->value);
  move_attributes(device);
  if (script_.hasattr("training")) script_.setattr("training", training());
  for (const auto& [name, child] : children()) {
    static_cast<TorchscriptModule&>(*child).fill_slots(device);
  }
}

void TorchscriptModule::empty_slots() {
  put_parameters([this](const std::string&, Parameter&) { return nothing_; });
  for (const auto& [name, child] : children()) {
    static_cast<TorchscriptModule&>(*child).empty_slots();
  }
}

// One copy for all the names of a parameter, which the file has once. A list may hold one of
// another part of the tree than is saved.
at::Tensor copy_for(const std::string& name, const Parameter& parameter,
                    TorchscriptModule::Copies& copies) {
  check_argument(parameter.has_value(), "parameter ", name,
                 ": it has no values, since it is on the meta device");
  parameter.check_complete();
  at::Tensor& copy = copies[&parameter];
  if (!copy.defined()) {
    copy = parameter.tensor().detach().to(at::kCPU).clone();
    copy.set_requires_grad(parameter.tensor().requires_grad());
  }
  return copy;
}

void TorchscriptModule::fill_slots_with_copies(Copies& copies) {
  put_parameters([&](const std::string& name, Parameter& parameter) {
    return copy_for(name, parameter, copies);
  });
  if (script_.hasattr("training")) script_.setattr("training", training());
  for (const auto& [name, child] : children()) {
    static_cast<TorchscriptModule&>(*child).fill_slots_with_copies(copies);
  }
}

void TorchscriptModule::add_tensors(std::vector<ScriptTensor>& out) const {
  for (const NamedBuffer& own : own_buffers()) {
    out.push_back({script_, own.name, join_path(site_, own.name), own.buffer->value});
  }
  for (const std::string& name : tensors_) {
    const at::Tensor value = script_.attr(name).toTensor();
    if (value.defined()) out.push_back({script_, name, join_path(site_, name), value});
  }
  for (const auto& [name, child] : children()) {
    static_cast<const TorchscriptModule&>(*child).add_tensors(out);
  }
}

// A forward may give a buffer another tensor, such as a count of batches.
void TorchscriptModule::take_buffers() {
  for (const NamedBuffer& own : own_buffers()) {
    const at::Tensor value = script_.attr(own.name).toTensor();
    if (!value.is_same(own.buffer->value) || value.requires_grad()) {
      own.buffer->value = value.detach();
    }
  }
  for (const auto& [name, child] : children()) {
    static_cast<TorchscriptModule&>(*child).take_buffers();
  }
}

const c10::FunctionSchema& TorchscriptModule::schema() const {
  return script_.get_method(forward_name(script_)).function().getSchema();
}

std::vector<c10::IValue> TorchscriptModule::arguments(const Tensors& inputs) const {
  const auto& declared = schema().arguments();
  const size_t most = declared.size() - 1;
  size_t least = 0;
  for (size_t i = 1; i < declared.size(); ++i) {
    if (!declared[i].default_value()) least = i;
  }
  check_argument(inputs.size() >= least && inputs.size() <= most, class_name(), ": expected ",
                 least, " to ", most, " inputs, got ", inputs.size());
  std::vector<c10::IValue> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::Argument& argument = declared[i + 1];
    std::optional<c10::IValue> given = argument_of(inputs[i], argument.type());
    check_argument(given.has_value(), class_name(), ": input ", i, ": the forward's ",
                   argument.name(), " is of type ", argument.type()->annotation_str(),
                   "; expected a tensor without dimensions on the CPU, of BOOL for a flag, I64 or "
                   "F64 for a number, and for other types a module around it that makes one of "
                   "tensors; got ",
                   inputs[i].scalar_type(), " of shape ", inputs[i].sizes());
    out.push_back(*std::move(given));
  }
  return out;
}

c10::IValue TorchscriptModule::run_code(std::vector<c10::IValue> arguments, at::Device device) {
  arguments.insert(arguments.begin(), script_._ivalue());
  schema().checkAndNormalizeInputs(arguments);
  const CallPath path = CallPath::current();
  std::map<const Module*, uint64_t> calls;
  uint64_t draws = 0;
  TorchscriptForward::Hooks hooks;
  hooks.call = [&](size_t callee, const Tensors& given, size_t count) {
    TorchscriptModule& module = *callees_[callee];
    const CallPathScope scope(path.of_child(calls[&module]++));
    return module.call(given, count);
  };
  hooks.drop = [&](const ScriptDropout& dropout, std::optional<size_t> mode) {
    return drop(site_of(draws++, mode), dropout);
  };
  hooks.attend = [&](const ScriptAttention& attention) {
    return attend(site_of(draws++, std::nullopt), attention);
  };
  hooks.draw = [&](const ScriptDraw& form, const at::Tensor& values) {
    return draw(site_of(draws++, std::nullopt), form, values);
  };
  return code_->run(std::move(arguments), hooks, device, device_of_values(*this));
}

// Sites of later calls of one module have an ending.
ScriptSite TorchscriptModule::site_of(uint64_t earlier, std::optional<size_t> mode) const {
  const CallPath path = CallPath::current().of_child(earlier);
  ScriptSite site{shared_from_this(), site_, nullptr};
  if (path.number() != 0) site.name += "#" + std::to_string(path.number());
  if (mode) site.mode = modes_[*mode]->shared_from_this();
  return site;
}

Tensors TorchscriptModule::run(const Tensors& inputs, size_t n_outputs, at::Device device) {
  check_state(code_ != nullptr, class_name(), ": it has no forward");
  // Without it libtorch would watch the first calls, and compile the later ones to other bits.
  const jit::GraphOptimizerEnabledGuard plainly(false);
  c10::IValue result;
  try {
    result = run_code(arguments(inputs), device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(is_tracing() ? NXD_ERROR_UNSUPPORTED : NXD_ERROR_INVALID_ARGUMENT, class_name(),
         ": the TorchScript forward failed: ", reason_of(message_of(error)));
  }
  const auto& returned = schema().returns();
  TorchscriptOutputs outputs(result, returned.empty() ? nullptr : returned[0].type(), class_name());
  outputs.leave_none_out(n_outputs);
  name_outputs(std::move(outputs.paths));
  const size_t count = outputs.tensors.size(),
               wanted = n_outputs == kAllOutputs ? count : n_outputs;
  check_argument(wanted >= 1 && wanted <= count, class_name(), ": gives ", count, " outputs, ",
                 wanted, " were asked for");
  outputs.tensors.resize(wanted);
  return std::move(outputs.tensors);
}

// Empties the slots of a tree behind the outermost use of it, whose code may read a submodule's
// parameters after it has called that: a slot would keep the memory of a parameter that has moved
// since, or of which another stage has the values.
class SlotsInUse {
 public:
  explicit SlotsInUse(TorchscriptModule& root) : root_(root) { ++uses_; }
  ~SlotsInUse() {
    if (--uses_ > 0) return;
    try {
      root_.empty_slots();
    } catch (const std::exception& e) {
      log(NXD_LOG_WARN, root_.class_name(), ": values stay in memory until a forward: ", e.what());
    }
  }
  SlotsInUse(const SlotsInUse&) = delete;
  SlotsInUse& operator=(const SlotsInUse&) = delete;

 private:
  TorchscriptModule& root_;
  static thread_local int uses_;
};

thread_local int SlotsInUse::uses_ = 0;

Tensors TorchscriptModule::forward(const Tensors& inputs, size_t n_outputs) {
  if (!random_.empty() && training()) {
    fail(NXD_ERROR_UNSUPPORTED, class_name(), ": ", random_, " draws random numbers of libtorch's ",
         "own, which no layout of ranks repeats; train with its probability 0, or evaluate");
  }
  const at::Device device = device_of_run(*this, inputs);
  const SlotsInUse slots(*this);
  fill_slots(device);
  if (is_tracing()) {
    // Each run makes the changes that a trace makes.
    std::optional<AttributesBefore> before;
    std::optional<AttributesBefore::Scope> copies;
    {
      const TracingScope unwatched(nullptr);
      before.emplace(*this);
      copies.emplace(*before);
    }
    return run(inputs, n_outputs, device);
  }
  Modes used;
  for (const auto* modules : {&modes_, &branches_}) {
    for (const auto* each : *modules) used.add({!each->training(), each->training()});
  }
  note_modes(used);
  Tensors outputs = run(inputs, n_outputs, device);
  take_buffers();
  return outputs;
}

// Code that makes no calls of submodules has that of all below.
void find_random(TorchscriptModule& module) {
  if (!module.code() || !module.code()->callees().empty()) {
    for (const auto& [name, child] : module.children()) {
      find_random(static_cast<TorchscriptModule&>(*child));
    }
  }
  if (!module.code()) return;
  const auto found = find_random_operator(module.code()->graph(), module.script());
  if (!found) return;
  if (!found->in_training_only) {
    fail(NXD_ERROR_UNSUPPORTED, module.class_name(), ": ", found->name,
         " draws random numbers of libtorch's own, which no layout of ranks repeats");
  }
  module.set_random(found->name);
}

// A call from outside is one of the forward alone.
void check_without_hooks(const jit::Module& root) {
  const auto& type = *root.type();
  if (type.getForwardHooks().empty() && type.getForwardPreHooks().empty()) return;
  fail(NXD_ERROR_UNSUPPORTED, script_class_of(root), ": expected a root without forward hooks, ",
       "which are run where a forward calls the module; make it a submodule of another");
}

}  // namespace

std::shared_ptr<Module> load_torchscript(const std::shared_ptr<Context>& context,
                                         const std::string& path) {
  const InputFile readable(path);
  jit::Module script("none");
  register_newer_operators(&run_attention);
  try {
    script = jit::load(path, at::kCPU);
  } catch (const std::exception& error) {
    fail(NXD_ERROR_INVALID_ARGUMENT, path,
         ": expected a file of torch.jit.save: ", first_lines(message_of(error)));
  }
  check_without_hooks(script);
  TorchscriptModule::Known known;
  const at::NoGradGuard no_grad;
  // The values are there: nothing is deferred.
  auto root = std::make_shared<TorchscriptModule>(LayerContext{.context = context},
                                                  std::move(script), known);
  root->find_held(known.owners);
  root->empty_slots();
  find_random(*root);
  warn_of_casts(root->script());
  return root;
}

void save_torchscript(Module& root, const std::string& path) {
  auto* module = dynamic_cast<TorchscriptModule*>(&root);
  check_argument(module != nullptr, "root: expected a module of a TorchScript file, got a ",
                 root.class_name());
  const at::NoGradGuard no_grad;
  TorchscriptModule::Copies copies;
  const SlotsInUse slots(*module);
  module->fill_slots_with_copies(copies);
  std::vector<ScriptTensor> tensors;
  module->add_tensors(tensors);
  const ScriptTensorCopies copies_of_tensors(std::move(tensors));
  TextWriter out;
  module->script().save(out);
  check_stream(out);
  const std::string bytes = out.str();
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace nxd
