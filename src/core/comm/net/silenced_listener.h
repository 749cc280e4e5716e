#pragma once

#include <sys/socket.h>

#include <functional>

namespace nxd {

// Ends the listening of this process's socket at an address, for a library that would not do it.
// One that nothing connects to takes its place and its descriptor, with which `then` is called;
// if that throws, the first socket is back. An accept that is under way finds no connection. IO
// when there is no descriptor or memory to do so.
void silence_listener(const sockaddr_storage& address, const std::function<void(int)>& then);

}  // namespace nxd
