// Tensor-parallel ranks whose linear layers exchange their partial sums in a dtype.
#pragma once

#include "support/ranks.h"

namespace nxd_test {

template <class Body>
void on_ranks_with(int ranks, nxd_dtype_t reduce_dtype, const Body& body) {
  struct Shared {
    const Body* body;
    nxd_dtype_t reduce_dtype;
  } shared{&body, reduce_dtype};
  nxd_test_run_ranks(
      ranks, 0,
      [](nxd_context_t* ctx, int rank, int size, void* data) {
        const auto& given = *static_cast<Shared*>(data);
        nxd_parallel_options_t options = NXD_PARALLEL_OPTIONS_INIT;
        options.tensor_parallel_size = size;
        options.reduce_dtype = given.reduce_dtype;
        if (NXD_TEST_OK(nxd_init_model_parallel(ctx, &options))) (*given.body)(ctx, rank, size);
      },
      &shared);
}

}  // namespace nxd_test
