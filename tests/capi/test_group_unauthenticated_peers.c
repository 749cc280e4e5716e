/* Unauthenticated peers at the ports that ranks listen at: some are silent, some send random bytes,
 * some close at once. Groups are made all the same. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { kRanks = 4, kPorts = 64, kPeers = 40, kDescriptors = 1024 };

/* Ports that this process listens at. */
static int listening_ports(uint16_t* ports) {
  int n = 0;
  for (int fd = 0; fd < kDescriptors && n < kPorts; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
    struct sockaddr_in address = {0};
    size = sizeof address;
    if (getsockname(fd, (struct sockaddr*)&address, &size) != 0) continue;
    if (address.sin_family == AF_INET) ports[n++] = ntohs(address.sin_port);
  }
  return n;
}

static int come(uint16_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr*)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

static int visitors[kPorts * kPeers], n_visitors, n_ports;

/* Some visitors of each kind, at every port. */
static void visit_all(void) {
  uint16_t ports[kPorts];
  n_ports = listening_ports(ports);
  n_visitors = 0;
  for (int p = 0; p < n_ports; ++p) {
    for (int i = 0; i < kPeers; ++i) {
      const int fd = come(ports[p]);
      if (fd < 0) continue;
      const char nonsense[] = "GET / HTTP/1.1\r\nHost: a rather long line of no interest\r\n\r\n";
      if (i % 4 == 1 && send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL) < 0) perror("send");
      if (i % 4 == 2 && send(fd, "nxdpeer2", 8, MSG_NOSIGNAL) < 0) perror("send");
      if (i % 4 == 3) {
        const struct linger reset = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
      } else {
        visitors[n_visitors++] = fd;
      }
    }
  }
}

static void join_among_peers(nxd_context_t* ctx, int rank, int size, void* unused) {
  (void)unused;
  nxd_group_t *world = NULL, *group = NULL;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  NXD_TEST_OK(nxd_barrier(world));
  if (rank == 0) visit_all();
  NXD_TEST_OK(nxd_barrier(world));
  const int32_t all[kRanks] = {3, 1, 0, 2};
  if (NXD_TEST_OK(nxd_group_create(ctx, all, kRanks, "late", &group))) {
    int32_t sum = 0;
    NXD_TEST_OK(nxd_all_reduce(group, &rank, &sum, 1, NXD_DTYPE_I32, NXD_REDUCE_SUM));
    NXD_TEST_CHECK(sum == size * (size - 1) / 2);
    nxd_group_destroy(group);
  }
  NXD_TEST_OK(nxd_barrier(world));
  if (rank != 0) return;
  NXD_TEST_CHECK(n_ports >= kRanks && n_visitors >= kRanks * kPeers / 2);
  for (int i = 0; i < n_visitors; ++i) close(visitors[i]);
}

static void unauthenticated_peers(void** state) {
  (void)state;
  nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
  options.timeout_ms = 20000;
  options.transport = NXD_TRANSPORT_GLOO;
  nxd_test_run_ranks_with(&options, kRanks, 0, join_among_peers, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(unauthenticated_peers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
