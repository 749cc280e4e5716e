#pragma once

// GNU's OpenMP has idle threads poll for milliseconds, but for microseconds only where it counts
// more threads than cores. Threads of a team (core/kernels/team.h) are none that it counts, and
// share their cores with those that poll.
namespace nxd::kernels {

// Has each OpenMP runtime of GNU in this process, and there may be several, count that many threads
// more while the calling thread lives: they belong to it, and sleep. Does nothing where the system
// has no threads left, since libgomp ends a process that it cannot give a thread.
void count_in_openmp(int threads) noexcept;

// Ends the threads that OpenMP keeps for the calling thread; UNSUPPORTED where it cannot.
void release_openmp();

}  // namespace nxd::kernels
