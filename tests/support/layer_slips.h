// Calls of layers over buffers with bad arguments on one rank: every rank gets the error, with what
// was expected and what was given, no output has changed, and the next call goes well. Arguments
// is a struct of all arguments of the calls, with the bytes of all outputs by outputs().
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "support/layer_arrays.h"

namespace nxd_test {

constexpr int kSlipRanks = 3;
constexpr int kSlippingRank = 1;  // the one with bad arguments

template <class Arguments>
using LayerCall = std::function<nxd_status_t(nxd_context_t*, Arguments&)>;

template <class Arguments>
struct Slip {
  const LayerCall<Arguments>* call;
  const char* message;  // part of it, on all ranks
  std::function<void(Arguments&)> spoil;
  nxd_status_t status = NXD_ERROR_INVALID_ARGUMENT;
};

// A shape that is kept by the caller's struct.
inline void reshape(DLTensor* tensor, int dim, int64_t size) { tensor->shape[dim] = size; }

// A shape of as many elements, with two sizes the other way round, in C order.
inline void turn(DLTensor* tensor, int dim = 0) {
  std::swap(tensor->shape[dim], tensor->shape[dim + 1]);
  tensor->strides = nullptr;
}

template <class Arguments>
void check_slips(nxd_context_t* ctx, int rank, const std::vector<Slip<Arguments>>& slips) {
  for (const Slip<Arguments>& slip : slips) {
    Arguments arguments;
    const std::vector<char> before = arguments.outputs();
    if (rank == kSlippingRank) slip.spoil(arguments);
    NXD_TEST_REFUSED((*slip.call)(ctx, arguments), slip.status, slip.message);
    if (arguments.outputs() != before) {
      nxd_test_fail(__FILE__, __LINE__, "%s: an output has changed", slip.message);
    }
    Arguments good;
    NXD_TEST_OK((*slip.call)(ctx, good));
  }
}

// Different calls of layers at once.
template <class Arguments>
void check_other_calls(nxd_context_t* ctx, int rank,
                       const std::vector<const LayerCall<Arguments>*>& calls) {
  for (const auto* one : calls) {
    for (const auto* other : calls) {
      if (one == other) continue;
      Arguments arguments;
      const std::vector<char> before = arguments.outputs();
      const nxd_status_t status = (*(rank == kSlippingRank ? one : other))(ctx, arguments);
      NXD_TEST_CHECK(status == NXD_ERROR_INVALID_ARGUMENT);
      NXD_TEST_CHECK(arguments.outputs() == before);
    }
  }
}

// A rank that leaves: the others' next call fails, and so do all later ones.
template <class Arguments>
void check_lost(nxd_context_t* ctx, int rank, const LayerCall<Arguments>& call) {
  Arguments arguments;
  NXD_TEST_OK(call(ctx, arguments));
  if (rank == 0) {
    NXD_TEST_OK(nxd_context_abort(ctx));
    NXD_TEST_REFUSED(call(ctx, arguments), NXD_ERROR_ABORTED, "aborted");
    return;
  }
  NXD_TEST_REFUSED(call(ctx, arguments), NXD_ERROR_PEER_LOST, "rank 0");
  NXD_TEST_REFUSED(call(ctx, arguments), NXD_ERROR_PEER_LOST, "rank 0");
}

// Each call with a lost rank, in a world of its own.
template <class Arguments>
void check_lost_ranks(const std::vector<const LayerCall<Arguments>*>& calls) {
  for (const LayerCall<Arguments>* call : calls) {
    nxd_test_run_ranks(
        kSlipRanks, kSlipRanks,
        [](nxd_context_t* ctx, int rank, int, void* user_data) {
          check_lost(ctx, rank, *static_cast<const LayerCall<Arguments>*>(user_data));
        },
        const_cast<LayerCall<Arguments>*>(call));
  }
}

}  // namespace nxd_test
