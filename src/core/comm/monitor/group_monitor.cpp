#include "core/comm/monitor/group_monitor.h"

#include <algorithm>
#include <exception>
#include <new>

#include "core/base/log.h"
#include "core/base/sleep.h"
#include "core/comm/monitor/blocked_callers.h"
#include "core/comm/monitor/wait_clock.h"
#include "core/comm/store/store_rate_limit.h"

namespace nxd {
namespace {

using std::chrono::milliseconds;

constexpr auto kFirstPause = milliseconds(40);
constexpr auto kLongestPause = milliseconds(2000);
// A poll asks for a loss, whether the awaited rank has left the world or the group, and whether a
// call was rejected.
constexpr int kRequestsPerPoll = 4;
constexpr auto kShortestStoreTimeout = milliseconds(200);
// Data that a peer sent before it left may still be on its way.
constexpr auto kDepartureGrace = milliseconds(500);
// So may a thread of the program that has made no call yet, at what peers wait for.
constexpr int64_t kNewCallerMs = 10000;
// And what a peer waits for.
constexpr auto kCircleGrace = milliseconds(500);
// Between the polls of ranks of which one rejects a call.
constexpr auto kRejectionPause = milliseconds(100);

}  // namespace

GroupMonitor::GroupMonitor(std::shared_ptr<const RankShared> shared, std::string key,
                           std::string name, int world_rank, std::vector<int> ranks,
                           int64_t timeout_ms)
    : shared_(std::move(shared)),
      key_(std::move(key)),
      name_(std::move(name)),
      world_rank_(world_rank),
      ranks_(std::move(ranks)),
      timeout_ms_(timeout_ms) {}

void GroupMonitor::set_timeout_ms(int64_t timeout_ms) {
  check_argument(timeout_ms > 0, "timeout_ms: expected a positive number, got ", timeout_ms);
  timeout_ms_ = timeout_ms;
}

void GroupMonitor::on_failure(std::function<void()> close) {
  std::lock_guard<std::mutex> lock(on_failure_mutex_);
  on_failure_.push_back(std::move(close));
}

void GroupMonitor::clear_on_failure() {
  std::lock_guard<std::mutex> lock(on_failure_mutex_);
  on_failure_.clear();
}

void GroupMonitor::close() noexcept {
  std::lock_guard<std::mutex> lock(on_failure_mutex_);
  for (const auto& close : on_failure_) {
    try {
      close();
    } catch (...) {
    }
  }
}

GroupMonitor::Scope::Scope(GroupMonitor& monitor, const char* operation,
                           FlightRecord::Operation record)
    : CallInProgress(&monitor),
      monitor_(monitor),
      outermost_([&] {
        Scope* const part_of = monitor.find_call(outer());
        return part_of ? part_of : this;
      }()),
      operation_(operation) {
  if (outermost_ == this) monitor.begin(*this, record);
}

GroupMonitor::Scope::~Scope() {
  if (outermost_ == this) monitor_.end(*this);
}

bool GroupMonitor::Scope::is_unwound() const noexcept {
  return std::uncaught_exceptions() > outermost_->exceptions_;
}

// The first of these calls that is on this group, or rather the call that it is part of.
GroupMonitor::Scope* GroupMonitor::find_call(CallInProgress* innermost) const noexcept {
  for (CallInProgress* call = innermost; call; call = call->outer()) {
    if (call->object() == this) return static_cast<Scope*>(call)->outermost_;
  }
  return nullptr;
}

GroupMonitor::Scope& GroupMonitor::current() const {
  Scope* const call = find_call(CallInProgress::innermost());
  check_internal(call != nullptr, "group \"", name_, "\": no call is in progress");
  return *call;
}

void GroupMonitor::check_caller(const char* operation) const {
  check_state(
      !shared_->fork_guard.is_foreign(), operation, " on group \"", name_,
      "\": this process was forked from the one that made the context; groups cannot be used "
      "in it");
  check_state(!CallInProgress::is_set_aside(this), operation, " on group \"", name_,
              "\": the interrupt callback of a call cannot make another on the call's group");
}

// The larger the world, the rarer: all its ranks may be asking one store.
milliseconds GroupMonitor::first_pause() const {
  return std::max(kFirstPause, store_pause(shared_->world_size, kRequestsPerPoll));
}

// Several polls have to fit between the first report of a loss and twice the timeout.
milliseconds GroupMonitor::longest_pause(const Scope& call) const {
  const milliseconds part(
      std::max<int64_t>(timeout_share(call.timeout_ms_, 1, 8), kFirstPause.count()));
  return std::min(std::max(kLongestPause, first_pause()), part);
}

// A store that is silent must not keep a call from ending in time.
StoreTimeout GroupMonitor::store_timeout() const {
  return StoreTimeout(
      std::max<int64_t>(timeout_share(timeout_ms_, 1, 4), kShortestStoreTimeout.count()));
}

void GroupMonitor::begin(Scope& call, FlightRecord::Operation& record) {
  check_caller(call.operation_);
  shared_->blocked_callers.enter();
  if (has_failed()) throw first_error();
  check_state(!shared_->finalized, call.operation_, " on group \"", name_,
              "\": the context was finalized");
  call.sequence_ =
      record.is_message ? next_message_.load(std::memory_order_relaxed) : next_collective_;
  call.timeout_ms_ = timeout_ms_;
  call.start_ = recent_time();
  call.exceptions_ = std::uncaught_exceptions();
  check_running();
  if (record.is_message) {
    call.sequence_ = next_message_.fetch_add(1, std::memory_order_relaxed);
  } else {
    ++next_collective_;
  }
  record.sequence = call.sequence_;
  record.start_ns = shared_->ns_since_created(call.start_);
  call.ticket_ = flight_record_.begin(record);
}

void GroupMonitor::end(Scope& call) noexcept {
  // After a loss the waits that led to it stay, for ranks that have yet to follow them.
  if (call.wait_published_ && !shared_->failures->lost()) {
    const StoreTimeout bounded = store_timeout();
    shared_->failures->clear_wait(&call);
  }
  if (call.wait_noted_) shared_->blocked_callers.end_wait(&call);
  if (call.rejection_counted_ && !shared_->failures->lost()) {
    const StoreTimeout bounded = store_timeout();
    shared_->failures->end_rejection();
  }
  const auto took = recent_time() - call.start_;
  flight_record_.end(call.ticket_,
                     call.is_unwound() ? FlightRecord::State::kFailed : FlightRecord::State::kDone,
                     std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
}

std::string GroupMonitor::describe(const char* operation) const {
  const auto place = std::find(ranks_.begin(), ranks_.end(), world_rank_) - ranks_.begin();
  return text(operation, " on group \"", name_, "\" (rank ", place, " of ", ranks_.size(),
              ", world rank ", world_rank_, "): ");
}

Error GroupMonitor::error(nxd_status_t status, int root_rank, const std::string& message) const {
  const Scope& call = current();
  const std::string what = text(call.operation_, " #", call.sequence_);
  return Error(status, describe(what.c_str()) + message,
               {root_rank, call.sequence_, name_, call.operation_});
}

Error GroupMonitor::first_error() const noexcept {
  std::lock_guard<std::mutex> lock(first_error_mutex_);
  return *first_error_;
}

void GroupMonitor::check_running() {
  if (has_failed()) throw first_error();
  if (aborted()) fail_for_good(error(NXD_ERROR_ABORTED, -1, "the group was aborted"));
  if (shared_->failures->lost()) fail_with_loss();
}

void GroupMonitor::fail_with_loss() {
  const auto loss = shared_->failures->loss();
  check_internal(loss.has_value(), "a loss without a rank");
  const StoreTimeout bounded = store_timeout();
  const milliseconds last_poll(
      std::min<int64_t>(timeout_share(timeout_ms_, 1, 8), kLongestPause.count()));
  shared_->failures->outlast_loss(Deadline::after_ms((last_poll + kFirstPause).count()));
  if (loss->rank == world_rank_ && shared_->aborted) {
    fail_for_good(error(NXD_ERROR_ABORTED, world_rank_,
                        "this rank aborted a group, and its peers count it as lost"));
  }
  fail_for_good(error(loss->status, loss->rank, text("rank ", loss->rank, " ", loss->reason)));
}

void GroupMonitor::poison(const Error& error) noexcept {
  {
    std::lock_guard<std::mutex> lock(first_error_mutex_);
    if (first_error_) return;
    first_error_ = error;
    failed_.store(true, std::memory_order_release);
  }
  shared_->host->arena.retire();
  close();
  if (shared_->timer_thread) shared_->timer_thread->kick();
  write_record();
}

void GroupMonitor::fail_for_good(const Error& error) {
  poison(error);
  throw first_error();
}

void GroupMonitor::fail_because_of(int rank, nxd_status_t status, const std::string& how) {
  const Error own = error(status, rank, text("rank ", rank, " ", how));
  const StoreTimeout bounded = store_timeout();
  shared_->failures->report({NXD_ERROR_PEER_LOST, rank, how});
  fail_for_good(own);
}

void GroupMonitor::break_off(const char* operation) {
  Error error = Error::current();
  if (has_failed() || shared_->fork_guard.is_foreign()) throw error;
  try {
    error = Error(error.status(), describe(operation) + error.what(),
                  {world_rank_, 0, name_, operation});
  } catch (const std::bad_alloc&) {
    // The error does without the name of the group.
  }
  poison(error);
  const StoreTimeout bounded = store_timeout();
  shared_->failures->leave_group(key_);
  throw first_error();
}

GroupRecord GroupMonitor::record() const {
  GroupRecord record{name_, key_, ranks_, "", flight_record_.snapshot()};
  if (has_failed()) record.error = first_error().what();
  return record;
}

void GroupMonitor::write_record() const noexcept {
  const std::string& prefix = shared_->flight_record_prefix;
  if (prefix.empty()) return;
  try {
    const int64_t now = shared_->ns_since_created(Deadline::Clock::now());
    append_flight_json(text(prefix, world_rank_), flight_json(world_rank_, now, {record()}));
  } catch (const std::exception& e) {
    log(NXD_LOG_WARN, "flight record of group \"", name_, "\": ", e.what());
  }
}

void GroupMonitor::abort() noexcept {
  shared_->aborted = true;
  // In a forked child closing would reach into the parent's event loop.
  if (shared_->fork_guard.is_foreign()) {
    aborted_ = true;
    return;
  }
  const AbortsInProgress::Scope in_progress(shared_->aborts);
  if (aborted_.exchange(true)) return;
  shared_->host->arena.retire();
  close();
  if (shared_->timer_thread) shared_->timer_thread->kick();
  const StoreTimeout bounded = store_timeout();
  shared_->failures->leave_group(key_);
}

void GroupMonitor::poll_interrupt() {
  const auto interruption = shared_->interrupt.poll();
  if (!interruption) return;
  // The peers may have this rank's part of the call already, so it cannot be taken back.
  const StoreTimeout bounded = store_timeout();
  shared_->failures->leave_group(key_);
  fail_for_good(error(interruption->status, world_rank_, interruption->how));
}

void GroupMonitor::interrupted(const char* operation, const Interruption& interruption) {
  const StoreTimeout bounded = store_timeout();
  shared_->failures->leave_group(key_);
  fail_for_good(Error(interruption.status, describe(operation) + interruption.how,
                      {world_rank_, 0, name_, operation}));
}

void GroupMonitor::check_failure() {
  if (!failure_check_) return;
  if (const auto error = failure_check_()) fail_for_good(*error);
}

// With the first poll: most calls end without one.
void GroupMonitor::plan_polls(Scope& call) const {
  call.poll_pause_ = std::min(first_pause(), longest_pause(call));
  // Ranks that began to wait together do not all ask together.
  const milliseconds early = call.poll_pause_ - kFirstPause;
  call.next_poll_ = call.start_ + call.poll_pause_ - early * (world_rank_ % 64) / 128;
}

// The part of its bound that a call has used up.
int64_t GroupMonitor::waited_ms(const Scope& call) {
  const WaitClock* const clock = WaitClock::current();
  return clock ? clock->ms_since(call.start_) : ms_since(call.start_);
}

void GroupMonitor::poll(int awaited, uint64_t heard) {
  Scope& call = current();
  check_running();
  flight_record_.await(call.ticket_, awaited);
  poll_interrupt();
  shared_->serve();
  const auto now = Deadline::Clock::now();
  if (call.poll_pause_.count() == 0) plan_polls(call);
  if (now >= call.next_poll_) {
    const StoreTimeout bounded = store_timeout();
    shared_->failures->poll();
    check_running();
    check_failure();
    check_departure(awaited, heard);
    const bool rejected = check_rejection(call, awaited);
    const milliseconds longest = longest_pause(call);
    call.poll_pause_ = std::min(call.poll_pause_ * 3 / 2, longest);
    if (rejected) call.poll_pause_ = std::min(std::max(first_pause(), kRejectionPause), longest);
    call.next_poll_ = now + call.poll_pause_;
  }
  const int64_t waited = waited_ms(call);
  if (waited >= timeout_share(call.timeout_ms_, 1, 8)) publish_wait(call, awaited);
  if (waited >= call.timeout_ms_) timed_out(awaited);
}

void GroupMonitor::publish_wait(Scope& call, int awaited) {
  if (call.wait_published_) return;
  const StoreTimeout bounded = store_timeout();
  shared_->failures->publish_wait(&call, awaited);
  call.wait_published_ = true;
}

// A forward pass without a collective that one rank rejects, and its peers do not, is an example:
// they are told in the next call of the group, unless they wait for this rank in another group
// first. Then nobody can go on, if no other thread of theirs comes. True while some rank waits in a
// call that it rejects.
bool GroupMonitor::check_rejection(Scope& call, int awaited) {
  FailureRegistry& failures = *shared_->failures;
  shared_->blocked_callers.begin_wait(&call, awaited);
  call.wait_noted_ = true;
  const int64_t idle_ms = timeout_share(call.timeout_ms_, 1, 8);
  const auto waits = shared_->blocked_callers.waits({std::min(kNewCallerMs, idle_ms), idle_ms});
  const bool rejects = !call.rejection_.empty();
  if (rejects && waits && !call.rejection_counted_) {
    failures.begin_rejection();
    call.rejection_counted_ = true;
  }
  if (!call.rejection_counted_ && !failures.has_rejections()) return false;
  if (waits) failures.publish_waits(*waits);
  if (!waits) call.circle_.reset();
  if (rejects && waits) check_circle(call, awaited);
  return true;
}

// All ranks of a circle are at other calls than their peers, so the world is lost to them. It is
// looked at a third time: a rank that was stopped for a while has its part for long, and does not
// know yet.
void GroupMonitor::check_circle(Scope& call, int awaited) {
  auto circle = shared_->failures->find_circle(awaited);
  const auto now = Deadline::Clock::now();
  if (!circle || !call.circle_ || circle->waits != call.circle_->waits) {
    call.circle_ = std::move(circle);
    call.circle_at_ = now;
    call.circle_is_old_ = false;
    return;
  }
  if (now - call.circle_at_ < kCircleGrace) return;
  if (!call.circle_is_old_) {
    call.circle_ = std::move(circle);
    call.circle_is_old_ = true;
    return;
  }
  if (!call.circle_->is_confirmed_by(*circle)) return;
  shared_->failures->report({NXD_ERROR_PEER_LOST, world_rank_,
                             text("rejected ", call.operation_, " #", call.sequence_,
                                  " on group \"", name_, "\", to which rank ", awaited,
                                  " did not come, for it waits elsewhere: ", call.rejection_)});
  fail_with_loss();
}

// For the loss of a rank that this one waits for in a call that it rejects.
std::string GroupMonitor::rejection_note() const {
  const std::string& why = current().rejection_;
  return why.empty() ? "" : text("; rank ", world_rank_, " rejected that call: ", why);
}

void GroupMonitor::wait_ended() {
  Scope& call = current();
  if (call.wait_noted_) shared_->blocked_callers.end_wait(&call);
  call.wait_noted_ = false;
  if (!call.wait_published_) return;
  const StoreTimeout bounded = store_timeout();
  shared_->failures->clear_wait(&call);
  call.wait_published_ = false;
}

// A slow connection takes longer than the grace for what a peer sent before it left.
void GroupMonitor::check_departure(int awaited, uint64_t heard) {
  Scope& call = current();
  const bool is_new = call.departed_ != awaited;
  if (is_new && !shared_->failures->has_left(awaited, key_)) return;
  if (is_new || call.departed_heard_ != heard) call.departed_at_ = Deadline::Clock::now();
  call.departed_ = awaited;
  call.departed_heard_ = heard;
  if (Deadline::Clock::now() - call.departed_at_ < kDepartureGrace) return;
  shared_->failures->report(
      {NXD_ERROR_PEER_LOST, awaited,
       text("left before it answered rank ", world_rank_, " in ", call.operation_, " #",
            call.sequence_, " on group \"", name_, "\"", rejection_note())});
  fail_with_loss();
}

// Everybody who waits has said so an eighth of the timeout after it started to. So after as much
// again the edges are complete, and the rank next to the culprit can report it.
void GroupMonitor::timed_out(int awaited) {
  Scope& call = current();
  FailureRegistry& failures = *shared_->failures;
  publish_wait(call, awaited);
  const int64_t grace = timeout_share(call.timeout_ms_, 9, 8);
  const int64_t last = timeout_share(call.timeout_ms_, 7, 4);
  for (;;) {
    poll_interrupt();
    shared_->serve();
    const StoreTimeout bounded = store_timeout();
    failures.poll();
    check_running();
    const int64_t waited = waited_ms(call);
    if (waited >= grace) {
      const FailureRegistry::Culprit culprit = failures.find_culprit(awaited);
      if (culprit.certain || waited >= last) {
        failures.report({NXD_ERROR_TIMEOUT, culprit.rank,
                         text("did not answer within ", call.timeout_ms_, " ms (awaited by rank ",
                              world_rank_, " in ", call.operation_, " #", call.sequence_,
                              " on group \"", name_, "\")", rejection_note())});
        fail_with_loss();
      }
    }
    const milliseconds usual(std::clamp<int64_t>(timeout_share(call.timeout_ms_, 1, 50), 2, 20));
    const milliseconds spared(std::min(store_pause(shared_->world_size, kRequestsPerPoll),
                                       milliseconds(timeout_share(call.timeout_ms_, 1, 8))));
    sleep_for(std::max(usual, spared));
  }
}

// A store that has failed one request may still take the next, such as one made of callbacks: so
// the peers that wait for this rank are told.
void GroupMonitor::store_failed(const Error& cause) {
  const StoreTimeout bounded = store_timeout();
  shared_->failures->store_failed(cause.status());
  check_running();
  shared_->failures->leave_group(key_);
  fail_for_good(error(cause.status(), -1, cause.what()));
}

void GroupMonitor::peer_lost(int rank, const std::string& how) {
  // A connection that this rank has closed itself is no peer's fault.
  if (has_failed() || aborted()) check_running();
  const StoreTimeout bounded = store_timeout();
  check_failure();  // a peer that has heard of it has left the group already
  shared_->failures->poll();
  shared_->failures->report({NXD_ERROR_PEER_LOST, rank, how + rejection_note()});
  fail_with_loss();
}

}  // namespace nxd
