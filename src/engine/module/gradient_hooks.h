#pragma once

#include <functional>
#include <memory>

namespace nxd {

class Parameter;

// Functions that are called when a backward pass has added to a parameter's gradient: a hook of the
// user's, then one of the gradient's reducer.
class GradientHooks {
 public:
  using Hook = std::function<void(Parameter&)>;

  explicit GradientHooks(Parameter& parameter) : parameter_(parameter) {}
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // An empty function removes the hook.
  void set_user(Hook hook);
  void set_reducer(Hook hook);
  bool has_reducer() const;
  // INVALID_STATE while the parameter is frozen and has no hook: there is no graph to hang it in.
  void check_can_be_set() const;
  // For code that has added to the gradient in place of a backward pass.
  void call_user();
  // After the parameter's tensor was replaced.
  void move_to_tensor();

 private:
  struct State;
  State& state();
  void hang();

  Parameter& parameter_;
  std::shared_ptr<State> state_;  // none before the first hook
};

}  // namespace nxd
