#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "core/kernel_support.h"
#include "core/kernels/memory_pool.h"
#include "nxd.h"

using namespace nxd;
using namespace nxd::kernels;

namespace {

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// All bytes are the same.
bool holds(const unsigned char* p, size_t bytes, unsigned char value) {
  return bytes == 0 || (p[0] == value && std::memcmp(p, p + 1, bytes - 1) == 0);
}

void blocks_are_aligned_and_apart(void**) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  unsigned char tag = 0;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{100}, size_t{4096},
        size_t{100000}, size_t{1} << 20, (size_t{4} << 20) + 1, size_t{9} << 20}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto* p = static_cast<unsigned char*>(pool_allocate(bytes));
      assert_non_null(p);
      assert_int_equal(reinterpret_cast<uintptr_t>(p) % 64, 0);
      std::memset(p, ++tag, bytes);
      blocks.emplace_back(p, bytes);
    }
  }
  tag = 0;
  for (const auto& [p, bytes] : blocks) {
    ++tag;
    assert_true(holds(p, bytes, tag));
    pool_free(p);
  }
  pool_free(nullptr);
}

// Every size up to a bound gets at least what it asks for: neighbours survive a full write.
void all_sizes_hold(void**) {
  test::Random random(1);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (int i = 0; i < 3000; ++i) {
    const auto bytes = static_cast<size_t>(random.below(i % 10 == 0 ? 300000 : 2000));
    auto* p = static_cast<unsigned char*>(pool_allocate(bytes));
    std::memset(p, i & 255, bytes);
    blocks.emplace_back(p, bytes);
    if (i % 3 == 2) {
      const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(blocks.size())));
      const auto [gone, size] = blocks[at];
      assert_true(size == 0 || holds(gone, size, gone[0]));
      pool_free(gone);
      blocks.erase(blocks.begin() + static_cast<int64_t>(at));
    }
  }
  for (const auto& [p, bytes] : blocks) {
    assert_true(bytes == 0 || holds(p, bytes, p[0]));
    pool_free(p);
  }
}

// One step as a training loop makes it.
void step() {
  std::vector<void*> blocks;
  for (size_t i = 0; i < 40; ++i) {
    const size_t bytes = (i % 7 + 1) * 1000000;
    blocks.push_back(pool_allocate(bytes));
    std::memset(blocks.back(), 1, bytes);
    if (i % 4 == 3) {
      pool_free(blocks[blocks.size() - 2]);
      blocks.erase(blocks.end() - 2);
    }
  }
  for (void* p : blocks) pool_free(p);
}

void later_steps_ask_the_system_for_nothing(void**) {
  step();
  const PoolStats before = pool_stats();
  const long faults = page_faults();
  for (int i = 0; i < 5; ++i) step();
  const PoolStats after = pool_stats();
  assert_int_equal(after.system_allocations, before.system_allocations);
  assert_int_equal(after.bytes_reserved, before.bytes_reserved);
  assert_int_equal(after.allocations, before.allocations + 200);
  assert_int_equal(after.bytes_in_use, before.bytes_in_use);
  // A step touches 160 MB: 40000 small pages if they came anew.
  assert_true(page_faults() - faults < 500);
}

void statistics_add_up(void**) {
  nxd_memory_stats_t before = {};
  before.struct_size = sizeof(before);
  assert_int_equal(nxd_memory_get_stats(&before), NXD_OK);
  void* p = pool_allocate(5000001);
  nxd_memory_stats_t during = before;
  assert_int_equal(nxd_memory_get_stats(&during), NXD_OK);
  assert_int_equal(during.bytes_in_use, before.bytes_in_use + 5000001);
  assert_true(during.peak_bytes_in_use >= during.bytes_in_use);
  assert_true(during.bytes_reserved >= during.bytes_in_use);
  assert_int_equal(during.allocations, before.allocations + 1);
  pool_free(p);
  assert_int_equal(nxd_memory_trim(), NXD_OK);
  nxd_memory_stats_t after = before;
  assert_int_equal(nxd_memory_get_stats(&after), NXD_OK);
  assert_int_equal(after.bytes_in_use, before.bytes_in_use);
  assert_true(after.bytes_reserved < during.bytes_reserved);
}

void trim_keeps_live_blocks(void**) {
  auto* small = static_cast<char*>(pool_allocate(1000));
  auto* large = static_cast<char*>(pool_allocate(10000000));
  void* gone = pool_allocate(1000);
  std::memset(small, 7, 1000);
  std::memset(large, 8, 10000000);
  pool_free(gone);
  pool_trim();
  assert_true(small[999] == 7 && large[9999999] == 8);
  void* again = pool_allocate(1000);
  std::memset(again, 9, 1000);
  assert_true(small[999] == 7);
  pool_free(again);
  pool_free(small);
  pool_free(large);
  pool_trim();
  assert_int_equal(pool_stats().bytes_reserved, 0);
}

// True if the page at an address is in memory, as the kernel says.
bool is_resident(const void* address) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  unsigned char state = 0;
  const size_t begin = reinterpret_cast<size_t>(address) / page * page;
  assert_int_equal(mincore(reinterpret_cast<void*>(begin), page, &state), 0);
  return (state & 1) != 0;
}

// Blocks of 1 MB, behind each ninth of which a small one stays; its value is its place.
struct Slabs {
  std::vector<char*> large, small;
};
Slabs fill_slabs(size_t count) {
  Slabs slabs;
  for (size_t i = 0; i < count; ++i) {
    slabs.large.push_back(static_cast<char*>(pool_allocate(1000000)));
    std::memset(slabs.large.back(), 1, 1000000);
    if (i % 9 != 8) continue;
    slabs.small.push_back(static_cast<char*>(pool_allocate(1000)));
    std::memset(slabs.small.back(), static_cast<int>(slabs.small.size()), 1000);
  }
  return slabs;
}

// Free blocks beside live ones give their huge pages back, and are room for other sizes then.
void trim_gives_back_what_lies_between_live_blocks(void**) {
  pool_trim();
  const PoolStats before = pool_stats();
  const Slabs slabs = fill_slabs(90);
  const PoolStats full = pool_stats();
  assert_true(full.bytes_reserved >= before.bytes_reserved + 90000000);
  // The middle of nine that lie side by side.
  char* const gone = slabs.large[4] + 500000;
  assert_true(is_resident(gone));
  for (char* block : slabs.large) pool_free(block);
  pool_trim();
  const PoolStats trimmed = pool_stats();
  // A small block holds two huge pages at most, its own and that of its neighbours' ends.
  assert_true(trimmed.bytes_reserved <= full.bytes_reserved - 50000000);
  assert_false(is_resident(gone));
  for (size_t i = 0; i < slabs.small.size(); ++i) {
    for (const size_t at : {0, 500, 999}) {
      assert_int_equal(slabs.small[i][at], static_cast<int>(i + 1));
    }
  }
  // Nothing more comes from the system for what fits, in other sizes.
  std::vector<char*> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(static_cast<char*>(pool_allocate(3000000)));
    std::memset(others.back(), 9, 3000000);
  }
  const PoolStats again = pool_stats();
  assert_int_equal(again.system_allocations, trimmed.system_allocations);
  assert_true(again.bytes_reserved >= trimmed.bytes_reserved + 40000000);
  assert_true(again.bytes_reserved <= full.bytes_reserved);
  for (size_t i = 0; i < slabs.small.size(); ++i) {
    assert_int_equal(slabs.small[i][999], static_cast<int>(i + 1));
  }
  for (char* block : others) pool_free(block);
  for (char* block : slabs.small) pool_free(block);
  pool_trim();
  assert_int_equal(pool_stats().bytes_reserved, before.bytes_reserved);
}

// Live blocks keep what they have, whichever are trimmed around them.
void trims_between_random_blocks(void**) {
  pool_trim();
  const PoolStats before = pool_stats();
  test::Random random(2);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  const auto check_and_free = [&blocks](size_t at) {
    const auto [gone, size] = blocks[at];
    assert_true(holds(gone, size, gone[0]));
    pool_free(gone);
    blocks.erase(blocks.begin() + static_cast<int64_t>(at));
  };
  for (int i = 0; i < 3000; ++i) {
    const auto bytes = static_cast<size_t>(random.below(i % 7 == 0 ? 4000000 : 100000)) + 1;
    blocks.emplace_back(static_cast<unsigned char*>(pool_allocate(bytes)), bytes);
    std::memset(blocks.back().first, i & 255, bytes);
    while (blocks.size() > static_cast<size_t>(i / 100 % 2 == 0 ? 150 : 30)) {
      check_and_free(static_cast<size_t>(random.below(static_cast<int64_t>(blocks.size()))));
    }
    if (i % 50 == 49) pool_trim();
  }
  assert_true(pool_stats().bytes_reserved >= pool_stats().bytes_in_use);
  while (!blocks.empty()) check_and_free(blocks.size() - 1);
  pool_trim();
  assert_int_equal(pool_stats().bytes_in_use, before.bytes_in_use);
  assert_int_equal(pool_stats().bytes_reserved, before.bytes_reserved);
}

// Sizes that never come again must not pile up.
void unused_memory_is_bounded(void**) {
  for (size_t i = 0; i < 300; ++i) pool_free(pool_allocate((size_t{8} << 20) + i * 1000000));
  const PoolStats stats = pool_stats();
  assert_true(stats.bytes_reserved <=
              stats.peak_bytes_in_use + stats.peak_bytes_in_use / 2 + (size_t{512} << 20));
}

void threads_exchange_blocks(void**) {
  const PoolStats before = pool_stats();
  std::vector<void*> blocks(4000);
  const auto allocate = [&blocks](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      blocks[i] = pool_allocate(i % 300 + 1);
      std::memset(blocks[i], 1, i % 300 + 1);
    }
  };
  const auto release = [&blocks](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) pool_free(blocks[i]);
  };
  std::thread a(allocate, 0, 2000);
  std::thread b(allocate, 2000, 4000);
  a.join();
  b.join();
  std::thread c(release, 1000, 3000);
  release(0, 1000);
  release(3000, 4000);
  c.join();
  assert_int_equal(pool_stats().bytes_in_use, before.bytes_in_use);
}

// Given back when the program's static objects are destroyed, after main, which is said on stdout.
struct LateFree {
  void* block = nullptr;
  ~LateFree() {
    if (!block) return;
    const uint64_t before = pool_stats().bytes_in_use;
    pool_free(block);
    constexpr char kDone[] = "given back\n";
    if (pool_stats().bytes_in_use >= before) _exit(3);
    if (write(STDOUT_FILENO, kDone, sizeof kDone - 1) < 0) _exit(4);
  }
};
LateFree late;

// This program again, as main does it with an argument.
void blocks_may_outlive_main(void**) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(length > 0);
  const std::string command = "'" + std::string(self, static_cast<size_t>(length)) + "' late";
  FILE* lines = popen(command.c_str(), "r");
  assert_non_null(lines);
  char line[64] = "";
  const char* got = std::fgets(line, sizeof line, lines);
  assert_int_equal(pclose(lines), 0);
  assert_non_null(got);
  assert_string_equal(line, "given back\n");
}

void workspace_grows(void**) {
  Workspace space;
  auto* first = space.get<char>(100);
  std::memset(first, 1, 100);
  assert_ptr_equal(space.get<char>(50), first);
  std::memset(space.get<char>(1000000), 2, 1000000);
  const uint64_t before = pool_stats().bytes_in_use;
  space.get<char>(1000001);
  assert_int_equal(pool_stats().bytes_in_use, before + 1);
}

// A block that is given back twice is one block afterwards, and none of it is in use.
void blocks_given_back_twice(void**) {
  const uint64_t before = pool_stats().bytes_in_use;
  void* const block = pool_allocate(5000);
  pool_free(block);
  pool_free(block);
  assert_int_equal(pool_stats().bytes_in_use, before);
  void *const one = pool_allocate(5000), *const two = pool_allocate(5000);
  assert_ptr_not_equal(one, two);
  pool_free(one);
  pool_free(two);
}

// The message says what was asked for and what the cap is; blocks in use stay.
void a_cap_bounds_what_is_handed_out(void**) {
  const uint64_t base = pool_stats().bytes_in_use;
  void* kept = pool_allocate(3000000);
  assert_int_equal(nxd_memory_set_cap(base + 5000000), NXD_OK);
  assert_int_equal(pool_stats().cap, base + 5000000);
  void* fits = pool_allocate(2000000);
  for (const size_t bytes : {size_t{1}, size_t{123456789}}) {
    try {
      pool_allocate(bytes);
      fail_msg("an allocation beyond the cap succeeded");
    } catch (const Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_OUT_OF_MEMORY);
      assert_non_null(std::strstr(error.what(), std::to_string(bytes).c_str()));
      assert_non_null(std::strstr(error.what(), std::to_string(base + 5000000).c_str()));
    }
  }
  // Below what is in use: nothing more, until enough was given back.
  assert_int_equal(nxd_memory_set_cap(base + 1000), NXD_OK);
  pool_free(fits);
  pool_free(kept);
  pool_free(pool_allocate(1000));
  assert_int_equal(nxd_memory_set_cap(0), NXD_OK);
  pool_free(pool_allocate(50000000));
  assert_int_equal(pool_stats().bytes_in_use, base);
}

void a_cap_bounds_what_is_kept(void**) {
  pool_trim();
  const PoolStats before = pool_stats();
  pool_set_cap(before.bytes_in_use + (size_t{64} << 20));
  for (size_t i = 0; i < 20; ++i) pool_free(pool_allocate((size_t{8} << 20) + i * 1000000));
  const PoolStats after = pool_stats();
  pool_set_cap(0);
  assert_true(after.bytes_reserved <= before.bytes_reserved + (size_t{64} << 20));
}

void a_lower_cap_gives_back_what_is_kept(void**) {
  pool_trim();
  const PoolStats before = pool_stats();
  pool_free(pool_allocate(size_t{64} << 20));
  assert_true(pool_stats().bytes_reserved >= before.bytes_reserved + (size_t{64} << 20));
  pool_set_cap(before.bytes_in_use + (size_t{16} << 20));
  const PoolStats after = pool_stats();
  pool_set_cap(0);
  assert_int_equal(after.bytes_reserved, before.bytes_reserved);
}

// Room between blocks counts, too: what was made of it and is free makes way for other sizes.
void a_cap_bounds_what_is_made_of_gaps(void**) {
  constexpr size_t kMiB = size_t{1} << 20;
  std::vector<void*> blocks, pins;
  const auto free_all = [](std::vector<void*>& all) {
    for (void* block : all) pool_free(block);
    all.clear();
  };
  for (int i = 0; i < 42; ++i) {  // seven to a mapping
    blocks.push_back(pool_allocate(4 * kMiB));
    if (i % 7 == 6) pins.push_back(pool_allocate(kMiB));
  }
  free_all(blocks);
  pool_trim();
  const uint64_t cap = pool_stats().bytes_reserved + 40 * kMiB;
  pool_set_cap(cap);
  uint64_t most = 0;
  for (const size_t bytes : {3 * kMiB, 2 * kMiB, 3 * kMiB + kMiB / 2}) {
    for (size_t all = 0; all + bytes <= 32 * kMiB; all += bytes) {
      blocks.push_back(pool_allocate(bytes));
      most = std::max(most, pool_stats().bytes_reserved);
    }
    free_all(blocks);
  }
  pool_set_cap(0);
  free_all(pins);
  assert_true(most <= cap);
}

// A forked child goes on with its copy of the pool, also when other threads were using it.
void forked_children_use_the_pool(void**) {
  std::atomic<bool> stop{false};
  std::thread busy([&stop] {
    while (!stop) pool_free(pool_allocate(100000));
  });
  for (int i = 0; i < 20; ++i) {
    auto* block = static_cast<char*>(pool_allocate(1000000));
    std::memset(block, 1, 1000000);
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      pool_free(block);
      auto* own = static_cast<char*>(pool_allocate(1000000));
      std::memset(own, 2, 1000000);
      pool_free(own);
      _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(block[999999] == 1);
    pool_free(block);
  }
  stop = true;
  busy.join();
}

void impossible_sizes_are_refused(void**) {
  const auto status_of = [](size_t bytes) {
    try {
      pool_free(pool_allocate(bytes));
    } catch (const Error& error) {
      return error.status();
    }
    return nxd_status_t{NXD_OK};
  };
  assert_int_equal(status_of(SIZE_MAX / 2), NXD_ERROR_INVALID_ARGUMENT);
  assert_int_equal(status_of(SIZE_MAX / 8), NXD_ERROR_OUT_OF_MEMORY);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    late.block = pool_allocate(100);
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_aligned_and_apart),
      cmocka_unit_test(all_sizes_hold),
      cmocka_unit_test(later_steps_ask_the_system_for_nothing),
      cmocka_unit_test(statistics_add_up),
      cmocka_unit_test(trim_keeps_live_blocks),
      cmocka_unit_test(trim_gives_back_what_lies_between_live_blocks),
      cmocka_unit_test(trims_between_random_blocks),
      cmocka_unit_test(unused_memory_is_bounded),
      cmocka_unit_test(threads_exchange_blocks),
      cmocka_unit_test(workspace_grows),
      cmocka_unit_test(blocks_given_back_twice),
      cmocka_unit_test(a_cap_bounds_what_is_handed_out),
      cmocka_unit_test(a_cap_bounds_what_is_kept),
      cmocka_unit_test(a_lower_cap_gives_back_what_is_kept),
      cmocka_unit_test(a_cap_bounds_what_is_made_of_gaps),
      cmocka_unit_test(forked_children_use_the_pool),
      cmocka_unit_test(impossible_sizes_are_refused),
      cmocka_unit_test(blocks_may_outlive_main),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
