#pragma once

namespace nxd {

// A forked child has copies of this process's sockets, and as long as they are open the peers do
// not see this process end. So children close these descriptors as soon as they are forked.
void close_in_forked_children(int fd);
// To be called before the descriptor is closed here: its number may be used again at once.
void forget_in_forked_children(int fd) noexcept;

}  // namespace nxd
