#pragma once

#include <cxxabi.h>
#include <pthread.h>

#include <climits>
#include <utility>

#include "core/base/uncancelled.h"

namespace nxd {

// A thread's own T, made when the thread first asks for it. T is a type of its user's.
// It ends as a thread_local object does. Calls may come behind that, from other objects of the
// thread, functions of atexit and destructors of pthread_key_create: they make another one. That
// ends too, but for the first thread's when the process ends.
template <class T>
class ThreadOwn {
 public:
  // Null where there is none.
  static T* find() noexcept { return object_; }
  static T& get() {
    if (!object_) make();
    return *object_;
  }

 private:
  static void make() {
    static Key key;
    object_ = new T;
    ::pthread_setspecific(key.value, object_);
    if (std::exchange(has_end_, true)) return;
    // Once: glibc keeps for ever what is registered behind the ends of a thread's objects. Keys
    // come behind these, and come again while some are set. The last argument tells the library by
    // any of its addresses.
    abi::__cxa_thread_atexit(end, nullptr, &key);
  }
  static void end(void*) {
    const Uncancelled whole_end;  // which may wait for threads
    delete std::exchange(object_, nullptr);
  }

  struct Key {
    // Where the program has all keys, such an object stays.
    pthread_key_t value = PTHREAD_KEYS_MAX;
    Key() { ::pthread_key_create(&value, end); }
  };

  static inline constinit thread_local T* object_ = nullptr;
  static inline constinit thread_local bool has_end_ = false;
};

}  // namespace nxd
