#include "core/pipeline/pipeline.h"

#include "core/agree/agree.h"
#include "core/pipeline/timeline_file.h"

namespace nxd {
namespace {

void reject_on(ProcessGroup& group, const char* operation, const char* reason) noexcept {
  try {
    if (group.size() > 1) group.reject(Call::named(operation), reason);
  } catch (...) {
    // The call fails here as it does on the peers, and the caller has a reason already.
  }
}

std::shared_ptr<ProcessGroup> group_for_losses(Context& context, bool share_loss) {
  const auto group = context.parallel()->group(NXD_AXIS_DATA);
  return share_loss && group->size() > 1 ? context.shared_group(group->ranks(), "losses") : group;
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<Context> context, std::shared_ptr<PipelineStages> stages,
                   std::shared_ptr<const Schedule> schedule, bool share_loss)
    : context_(std::move(context)),
      group_(context_->parallel()->group(NXD_AXIS_PIPELINE)),
      data_(group_for_losses(*context_, share_loss)),
      schedule_(std::move(schedule)),
      share_loss_(share_loss),
      runner_(context_, std::move(stages), schedule_, share_loss) {}

bool Pipeline::has_loss() const { return group_->rank() + 1 == group_->size(); }

double Pipeline::run(bool training, const std::function<double()>& own_loss, nxd_reduce_t reduce) {
  double loss = 0;
  try {
    runner_.run(training);
    if (has_loss()) loss = own_loss();
  } catch (const std::exception& e) {
    if (share_loss_) reject_sharing(e.what());
    throw;
  }
  return share_loss_ ? share(loss, reduce) : loss;
}

std::vector<bool> Pipeline::agree_on_run(const Proposal& proposal) {
  runner_.check_idle();
  context_->check_usable();
  return agree({group_.get()}, proposal);
}

double Pipeline::share(double loss, nxd_reduce_t reduce) {
  if (has_loss() && data_->size() > 1) {
    try {
      data_->run(Call::all_reduce(&loss, &loss, 1, NXD_DTYPE_F64, reduce));
    } catch (const Error& e) {
      reject_on(*group_, "broadcast", e.what());
      throw;
    }
  }
  if (group_->size() > 1) group_->run(Call::broadcast(&loss, 1, NXD_DTYPE_F64, group_->size() - 1));
  return loss;
}

void Pipeline::reject_loss(const char* reason) const noexcept {
  if (share_loss_ && has_loss()) reject_on(*data_, "all_reduce", reason);
}

void Pipeline::reject_sharing(const char* reason) noexcept {
  if (has_loss()) reject_on(*data_, "all_reduce", reason);
  reject_on(*group_, "broadcast", reason);
}

void Pipeline::set_timeline(bool on) {
  auto timeline = on ? std::make_shared<Timeline>() : timeline_;
  runner_.set_timeline(on ? timeline : nullptr);
  timeline_ = std::move(timeline);
}

void Pipeline::write_timeline(const char* path) {
  nxd::write_timeline(*context_->world(), *group_, timeline_.get(), path);
}

}  // namespace nxd
