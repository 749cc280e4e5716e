// Memory that ranks of a host share: what the library takes for its own tensors.
#include "core/comm/memory/arena.h"

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "core/kernel_support.h"
#include "nxd.h"
#include "support/rejection.h"

using namespace nxd;

namespace {

// Beyond the limit the library's own buffers go elsewhere; the caller's do not.
void own_buffers_are_bounded(void**) {
  Arena arena;
  const size_t large = Arena::kOwnLimit / 4;
  std::vector<void*> blocks;
  while (void* block = arena.try_allocate(large)) {
    blocks.push_back(block);
    assert_true(blocks.size() <= 4);
  }
  assert_int_equal(blocks.size(), 4);
  assert_null(arena.try_allocate(large));
  void* asked_for = arena.allocate(1000);
  assert_non_null(asked_for);
  arena.free(asked_for);
  arena.free(blocks.back());
  blocks.pop_back();
  void* again = arena.try_allocate(large);
  assert_non_null(again);
  blocks.push_back(again);
  for (void* block : blocks) arena.free(block);
}

void blocks_are_used_anew(void**) {
  Arena arena;
  void* block = arena.try_allocate(1000000);
  arena.free(block);
  assert_ptr_equal(arena.try_allocate(1000000), block);
}

// Peers read and write what has a place: data that go on behind its end have none.
void places_end_with_the_memory(void**) {
  Arena arena;
  char* block = static_cast<char*>(arena.allocate(1000000));
  assert_int_not_equal(arena.find(block, 1000000).inode, 0);
  assert_int_equal(arena.find(block, size_t{1} << 40).inode, 0);
  assert_int_equal(arena.find(block + 999999, SIZE_MAX).inode, 0);
  assert_int_equal(arena.find(&arena, 1).inode, 0);
  arena.free(block);
}

// A caller gives back what it was lent, and nothing of the library's own.
void callers_give_back_their_own(void**) {
  Arena arena;
  void* own = arena.allocate(100000);
  void* lent = arena.lend(100000);
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "nxd_arena_alloc", [&] { arena.take_back(own); });
  arena.take_back(lent);
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "nxd_arena_alloc",
                      [&] { arena.take_back(lent); });
  assert_ptr_equal(arena.allocate(100000), lent);
  nxd_test::rejection(NXD_ERROR_INVALID_ARGUMENT, "nxd_arena_alloc",
                      [&] { arena.take_back(lent); });
  arena.free(own);
  arena.free(lent);
}

// A peer of a call that failed may still write to what is freed.
void a_retired_arena_keeps_what_is_freed(void**) {
  Arena arena;
  void* block = arena.try_allocate(1000000);
  arena.retire();
  arena.free(block);
  void* next = arena.try_allocate(1000000);
  assert_non_null(next);
  assert_ptr_not_equal(next, block);
  arena.free(next);
}

// A child would write where its parent works.
void forked_children_take_nothing(void**) {
  Arena arena;
  void* block = arena.allocate(100000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    arena.free(block);
    bool refused = arena.try_allocate(1000) == nullptr;
    try {
      arena.allocate(1000);
      refused = false;
    } catch (const Error& error) {
      refused = refused && error.status() == NXD_ERROR_INVALID_STATE;
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  arena.free(block);
}

void statistics_add_up(void**) {
  nxd_memory_stats_t before = {}, during = {}, after = {};
  before.struct_size = during.struct_size = after.struct_size = sizeof(before);
  assert_int_equal(nxd_memory_get_stats(&before), NXD_OK);
  {
    Arena arena;
    void* block = arena.allocate(8192);
    arena.allocate(4096);
    assert_int_equal(nxd_memory_get_stats(&during), NXD_OK);
    assert_int_equal(during.arena_bytes_in_use, before.arena_bytes_in_use + 12288);
    assert_true(during.arena_bytes_reserved > before.arena_bytes_reserved);
    arena.free(block);
    assert_int_equal(nxd_memory_get_stats(&during), NXD_OK);
    assert_int_equal(during.arena_bytes_in_use, before.arena_bytes_in_use + 4096);
  }
  assert_int_equal(nxd_memory_get_stats(&after), NXD_OK);
  assert_int_equal(after.arena_bytes_in_use, before.arena_bytes_in_use);
  assert_int_equal(after.arena_bytes_reserved, before.arena_bytes_reserved);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(own_buffers_are_bounded),
      cmocka_unit_test(blocks_are_used_anew),
      cmocka_unit_test(callers_give_back_their_own),
      cmocka_unit_test(places_end_with_the_memory),
      cmocka_unit_test(a_retired_arena_keeps_what_is_freed),
      cmocka_unit_test(forked_children_take_nothing),
      cmocka_unit_test(statistics_add_up),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
