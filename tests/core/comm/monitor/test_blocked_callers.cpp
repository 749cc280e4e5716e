// A rank waits as a whole when none of its threads and works goes on.
#include "core/comm/monitor/blocked_callers.h"

#include <condition_variable>
#include <functional>

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using nxd::BlockedCallers;

constexpr BlockedCallers::Patience kNeverIdle{0, 1000000};

// A thread that does as it is told, one thing after the other.
class Thread {
 public:
  Thread() : thread_([this] { run(); }) {}
  ~Thread() {
    tell({});
    thread_.join();
  }
  void tell(std::function<void()> what) {
    std::unique_lock<std::mutex> lock(mutex_);
    what_ = std::move(what);
    is_told_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_told_; });
  }

 private:
  void run() {
    for (bool goes_on = true; goes_on;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return is_told_; });
      goes_on = what_ != nullptr;
      if (goes_on) what_();
      is_told_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> what_;
  bool is_told_ = false;
  std::thread thread_;
};

void threads(void**) {
  BlockedCallers callers;
  const int first = 0, second = 0;
  callers.enter();
  assert_false(callers.waits(kNeverIdle).has_value());
  callers.begin_wait(&first, 3);
  const auto alone = callers.waits(kNeverIdle);
  assert_true(alone && alone->awaited == std::set<int>{3});
  {
    Thread other;
    other.tell([&] { callers.enter(); });
    assert_false(callers.waits(kNeverIdle).has_value());
    other.tell([&] { callers.begin_wait(&second, 5); });
    const auto both = callers.waits(kNeverIdle);
    assert_true(both && both->awaited == (std::set<int>{3, 5}));
    assert_true(both->number != alone->number);
    other.tell([&] { callers.end_wait(&second); });
    assert_false(callers.waits(kNeverIdle).has_value());
  }
  // A thread that has ended makes no calls.
  assert_true(callers.waits(kNeverIdle).has_value());
  callers.end_wait(&first);
  assert_false(callers.waits(kNeverIdle).has_value());
}

// A thread that makes no calls any more is waited for no longer than this.
void idle_threads(void**) {
  constexpr int64_t kIdleMs = 2000;
  constexpr BlockedCallers::Patience kIdle{0, kIdleMs};
  BlockedCallers callers;
  const int call = 0;
  Thread other;
  other.tell([&] { callers.enter(); });
  callers.enter();
  callers.begin_wait(&call, 1);
  assert_false(callers.waits(kIdle).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(kIdleMs + 500));
  other.tell([&] { callers.enter(); });
  assert_false(callers.waits(kIdle).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(kIdleMs + 500));
  assert_true(callers.waits(kIdle).has_value());
  // It comes back to its work.
  other.tell([&] { const BlockedCallers::Behalf work(callers); });
  assert_false(callers.waits(kIdle).has_value());
  callers.end_wait(&call);
}

// Nor is a thread that is not known yet, which may be on its way.
void new_threads(void**) {
  constexpr int64_t kNewMs = 2000;
  constexpr BlockedCallers::Patience kNew{kNewMs, 1000000};
  BlockedCallers callers;
  const int first = 0, second = 0;
  callers.enter();
  callers.begin_wait(&first, 1);
  assert_false(callers.waits(kNew).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(kNewMs + 500));
  Thread other;
  other.tell([&] {
    callers.enter();
    callers.begin_wait(&second, 2);
  });
  assert_false(callers.waits(kNew).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(kNewMs + 500));
  assert_true(callers.waits(kNew).has_value());
  other.tell([&] { callers.end_wait(&second); });
  callers.end_wait(&first);
}

void works(void**) {
  BlockedCallers callers;
  const int call = 0;
  callers.enter();
  Thread library;
  std::optional<BlockedCallers::Behalf> behalf;
  library.tell([&] { behalf.emplace(callers); });
  {
    const BlockedCallers::Wait wait(callers);
    assert_false(callers.waits(kNeverIdle).has_value());  // the work goes on
    library.tell([&] { callers.begin_wait(&call, 2); });
    const auto waits = callers.waits(kNeverIdle);
    assert_true(waits && waits->awaited == std::set<int>{2});
  }
  assert_false(callers.waits(kNeverIdle).has_value());  // its caller does
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  assert_false(callers.waits({0, 1}).has_value());
  library.tell([&] {
    callers.end_wait(&call);
    behalf.reset();
  });
}

// A caller waits where its deputy does.
void deputies(void**) {
  BlockedCallers callers;
  const int call = 0;
  callers.enter();
  Thread library;
  std::optional<BlockedCallers::Deputy> deputy;
  library.tell([&, caller = std::this_thread::get_id()] {
    deputy.emplace(caller);
    callers.enter();
    callers.begin_wait(&call, 2);
  });
  assert_true(callers.waits(kNeverIdle).has_value());
  library.tell([&] {
    callers.end_wait(&call);
    deputy.reset();
  });
  assert_false(callers.waits(kNeverIdle).has_value());
}

void rounds(void**) {
  BlockedCallers callers;
  const int first = 0, second = 0;
  callers.enter();
  callers.begin_wait(&first, 1);
  const auto begun = callers.waits(kNeverIdle);
  callers.begin_wait(&first, 1);
  const auto again = callers.waits(kNeverIdle);
  assert_true(again->number == begun->number && again->rounds == begun->rounds + 1);
  callers.begin_wait(&second, 1);
  const auto both = callers.waits(kNeverIdle);
  for (int i = 0; i < 3; ++i) callers.begin_wait(&second, 1);
  assert_true(callers.waits(kNeverIdle)->rounds == both->rounds);
  callers.begin_wait(&first, 1);
  assert_true(callers.waits(kNeverIdle)->rounds == both->rounds + 1);
  callers.begin_wait(&first, 2);
  assert_true(callers.waits(kNeverIdle)->number != both->number);
  callers.end_wait(&first);
  callers.end_wait(&second);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(threads), cmocka_unit_test(idle_threads), cmocka_unit_test(new_threads),
      cmocka_unit_test(works),   cmocka_unit_test(deputies),     cmocka_unit_test(rounds),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
