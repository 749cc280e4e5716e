#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/graph/graph.h"

namespace nxd {

// Maps tensors to values of a graph while it is being recorded. Tensors are known by their
// TensorImpl, and kept alive, so that none takes another's place.
//
// A value is unknown where it depends on the root's inputs or parameters. Unknown tensors are on
// the meta device, or, as parameters are, on another with contents that must not be used.
class TraceValues {
 public:
  TraceValues(Graph& graph, const Module& root);

  // The tensor's value; of one that is met for the first time, a parameter's or a constant's, for
  // whose node module is the path. kNoValue for an undefined one. INVALID_STATE for a tensor on the
  // meta device of unknown origin.
  ValueId id_of(const at::Tensor& tensor, const std::string& module);
  // A new value that a node gives; from now on that of the tensor. kNoValue for an undefined one.
  ValueId define(const at::Tensor& tensor, int node, const std::string& name);

  bool is_unknown(const at::Tensor& tensor) const;
  // True if the tensor is a value or a parameter.
  bool is_seen(const at::Tensor& tensor) const;
  // An unknown tensor of the same shape, strides, dtype and need for a gradient: the tensor itself
  // on the meta device, else always the same one.
  at::Tensor without_data(const at::Tensor& tensor);
  // The tensor's memory has got unknown contents. Its value is that of written, an operator's
  // result, if that is one.
  void was_written(const at::Tensor& tensor, const at::Tensor& written);

  // The name, with a number behind it if it is taken; dots become underscores.
  std::string unique_name(const std::string& name);

 private:
  struct MetaCopy {
    at::Tensor tensor, without_data;
  };

  ValueId add_source(GraphNode node, const at::Tensor& tensor, const std::string& name);
  int alias_set(const at::Tensor& tensor);

  Graph& graph_;
  std::unordered_map<const c10::TensorImpl*, ValueId> ids_;
  std::unordered_map<const c10::TensorImpl*, NamedParameter> parameters_;
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<Buffer>> buffers_;
  std::unordered_map<const c10::TensorImpl*, MetaCopy> meta_copies_;
  std::unordered_map<const c10::StorageImpl*, int> alias_sets_;
  std::unordered_set<const c10::StorageImpl*> unknown_;
  std::unordered_map<std::string, int> names_;
  std::vector<at::Tensor> kept_;
  std::vector<c10::Storage> kept_storages_;
  int n_alias_sets_ = 0;
};

}  // namespace nxd
