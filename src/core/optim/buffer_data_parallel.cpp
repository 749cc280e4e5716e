#include "core/optim/buffer_data_parallel.h"

#include <utility>

#include "core/world/trained_axes.h"

namespace nxd {
namespace {

std::shared_ptr<ProcessGroup> default_group(const Context& context) {
  return context.model_parallel_is_initialized() ? context.parallel().group(NXD_AXIS_DATA)
                                                 : context.world();
}

}  // namespace

BufferDataParallel::BufferDataParallel(std::shared_ptr<Context> context,
                                       std::shared_ptr<ProcessGroup> group,
                                       const char* const* names, DLTensor* const* params,
                                       DLTensor* const* grads, size_t n,
                                       const DataParallelOptions& options,
                                       const Outcome& resolved) {
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
  make_parts(options, /*bucket_views=*/false);
  broadcast_values(options);
}

void BufferDataParallel::check_sync() const {
  check_state(sync_, "nxd_ddp_set_sync is off: gradients add up, and none is complete");
}

void BufferDataParallel::mark_ready(size_t index) {
  check_sync();
  reducer_->mark_ready(index);
}

void BufferDataParallel::mark_unused(size_t index) {
  check_sync();
  reducer_->mark_unused(index);
}

void BufferDataParallel::rebind(size_t index, const DLTensor* param, const DLTensor* grad) {
  check_state(!reducer_->under_way(),
              "a reduction is under way, which uses the buffers; rebind after nxd_ddp_finish or "
              "nxd_optimizer_step");
  parameters_->rebind(index, param, grad);
}

}  // namespace nxd
