// Headers that Gloo installs include this one, which it does not install. The compiler looks here
// last. Of these types only the layout matters to us, which has been that of a standard pointer
// since they came: everything that uses them is compiled into Gloo.
#pragma once

#include <memory>

namespace gloo {

template <class T>
class NonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <class T>
class WeakNonOwningPtr {
  std::weak_ptr<T> ptr_;
};

template <class T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
