// Eager messages in shared memory: what is read is whole and of the call asked for, or is not read.
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "core/comm/transports/shm/eager_message.h"

#include "support/check.h"

namespace {

using nxd::EagerMessage;

struct alignas(64) Place {
  char bytes[EagerMessage::room_for(2048)] = {};
};

void test_sizes(void**) {
  for (const size_t size : {1, 8, 55, 56, 57, 111, 112, 113, 1000, 1024, 2047, 2048}) {
    Place place;
    std::vector<char> sent(size), got(size + 1, 'x');
    std::iota(sent.begin(), sent.end(), static_cast<char>(size));
    assert_false(EagerMessage::read(&place, got.data(), size, 7, 3));
    EagerMessage::write(&place, sent.data(), size, 7);
    assert_false(EagerMessage::read(&place, got.data(), size, 9, 3));
    assert_true(EagerMessage::read(&place, got.data(), size, 7, 0));
    assert_memory_equal(got.data(), sent.data(), size);
    assert_int_equal(got[size], 'x');
  }
}

// All lines but the last one have come.
void test_partial(void**) {
  Place place;
  std::vector<char> data(3 * EagerMessage::kLineBytes, 'a');
  EagerMessage::write(&place, data.data(), 2 * EagerMessage::kLineBytes, 5);
  assert_false(EagerMessage::read(&place, data.data(), data.size(), 5, 10));
  EagerMessage::write(&place, data.data(), data.size(), 5);
  assert_true(EagerMessage::read(&place, data.data(), data.size(), 5, 0));
}

// Two threads answer each other, over two places in turn, as two ranks do.
void test_exchange(void**) {
  constexpr uint64_t kRounds = 20000;
  constexpr size_t kWords = 100;
  static Place places[2][2];
  const auto run = [](int self, int* wrong) {
    uint64_t own[kWords], other[kWords];
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (size_t i = 0; i < kWords; ++i) own[i] = round * kWords + i;
      EagerMessage::write(&places[self][round % 2], own, sizeof own, round);
      while (!EagerMessage::read(&places[1 - self][round % 2], other, sizeof other, round, 100)) {
        std::this_thread::yield();
      }
      *wrong += std::memcmp(own, other, sizeof own) != 0;
    }
  };
  int wrong[2] = {0, 0};
  std::thread peer([&] { run(1, &wrong[1]); });
  run(0, &wrong[0]);
  peer.join();
  assert_int_equal(wrong[0] + wrong[1], 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_partial),
                              cmocka_unit_test(test_exchange)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
