#include "core/world/context.h"

#include <utility>

#include "core/agree/agree.h"
#include "core/base/device_variables.h"
#include "core/base/environment.h"
#include "core/base/hash.h"
#include "core/base/kept_by_process.h"
#include "core/world/world.h"

namespace nxd {
namespace {

const char* axis_name(nxd_axis_t axis) {
  static const char* const names[] = {"world",   "tensor",       "pipeline",   "data",
                                      "context", "expert_model", "expert_data"};
  return names[axis];
}

void add_layout(Proposal& proposal, const ParallelOptions& o, int world_size) {
  const auto add = [&](const char* name, int value) {
    proposal.same(text("nxd_init_model_parallel: ", name), value);
  };
  add("tensor_parallel_size", o.tensor);
  add("pipeline_parallel_size", o.pipeline);
  add("context_parallel_size", o.context);
  add("expert_parallel_size", o.expert);
  add("platform", o.platform);
  add("lnc_size", o.lnc_size);
  add("reduce_dtype (0: F32, 2: BF16)", o.reduce_dtype);
  add("local_world_size", o.local_world_size != 0 ? o.local_world_size : world_size);
}

// Without a backend that is asked for, NXD_CPU_MODE=1 trains eagerly.
DeviceBackend backend_of_context() {
  const bool is_eager = env::cpu_mode() && !env::get("NXD_XLA_BACKEND");
  return is_eager ? DeviceBackend::kEager : DeviceBackend::kUndecided;
}

}  // namespace

Context::Context(const ContextOptions& options)
    : random_(*options.seed),
      plain_kernels_(*options.plain_kernels),
      world_(std::make_unique<World>(options)) {}

Context::~Context() = default;

std::shared_ptr<Context> Context::create(ContextOptions options) {
  or_reject(options, [&] {
    static_cast<void>(env::log_level());
    if (!options.seed) options.seed = env::seed();
    if (!options.plain_kernels) options.plain_kernels = env::plain_kernels();
    options = World::complete(options);
  });
  warn_of_device_variables(backend_of_context());
  return kept_by_process(new Context(options));
}

void Context::reject(const ContextOptions& options) noexcept { World::reject(options); }

int Context::rank() const { return world_->rank(); }
int Context::size() const { return world_->size(); }
int Context::local_rank() const { return world_->local_rank(); }
const HostMap& Context::hosts() const { return world_->hosts(); }
Arena& Context::arena() const { return world_->arena(); }
const std::shared_ptr<ProcessGroup>& Context::world() const { return world_->group(); }

std::shared_ptr<ProcessGroup> Context::create_group(const std::vector<int>& ranks,
                                                    const std::string& name, const Outcome& given) {
  check_usable();
  return world_->groups().create(ranks, name, given);
}

std::shared_ptr<ProcessGroup> Context::shared_group(const std::vector<int>& ranks,
                                                    const std::string& name) {
  check_usable();
  return world_->groups().shared(ranks, name);
}

std::shared_ptr<ProcessGroup> Context::background_group(
    const std::shared_ptr<ProcessGroup>& group) {
  return group ? shared_group(group->ranks(), group->name() + " in the background") : nullptr;
}

Background& Context::background() const { return world_->background(); }

void Context::init_model_parallel(const ParallelOptions& options, const Outcome& resolved) {
  check_usable();
  std::shared_ptr<ParallelState> state;
  Proposal proposal(rank(), "init_model_parallel");
  proposal.attempt([&] {
    check_state(!find_parallel(), "nxd_init_model_parallel: initialised already (",
                "nxd_destroy_model_parallel comes first)");
    resolved.rethrow();
    state = std::make_shared<ParallelState>(RankLayout(options, size()), rank());
  });
  add_layout(proposal, options, size());
  proposal.compare_within(0, 1, seed_digest());
  const bool same_seed = agree({world().get()}, proposal).front();
  if (size() == 1) world()->run(Call::barrier());  // no rank was asked: fails after an abort
  state->set_group(NXD_AXIS_WORLD, world());
  for (nxd_axis_t axis = NXD_AXIS_TENSOR; axis <= NXD_AXIS_EXPERT_DATA; ++axis) {
    const RankLayout& layout = state->layout();
    const auto ranks = layout.group(axis, layout.find(axis, rank()).group_index);
    state->set_group(axis, world_->groups().make(ranks, axis_name(axis)));
  }
  if (!same_seed && state->size(NXD_AXIS_TENSOR) > 1) {
    agree_on_seed(*state->group(NXD_AXIS_TENSOR));
  }
  std::lock_guard<std::mutex> lock(parallel_mutex_);
  parallel_ = std::move(state);
}

uint32_t Context::seed_digest() const { return Hash().add(seed()).folded(); }

// Shards are parts of one weight, and copies alike, where all of their ranks draw the same bits.
// Ranks of other tensor-parallel groups fail with those that differ.
void Context::agree_on_seed(ProcessGroup& tensor) const {
  Proposal outcome(rank(), "init_model_parallel");
  outcome.attempt([&] {
    Proposal own(rank(), "init_model_parallel");
    agree({&tensor}, own.same_digest("seed of tensor-parallel ranks", seed_digest()));
  });
  agree({world().get()}, outcome);
}

void Context::destroy_model_parallel() {
  check_not_forked();
  world_->check_not_interrupted("nxd_destroy_model_parallel");
  check_state(model_parallel_is_initialized(), "nxd_destroy_model_parallel: not initialised");
  world_->wait_for_aborts();
  std::shared_ptr<const ParallelState> ended;  // its groups wait for their works, without the lock
  {
    std::lock_guard<std::mutex> lock(parallel_mutex_);
    ended.swap(parallel_);
  }
  ended.reset();
  world_->groups().forget_shared();
}

std::shared_ptr<const ParallelState> Context::find_parallel() const {
  std::lock_guard<std::mutex> lock(parallel_mutex_);
  return parallel_;
}

std::shared_ptr<const ParallelState> Context::parallel() const {
  auto state = find_parallel();
  check_state(state != nullptr,
              "the parallel layout is not initialised (nxd_init_model_parallel comes first)");
  return state;
}

bool Context::model_parallel_is_initialized() const {
  std::lock_guard<std::mutex> lock(parallel_mutex_);
  return parallel_ != nullptr;
}

nxd_dtype_t Context::reduce_dtype() const {
  std::lock_guard<std::mutex> lock(parallel_mutex_);
  return parallel_ ? parallel_->reduce_dtype() : NXD_DTYPE_F32;
}

void Context::finalize() { world_->finalize(); }
void Context::abort() noexcept { world_->abort(); }
bool Context::leave() noexcept { return world_->leave(); }
std::string Context::flight_record() const { return world_->flight_record(); }
void Context::check_usable() const { world_->check_usable(); }
void Context::check_not_forked() const { world_->check_not_forked(); }

}  // namespace nxd
