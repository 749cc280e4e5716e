#include "core/base/log.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/base/blocked_signals.h"
#include "core/base/callback_thread.h"
#include "core/base/environment.h"
#include "core/base/float_environment.h"
#include "core/base/printable.h"

namespace nxd {
namespace {

// A replaced callback lives on until the last line in flight has left it.
struct Sink {
  nxd_log_fn callback;  // null: lines go to stderr
  void* user_data;
  nxd_destroy_fn destroy;
  ~Sink() {
    if (!destroy) return;
    const CallersFloatEnvironment environment;
    destroy(user_data);
  }
};

// Lines that wait for a thread which may call back; later ones are dropped.
constexpr size_t kQueueLimit = 256;

struct State {
  std::mutex mutex;
  std::vector<std::pair<nxd_log_level_t, std::string>> queue;
  std::atomic<bool> has_queued{false};
  std::shared_ptr<Sink> sink;
  std::atomic<nxd_log_level_t> level{NXD_LOG_INVALID};
};

// Never destroyed: threads may log while the process exits. Takes no memory, also the first time.
State& state() noexcept {
  alignas(State) static char place[sizeof(State)];
  static State* const s = new (place) State;
  return *s;
}

// Another thread may hold the mutex when the process forks; the child logs too. Before handlers of
// other files: those of a fork's beginning run last first, and threads that end in them may log.
// Without memory for it, a child may wait for the mutex for ever.
__attribute__((constructor(200))) void watch_forks() noexcept {
  static_cast<void>(pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                                   [] { state().mutex.unlock(); }));
}

const char* level_name(nxd_log_level_t level) {
  switch (level) {
    case NXD_LOG_DEBUG: return "debug";
    case NXD_LOG_INFO: return "info";
    case NXD_LOG_WARN: return "warning";
    default: return "error";
  }
}

// One line, whatever the message has of files and peers: a name may have the end of a line in it.
// Without memory it stays as it is.
std::string escaped(const std::string& message) noexcept {
  try {
    return printable(message, SIZE_MAX);
  } catch (...) {
    return {};
  }
}

void emit(nxd_log_level_t level, const std::string& message) noexcept {
  const std::string shown = escaped(message);
  const char* const line = shown.empty() ? message.c_str() : shown.c_str();
  State& s = state();
  std::shared_ptr<Sink> sink;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    sink = s.sink;
  }
  if (sink && sink->callback) {
    try {
      const CallersFloatEnvironment environment;
      sink->callback(level, line, sink->user_data);
    } catch (...) {
      // Nobody asked for the line, so nobody can be told that it was lost.
    }
  } else {
    // Nobody may read the lines any more, or their file be as large as it may.
    const HeldSignal no_sigpipe(SIGPIPE), no_sigxfsz(SIGXFSZ);
    std::fprintf(stderr, "nxd %s: %s\n", level_name(level), line);
  }
}

void queue_line(nxd_log_level_t level, const std::string& message) noexcept {
  State& s = state();
  try {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.queue.size() >= kQueueLimit) return;
    s.queue.emplace_back(level, message);
    s.has_queued.store(true, std::memory_order_relaxed);
  } catch (...) {
  }
}

}  // namespace

bool log_enabled(nxd_log_level_t level) noexcept {
  State& s = state();
  nxd_log_level_t current = s.level.load(std::memory_order_relaxed);
  if (current == NXD_LOG_INVALID) {
    try {
      current = env::log_level();
    } catch (...) {  // contexts are not made with such a name
      current = NXD_LOG_WARN;
    }
    s.level.store(current, std::memory_order_relaxed);
  }
  return level >= current;
}

void log_line(nxd_log_level_t level, const std::string& message) noexcept {
  if (InternalThread::is_current()) {
    queue_line(level, message);
    return;
  }
  flush_log();
  emit(level, message);
}

void flush_log() noexcept {
  State& s = state();
  if (InternalThread::is_current() || !s.has_queued.load(std::memory_order_relaxed)) return;
  std::vector<std::pair<nxd_log_level_t, std::string>> lines;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    lines.swap(s.queue);
    s.has_queued.store(false, std::memory_order_relaxed);
  }
  for (const auto& [level, message] : lines) emit(level, message);
}

void set_log_level(nxd_log_level_t level) {
  check_argument(level >= NXD_LOG_DEBUG && level <= NXD_LOG_OFF,
                 "level: expected NXD_LOG_DEBUG (0) to NXD_LOG_OFF (4), got ", level);
  state().level.store(level, std::memory_order_relaxed);
}

void set_log_callback(nxd_log_fn callback, void* user_data, nxd_destroy_fn destroy) {
  std::shared_ptr<Sink> fresh;
  if (callback || destroy) {
    fresh = std::make_shared<Sink>();
    fresh->callback = callback;
    fresh->user_data = user_data;
    fresh->destroy = destroy;
  }
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.sink.swap(fresh);
}

}  // namespace nxd
