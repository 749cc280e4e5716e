#include "engine/layers/parallel_embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/embedding.h"
#include "core/tensor_parallel/vocab_parallel_embedding.h"
#include "engine/autograd/deferred_gradients.h"
#include "engine/autograd/gradients.h"
#include "engine/device/kernel_call.h"
#include "engine/layers/layer_support.h"
#include "engine/ops/collectives.h"
#include "engine/ops/compute.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The rows to look up, and the way in which the ranks' results are put together.
struct EmbeddingPlan : torch::CustomClassHolder {
  enum class Sum {
    kNone,      // this rank's rows
    kRanks,     // the sum over the group; every rank has all of it
    kScattered  // this rank's part, along dim, of the sum
  };
  GroupRef group;
  Sum sum = Sum::kNone;
  int64_t dim = 0;
  int64_t first = 0;  // id of the table's first row
  int64_t padding_idx = -1;
  uint64_t key = 0;  // of the ids, which all ranks have alike
  bool fused = false;

  // Core's embedding takes it.
  bool has_memory(const at::Tensor& table) const { return fused && table.is_cpu(); }
};

VocabEmbeddingOptions options_of(const EmbeddingPlan& plan) {
  VocabEmbeddingOptions options;
  if (plan.padding_idx >= 0) options.padding_idx = plan.padding_idx;
  options.sequence_parallel = plan.sum == EmbeddingPlan::Sum::kScattered;
  options.sequence_dim = plan.dim;
  options.exchanges = plan.sum != EmbeddingPlan::Sum::kNone;
  options.key = plan.key;
  return options;
}

// ---- By operators of tensors: on those without memory of their own, recorded or traced ones, with
// plain kernels, and in f64. Where graphs are replayed a recorded lookup is one node.

// Takes ids and a table whose first row is of the id first; gives their rows, zeros for other ids.
struct LookUpRows {
  static constexpr const char* kName = "nxd::embedding";
  int64_t first;

  KernelParameters parameters() const { return {{"first", first}}; }
  variable_list results(const variable_list& in) const {
    return {kernel_result(sizes(in), in[1].scalar_type())};
  }
  variable_list run(const variable_list& in) const {
    const at::Tensor ids = in[0].contiguous(), table = in[1].contiguous();
    const at::Tensor y = pooled_empty(sizes(in), table.scalar_type());
    kernels::embedding_forward(to_nxd_dtype(table.scalar_type()), ids.numel(), table.size(1),
                               ids.data_ptr<int64_t>(), first, table.size(0), table.data_ptr(),
                               y.data_ptr());
    return {y};
  }
  static std::vector<int64_t> sizes(const variable_list& in) {
    std::vector<int64_t> sizes = in[0].sizes().vec();
    sizes.push_back(in[1].size(1));
    return sizes;
  }
};

// Takes ids, a table and the gradient of the rows; gives for each row of the table the sum over the
// places where its id is.
struct SumRows {
  static constexpr const char* kName = "nxd::embedding_backward";
  int64_t first;

  KernelParameters parameters() const { return {{"first", first}}; }
  variable_list results(const variable_list& in) const { return {kernel_result_like(in[1])}; }
  variable_list run(const variable_list& in) const {
    const at::Tensor& table = in[1];
    const at::Tensor ids = in[0].contiguous(), dy = in[2].contiguous();
    const at::ScalarType dtype = table.scalar_type(), wide = partial_sum_dtype(dtype);
    at::Tensor sums = pooled_empty(table.sizes(), wide).zero_();
    kernels::embedding_backward(to_nxd_dtype(dy.scalar_type()), ids.numel(), table.size(1),
                                ids.data_ptr<int64_t>(), first, table.size(0), dy.data_ptr(),
                                sums.data_ptr());
    return {wide == dtype ? sums : pooled_empty(table.sizes(), dtype).copy_(sums)};
  }
};

// Rows of the ids first ... first + rows, zeros for other ids.
at::Tensor reference_rows(const EmbeddingPlan& plan, const at::Tensor& ids,
                          const at::Tensor& table) {
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  if (table.is_meta() || is_tracing()) {
    return at::empty(sizes, table.options().device(at::kMeta));
  }
  if (plan.fused) return call_kernel(LookUpRows{plan.first}, {ids, table})[0];
  const at::Tensor local = ids - plan.first;
  const at::Tensor held = local.ge(0).logical_and(local.lt(table.size(0)));
  const at::Tensor rows = table.index_select(0, (local * held).reshape({-1}));
  // No view: libtorch lets none that a custom function gives be written to.
  return at::_unsafe_view(rows.masked_fill(held.logical_not().reshape({-1, 1}), 0), sizes);
}

at::Tensor reference_lookup(const EmbeddingPlan& plan, const at::Tensor& ids,
                            const at::Tensor& table) {
  at::Tensor y = reference_rows(plan, ids, table);
  if (plan.sum == EmbeddingPlan::Sum::kScattered) {
    return reduce_scatter(*plan.group, y, plan.dim, plan.key);
  }
  if (plan.sum == EmbeddingPlan::Sum::kRanks) {
    all_reduce_in_place(*plan.group, y, NXD_REDUCE_SUM, plan.key);
  }
  return y;
}

// The gradient of the table: of each row the sum over the places where its id is.
at::Tensor reference_gradient(const EmbeddingPlan& plan, const at::Tensor& given_ids,
                              const at::Tensor& table, const at::Tensor& dy) {
  // The padding row gets no gradient: its id becomes one that no rank holds.
  const at::Tensor ids =
      plan.padding_idx < 0 ? given_ids : given_ids.masked_fill(given_ids.eq(plan.padding_idx), -1);
  if (plan.fused) {
    const at::Tensor rows = dy.reshape({-1, table.size(1)}).contiguous();
    return call_kernel(SumRows{plan.first}, {ids, table, rows})[0];
  }
  const at::ScalarType wide = partial_sum_dtype(table.scalar_type());
  const at::Tensor zeros = at::zeros(table.sizes(), table.options().dtype(wide));
  const at::Tensor local = (ids - plan.first).reshape({-1});
  const at::Tensor held = local.ge(0).logical_and(local.lt(table.size(0)));
  const at::Tensor rows = dy.reshape({-1, table.size(1)}).to(wide);
  if (given_ids.numel() == 0) return zeros.to(table.scalar_type());
  // Not in place: autograd keeps a gradient as a view, and in libtorch 2 a new view of a recorded
  // tensor that was written to is made again when it is read, by a graph of its own.
  const at::Tensor own = rows.masked_fill(held.logical_not().unsqueeze(1), 0);
  return zeros.index_add(0, local * held, own).to(table.scalar_type());
}

// ---- On tensors with memory, by core's embedding. The ids have been checked, on all ranks.

at::Tensor lookup(const EmbeddingPlan& plan, const at::Tensor& ids, const at::Tensor& table) {
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  const at::ScalarType dtype = table.scalar_type();
  if (plan.sum == EmbeddingPlan::Sum::kScattered) {
    int64_t& size = sizes[static_cast<size_t>(plan.dim)];
    check_divides(*plan.group, "reduce_scatter", size, plan.dim);
    size /= plan.group->size();
  }
  at::Tensor y = plan.sum == EmbeddingPlan::Sum::kRanks ? exchanged_empty(*plan.group, sizes, dtype)
                                                        : pooled_empty(sizes, dtype);
  run_alike(*plan.group, "embedding",
            VocabEmbeddingForward(*plan.group, {array_of(ids), array_of(table), array_of(y)},
                                  options_of(plan)));
  return y;
}

// The gradient by itself, even where there is a sum that it will be added to: added row by row it
// would round as no pass does that forms both at once.
at::Tensor gradient(const EmbeddingPlan& plan, const at::Tensor& ids, const at::Tensor& table,
                    const at::Tensor& dy) {
  at::Tensor dtable = pooled_empty(table.sizes(), table.scalar_type());
  run_alike(*plan.group, "embedding",
            VocabEmbeddingBackward(*plan.group, {array_of(ids), array_of(dtable), array_of(dy)},
                                   options_of(plan)));
  return dtable;
}

// Rows of a table, summed over the ranks that have parts of it. Each element has one rank that
// contributes more than zero, so the sum is exact in any dtype.
struct Lookup : torch::autograd::Function<Lookup> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& table,
                            const c10::intrusive_ptr<EmbeddingPlan>& plan) {
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->save_for_backward({ids, table});
    return with_key_of("the ids", [&] {
      return plan->has_memory(table) ? lookup(*plan, ids, table)
                                     : reference_lookup(*plan, ids, table);
    });
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &ids = saved[0], &table = saved[1];
    const auto plan =
        c10::static_intrusive_pointer_cast<EmbeddingPlan>(ctx->saved_data["plan"].toCapsule());
    if (plan->group->size() > 1 || plan->has_memory(table)) check_unrecorded_pass("embedding");
    if (plan->has_memory(table)) {
      const at::Tensor& dy = grads[0];
      const at::Tensor dtable = weight_gradient(table, [plan, ids, table, dy](const at::Tensor&) {
        return gradient(*plan, ids, table, dy);
      });
      return {at::Tensor(), dtable, at::Tensor()};
    }
    const at::Tensor dy = plan->sum == EmbeddingPlan::Sum::kScattered
                              ? all_gather(*plan->group, grads[0], plan->dim)
                              : grads[0];
    const at::Tensor dtable = weight_gradient(table, [plan, ids, table, dy](const at::Tensor&) {
      return reference_gradient(*plan, ids, table, dy);
    });
    return {at::Tensor(), dtable, at::Tensor()};
  }
};

// The dimension of the output that ranks have parts of; fails on all ranks where it has no parts.
int64_t scattered_dim(ProcessGroup& group, const at::Tensor& ids, int64_t given) {
  constexpr const char* kScatter = "reduce_scatter";
  const int64_t dim = check_dim(group, kScatter, ids.unsqueeze(-1), given);
  check_with_group(group, dim < ids.dim(), "ParallelEmbedding",
                   "sequence_dim: expected a dimension of the ids, which have ", ids.dim(),
                   ", got ", given);
  check_divides(group, kScatter, ids.size(dim), dim);
  return dim;
}

}  // namespace

ParallelEmbedding::ParallelEmbedding(const LayerContext& at, int64_t num_embeddings,
                                     int64_t embedding_dim, const EmbeddingOptions& options)
    : Module(at.context, "ParallelEmbedding"),
      group_(at.group()),
      num_embeddings_(num_embeddings),
      embedding_dim_(embedding_dim),
      padding_idx_(options.padding_idx.value_or(-1)),
      shard_columns_(options.shard_columns),
      sequence_parallel_(at.sequence_parallel),
      sequence_dim_(options.sequence_dim) {
  check_argument(num_embeddings > 0, "num_embeddings: expected a positive number, got ",
                 num_embeddings);
  check_argument(embedding_dim > 0, "embedding_dim: expected a positive number, got ",
                 embedding_dim);
  check_argument(!options.padding_idx || (padding_idx_ >= 0 && padding_idx_ < num_embeddings),
                 "padding_idx: expected 0 to ", num_embeddings - 1, ", got ", padding_idx_);
  note_options(padding_idx_);
  Initializer init = at.init.resolve(Initializer::normal(0, 1), num_embeddings);
  init.zero_row = padding_idx_;
  const ShardSpec::Shape shape{num_embeddings, embedding_dim};
  make_parameter(
      *this, at, "weight",
      options.pad_rows && !shard_columns_
          ? vocabulary_shard(shape, *group_)
          : ShardSpec::split(shape, shard_columns_ ? 1 : 0, group_->rank(), group_->size()),
      init);
}

Module::Tensors ParallelEmbedding::forward(const Tensors& inputs, size_t n_outputs) {
  check_arity(inputs, n_outputs, 1, 1, 1, group_.get());
  const at::Tensor table = parameter_value("weight");
  check_with_group(*group_, inputs[0].scalar_type() == at::kLong, "ParallelEmbedding",
                   "input: expected ids of dtype i64, got ", dtype_text(inputs[0].scalar_type()));
  const at::Tensor ids = inputs[0].contiguous();
  check_device(*group_, class_name(), ids, table);
  check_ids_below(group_, "ParallelEmbedding", "input: expected ids from", ids, num_embeddings_);
  auto plan = c10::make_intrusive<EmbeddingPlan>();
  plan->group = group_;
  plan->fused = use_fused(*context(), table);
  plan->padding_idx = padding_idx_;
  if (sequence_parallel_) plan->dim = scattered_dim(*group_, ids, sequence_dim_);
  if (shard_columns_) {
    const at::Tensor y = with_key_of("the ids", [&] {
      return gather_from_region(group_, Lookup::apply(ids, table, plan), -1, key_of(*group_, ids));
    });
    return {sequence_parallel_ ? scatter_to_region(group_, y, plan->dim) : y};
  }
  plan->first = table.size(0) * group_->rank();
  if (group_->size() > 1) {
    plan->sum = sequence_parallel_ ? EmbeddingPlan::Sum::kScattered : EmbeddingPlan::Sum::kRanks;
    plan->key = key_of(*group_, ids);
  }
  return {Lookup::apply(ids, table, plan)};
}

}  // namespace nxd
