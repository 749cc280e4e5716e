#pragma once

#include "core/base/error.h"

namespace nxd {

// An optimizer's update, from its first parameter to its last. A caller's rule, which it calls, has
// memory of the state meanwhile: no other call may change that, or take it for the state of a step.
class UpdateUnderWay {
 public:
  class Scope {
   public:
    explicit Scope(UpdateUnderWay& update) : is_so_(update.is_so_) { is_so_ = true; }
    ~Scope() { is_so_ = false; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    bool& is_so_;
  };

  void check(const char* call) const {
    check_state(!is_so_, call,
                ": expected a call before or after the optimizer's update, got one by the update's "
                "own rule");
  }

 private:
  bool is_so_ = false;
};

}  // namespace nxd
