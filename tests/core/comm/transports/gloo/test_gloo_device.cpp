// The device of Gloo leaves programs that are started later none of its descriptors.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/comm/net/socket.h"
#include "core/comm/transports/gloo/epoll_of.h"
#include "core/comm/transports/gloo/gloo_device.h"

#include "support/check.h"

namespace {

namespace fs = std::filesystem;

// Descriptors of this process whose link in /proc has such a name.
std::vector<int> descriptors_of(const std::string& kind) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (target.find(kind) != std::string::npos) {
      found.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  return found;
}

void programs_inherit_nothing(void**) {
  assert_int_equal(descriptors_of("[eventpoll]").size(), 0);
  const size_t events = descriptors_of("[eventfd]").size();
  const auto device = nxd::make_gloo_device("127.0.0.1");
  const std::vector<int> loops = descriptors_of("[eventpoll]");
  assert_int_equal(loops.size(), 1);
  assert_true((::fcntl(loops[0], F_GETFD) & FD_CLOEXEC) != 0);
  assert_int_equal(descriptors_of("[eventfd]").size(), events);
}

// A program's own instances stay as it has made them.
void other_loops_are_left(void**) {
  const nxd::Fd own(::epoll_create1(0)), watched(::eventfd(0, EFD_CLOEXEC));
  assert_true(own && watched);
  assert_int_equal(nxd::epoll_of(watched.get()), -1);
  epoll_event event{};
  assert_int_equal(::epoll_ctl(own.get(), EPOLL_CTL_ADD, watched.get(), &event), 0);
  assert_int_equal(nxd::epoll_of(watched.get()), own.get());
  const auto device = nxd::make_gloo_device("127.0.0.1");
  assert_int_equal(::fcntl(own.get(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(programs_inherit_nothing),
      cmocka_unit_test(other_loops_are_left),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
