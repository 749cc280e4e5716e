#include "engine/training/local_module.h"

#include <algorithm>
#include <set>

#include "engine/module/module_tree.h"

namespace nxd {
namespace {

class Container : public Module, public BufferHolder {
 public:
  explicit Container(std::shared_ptr<Module> whole)
      : Module(whole->context(), whole->class_name()), whole_(std::move(whole)) {}
  void set_training(bool training) override {
    Module::set_training(training);
    whole_->set_training(training);
  }
  const Module* whole() const override { return whole_.get(); }

 protected:
  Tensors forward(const Tensors&, size_t) override {
    fail(NXD_ERROR_UNSUPPORTED, class_name(),
         ": a stage's part of a model holds parameters and cannot be run itself");
  }

 private:
  const std::shared_ptr<Module> whole_;
};

// The part of the full tree that a local module takes over.
struct Selection {
  std::set<const Parameter*> parameters;
  std::set<const Buffer*> buffers;
  std::set<std::string> paths;      // with all that lead to them
  std::set<const Module*> modules;  // of the paths: one may have several

  bool has(const std::shared_ptr<Parameter>& parameter) const {
    return parameters.count(parameter.get()) != 0;
  }

  // Nothing of the module lies in another stage only.
  bool wants_all(const Module& module) const {
    const std::vector<NamedParameter> all = named_parameters(module);
    const std::vector<NamedBuffer> all_buffers = named_buffers(module);
    return std::all_of(all.begin(), all.end(),
                       [&](const NamedParameter& entry) { return has(entry.parameter); }) &&
           std::all_of(all_buffers.begin(), all_buffers.end(), [&](const NamedBuffer& entry) {
             return buffers.count(entry.buffer.get()) != 0;
           });
  }

  bool has_own_buffers(const Module& module) const {
    const auto* holder = dynamic_cast<const BufferHolder*>(&module);
    return holder && std::any_of(holder->own_buffers().begin(), holder->own_buffers().end(),
                                 [&](const NamedBuffer& own) {
                                   return buffers.count(own.buffer.get()) != 0;
                                 });
  }

  bool wants(const Module& module, const std::string& path) const {
    if (paths.count(path) != 0 || modules.count(&module) != 0) return true;
    const auto is_ours = [&](const auto& entry) {
      return parameters.count(entry.second.get()) != 0;
    };
    if (std::any_of(module.parameters().begin(), module.parameters().end(), is_ours)) return true;
    if (has_own_buffers(module)) return true;
    return std::any_of(module.children().begin(), module.children().end(), [&](const auto& entry) {
      return wants(*entry.second, join_path(path, entry.first));
    });
  }
};

void share_buffers(BufferHolder& local, const Module& module, const Selection& selection) {
  const auto* holder = dynamic_cast<const BufferHolder*>(&module);
  if (!holder) return;
  for (const NamedBuffer& own : holder->own_buffers()) {
    if (selection.buffers.count(own.buffer.get()) != 0) local.keep_buffer(own.name, own.buffer);
  }
}

void copy_into(Module& local, const Module& module, const std::string& path,
               const Selection& selection) {
  for (const auto& [name, parameter] : module.parameters()) {
    if (selection.has(parameter)) local.add_parameter(name, parameter);
  }
  for (const auto& [name, child] : module.children()) {
    const std::string child_path = join_path(path, name);
    if (!selection.wants(*child, child_path)) continue;
    if (selection.wants_all(*child)) {
      local.add_child(name, child);
      continue;
    }
    auto copy = std::make_shared<Container>(child);
    share_buffers(*copy, *child, selection);
    copy_into(*copy, *child, child_path, selection);
    local.add_child(name, std::move(copy));
  }
}

}  // namespace

LocalModule::LocalModule(std::shared_ptr<Module> model, const std::string& class_name)
    : Module(model->context(), class_name), model_(std::move(model)) {
  if (const auto layout = context()->find_parallel()) {
    pipeline_ranks_ = layout->group(NXD_AXIS_PIPELINE)->ranks();
  }
}

std::shared_ptr<LocalModule> LocalModule::create(
    const std::shared_ptr<Module>& model, const std::vector<std::shared_ptr<Parameter>>& parameters,
    const std::vector<std::string>& paths, const std::vector<std::shared_ptr<Buffer>>& buffers) {
  Selection selection;
  for (const auto& buffer : buffers) selection.buffers.insert(buffer.get());
  std::set<const Parameter*> known;
  for (const NamedParameter& entry : named_parameters(*model)) known.insert(entry.parameter.get());
  for (const auto& parameter : parameters) {
    check_argument(known.count(parameter.get()) != 0, model->class_name(), " has no parameter ",
                   parameter->canonical_name());
    selection.parameters.insert(parameter.get());
  }
  for (const std::string& path : paths) {
    selection.modules.insert(find_module(model, path).get());
    for (size_t end = 0; end != std::string::npos; end = path.find('.', end + 1)) {
      if (end > 0) selection.paths.insert(path.substr(0, end));
    }
    selection.paths.insert(path);
  }
  auto root = std::make_shared<LocalModule>(model, model->class_name());
  share_buffers(*root, *model, selection);
  copy_into(*root, *model, "", selection);
  return root;
}

void LocalModule::set_training(bool training) {
  Module::set_training(training);
  model_->set_training(training);
}

Module::Tensors LocalModule::forward(const Tensors&, size_t) {
  fail(NXD_ERROR_UNSUPPORTED, class_name(),
       ": a stage's part of a model cannot be run itself; run the pipeline");
}

const Module& full_model(const Module& root) {
  const auto* local = dynamic_cast<const LocalModule*>(&root);
  return local ? local->model() : root;
}

Module& full_model(Module& root) {
  auto* local = dynamic_cast<LocalModule*>(&root);
  return local ? local->model() : root;
}

}  // namespace nxd
