// A thread's own objects, of which none is left behind the thread, whenever it asks for them.
#include "core/base/thread_own.h"

#include <atomic>
#include <thread>

#include "support/check.h"

namespace {

std::atomic<int> made{0}, left{0};

struct Counted {
  int value = 0;
  Counted() { ++made, ++left; }
  ~Counted() { --left; }
};
struct CountedToo : Counted {};

using Own = nxd::ThreadOwn<Counted>;

void one_for_each_thread(void**) {
  made = 0;
  Own::get().value = 1;
  std::thread other([] {
    assert_null(Own::find());
    assert_int_equal(Own::get().value, 0);
    assert_ptr_equal(Own::find(), &Own::get());
    assert_null(nxd::ThreadOwn<CountedToo>::find());
  });
  other.join();
  assert_int_equal(Own::get().value, 1);
  assert_int_equal(made, 1);  // by the other
  assert_int_equal(left, 1);
}

struct AsksAtItsEnd {
  ~AsksAtItsEnd() { ++Own::get().value; }
};

void another_for_objects_of_the_thread(void**) {
  made = left = 0;
  std::thread thread([] {
    static thread_local AsksAtItsEnd asks;
    static_cast<void>(asks);
    Own::get();
  });
  thread.join();
  assert_int_equal(made, 2);
  assert_int_equal(left, 0);
}

pthread_key_t before, behind;  // the key of Own

void ask(void*) { ++Own::get().value; }

void another_for_destructors_of_keys(void**) {
  made = left = 0;
  std::thread thread([] {
    pthread_setspecific(before, &before);
    pthread_setspecific(behind, &behind);
    Own::get();
  });
  thread.join();
  assert_int_equal(made, 3);
  assert_int_equal(left, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(one_for_each_thread),
                              cmocka_unit_test(another_for_objects_of_the_thread),
                              cmocka_unit_test(another_for_destructors_of_keys)};
  pthread_key_create(&before, ask);
  Own::get();
  pthread_key_create(&behind, ask);
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
