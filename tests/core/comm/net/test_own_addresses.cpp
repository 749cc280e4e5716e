// Addresses that a rank tells others of: those of the only interface of a network of its own.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/comm/net/socket.h"

#include "support/check.h"

namespace {

constexpr int kNoNetwork = 99;

bool run(const std::string& command) { return std::system(command.c_str()) == 0; }

// Both ends of a link: one alone is not up.
bool make_interface() {
  const bool own_network =
      ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  return own_network && run("{ ip link add nxd0 type veth peer name nxd1 && ip link set lo up && "
                            "ip link set nxd1 up && ip link set nxd0 up; } 2> /dev/null");
}

// The number of the first step that fails.
int steps() {
  if (!make_interface()) return kNoNetwork;
  if (!nxd::first_external_address().empty()) return 1;
  if (!run("ip addr add fd77::1/64 dev nxd0 nodad 2> /dev/null")) return kNoNetwork;
  if (nxd::first_external_address() != "fd77::1") return 2;
  if (nxd::address_of_interface("nxd0") != "fd77::1") return 3;
  if (!run("ip addr add 10.77.0.1/24 dev nxd0")) return kNoNetwork;
  if (nxd::first_external_address() != "10.77.0.1") return 4;
  if (nxd::address_of_interface("nxd0") != "10.77.0.1") return 5;
  return nxd::address_of_interface("lo") == "127.0.0.1" ? 0 : 6;
}

void hosts_with_and_without_ipv4(void**) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(steps());
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNetwork) {
    std::puts(
        "skip: addresses of a host: no networks of its own here; install iproute2, run as root");
    skip();
  }
  assert_int_equal(WEXITSTATUS(status), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(hosts_with_and_without_ipv4)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
