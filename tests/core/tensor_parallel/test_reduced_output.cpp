// The bytes that layers move beside what they compute: none over arrays of an arena, one copy of
// each sum over ranks in memory of any other kind, and page faults for neither once a call has been
// made.
#include "core/tensor_parallel/reduced_output.h"

#include <sys/resource.h>

#include "capi/handles.h"

#include "core/comm/transports/shm/shm_staged.h"
#include "core/tensor_parallel/column_linear.h"
#include "core/tensor_parallel/row_linear.h"
#include "support/ranks.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using namespace nxd;

constexpr int kRanks = 2;
constexpr int64_t kRows = 1024, kHidden = 256, kPart = 32;  // 1 MB of f32 between the layers
constexpr size_t kBytes = kRows * kHidden * sizeof(float);

// Bytes of a call's own memory without what they take to align it.
size_t own_bytes(size_t workspace) {
  return workspace == 0 ? 0 : workspace - (Scratch::kAlignment - 1);
}

// Arrays of a rank, in its arena or in memory of the program's.
class Memory {
 public:
  Memory(nxd_context_t* ctx, bool in_arena) : ctx_(ctx), in_arena_(in_arena) {}
  ~Memory() {
    for (void* data : taken_) {
      if (in_arena_) {
        NXD_TEST_OK(nxd_arena_free(ctx_, data));
      } else {
        std::free(data);
      }
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Array array(nxd_dtype_t dtype, const Array::Shape& shape) {
    const Array sizes = Array::dense(dtype, shape, nullptr);
    const size_t bytes = static_cast<size_t>(sizes.count()) * sizeof(float);
    void* data = nullptr;
    if (in_arena_) {
      NXD_TEST_OK(nxd_arena_alloc(ctx_, bytes, &data));
    } else {
      data = std::malloc(bytes);
    }
    std::fill_n(static_cast<float*>(data), sizes.count(), 0.0F);
    taken_.push_back(data);
    return Array::dense(dtype, shape, data);
  }

 private:
  nxd_context_t* ctx_;
  bool in_arena_;
  std::vector<void*> taken_;
};

struct Way {
  bool in_arena;
  nxd_dtype_t dtype;
};

// The arrays of a column layer and of the row layer behind it.
struct Pair {
  Pair(Memory& memory, nxd_dtype_t dtype)
      : x(memory.array(dtype, {kRows, kHidden})),
        first(memory.array(dtype, {kPart, kHidden})),
        between(memory.array(dtype, {kRows, kPart})),
        second(memory.array(dtype, {kHidden, kPart})),
        y(memory.array(dtype, {kRows, kHidden})),
        grad_x(memory.array(dtype, {kRows, kHidden})),
        grad_first(memory.array(dtype, {kPart, kHidden})) {}

  RowLinearForward row(const ProcessGroup& group) const {
    return {group, {between, {{second, y}}}, LinearCallOptions{}};
  }
  ColumnLinearBackward column_backward(const ProcessGroup& group) const {
    return {group, {x, {{first, between, {}, grad_first}}, grad_x}, LinearCallOptions{}};
  }

  Array x, first, between, second, y, grad_x, grad_first;
};

// Memory of a call beside its arrays: each byte of it is written once more than need be.
void own_memory(nxd_context_t* ctx, int, int, void* user_data) {
  const Way& way = *static_cast<const Way*>(user_data);
  const ProcessGroup& group = *layer_group(*ctx->value);
  Memory memory(ctx, way.in_arena);
  const Pair pair(memory, way.dtype);
  // Sums of 16-bit floats are formed in f32, wherever the output lies.
  const bool direct = way.in_arena && way.dtype == NXD_DTYPE_F32;
  const size_t expected = direct ? 0 : kBytes;
  NXD_TEST_CHECK(own_bytes(pair.row(group).workspace_bytes()) == expected);
  NXD_TEST_CHECK(own_bytes(pair.column_backward(group).workspace_bytes()) == expected);
}

void sums_are_copied_where_they_must(void**) {
  for (const bool in_arena : {true, false}) {
    for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
      Way way{in_arena, dtype};
      nxd_test_run_ranks(kRanks, kRanks, own_memory, &way);
    }
  }
}

long faults_of_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// A forward of the row layer and a backward of the column layer, often.
void train(nxd_context_t* ctx, int, int, void* user_data) {
  const bool in_arena = static_cast<const Way*>(user_data)->in_arena;
  const Context& context = *ctx->value;
  Memory memory(ctx, in_arena);
  const Pair pair(memory, NXD_DTYPE_F32);
  const auto step = [&] {
    run_layer(context, "row", [&](const ProcessGroup& group) { return pair.row(group); });
    run_layer(context, "column",
              [&](const ProcessGroup& group) { return pair.column_backward(group); });
  };
  for (int i = 0; i < 3; ++i) step();
  constexpr int kSteps = 10;
  const long before = faults_of_thread();
  for (int i = 0; i < kSteps; ++i) step();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr bool kCounts = false;
#else
  constexpr bool kCounts = true;
#endif
  const long faults = faults_of_thread() - before;
  // A fresh copy of one array would be 256 pages in each step. Sanitizers map memory of their own.
  if (kCounts && faults >= kSteps * 64) {
    nxd_test_fail(__FILE__, __LINE__, "%ld page faults in %d steps", faults, kSteps);
  }
}

void nothing_is_staged_or_faults(void**) {
  for (const bool in_arena : {true, false}) {
    Way way{in_arena, NXD_DTYPE_F32};
    const uint64_t chunks = ShmStaged::chunks_of_process();
    nxd_test_run_ranks(kRanks, kRanks, train, &way);
    // Sums in other memory are formed in the arena too, and copied.
    assert_int_equal(ShmStaged::chunks_of_process(), chunks);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_copied_where_they_must),
      cmocka_unit_test(nothing_is_staged_or_faults),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
