#pragma once

#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "engine/module/buffers.h"

namespace nxd {

class Module;

// A module that is this beside a Module has values which are neither parameters nor buffers, and
// which its forward may change, such as the counters of a TorchScript file.
class AttributeHolder {
 public:
  virtual ~AttributeHolder() = default;
  // In one order; lists and dictionaries are the module's own.
  virtual std::vector<c10::IValue> attributes() const = 0;
  virtual void set_attributes(std::vector<c10::IValue> values) = 0;
};

// UNSUPPORTED where an attribute has elements in common with one of the buffers, which is about to
// leave their memory.
void check_attributes_apart(const Module& root, const std::vector<NamedBuffer>& buffers);

// The attributes of a tree, as a forward found them. UNSUPPORTED for one that cannot be copied.
class AttributesBefore {
 public:
  explicit AttributesBefore(Module& root);

  // When the forward is done: of large values only those are kept that it changed.
  void forget_unchanged_tensors();

  // The modules have copies of these values for a scope, and what they have now again behind it.
  class Scope {
   public:
    explicit Scope(const AttributesBefore& before);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<std::pair<AttributeHolder*, std::vector<c10::IValue>>> kept_;
  };

 private:
  struct Found {
    c10::IValue value;
    bool is_kept = true;
  };
  struct Holder {
    AttributeHolder* holder;  // of a tree that somebody keeps alive
    std::vector<Found> found;
  };
  std::vector<Holder> holders_;
};

}  // namespace nxd
