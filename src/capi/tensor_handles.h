#pragma once

// Handles of tensors: how functions take them apart and make them, and how callbacks get them.
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "capi/arguments.h"
#include "core/base/fork_guard.h"
#include "engine/device/view_history.h"
#include "engine/module/parameter.h"

// A handle shares the tensor with every other handle on it. That of a parameter has no tensor of
// its own: it follows the parameter, whose tensor may be replaced. One that was retained from it
// keeps the tensor, and knows whose it was.
struct nxd_tensor {
  at::Tensor value{};
  nxd::ForkGuard fork_guard{};
  nxd::Parameter* parameter = nullptr;
  std::weak_ptr<nxd::Parameter> retained_from{};

  at::Tensor& get() { return parameter ? parameter->tensor() : value; }
  // The parameter that has the tensor; null where none has it, or no longer.
  std::shared_ptr<nxd::Parameter> owner() const {
    if (parameter) return {std::shared_ptr<void>(), parameter};
    auto found = retained_from.lock();
    return found && found->tensor().is_same(value) ? found : nullptr;
  }
};

namespace nxd {

inline at::Tensor& unwrap(nxd_tensor_t* tensor, const char* name) {
  check_argument(tensor, name, ": expected a tensor, got NULL");
  tensor->fork_guard.check(name);
  return tensor->get();
}

// The same for a function of the library that has a gradient.
inline at::Tensor& unwrap_input(nxd_tensor_t* tensor, const char* name) {
  at::Tensor& input = unwrap(tensor, name);
  if (at::GradMode::is_enabled()) renew_history(input);
  return input;
}

// The same where NULL is allowed, and gives an undefined tensor.
inline at::Tensor unwrap_optional(nxd_tensor_t* tensor, const char* name) {
  return tensor ? unwrap(tensor, name) : at::Tensor();
}

// An array of handles none of which may be NULL.
inline std::vector<at::Tensor> unwrap_all(nxd_tensor_t* const* tensors, size_t count,
                                          const char* name) {
  check_argument(tensors || count == 0, name, ": expected ", count, " tensors, got NULL");
  check_argument(count <= static_cast<size_t>(PTRDIFF_MAX) / sizeof *tensors, name, ": ", count,
                 " tensors do not fit in memory");
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    check_argument(tensors[i], name, "[", i, "]: expected a tensor, got NULL");
    out.push_back(unwrap(tensors[i], name));
  }
  return out;
}

// Borrowed tensors; a NULL among them becomes an undefined tensor.
inline std::vector<at::Tensor> unwrap_tensors(nxd_tensor_t* const* tensors, size_t n,
                                              const char* name) {
  check_array(tensors, n, name);
  std::vector<at::Tensor> result(n);
  for (size_t i = 0; i < n; ++i) {
    if (tensors[i]) result[i] = unwrap_input(tensors[i], name);
  }
  return result;
}

inline nxd_tensor_t* wrap(at::Tensor tensor) { return new nxd_tensor{std::move(tensor)}; }

// Fills an array of new handles, or leaves it as it is when one cannot be made. An undefined tensor
// becomes NULL.
inline void wrap_all(const std::vector<at::Tensor>& tensors, nxd_tensor_t** out) {
  std::vector<std::unique_ptr<nxd_tensor_t>> handles(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) handles[i].reset(wrap(tensors[i]));
  }
  for (size_t i = 0; i < tensors.size(); ++i) out[i] = handles[i].release();
}

// Handles that a callback may use but not destroy; NULL for undefined tensors.
class BorrowedHandles {
 public:
  explicit BorrowedHandles(const std::vector<at::Tensor>& tensors) : pointers_(tensors.size()) {
    handles_.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      handles_.push_back(nxd_tensor{tensors[i]});
      pointers_[i] = &handles_.back();
    }
  }

  nxd_tensor_t* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }
  bool contains(const nxd_tensor_t* handle) const {
    return std::find(pointers_.begin(), pointers_.end(), handle) != pointers_.end();
  }

 private:
  std::vector<nxd_tensor> handles_;  // with room for all: pointers stay
  std::vector<nxd_tensor_t*> pointers_;
};

// Room for handles that a callback makes and the library takes over, whether it fails or not.
class OwnedHandles {
 public:
  explicit OwnedHandles(size_t count) : pointers_(count, nullptr) {}
  OwnedHandles(const OwnedHandles&) = delete;
  OwnedHandles& operator=(const OwnedHandles&) = delete;
  ~OwnedHandles() {
    for (nxd_tensor_t* handle : pointers_) delete handle;
  }

  nxd_tensor_t** data() { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }
  size_t filled() const {
    return pointers_.size() -
           static_cast<size_t>(std::count(pointers_.begin(), pointers_.end(), nullptr));
  }

  // The tensors; name is that of the array in messages. A handle that is_borrowed knows, or the
  // same one twice, is rejected and not destroyed a second time. Without all_required NULL gives an
  // undefined one.
  template <class IsBorrowed>
  std::vector<at::Tensor> take(const IsBorrowed& is_borrowed, const std::string& name,
                               bool all_required) {
    check_owned(is_borrowed, name);
    std::vector<at::Tensor> out(pointers_.size());
    for (size_t i = 0; i < pointers_.size(); ++i) {
      check_argument(pointers_[i] || !all_required, name, "[", i, "]: expected a tensor, got NULL");
      out[i] = unwrap_optional(pointers_[i], name.c_str());
    }
    return out;
  }

 private:
  template <class IsBorrowed>
  void check_owned(const IsBorrowed& is_borrowed, const std::string& name) {
    std::string fault;
    for (auto each = pointers_.begin(); each != pointers_.end(); ++each) {
      if (!*each) continue;
      const char* why = nullptr;
      if (is_borrowed(*each)) {
        why = "it is a borrowed handle; give what nxd_tensor_retain gives";
      } else if (std::find(pointers_.begin(), each, *each) != each) {
        why = "it is the handle of another result; give a new one for each";
      }
      if (!why) continue;
      fault = text(name, "[", each - pointers_.begin(), "]: ", why);
      *each = nullptr;
    }
    check_argument(fault.empty(), fault);
  }

  std::vector<nxd_tensor_t*> pointers_;
};

}  // namespace nxd
