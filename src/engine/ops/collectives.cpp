#include "engine/ops/collectives.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/device/device_tensor.h"
#include "engine/device/recorder.h"
#include "engine/ops/part_at.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using ExchangeKind = RecordedExchange::Kind;

// While tracing, what ranks would exchange is not known, even where this rank's part is.
bool gives_shapes_only(const at::Tensor& x) { return x.is_meta() || is_tracing(); }

at::Tensor meta_empty(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().device(at::kMeta));
}

at::Tensor empty_for(const at::Tensor& x, at::IntArrayRef sizes) {
  return gives_shapes_only(x) ? meta_empty(x, sizes) : pooled_empty(sizes, x.scalar_type());
}

// Records a collective that gives a tensor of these sizes. run gets its input's values when the
// graph runs.
at::Tensor record_collective(const char* name, RecordedExchange exchange, const at::Tensor& x,
                             at::IntArrayRef sizes, const std::string& arguments,
                             at::Tensor (*run)(ProcessGroup& group, const at::Tensor& x,
                                               int64_t argument),
                             int64_t argument) {
  RecordedCall call{name};
  call.attributes = text("group ", exchange.group->name(), arguments, argument);
  call.is_effect = true;
  call.results = {meta_empty(x, sizes)};
  call.function = [group = exchange.group, run, argument](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{run(*group, in[0], argument)};
  };
  call.exchanges.push_back(std::move(exchange));
  return record_call(std::move(call), {x})[0];
}

// x's sizes with ranks put in front.
std::vector<int64_t> stacked_sizes(const at::Tensor& x, int ranks) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  return sizes;
}

// That of the elements that ranks exchange. A tensor that none can exchange fails on all of them.
nxd_dtype_t dtype_of_exchange(ProcessGroup& group, const char* operation, const at::Tensor& x) {
  return check_with_group(group, operation, [&] {
    check_argument(x.layout() == at::kStrided, operation, ": expected a dense tensor, got one of ",
                   x.layout());
    return to_nxd_dtype(x.scalar_type());
  });
}

}  // namespace

void fail_with_group(ProcessGroup& group, const char* operation, const std::string& message) {
  const std::string full = text(operation, ": ", message);
  if (!is_tracing()) {
    run_recorded_before(operation);
    group.reject(Call::named(operation), message);
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, full);
}

void check_divides(ProcessGroup& group, const char* operation, int64_t size, int64_t dim) {
  check_with_group(group, size % group.size() == 0, operation, "dimension ", dim, " of size ", size,
                   " does not divide by the ", group.size(), " ranks of group ", group.name());
}

int64_t check_dim(ProcessGroup& group, const char* operation, const at::Tensor& x, int64_t dim) {
  const int64_t positive = dim < 0 ? dim + x.dim() : dim;
  check_with_group(group, positive >= 0 && positive < x.dim(), operation,
                   "dim: expected a dimension of a tensor with ", x.dim(), " dimensions, got ",
                   dim);
  return positive;
}

void run_recorded_before(const char* operation) {
  if (Recording* recording = Recording::existing()) recording->sync(operation);
}

void check_values(const std::shared_ptr<ProcessGroup>& group, const std::string& operation,
                  const char* name, const at::Tensor& x, FindFailure find_failure) {
  if (x.is_meta()) return;
  const auto check = [operation, find_failure = std::move(find_failure)](ProcessGroup* peers,
                                                                         const at::Tensor& values) {
    const std::string failure = find_failure(values);
    if (peers) check_with_group(*peers, failure.empty(), operation.c_str(), failure);
    check_argument(failure.empty(), operation, ": ", failure);
  };
  if (!is_recorded(x)) return check(group.get(), x);
  RecordedCall call{name};
  if (!group) call.attributes = kSameOnAllRanks;
  call.is_effect = true;
  call.function = [check, group](const std::vector<at::Tensor>& in) {
    check(group.get(), in[0]);
    return std::vector<at::Tensor>();
  };
  call.check = [check](const at::Tensor& values) { check(nullptr, values); };
  record_call(std::move(call), {x});
}

uint64_t key_of(const ProcessGroup& group, const at::Tensor& ids, Hash others) {
  if (group.size() == 1 || !ids.is_cpu() || is_tracing()) return 0;
  const int64_t* const values = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) others.add(static_cast<uint64_t>(values[i]));
  return others.value();
}

at::Tensor all_reduce(ProcessGroup& group, const at::Tensor& x, nxd_reduce_t reduce, uint64_t key) {
  if (is_recorded(x) && !is_tracing()) {
    const auto run = [](ProcessGroup& g, const at::Tensor& values, int64_t kind) {
      return all_reduce(g, values, static_cast<nxd_reduce_t>(kind));
    };
    const auto exchange = exchange_over(group.shared_from_this(), ExchangeKind::kAllReduce, reduce);
    return record_collective("nxd::all_reduce", exchange, x, x.sizes(), ", reduce ", run, reduce);
  }
  if (gives_shapes_only(x)) return empty_for(x, x.sizes());
  const nxd_dtype_t dtype = dtype_of_exchange(group, "all_reduce", x);
  const at::Tensor y = empty_for(x, x.sizes()), dense = x.contiguous();
  Call call = Call::all_reduce(dense.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()),
                               dtype, reduce);
  call.key = key;
  group.run(call);
  return y;
}

void all_reduce_in_place(ProcessGroup& group, at::Tensor& x, nxd_reduce_t reduce, uint64_t key) {
  if (gives_shapes_only(x)) {
    if (!x.is_meta()) x = meta_empty(x, x.sizes());
    return;
  }
  if (is_recorded(x)) {
    x = all_reduce(group, x, reduce);
    return;
  }
  const nxd_dtype_t dtype = dtype_of_exchange(group, "all_reduce", x);
  if (!x.is_contiguous()) x = x.contiguous();
  Call call =
      Call::all_reduce(x.data_ptr(), x.data_ptr(), static_cast<size_t>(x.numel()), dtype, reduce);
  call.key = key;
  group.run(call);
}

at::Tensor all_gather(ProcessGroup& group, const at::Tensor& x, int64_t dim, uint64_t key) {
  if (is_recorded(x) && !is_tracing()) {
    std::vector<int64_t> whole = x.sizes().vec();
    whole[static_cast<size_t>(dim)] *= group.size();
    const auto exchange =
        exchange_over(group.shared_from_this(), ExchangeKind::kAllGather, NXD_REDUCE_SUM, dim);
    const auto run = [](ProcessGroup& g, const at::Tensor& values, int64_t along) {
      return all_gather(g, values, along);
    };
    return record_collective("nxd::all_gather", exchange, x, whole, ", dim ", run, dim);
  }
  const std::vector<int64_t> all = stacked_sizes(x, group.size());
  const bool shapes_only = gives_shapes_only(x);
  const nxd_dtype_t dtype =
      shapes_only ? NXD_DTYPE_INVALID : dtype_of_exchange(group, "all_gather", x);
  at::Tensor stacked =
      shapes_only ? meta_empty(x, all) : exchanged_empty(group, all, x.scalar_type());
  if (!shapes_only) {
    // The peers take this rank's part out of its own result.
    at::Tensor own = stacked.select(0, group.rank());
    own.copy_(x);
    Call call =
        Call::all_gather(own.data_ptr(), stacked.data_ptr(), static_cast<size_t>(x.numel()), dtype);
    call.key = key;
    group.run(call);
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  const auto at_dim = static_cast<size_t>(dim);
  sizes[at_dim] *= group.size();
  if (dim == 0) return stacked.view(sizes);
  at::Tensor y = empty_for(x, sizes);
  // [..., ranks, part, ...] is the result's memory, seen with the ranks apart.
  std::vector<int64_t> apart = x.sizes().vec();
  apart.insert(apart.begin() + dim, group.size());
  y.view(apart).copy_(stacked.movedim(0, dim));
  return y;
}

at::Tensor reduce_scatter(ProcessGroup& group, const at::Tensor& x, int64_t dim, uint64_t key) {
  check_divides(group, "reduce_scatter", x.size(dim), dim);
  std::vector<int64_t> sizes = x.sizes().vec();
  const auto at_dim = static_cast<size_t>(dim);
  sizes[at_dim] /= group.size();
  if (is_recorded(x) && !is_tracing()) {
    const auto exchange =
        exchange_over(group.shared_from_this(), ExchangeKind::kReduceScatter, NXD_REDUCE_SUM, dim);
    const auto run = [](ProcessGroup& g, const at::Tensor& values, int64_t along) {
      return reduce_scatter(g, values, along);
    };
    return record_collective("nxd::reduce_scatter", exchange, x, sizes, ", dim ", run, dim);
  }
  if (gives_shapes_only(x)) return empty_for(x, sizes);
  const nxd_dtype_t dtype = dtype_of_exchange(group, "reduce_scatter", x);
  at::Tensor y = empty_for(x, sizes), stacked = x.contiguous();
  if (dim != 0) {
    std::vector<int64_t> apart = sizes;
    apart.insert(apart.begin() + dim, group.size());
    at::Tensor front = exchanged_empty(group, stacked_sizes(y, group.size()), x.scalar_type());
    front.copy_(stacked.view(apart).movedim(dim, 0));
    stacked = front;
  }
  Call call = Call::reduce_scatter(stacked.data_ptr(), y.data_ptr(), static_cast<size_t>(y.numel()),
                                   dtype, NXD_REDUCE_SUM);
  call.key = key;
  group.run(call);
  return y;
}

at::Tensor split(ProcessGroup& group, const at::Tensor& x, int64_t dim) {
  check_argument(x.size(dim) % group.size() == 0, "scatter: dimension ", dim, " of size ",
                 x.size(dim), " does not divide by the ", group.size(), " ranks of group ",
                 group.name());
  const int64_t part = x.size(dim) / group.size();
  if (is_recorded(x) && !is_tracing()) {
    return device_tensor(record_part_at(value_of(x), dim, group.rank(), part));
  }
  const at::Tensor mine = x.narrow(dim, group.rank() * part, part);
  if (gives_shapes_only(x)) return mine.contiguous();
  at::Tensor y = pooled_empty(mine.sizes(), x.scalar_type());
  y.copy_(mine);
  return y;
}

}  // namespace nxd
