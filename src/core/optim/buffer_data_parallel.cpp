#include "core/optim/buffer_data_parallel.h"

#include <unordered_set>
#include <utility>

#include "core/base/exchange_record.h"
#include "core/base/hash.h"
#include "core/world/trained_axes.h"

namespace nxd {
namespace {

std::shared_ptr<ProcessGroup> default_group(const Context& context) {
  const auto layout = context.find_parallel();
  return layout ? layout->group(NXD_AXIS_DATA) : context.world();
}

// All that ranks of a stage must have alike.
uint32_t digest_of(const ParameterSource& source, const std::vector<ParameterPlacement>& placements,
                   const int32_t* tied) {
  Hash hash;
  for (size_t i = 0; i < placements.size(); ++i) {
    const ParameterPlacement& placement = placements[i];
    hash.add(source.info(i).name).add(placement.partial_grad ? uint64_t{1} : uint64_t{2});
    hash.add(static_cast<uint64_t>(placement.shard.dim() + 1))
        .add(static_cast<uint64_t>(placement.ranks_alike))
        .add(static_cast<uint64_t>(placement.shard.ranges().size()))
        .add(static_cast<uint64_t>(source.info(i).dtype));
    for (const int64_t size : placement.shard.shape()) hash.add(static_cast<uint64_t>(size));
    // Paddings of different sizes have the same whole.
    for (const int64_t size : placement.shard.local_shape()) hash.add(static_cast<uint64_t>(size));
    hash.add(tied && tied[i] ? uint64_t{1} : uint64_t{2});
  }
  return hash.folded();
}

// The names of all stages' parameters. Stages that have one name twice, of which neither is tied,
// would share a state.
std::vector<std::string> gather_names(ProcessGroup* pipeline, const ParameterSource& source,
                                      const int32_t* tied) {
  RecordWriter own;
  for (size_t i = 0; i < source.size(); ++i) {
    own.string(source.info(i).name);
    own.number(tied && tied[i] ? 1 : 0);
  }
  std::vector<std::string> all;
  std::unordered_set<std::string> met, owned;
  for (const std::string& bytes : gather_texts(pipeline, own.take(), {})) {
    RecordReader names(bytes);
    while (!names.done()) {
      const std::string name = names.string();
      const bool is_tied = names.number() != 0;
      check_argument(is_tied || owned.insert(name).second,
                     "names: expected different names in all pipeline ",
                     "stages but for tied parameters, got \"", name, "\" again");
      if (met.insert(name).second) all.push_back(name);
    }
  }
  return all;
}

}  // namespace

BufferDataParallel::BufferDataParallel(std::shared_ptr<Context> context,
                                       std::shared_ptr<ProcessGroup> group,
                                       const char* const* names, DLTensor* const* params,
                                       DLTensor* const* grads, size_t n,
                                       const DataParallelOptions& options, const Outcome& resolved)
    : context_(context) {
  context->check_usable();
  if (!group) {
    check_trained_axes(*context, "a ddp over buffers without a group of its own");
    group = default_group(*context);
  }
  Proposal proposal(context->rank());
  proposal.attempt([&] {
    parameters_ = std::make_shared<BufferParameters>(context, group, names, params, grads, n);
  });
  proposal.attempt([&] { resolved.rethrow(); });
  agree_on_options(*group, options, proposal);
  source_ = parameters_;
  make_parts(options, /*gradient_views=*/false, /*value_views=*/false);
  broadcast_values(options);
}

void BufferDataParallel::check_sync() const {
  check_state(sync(), "nxd_ddp_set_sync is off: gradients add up, and none is complete");
}

void BufferDataParallel::mark_ready(size_t index) {
  check_sync();
  reducer_->mark_ready(index);
}

void BufferDataParallel::mark_unused(size_t index) {
  check_sync();
  reducer_->mark_unused(index);
}

void BufferDataParallel::check_group(const OptimizerGroups& groups) const {
  const ProcessGroup& own = *parameters_->groups().data;
  check_argument(own.ranks() == groups.data->ranks(), "ddp: expected one over the data-parallel ",
                 "group, got one over group ", own.name());
}

void BufferDataParallel::set_placements(const nxd_placement_t* placements, const int32_t* dims,
                                        const int32_t* tied, size_t n) {
  place("ddp_set_placements", tied, [&](const ProcessGroup& tensor) {
    return parameters_->placements(tensor, placements, dims, tied, n);
  });
}

void BufferDataParallel::set_shards(const std::vector<ShardOptions>& shards,
                                    const Outcome& resolved, const int32_t* partial_grads,
                                    const int32_t* tied, size_t n) {
  place("ddp_set_shards", tied, [&](const ProcessGroup& tensor) {
    resolved.rethrow();
    return parameters_->placements(tensor, shards, partial_grads, tied, n);
  });
}

void BufferDataParallel::place(const char* operation, const int32_t* tied,
                               const MakePlacements& make) {
  context_->check_usable();
  check_trained_axes(*context_, "a ddp over buffers");
  const auto layout = context_->parallel();  // which fails without one
  const OptimizerGroups groups = groups_of_layout(*context_, layout.get());
  Proposal proposal(context_->rank(), operation);
  std::vector<ParameterPlacement> found;
  uint32_t digest = 0;
  proposal.attempt([&] {
    check_state(!reducer_->under_way(), "gradients are marked; place parameters before");
    check_group(groups);
    found = make(*groups.tensor);
    digest = digest_of(*parameters_, found, tied);
  });
  proposal.same_within(groups.pipeline->rank(), groups.pipeline->size(),
                       "names, shapes and placements of the stage's parameters", digest,
                       Proposal::Kind::kDigest);
  agree(groups.all(), proposal);
  std::vector<std::string> names = gather_names(groups.pipeline.get(), *parameters_, tied);
  parameters_->place(std::move(found), groups, std::move(names));
}

void BufferDataParallel::rebind(size_t index, const DLTensor* param, const DLTensor* grad) {
  check_argument(index < parameters_->size(), "index: expected less than ", parameters_->size(),
                 " parameters, got ", index);
  check_state(!reducer_->uses(index), "parameter ", parameters_->info(index).name,
              ": its gradient was marked in this step, and its reduction is under way, which uses "
              "the buffers; rebind before nxd_ddp_mark_ready, or after nxd_ddp_finish or "
              "nxd_optimizer_step");
  parameters_->rebind(index, param, grad);
}

}  // namespace nxd
