/* Stores: the same promises from every kind, and each kind's own. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

#define OK(call) assert_int_equal(nxd_test_ok(__FILE__, __LINE__, #call, (call)), 1)
#define REFUSED(call, status, part) \
  assert_int_equal(nxd_test_refused(__FILE__, __LINE__, #call, (call), (status), (part)), 1)

static char path[64];

static void fresh_path(void) {
  strcpy(path, "/tmp/nxd-store-XXXXXX");
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  unlink(path);
}

static void promises(nxd_store_t* store, int checks_words) {
  char buf[64];
  size_t size = 7;
  REFUSED(nxd_store_get(store, "absent", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "absent");
  assert_int_equal(size, 0);
  REFUSED(nxd_store_get(store, "absent", 30, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "30 ms");

  const char binary[] = {'a', 0, (char)0xff, '\n', 'z'};
  OK(nxd_store_set(store, "binary", binary, sizeof binary));
  OK(nxd_store_get(store, "binary", 0, buf, sizeof buf, &size));
  assert_int_equal(size, sizeof binary);
  assert_memory_equal(buf, binary, sizeof binary);
  OK(nxd_store_set(store, "binary", "new", 3));
  OK(nxd_store_get(store, "binary", 0, buf, sizeof buf, &size));
  assert_int_equal(size, 3);

  OK(nxd_store_set(store, "empty", NULL, 0));
  OK(nxd_store_get(store, "empty", 0, NULL, 0, &size));
  assert_int_equal(size, 0);

  memset(buf, 'x', sizeof buf);
  REFUSED(nxd_store_get(store, "binary", 0, buf, 2, &size), NXD_ERROR_INVALID_ARGUMENT, "cap");
  assert_int_equal(size, 3);
  assert_int_equal(buf[0], 'x');

  int64_t sum = 0;
  OK(nxd_store_add(store, "sum", 5, &sum));
  assert_int_equal(sum, 5);
  OK(nxd_store_add(store, "sum", -8, &sum));
  assert_int_equal(sum, -3);
  OK(nxd_store_get(store, "sum", 0, buf, sizeof buf, &size));
  assert_int_equal(size, 2);
  assert_memory_equal(buf, "-3", 2);
  OK(nxd_store_add(store, "wraps", INT64_MAX, &sum));
  OK(nxd_store_add(store, "wraps", 1, &sum));
  assert_true(sum == INT64_MIN);
  OK(nxd_store_set(store, "word", "abc", 3));
  /* A server of torch drops a client that adds to a word. */
  if (checks_words)
    REFUSED(nxd_store_add(store, "word", 1, &sum), NXD_ERROR_INVALID_ARGUMENT, "word");

  char* large = malloc(3000000);
  for (size_t i = 0; i < 3000000; ++i) large[i] = (char)(i * 13);
  OK(nxd_store_set(store, "large", large, 3000000));
  char* back = calloc(1, 3000000);
  OK(nxd_store_get(store, "large", 0, back, 3000000, &size));
  assert_int_equal(size, 3000000);
  assert_memory_equal(back, large, 3000000);
  free(back);
  free(large);
}

typedef struct {
  nxd_store_t* store;
  int index;
} adder_t;

static void* add_many(void* arg) {
  const adder_t* adder = arg;
  int64_t sum;
  for (int i = 0; i < 200; ++i) NXD_TEST_OK(nxd_store_add(adder->store, "shared", 1, &sum));
  char key[16];
  snprintf(key, sizeof key, "done%d", adder->index);
  NXD_TEST_OK(nxd_store_set(adder->store, key, "1", 1));
  return NULL;
}

/* Adds from several clients lose nothing, and a get wakes up when its key is set. */
static void concurrent(nxd_store_t** clients, int n) {
  pthread_t threads[4];
  adder_t adders[4];
  for (int i = 0; i < n; ++i) {
    adders[i] = (adder_t){clients[i], i};
    assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
  }
  char key[16], buf[8];
  size_t size;
  for (int i = 0; i < n; ++i) {
    snprintf(key, sizeof key, "done%d", i);
    OK(nxd_store_get(clients[0], key, 30000, buf, sizeof buf, &size));
  }
  for (int i = 0; i < n; ++i) pthread_join(threads[i], NULL);
  int64_t sum = 0;
  OK(nxd_store_add(clients[0], "shared", 0, &sum));
  assert_int_equal(sum, 200 * n);
  assert_int_equal(nxd_test_failures(), 0);
}

static void local(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  OK(nxd_store_create_local(&store));
  promises(store, 1);
  nxd_store_t* clients[3] = {store, store, store};
  concurrent(clients, 3);
  int32_t port = 3;
  REFUSED(nxd_store_get_port(store, &port), NXD_ERROR_INVALID_ARGUMENT, "nxd_store_create_tcp");
  assert_int_equal(port, 0);
  nxd_store_destroy(store);
}

static void file(void** state) {
  (void)state;
  fresh_path();
  nxd_store_t* clients[3] = {NULL};
  for (int i = 0; i < 3; ++i) OK(nxd_store_create_file(path, &clients[i]));
  promises(clients[0], 1);
  concurrent(clients, 3);
  for (int i = 0; i < 3; ++i) nxd_store_destroy(clients[i]);
  assert_int_equal(access(path, F_OK), 0);
  unlink(path);
}

/* A record that a dead writer left half-written is dropped, and a finished one is not. */
static void file_torn(void** state) {
  (void)state;
  fresh_path();
  nxd_store_t* store = NULL;
  OK(nxd_store_create_file(path, &store));
  OK(nxd_store_set(store, "whole", "1", 1));
  OK(nxd_store_set(store, "torn", "a value long enough to be cut", 29));
  nxd_store_destroy(store);
  const int fd = open(path, O_RDWR);
  assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 10), 0);
  close(fd);
  OK(nxd_store_create_file(path, &store));
  char buf[32];
  size_t size;
  OK(nxd_store_get(store, "whole", 0, buf, sizeof buf, &size));
  REFUSED(nxd_store_get(store, "torn", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "torn");
  OK(nxd_store_set(store, "after", "2", 1));
  nxd_store_t* other = NULL;
  OK(nxd_store_create_file(path, &other));
  OK(nxd_store_get(other, "after", 0, buf, sizeof buf, &size));
  nxd_store_destroy(other);
  nxd_store_destroy(store);
  unlink(path);
}

static void file_bad(void** state) {
  (void)state;
  nxd_store_t* store = (nxd_store_t*)1;
  REFUSED(nxd_store_create_file("/nonexistent/dir/store", &store), NXD_ERROR_IO, "/nonexistent");
  assert_null(store);
  REFUSED(nxd_store_create_file("", &store), NXD_ERROR_INVALID_ARGUMENT, "path");
  fresh_path();
  FILE* f = fopen(path, "w");
  fputs("a file of somebody else's", f);
  fclose(f);
  REFUSED(nxd_store_create_file(path, &store), NXD_ERROR_CORRUPT, path);
  assert_null(store);
  unlink(path);
}

static void tcp(void** state) {
  (void)state;
  nxd_store_t* clients[3] = {NULL};
  enum { BOUND_MS = 60000 }; /* the largest value takes seconds beside other load */
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, BOUND_MS, &clients[0]));
  int32_t port = 0;
  OK(nxd_store_get_port(clients[0], &port));
  assert_true(port > 0);
  for (int i = 1; i < 3; ++i) OK(nxd_store_create_tcp("localhost", port, 0, BOUND_MS, &clients[i]));
  promises(clients[1], 1);
  size_t too_large = ((size_t)64 << 20) + 1;
  char* value = calloc(1, too_large);
  REFUSED(nxd_store_set(clients[1], "k", value, too_large), NXD_ERROR_INVALID_ARGUMENT, "67108865");
  OK(nxd_store_set(clients[1], "k", value, too_large - 1));
  free(value);
  concurrent(clients, 3);
  nxd_store_t* second = NULL;
  REFUSED(nxd_store_create_tcp("127.0.0.1", port, 1, 5000, &second), NXD_ERROR_IO, "port");
  assert_null(second);
  nxd_store_destroy(clients[0]); /* the server goes with it */
  size_t size;
  char buf[8];
  REFUSED(nxd_store_get(clients[1], "binary", 0, buf, 8, &size), NXD_ERROR_IO, "localhost");
  nxd_store_destroy(clients[1]);
  nxd_store_destroy(clients[2]);
  REFUSED(nxd_store_create_tcp("127.0.0.1", port, 0, 200, &second), NXD_ERROR_TIMEOUT, "no store");
}

/* Keys and values are bytes of programs', and a message is one line of text. */
static void shown_in_messages(void** state) {
  (void)state;
  nxd_store_t* stores[2] = {NULL};
  OK(nxd_store_create_local(&stores[0]));
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, 60000, &stores[1]));
  for (int i = 0; i < 2; ++i) {
    const char* key = "\x1b[31m\n";
    char buf[8];
    size_t size = 0;
    int64_t sum = 0;
    OK(nxd_store_set(stores[i], key, "a\0b\n\xff", 5));
    REFUSED(nxd_store_add(stores[i], key, 1, &sum), NXD_ERROR_INVALID_ARGUMENT,
            "store key \"\\u001b[31m\\u000a\": expected an integer to add to, got "
            "\"a\\u0000b\\u000a\\xff\"");
    REFUSED(nxd_store_get(stores[i], key, 0, buf, 2, &size), NXD_ERROR_INVALID_ARGUMENT,
            "bytes for the value of \"\\u001b[31m\\u000a\", got 2");
    REFUSED(nxd_store_get(stores[i], "\x7f", 0, buf, 2, &size), NXD_ERROR_TIMEOUT,
            "key \"\\u007f\" was not set");
    nxd_store_destroy(stores[i]);
  }
}

/* A get waits no longer than the store's own bound. */
static void tcp_bound(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, 2000, &store));
  size_t size;
  REFUSED(nxd_store_get(store, "absent", 3600000, NULL, 0, &size), NXD_ERROR_TIMEOUT,
          "\"absent\" was not set within 2000 ms, the store's own timeout");
  REFUSED(nxd_store_get(store, "absent", 20, NULL, 0, &size), NXD_ERROR_TIMEOUT, "within 20 ms");
  nxd_store_destroy(store);
}

typedef struct {
  int fail_get, destroyed;
  int64_t sum;
  char value[16];
  size_t size;
} host_t;

static nxd_status_t host_set(const char* key, const uint8_t* value, size_t size, void* user_data) {
  host_t* host = user_data;
  if (strcmp(key, "k") != 0 || size > sizeof host->value) return NXD_ERROR_USER;
  memcpy(host->value, value, size);
  host->size = size;
  return NXD_OK;
}
static nxd_status_t host_get(const char* key, uint8_t* buf, size_t cap, size_t* out_size,
                             int32_t* out_found, void* user_data) {
  host_t* host = user_data;
  if (host->fail_get) return NXD_ERROR_USER;
  *out_found = strcmp(key, "k") == 0;
  *out_size = host->size;
  if (cap >= host->size) memcpy(buf, host->value, host->size);
  return NXD_OK;
}
static nxd_status_t host_add(const char* key, int64_t amount, int64_t* out, void* user_data) {
  (void)key;
  host_t* host = user_data;
  *out = host->sum += amount;
  return NXD_OK;
}
static void host_destroy(void* user_data) { ++((host_t*)user_data)->destroyed; }

static void callbacks(void** state) {
  (void)state;
  host_t host = {0};
  nxd_store_callbacks_t cb = {sizeof cb, &host, host_destroy, host_set, host_get, host_add};
  nxd_store_t* store = NULL;
  cb.add = NULL;
  REFUSED(nxd_store_create_callbacks(&cb, &store), NXD_ERROR_INVALID_ARGUMENT, "callbacks.add");
  assert_int_equal(host.destroyed, 0);
  cb.add = host_add;
  cb.struct_size = 8;
  REFUSED(nxd_store_create_callbacks(&cb, &store), NXD_ERROR_ABI_MISMATCH, "struct_size");
  cb.struct_size = sizeof cb;
  OK(nxd_store_create_callbacks(&cb, &store));
  OK(nxd_store_set(store, "k", "hello", 5));
  char buf[8];
  size_t size;
  OK(nxd_store_get(store, "k", 0, buf, sizeof buf, &size));
  assert_int_equal(size, 5);
  assert_memory_equal(buf, "hello", 5);
  REFUSED(nxd_store_get(store, "other", 0, buf, sizeof buf, &size), NXD_ERROR_TIMEOUT, "other");
  int64_t sum;
  OK(nxd_store_add(store, "s", 3, &sum));
  assert_int_equal(sum, 3);
  REFUSED(nxd_store_set(store, "bad", "", 0), NXD_ERROR_USER, "set callback");
  host.size = ((size_t)1 << 30) + 1;
  REFUSED(nxd_store_get(store, "k", 0, buf, sizeof buf, &size), NXD_ERROR_USER,
          "expected a size of at most 1073741824 for key \"k\", got 1073741825");
  host.fail_get = 1;
  REFUSED(nxd_store_get(store, "k", 0, buf, sizeof buf, &size), NXD_ERROR_USER, "get callback");
  nxd_store_destroy(store);
  assert_int_equal(host.destroyed, 1);
}

/* The store that torchrun's agent serves, in the installed torch. */
static void torch_server(void** state) {
  (void)state;
  int to[2], from[2];
  assert_int_equal(pipe(to) | pipe(from), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    close(to[1]);
    close(from[0]);
    execl("/usr/bin/python3", "python3", "-c",
          "import sys, datetime, torch.distributed as d\n"
          "try: s = d.TCPStore('127.0.0.1', 0, 1, True, datetime.timedelta(seconds=60), "
          "use_libuv=False)\n"
          "except TypeError: s = d.TCPStore('127.0.0.1', 0, 1, True, "
          "datetime.timedelta(seconds=60))\n"
          "s.set('theirs', b'from torch')\n"
          "print(s.port, flush=True)\n"
          "sys.stdin.readline()\n"
          "print(s.get('ours').decode(), s.add('sum', 1), flush=True)\n"
          "sys.stdin.readline()\n",
          (char*)NULL);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  FILE* answers = fdopen(from[0], "r");
  int port = 0, their_sum = 0;
  char word[32] = "";
  assert_int_equal(fscanf(answers, "%d", &port), 1);
  nxd_store_t* store = NULL;
  OK(nxd_store_create_tcp("127.0.0.1", port, 0, 20000, &store));
  promises(store, 0);
  char buf[32];
  size_t size;
  OK(nxd_store_set(store, "/ours", "from nxd", 8)); /* torch prefixes its keys with a slash */
  OK(nxd_store_get(store, "/theirs", 0, buf, sizeof buf, &size));
  assert_int_equal(size, 10);
  assert_memory_equal(buf, "from torch", 10);
  int64_t sum;
  OK(nxd_store_add(store, "/sum", 41, &sum));
  assert_int_equal(write(to[1], "\n", 1), 1);
  assert_int_equal(fscanf(answers, " from %31s %d", word, &their_sum), 2);
  assert_string_equal(word, "nxd");
  assert_int_equal(their_sum, 42);
  nxd_store_destroy(store);
  close(to[1]);
  fclose(answers);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static void bad_calls(void** state) {
  (void)state;
  nxd_store_t* store = NULL;
  REFUSED(nxd_store_create_local(NULL), NXD_ERROR_INVALID_ARGUMENT, "out_store");
  REFUSED(nxd_store_create_file(NULL, &store), NXD_ERROR_INVALID_ARGUMENT, "path");
  REFUSED(nxd_store_create_tcp(NULL, 1, 0, 10, &store), NXD_ERROR_INVALID_ARGUMENT, "host");
  REFUSED(nxd_store_create_tcp("h", 0, 0, 10, &store), NXD_ERROR_INVALID_ARGUMENT, "port");
  REFUSED(nxd_store_create_tcp("h", 70000, 1, 10, &store), NXD_ERROR_INVALID_ARGUMENT, "port");
  REFUSED(nxd_store_create_tcp("h", 1, 0, -1, &store), NXD_ERROR_INVALID_ARGUMENT, "timeout_ms");
  REFUSED(nxd_store_create_tcp("no.such.host.invalid", 9, 0, 10, &store), NXD_ERROR_IO, "host");
  REFUSED(nxd_store_create_tcp("fe80::1%nxd-none", 9, 0, 10, &store), NXD_ERROR_IO,
          "no network interface \"nxd-none\"");
  REFUSED(nxd_store_create_callbacks(NULL, &store), NXD_ERROR_INVALID_ARGUMENT, "callbacks");
  size_t size = 1;
  int64_t sum = 1;
  REFUSED(nxd_store_set(NULL, "k", "", 0), NXD_ERROR_INVALID_ARGUMENT, "store");
  REFUSED(nxd_store_get(NULL, "k", 0, NULL, 0, &size), NXD_ERROR_INVALID_ARGUMENT, "store");
  assert_int_equal(size, 0);
  REFUSED(nxd_store_add(NULL, "k", 0, &sum), NXD_ERROR_INVALID_ARGUMENT, "store");
  assert_int_equal(sum, 0);
  OK(nxd_store_create_local(&store));
  REFUSED(nxd_store_set(store, NULL, "", 0), NXD_ERROR_INVALID_ARGUMENT, "key");
  REFUSED(nxd_store_set(store, "k", NULL, 1), NXD_ERROR_INVALID_ARGUMENT, "value");
  REFUSED(nxd_store_get(store, NULL, 0, NULL, 0, &size), NXD_ERROR_INVALID_ARGUMENT, "key");
  REFUSED(nxd_store_get(store, "k", -1, NULL, 0, &size), NXD_ERROR_INVALID_ARGUMENT, "timeout_ms");
  REFUSED(nxd_store_get(store, "k", 0, NULL, 4, &size), NXD_ERROR_INVALID_ARGUMENT, "buf");
  REFUSED(nxd_store_get(store, "k", 0, NULL, 0, NULL), NXD_ERROR_INVALID_ARGUMENT, "out_size");
  REFUSED(nxd_store_add(store, NULL, 0, &sum), NXD_ERROR_INVALID_ARGUMENT, "key");
  REFUSED(nxd_store_add(store, "k", 0, NULL), NXD_ERROR_INVALID_ARGUMENT, "out_value");
  nxd_store_destroy(store);
  nxd_store_destroy(NULL);
}

/* A forked child must not talk over the parent's connection, nor end the parent's server. */
static void forked_child(void** state) {
  (void)state;
  nxd_store_t* stores[2] = {NULL, NULL};
  OK(nxd_store_create_local(&stores[0]));
  OK(nxd_store_create_tcp("127.0.0.1", 0, 1, 10000, &stores[1]));
  for (int i = 0; i < 2; ++i) OK(nxd_store_set(stores[i], "k", "v", 1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int bad = 0;
    for (int i = 0; i < 2; ++i) {
      char value[4];
      size_t size = 7;
      int64_t sum = 7;
      bad |=
          nxd_store_get(stores[i], "k", 0, value, sizeof value, &size) != NXD_ERROR_INVALID_STATE;
      bad |= nxd_store_set(stores[i], "k", "w", 1) != NXD_ERROR_INVALID_STATE;
      bad |= nxd_store_add(stores[i], "n", 1, &sum) != NXD_ERROR_INVALID_STATE;
      bad |= size != 0 || sum != 0;
      nxd_context_options_t options = NXD_CONTEXT_OPTIONS_INIT;
      options.rendezvous = NXD_RENDEZVOUS_STORE;
      options.size = 2;
      options.store = stores[i];
      nxd_context_t* ctx = NULL;
      bad |= nxd_context_create(&options, &ctx) != NXD_ERROR_INVALID_STATE || ctx;
      nxd_store_destroy(stores[i]);
    }
    _exit(bad);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (int i = 0; i < 2; ++i) {
    char value = 0;
    size_t size = 0;
    OK(nxd_store_get(stores[i], "k", 0, &value, 1, &size));
    assert_int_equal(value, 'v');
    nxd_store_destroy(stores[i]);
  }
}

/* With "torch" the store of an installed torch alone, or 77 where there is none. */
int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "torch")) {
    if (system("/usr/bin/python3 -c 'import torch.distributed' >/dev/null 2>&1") != 0) {
      puts("skip: torch's store: no torch.distributed in /usr/bin/python3; install python3-torch");
      return 77;
    }
    const struct CMUnitTest torch[] = {cmocka_unit_test(torch_server)};
    return cmocka_run_group_tests(torch, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(local),     cmocka_unit_test(file),
      cmocka_unit_test(file_torn), cmocka_unit_test(file_bad),
      cmocka_unit_test(tcp),       cmocka_unit_test(shown_in_messages),
      cmocka_unit_test(tcp_bound), cmocka_unit_test(callbacks),
      cmocka_unit_test(bad_calls), cmocka_unit_test(forked_child),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
