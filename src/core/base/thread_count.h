#pragma once

namespace nxd {

// How many threads OpenMP gives to a region that this thread begins.
void set_thread_count(int threads) noexcept;

}  // namespace nxd
