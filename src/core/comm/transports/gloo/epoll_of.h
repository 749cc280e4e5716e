#pragma once

namespace nxd {

// The descriptor of this process's epoll instance that watches another of its descriptors; -1 where
// /proc shows none. IO or OUT_OF_MEMORY when there is no descriptor or memory to look.
int epoll_of(int watched);

}  // namespace nxd
