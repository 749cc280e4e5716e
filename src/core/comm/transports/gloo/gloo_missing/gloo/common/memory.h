// Headers that Gloo installs include this one, which it does not install. The compiler looks here
// last. Only the layout of these types matters to us. It has been that of a standard pointer since
// they came: everything that uses them is compiled into Gloo. A function that is declared alone is
// one that those headers name, and that nothing calls here.
#pragma once

#include <memory>

namespace gloo {

template <class T>
class NonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <class T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <class T>
class WeakNonOwningPtr {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>&);

 private:
  std::weak_ptr<T> ptr_;
};

}  // namespace gloo
