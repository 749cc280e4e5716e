#include "engine/module/attributes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/device/device_tensor.h"
#include "engine/module/module.h"

namespace nxd {
namespace {

using Values = std::vector<c10::IValue>;

c10::IValue deep_copy_of(const c10::IValue& value, const Module& module) {
  const at::NoGradGuard no_grad;
  try {
    return value.deepcopy();
  } catch (const std::exception&) {
    fail(NXD_ERROR_UNSUPPORTED, module.class_name(), ": an attribute, a ", value.tagKind(),
         ", cannot be copied, which a module that is recomputed needs");
  }
}

bool is_alike(const c10::IValue& a, const c10::IValue& b);

template <class List>
bool are_alike(const List& a, const List& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), is_alike);
}

bool is_alike(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  // Values there are not known yet.
  if (is_recorded(a) || is_recorded(b) || a.device() != b.device()) return false;
  return a.scalar_type() == b.scalar_type() && a.layout() == b.layout() && at::equal(a, b);
}

// False also for values of kinds that are not compared.
bool is_alike(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return is_alike(a.toTensor(), b.toTensor());
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isBool() && b.isBool()) return a.toBool() == b.toBool();
  if (a.isDouble() && b.isDouble()) return a.toDouble() == b.toDouble();
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isList() && b.isList()) return are_alike(a.toListRef().vec(), b.toListRef().vec());
  if (a.isTuple() && b.isTuple()) {
    return are_alike(a.toTupleRef().elements().vec(), b.toTupleRef().elements().vec());
  }
  return a.isNone() && b.isNone();
}

bool has_tensors(const c10::IValue& value) {
  bool found = false;
  value.visit([&](const c10::IValue& each) { return found = found || each.isTensor(); });
  return found;
}

template <class Visit>
void for_each_holder(Module& module, const Visit& visit) {
  if (auto* holder = dynamic_cast<AttributeHolder*>(&module)) visit(*holder, module);
  for (const auto& [name, child] : module.children()) for_each_holder(*child, visit);
}

}  // namespace

void check_attributes_apart(const Module& root, const std::vector<NamedBuffer>& buffers) {
  const auto check = [&](const c10::IValue& each) {
    for (size_t i = 0; each.isTensor() && i < buffers.size(); ++i) {
      if (!share_elements(buffers[i].buffer->value, each.toTensor())) continue;
      fail(NXD_ERROR_UNSUPPORTED, root.class_name(), ": an attribute and the buffer ",
           buffers[i].name, " have elements in common, and would not have them any more; make ",
           "them one buffer, or copies");
    }
    return false;
  };
  if (const auto* holder = dynamic_cast<const AttributeHolder*>(&root)) {
    for (const c10::IValue& value : holder->attributes()) value.visit(check);
  }
  for (const auto& [name, child] : root.children()) check_attributes_apart(*child, buffers);
}

AttributesBefore::AttributesBefore(Module& root) {
  for_each_holder(root, [&](AttributeHolder& holder, const Module& module) {
    Holder made{&holder, {}};
    for (const c10::IValue& value : holder.attributes()) {
      made.found.push_back({deep_copy_of(value, module)});
    }
    if (!made.found.empty()) holders_.push_back(std::move(made));
  });
}

void AttributesBefore::forget_unchanged_tensors() {
  for (Holder& each : holders_) {
    const Values now = each.holder->attributes();
    for (size_t i = 0; i < now.size(); ++i) {
      Found& found = each.found[i];
      if (!has_tensors(found.value) || !is_alike(found.value, now[i])) continue;
      found = {c10::IValue(), false};
    }
  }
}

// All copies come first: making one may fail.
AttributesBefore::Scope::Scope(const AttributesBefore& before) {
  std::vector<Values> copies;
  kept_.reserve(before.holders_.size());
  for (const Holder& each : before.holders_) {
    copies.push_back(each.holder->attributes());
    for (size_t i = 0; i < each.found.size(); ++i) {
      if (each.found[i].is_kept) copies.back()[i] = each.found[i].value.deepcopy();
    }
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    AttributeHolder* const holder = before.holders_[i].holder;
    kept_.emplace_back(holder, holder->attributes());
    holder->set_attributes(std::move(copies[i]));
  }
}

// A module of two names is there twice.
AttributesBefore::Scope::~Scope() {
  for (auto each = kept_.rbegin(); each != kept_.rend(); ++each) {
    each->first->set_attributes(std::move(each->second));
  }
}

}  // namespace nxd
