#pragma once

#include <cstdint>

namespace nxd {

// Tells the calls of one module within a forward apart, so that each draws random numbers of its
// own. A forward sets it around each call of a child, from its own and from how many calls of that
// child it has made before. A call that is made again, or alone, later, is made under the path of
// its first time.
class CallPath {
 public:
  CallPath() = default;  // of a module that is called once, by a caller who is

  // This thread's.
  static CallPath current() noexcept;

  // The path of the child's call that comes after `earlier` calls of it.
  CallPath of_child(uint64_t earlier) const;
  // Two calls of one module have two numbers. 0 for the first call of all.
  uint64_t number() const { return number_; }

 private:
  explicit CallPath(uint64_t number) : number_(number) {}

  uint64_t number_ = 0;
};

// Makes a path this thread's for a scope.
class CallPathScope {
 public:
  explicit CallPathScope(CallPath path) noexcept;
  ~CallPathScope();
  CallPathScope(const CallPathScope&) = delete;
  CallPathScope& operator=(const CallPathScope&) = delete;

 private:
  CallPath outer_;
};

}  // namespace nxd
