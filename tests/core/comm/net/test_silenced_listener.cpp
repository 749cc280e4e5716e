// A socket that another part of the process listens with is silenced under its feet.
#include "core/comm/net/silenced_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/base/error.h"
#include "core/comm/net/deadline.h"
#include "core/comm/net/socket.h"

#include "support/check.h"

using namespace nxd;

namespace {
// Calls of new on this thread that succeed before one fails; below zero all do.
thread_local int new_calls_left = -1;
}  // namespace

void* operator new(size_t size) {
  void* block = new_calls_left == 0 ? nullptr : std::malloc(size > 0 ? size : 1);
  if (!block) throw std::bad_alloc();
  if (new_calls_left > 0) --new_calls_left;
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace {

struct Listener {
  Listener() {
    std::vector<Fd> all = listen_tcp("127.0.0.1", 0, &port);
    assert_int_equal(all.size(), 1);
    fd = std::move(all[0]);
    socklen_t length = sizeof address;
    assert_int_equal(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    epoll_event event{};
    event.events = EPOLLIN;
    assert_int_equal(::epoll_ctl(loop.get(), EPOLL_CTL_ADD, fd.get(), &event), 0);
  }

  bool is_reached() const {
    const Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(client.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  int remove() const { return ::epoll_ctl(loop.get(), EPOLL_CTL_DEL, fd.get(), nullptr); }

  int port = 0;
  Fd fd;
  Fd loop{::epoll_create1(EPOLL_CLOEXEC)};
  sockaddr_storage address{};
};

void is_silent(void**) {
  Listener listener;
  int given = -1;
  silence_listener(listener.address, [&](int fd) {
    given = fd;
    epoll_event event{};
    assert_int_equal(::epoll_ctl(listener.loop.get(), EPOLL_CTL_ADD, fd, &event), 0);
  });
  assert_int_equal(given, listener.fd.get());
  assert_false(listener.is_reached());
  assert_int_equal(::accept(given, nullptr, nullptr), -1);
  assert_int_equal(errno, EAGAIN);
  epoll_event event{};
  assert_int_equal(::epoll_wait(listener.loop.get(), &event, 1, 0), 0);
  assert_int_equal(listener.remove(), 0);
}

void failure_leaves_it(void**) {
  Listener listener;
  bool failed = false;
  try {
    silence_listener(listener.address, [](int) { throw std::runtime_error("no"); });
  } catch (const std::runtime_error&) {
    failed = true;
  }
  assert_true(failed && listener.is_reached());
  epoll_event event{};
  assert_int_equal(::epoll_wait(listener.loop.get(), &event, 1, 1000), 1);
  assert_int_equal(listener.remove(), 0);
}

void unknown_address(void**) {
  sockaddr_storage address;
  {
    const Listener gone;
    address = gone.address;
  }
  nxd_status_t status = NXD_OK;
  try {
    silence_listener(address, [](int) {});
  } catch (const Error& error) {
    status = error.status();
  }
  assert_int_equal(status, NXD_ERROR_INTERNAL);
}

bool is_silenced(const Listener& listener) {
  try {
    silence_listener(listener.address, [](int) {});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// An iterator of std::filesystem ends the process there.
void lack_of_memory(void**) {
  const Listener listener;
  bool silenced = false;
  for (int calls = 0; !silenced; ++calls) {
    new_calls_left = calls;
    silenced = is_silenced(listener);
    new_calls_left = -1;
  }
  assert_false(listener.is_reached());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(is_silent),
      cmocka_unit_test(failure_leaves_it),
      cmocka_unit_test(unknown_address),
      cmocka_unit_test(lack_of_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
