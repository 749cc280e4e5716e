// Buffers that are lent out come back, and are counted: a pool neither grows by those that it has
// nor forgets any.
#include "core/pipeline/buffer_pool.h"

#include <optional>
#include <vector>

#include "capi/handles.h"
#include "core/world/context.h"
#include "support/ranks.h"

#include "support/check.h"

using nxd::BufferPool;
using nxd::PipelineBuffer;

namespace {

template <class Function>
void with_pool(Function function) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void* user_data) {
        BufferPool pool(ctx->value->world());
        (*static_cast<Function*>(user_data))(pool);
      },
      &function);
}

void buffers_come_back(void**) {
  with_pool([](BufferPool& pool) {
    const void* first = nullptr;
    for (int turn = 0; turn < 3; ++turn) {
      const PipelineBuffer one = pool.take(100), two = pool.take(100), other = pool.take(40);
      NXD_TEST_CHECK(one.data != two.data && pool.bytes() == 240);
      if (turn == 0) first = one.data;
      NXD_TEST_CHECK(first == one.data || first == two.data);
    }
    NXD_TEST_CHECK(pool.bytes() == 240);
  });
}

// As many as are asked for in all, those lent out among them.
void as_many_as_are_reserved(void**) {
  with_pool([](BufferPool& pool) {
    const PipelineBuffer lent = pool.take(100);
    pool.reserve(100, 3);
    NXD_TEST_CHECK(pool.bytes() == 300);
    pool.reserve(100, 2);
    NXD_TEST_CHECK(pool.bytes() == 300);
    pool.clear();
    NXD_TEST_CHECK(pool.bytes() == 100);
    pool.reserve(100, 2);
    NXD_TEST_CHECK(pool.bytes() == 200);
  });
}

// One that comes back after its pool has ended is freed.
void buffers_outlive_their_pool(void**) {
  nxd_test_run_ranks(
      1, 0,
      [](nxd_context_t* ctx, int, int, void*) {
        std::optional<BufferPool> pool(ctx->value->world());
        PipelineBuffer lent = pool->take(100);
        pool.reset();
        static_cast<char*>(lent.data)[99] = 1;
        lent = {};
      },
      nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(buffers_come_back),
      cmocka_unit_test(as_many_as_are_reserved),
      cmocka_unit_test(buffers_outlive_their_pool),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
