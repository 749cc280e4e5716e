#include "core/comm/transports/shm/shm_link.h"

#include <algorithm>

#include "core/base/environment.h"

namespace nxd {
namespace {

constexpr int kSleepMs = ShmLink::kBeat.count();
constexpr char kNone[] = " none";  // in place of an address

}  // namespace

ShmLink::ShmLink(std::shared_ptr<GroupMonitor> monitor, std::string key, std::vector<int> ranks)
    : monitor_(std::move(monitor)),
      host_(monitor_->shared().host),
      key_(std::move(key)),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), monitor_->world_rank()) -
                             ranks_.begin())) {
  monitor_->on_failure([this] { depart(); });
}

ShmLink::~ShmLink() {
  monitor_->clear_on_failure();
  depart();
}

// A peer that waits for this rank wakes up, finds it gone, and looks for the reason.
void ShmLink::depart() noexcept {
  std::lock_guard<std::mutex> lock(segment_mutex_);
  if (!own_) return;
  uint64_t present = 0;
  own_->departed.compare_exchange_strong(present, ShmControl::kDeparted | completed_.load());
  own_->progress.wake();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    segment_->channel(rank_, peer).posted.wake();
    segment_->channel(peer, rank_).taken.wake();
  }
}

// The rank that comes first makes the memory; the others wait for no more than that.
ShmSegment& ShmLink::attach() {
  const Attaching one_at_a_time(*this);
  if (segment_) return *segment_;
  try {
    SharedMemory memory = create_or_open();
    memory.keep_from_children();
    auto segment = std::make_unique<ShmSegment>(std::move(memory), size());
    ShmControl& own = segment->control(rank_);
    own.process = ProcessId::own();
    own.attached.store(1, std::memory_order_release);
    std::lock_guard<std::mutex> lock(segment_mutex_);
    segment_ = std::move(segment);
    own_ = &own;
  } catch (const Error& e) {
    if (monitor_->has_failed()) throw;
    // The peers attach as well, and would wait.
    monitor_->shared().failures->leave_group(monitor_->key());
    monitor_->fail_for_good(monitor_->error(e.status(), monitor_->world_rank(), e.what()));
  }
  monitor_->check_running();  // an abort meanwhile found nothing to close
  ready_.store(segment_.get(), std::memory_order_release);
  return *segment_;
}

// A work's thread that attaches may need the store to be served, by a caller's thread that waits
// here.
ShmLink::Attaching::Attaching(ShmLink& link) : link_(link) {
  std::unique_lock<std::mutex> lock(link_.attaching_mutex_);
  while (link_.is_attaching_) {
    link_.attached_.wait_for(lock, std::chrono::milliseconds(kSleepMs));
    lock.unlock();
    link_.monitor_->poll(link_.another_rank());
    lock.lock();
  }
  link_.is_attaching_ = true;
}

ShmLink::Attaching::~Attaching() {
  const std::lock_guard<std::mutex> lock(link_.attaching_mutex_);
  link_.is_attaching_ = false;
  link_.attached_.notify_all();
}

// A rank of the world to wait for where the store is awaited: a part of a group may have this rank
// alone.
int ShmLink::another_rank() const {
  for (const std::vector<int>* ranks : {&ranks_, &monitor_->ranks()}) {
    for (const int rank : *ranks) {
      if (rank != monitor_->world_rank()) return rank;
    }
  }
  return monitor_->world_rank();
}

SharedMemory ShmLink::create_or_open() {
  Store& store = *monitor_->shared().store;
  // A store that is silent ends the call as a peer would.
  const StoreTimeout bounded(monitor_->timeout_ms());
  const auto ask = [&](const auto& request) {
    try {
      return ask_store(request, [&] { monitor_->poll(another_rank()); });
    } catch (const Error& e) {
      if (monitor_->has_failed()) throw;
      monitor_->store_failed(e);
    }
  };
  const std::string key = key_ + "/memory";
  if (ask([&] { return store.add(key + "_claims", 1); }) == 1) {
    try {
      SharedMemory memory = SharedMemory::create(ShmSegment::size_for(size()));
      const std::string address = text(rank_, " ", memory.address().encode());
      ask([&] { return store.set(key, address), true; });
      return memory;
    } catch (...) {
      say_none(key);
      throw;
    }
  }
  for (;;) {
    const auto address = ask([&] { return store.wait(key, Deadline::after_ms(kSleepMs)); });
    if (address) return open(*address);
    monitor_->poll(another_rank());
  }
}

// The ranks that wait for the memory do not know which one makes it.
void ShmLink::say_none(const std::string& key) noexcept {
  const StoreTimeout bounded(timeout_share(monitor_->timeout_ms(), 1, 8));
  try {
    monitor_->shared().store->set(key, text(rank_, kNone));
  } catch (...) {
    // They wait until the timeout.
  }
}

SharedMemory ShmLink::open(const std::string& address) {
  const size_t space = std::min(address.find(' '), address.size());
  const auto maker = env::parse_int(address.substr(0, space));
  if (!maker || *maker < 0 || *maker >= size()) fail_unreadable(key_ + "/memory", address);
  if (address.substr(space) == kNone) {
    lost(static_cast<int>(*maker), "could make no shared memory");
  }
  try {
    return SharedMemory::open(SharedMemory::Address::decode(address.substr(space)));
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_PEER_LOST) {
      lost(static_cast<int>(*maker), "left, or cannot be seen,", e.what());
    }
    throw;
  }
}

void ShmLink::all_attached() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) host_->processes.add(world_rank(peer), segment_->control(peer).process);
  }
  segment_->memory().close_descriptor();
}

// With more ranks than cores, the ranks on this core come first: they cannot run while this one
// holds the core for others.
void ShmLink::wait_for_all(uint32_t progress) {
  for (int i = 1; !may_spin() && i < size(); ++i) {
    const int peer = (rank_ + i) % size();
    if (segment_->control(peer).progress.is_behind_us()) wait(peer, progress);
  }
  for (int i = 1; i < size(); ++i) wait((rank_ + i) % size(), progress);
}

void ShmLink::wait(int peer, SharedCounter& counter, uint32_t target) {
  if (counter.await_briefly(target, host_->may_spin)) return;
  auto looked = Deadline::Clock::now();
  for (;;) {
    counter.sleep(target, kSleepMs);
    if (counter.has_reached(target)) break;
    check_alive(peer, counter, target);
    if (ms_since(looked) < kSleepMs) continue;
    monitor_->poll(world_rank(peer));
    looked = Deadline::Clock::now();
  }
  monitor_->wait_ended();
}

void ShmLink::poll(int peer, const SharedCounter& counter, uint32_t target) {
  check_alive(peer, counter, target);
  monitor_->poll(world_rank(peer));
}

// A peer's last word may have come before it went.
void ShmLink::check_alive(int peer, const SharedCounter& counter, uint32_t target) {
  const bool departed = segment_->control(peer).departed.load(std::memory_order_acquire) != 0;
  const bool ended = host_->processes.has_ended(world_rank(peer));
  if ((!departed && !ended) || counter.has_reached(target)) return;
  lost(peer, ended ? "ended" : "left");
}

void ShmLink::lost(int peer, const char* how, const char* why) {
  monitor_->peer_lost(world_rank(peer),
                      text(how, " before it answered rank ", monitor_->world_rank(), " in ",
                           monitor_->operation(), " #", monitor_->sequence(), " on group \"",
                           monitor_->name(), "\"", *why ? ": " : "", why));
}

void ShmLink::check_none_left(uint32_t progress) {
  for (int peer = 0; peer < size(); ++peer) {
    const uint64_t departed = segment_->control(peer).departed.load(std::memory_order_acquire);
    if (departed == 0 || peer == rank_) continue;
    if (static_cast<int32_t>(static_cast<uint32_t>(departed) - progress) <= 0) lost(peer, "left");
  }
}

char* ShmLink::address(int peer, const ArenaPlace& place) {
  try {
    return host_->peer_arenas.at(segment_->control(peer).process.pid, place);
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_PEER_LOST) lost(peer, "left");
    monitor_->fail_for_good(monitor_->error(e.status(), monitor_->world_rank(), e.what()));
  }
}

char* ShmLink::try_address(int peer, const ArenaPlace& place) {
  try {
    return host_->peer_arenas.at(segment_->control(peer).process.pid, place);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace nxd
