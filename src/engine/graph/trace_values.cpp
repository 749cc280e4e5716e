#include "engine/graph/trace_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "engine/module/module_tree.h"

namespace nxd {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

TraceValues::TraceValues(Graph& graph, const Module& root) : graph_(graph) {
  for (const NamedParameter& entry : named_parameters(root)) {
    const at::Tensor& tensor = entry.parameter->tensor();
    parameters_[tensor.unsafeGetTensorImpl()] = entry;
    kept_.push_back(tensor);
    if (const auto* storage = storage_of(tensor)) unknown_.insert(storage);
  }
  for (const NamedBuffer& entry : named_buffers(root)) {
    const at::Tensor& value = entry.buffer->value;
    buffers_[value.unsafeGetTensorImpl()] = entry.buffer;
    kept_.push_back(value);
  }
}

bool TraceValues::is_unknown(const at::Tensor& tensor) const {
  return tensor.defined() && (tensor.is_meta() || unknown_.count(storage_of(tensor)) != 0);
}

bool TraceValues::is_seen(const at::Tensor& tensor) const {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return ids_.count(impl) != 0 || parameters_.count(impl) != 0;
}

ValueId TraceValues::id_of(const at::Tensor& tensor, const std::string& module) {
  if (!tensor.defined()) return kNoValue;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto known = ids_.find(impl);
  if (known != ids_.end()) return known->second;
  GraphNode node{};
  node.module = module;
  const auto parameter = parameters_.find(impl);
  if (parameter != parameters_.end()) {
    node.kind = GraphNode::Kind::kParameter;
    node.name = parameter->second.name;
    node.parameter = parameter->second.parameter;
  } else {
    check_state(!tensor.is_meta(), "module \"", module,
                "\": the forward uses a tensor without values that no recorded call gave; what a "
                "leaf makes it must give as an output");
    node.kind = GraphNode::Kind::kConstant;
    node.name = "constant";
    node.constant = tensor;
    const auto buffer = buffers_.find(impl);
    if (buffer != buffers_.end()) node.buffer = buffer->second;
  }
  const std::string name = node.name;
  return add_source(std::move(node), tensor, name);
}

ValueId TraceValues::add_source(GraphNode node, const at::Tensor& tensor, const std::string& name) {
  const auto index = static_cast<int>(graph_.nodes.size());
  const ValueId id = define(tensor, index, name);
  node.outputs = {id};
  graph_.nodes.push_back(std::move(node));
  return id;
}

ValueId TraceValues::define(const at::Tensor& tensor, int node, const std::string& name) {
  if (!tensor.defined()) return kNoValue;
  GraphValue value;
  value.name = unique_name(name);
  value.id = static_cast<ValueId>(graph_.values.size());
  value.producer = node;
  value.shape = tensor.sizes().vec();
  value.dtype = tensor.scalar_type();
  value.needs_grad = tensor.requires_grad();
  value.alias_set = alias_set(tensor);
  ids_[tensor.unsafeGetTensorImpl()] = value.id;
  kept_.push_back(tensor);
  graph_.values.push_back(std::move(value));
  return graph_.values.back().id;
}

int TraceValues::alias_set(const at::Tensor& tensor) {
  const auto* storage = storage_of(tensor);
  if (!storage) return n_alias_sets_++;
  const auto [entry, is_new] = alias_sets_.try_emplace(storage, n_alias_sets_);
  if (is_new) ++n_alias_sets_;
  return entry->second;
}

at::Tensor TraceValues::without_data(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  MetaCopy& meta_copy = meta_copies_[tensor.unsafeGetTensorImpl()];
  if (meta_copy.tensor.defined()) return meta_copy.without_data;
  meta_copy.tensor = tensor;
  meta_copy.without_data = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta).requires_grad(false));
  meta_copy.without_data.set_requires_grad(tensor.requires_grad());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta_copy.without_data.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  alias_sets_[storage_of(meta_copy.without_data)] = alias_set(tensor);
  return meta_copy.without_data;
}

void TraceValues::was_written(const at::Tensor& tensor, const at::Tensor& written) {
  // The storage stays: another tensor's at its address would be taken for it.
  const auto* storage = storage_of(tensor);
  if (storage && unknown_.insert(storage).second) kept_storages_.push_back(tensor.storage());
  const auto value = ids_.find(written.unsafeGetTensorImpl());
  if (value == ids_.end()) return;
  const ValueId id = value->second;
  ids_[tensor.unsafeGetTensorImpl()] = id;
  kept_.push_back(tensor);
}

std::string TraceValues::unique_name(const std::string& name) {
  std::string base = name;
  std::replace(base.begin(), base.end(), '.', '_');
  int& count = names_[base];
  std::string result = count == 0 ? base : base + "_" + std::to_string(count);
  ++count;
  // A numbered name may itself be another's.
  return result == base || names_.try_emplace(result, 1).second ? result : unique_name(name);
}

}  // namespace nxd
