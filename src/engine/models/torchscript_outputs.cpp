#include "engine/models/torchscript_outputs.h"

#include "core/base/error.h"
#include "engine/models/torchscript_values.h"
#include "engine/module/module.h"

namespace nxd {

TorchscriptOutputs::TorchscriptOutputs(const c10::IValue& result, const c10::TypePtr& type,
                                       const std::string& class_name)
    : class_name_(class_name), places_(type ? tensors_in(type) : std::nullopt) {
  // A tensor that is in nothing is a list of one.
  add(result, type, result.isTensor() ? "0" : "");
}

void TorchscriptOutputs::leave_none_out(size_t wanted) {
  if (places_ == wanted) return;
  size_t kept = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    tensors[kept] = tensors[i];
    paths[kept++] = paths[i];
  }
  tensors.resize(kept);
  paths.resize(kept);
}

void TorchscriptOutputs::add(const c10::IValue& value, const c10::TypePtr& type,
                             const std::string& path) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
    paths.push_back(path);
  } else if (value.isTuple()) {
    add_tuple(value.toTupleRef(), type ? type->cast<c10::TupleType>() : nullptr, path);
  } else if (value.isList()) {
    const auto list = type ? type->cast<c10::ListType>() : nullptr;
    const c10::List<c10::IValue> elements = value.toList();
    for (size_t i = 0; i < elements.size(); ++i) {
      add(elements.get(i), list ? list->getElementType() : nullptr,
          join_path(path, std::to_string(i)));
    }
  } else if (value.isGenericDict()) {
    const auto dictionary = type ? type->cast<c10::DictType>() : nullptr;
    size_t place = 0;
    for (const auto& entry : value.toGenericDict()) {
      const c10::IValue& key = entry.key();
      add(entry.value(), dictionary ? dictionary->getValueType() : nullptr,
          join_path(path, key.isString() ? key.toStringRef()
                                         : std::to_string(key.isInt() ? key.toInt() : place)));
      ++place;
    }
  } else if (value.isNone()) {
    if (!is_none_for_tensor(value, type)) return;
    tensors.emplace_back();
    paths.push_back(path);
  } else {
    fail(NXD_ERROR_UNSUPPORTED, class_name_, ": expected an output of tensors, or tuples, lists ",
         "and dictionaries of them, the forward gives ", value.tagKind(),
         path.empty() ? "" : " at ", path);
  }
}

void TorchscriptOutputs::add_tuple(const c10::ivalue::Tuple& tuple, const c10::TupleTypePtr& type,
                                   const std::string& path) {
  const bool is_named = type && type->schema();
  for (size_t i = 0; i < tuple.size(); ++i) {
    add(tuple.elements()[i], type ? type->elements()[i] : nullptr,
        join_path(path, is_named ? type->schema()->arguments()[i].name() : std::to_string(i)));
  }
}

}  // namespace nxd
