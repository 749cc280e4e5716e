#pragma once

namespace nxd {

// A call of this thread's that is in progress on some object. While a callback runs that is asked
// during it, the thread's calls are set aside, so that the callback's own are no part of them. A
// callback may also let another of the program's fibers run, whose calls begin and end in any order
// with those set aside.
class CallInProgress {
 public:
  explicit CallInProgress(const void* object) noexcept;
  ~CallInProgress() { innermost_ = outer_; }
  CallInProgress(const CallInProgress&) = delete;
  CallInProgress& operator=(const CallInProgress&) = delete;

  const void* object() const noexcept { return object_; }
  CallInProgress* outer() const noexcept { return outer_; }
  static CallInProgress* innermost() noexcept;
  // True when a callback that runs on this thread was asked during a call on the object.
  static bool is_set_aside(const void* object) noexcept;

  // Sets the thread's calls aside while it lives.
  class Aside {
   public:
    explicit Aside(const void* asker) noexcept;  // whose callback runs
    ~Aside();
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

    static bool is_of(const void* asker) noexcept;

   private:
    friend class CallInProgress;
    const void* const asker_;
    CallInProgress* const calls_;
    Aside *before_ = nullptr, *after_;
  };

 private:
  CallInProgress*& innermost_;  // of this thread
  const void* const object_;
  CallInProgress* const outer_;
};

}  // namespace nxd
