#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/comm/process_group.h"
#include "core/world/context.h"
#include "engine/tensor/call_tracer.h"

// Collectives over tensors, without autograd. Unless said otherwise results are new tensors in C
// order, and inputs are left unchanged. A tensor on the meta device gives a result of the right
// shape and no communication, and so does any tensor while this thread is tracing. On the recorded
// device a collective is recorded: it runs with the graph, in the order of the calls, also where
// its result is dropped, since other ranks wait for it.
namespace nxd {

// A key other than 0 is compared among the ranks before data move, unless the call is recorded.
at::Tensor all_reduce(ProcessGroup& group, const at::Tensor& x,
                      nxd_reduce_t reduce = NXD_REDUCE_SUM, uint64_t key = 0);
// The same into x itself, or a dense copy of it; fastest for a tensor of exchanged_empty.
void all_reduce_in_place(ProcessGroup& group, at::Tensor& x, nxd_reduce_t reduce = NXD_REDUCE_SUM,
                         uint64_t key = 0);
// All ranks' parts in rank order along dim.
at::Tensor all_gather(ProcessGroup& group, const at::Tensor& x, int64_t dim, uint64_t key = 0);
// This rank's part along dim of the sum; dim must divide by the group's size. Fastest for a tensor
// of exchanged_empty.
at::Tensor reduce_scatter(ProcessGroup& group, const at::Tensor& x, int64_t dim, uint64_t key = 0);
// This rank's part along dim; no communication.
at::Tensor split(ProcessGroup& group, const at::Tensor& x, int64_t dim);

// Runs what this thread has recorded: a call of this name is about to reach the group outside of
// the graph, and comes after the collectives in it.
void run_recorded_before(const char* operation);

[[noreturn]] void fail_with_group(ProcessGroup& group, const char* operation,
                                  const std::string& message);
// Checks an argument on which the ranks of a group may differ: a rank whose own check fails tells
// its peers, which then fail too instead of waiting for it. To be called where a collective is due.
template <class... Parts>
void check_with_group(ProcessGroup& group, bool holds, const char* operation,
                      const Parts&... parts) {
  if (!holds) fail_with_group(group, operation, text(parts...));
}

// The same for checks that throw: checks() communicates nothing itself.
template <class Checks>
auto check_with_group(ProcessGroup& group, const char* operation, Checks&& checks) {
  try {
    return checks();
  } catch (const Error& error) {
    const bool is_argument = error.status() == NXD_ERROR_INVALID_ARGUMENT;
    const bool is_of_caller = is_argument || error.status() == NXD_ERROR_ABI_MISMATCH ||
                              error.status() == NXD_ERROR_UNSUPPORTED ||
                              error.status() == NXD_ERROR_INVALID_STATE;
    if (group.size() > 1 && !is_tracing() && is_of_caller) {
      run_recorded_before(operation);
      try {
        group.reject(Call::named(operation), error.what());
      } catch (const Error&) {
        if (is_argument) throw;  // with the call and the group
      }
    }
    throw;
  }
}

// The same in the context's tensor-parallel group, where there is one.
template <class Checks>
auto check_with_peers(const Context& context, const char* operation, Checks&& checks) {
  const auto layout = context.find_parallel();
  if (!layout) return checks();
  return check_with_group(*layout->group(NXD_AXIS_TENSOR), operation, checks);
}

// Has a check of a tensor's values made: now, or on the recorded device in its place among the
// graph's collectives. Not at all where there are no values. find_failure gives why values are not
// taken, or an empty text. The peers of the group are told; null: all ranks find the same. name is
// that of the graph's node.
using FindFailure = std::function<std::string(const at::Tensor& values)>;
void check_values(const std::shared_ptr<ProcessGroup>& group, const std::string& operation,
                  const char* name, const at::Tensor& x, FindFailure find_failure);

// A key of ids or labels, dense and i64, that all ranks of a group must have alike: a digest of
// them, after `others`. 0, which is none, where there is nobody to compare with, or no values.
uint64_t key_of(const ProcessGroup& group, const at::Tensor& ids, Hash others = {});
// Makes a call with such a key: an error says what the key is of.
template <class Function>
auto with_key_of(const char* what, Function&& call) {
  try {
    return call();
  } catch (const Error& error) {
    const bool tells_keys =
        std::string_view(error.what()).find(" with key ") != std::string_view::npos;
    if (error.status() != NXD_ERROR_INVALID_ARGUMENT || !tells_keys) throw;
    throw Error(error.status(), text(error.what(), "; a key is the digest of ", what),
                error.context());
  }
}

// INVALID_ARGUMENT, on all ranks, for a size of the dimension that does not divide by the ranks.
void check_divides(ProcessGroup& group, const char* operation, int64_t size, int64_t dim);

// dim counted from the end when negative; INVALID_ARGUMENT, on all ranks, when out of range.
int64_t check_dim(ProcessGroup& group, const char* operation, const at::Tensor& x, int64_t dim);

}  // namespace nxd
