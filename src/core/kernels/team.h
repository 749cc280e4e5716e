#pragma once

#include <cstdint>

// The threads that kernels divide their work over. Every calling thread has a team of its own, with
// as many threads as OpenMP would give it here; its settings are the program's. The threads are
// not OpenMP's, for two reasons. Between regions they poll for some microseconds only before they
// sleep. They take tasks one by one, so that a thread that the system keeps from running, or that
// wakes late, holds up no other.
namespace nxd::kernels {

// Threads that a kernel may use here; 1 inside a region, of a team or of OpenMP.
int team_size() noexcept;

// Calls task(context, index) once for each index of 0 ... tasks, on the calling thread and on as
// many others as its team has, and returns when all are done. The last index is taken first, then
// the one before it. Tasks may not throw, and find a team of 1. At most 2^31 tasks. A team has
// fewer threads if they cannot be made.
using TeamTask = void (*)(void* context, int64_t index);
void run_on_team(int threads, int64_t tasks, TeamTask task, void* context);

// Ends the threads of the calling thread's team, and those that OpenMP keeps for it, until they are
// needed again; INVALID_STATE inside a parallel region.
void release_team();

// While it lives, OpenMP gives this thread no others: neither to oneDNN nor to a kernel.
class OneThread {
 public:
  OneThread() noexcept;
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace nxd::kernels
