#define _GNU_SOURCE
#include "exhaustion/failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <unwind.h>

/* ---- whose code an address is ------------------------------------------------------------------
 */

typedef enum { kForeign, kOurs, kGloo, kRuntime } owner_t;

enum { kMostRanges = 64 };
static struct {
  uintptr_t begin, end;
  owner_t owner;
} ranges[kMostRanges];
static int n_ranges;

static owner_t owner_of_library(const char* path) {
  const char* name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  static const char* const ours[] = {"libnxd_core.so", "libnxd.so"};
  static const char* const runtime[] = {"libstdc++.so", "libgcc_s.so", "libc.so"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; ++i)
    if (strncmp(name, ours[i], strlen(ours[i])) == 0) return kOurs;
  for (size_t i = 0; i < sizeof runtime / sizeof *runtime; ++i)
    if (strncmp(name, runtime[i], strlen(runtime[i])) == 0) return kRuntime;
  return strncmp(name, "libgloo.so", strlen("libgloo.so")) == 0 ? kGloo : kForeign;
}

static int add_ranges(struct dl_phdr_info* info, size_t size, void* arg) {
  (void)size, (void)arg;
  const owner_t owner = owner_of_library(info->dlpi_name);
  for (int i = 0; owner != kForeign && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || n_ranges == kMostRanges)
      continue;
    ranges[n_ranges].begin = info->dlpi_addr + segment->p_vaddr;
    ranges[n_ranges].end = ranges[n_ranges].begin + segment->p_memsz;
    ranges[n_ranges++].owner = owner;
  }
  return 0;
}

static owner_t owner_of(uintptr_t code) {
  for (int i = 0; i < n_ranges; ++i)
    if (code >= ranges[i].begin && code < ranges[i].end) return ranges[i].owner;
  return kForeign;
}

typedef struct {
  uintptr_t start, ours;
  int begun;
} walk_t;

static _Unwind_Reason_Code look_at_frame(struct _Unwind_Context* context, void* arg) {
  walk_t* walk = arg;
  const uintptr_t code = (uintptr_t)_Unwind_GetIP(context);
  if (code == walk->start) walk->begun = 1;
  if (!walk->begun) return _URC_NO_REASON;
  const owner_t owner = owner_of(code);
  if (owner == kRuntime) return _URC_NO_REASON;
  if (owner != kForeign) walk->ours = code;
  return _URC_END_OF_STACK;
}

static __thread int in_here; /* what the look itself calls, and what may not fail */

/* The code of ours that a call is made for; 0 when it is made for others. */
static uintptr_t maker_of(void* return_address) {
  if (in_here) return 0;
  walk_t walk = {(uintptr_t)return_address, 0, 0};
  const owner_t owner = owner_of(walk.start);
  if (owner == kOurs || owner == kGloo) return walk.start;
  if (owner == kForeign) return 0;
  ++in_here;
  _Unwind_Backtrace(look_at_frame, &walk);
  --in_here;
  return walk.ours;
}

/* ---- what fails --------------------------------------------------------------------------------
 */

const char* const fail_kind_names[kFailKinds] = {"memory",     "mapping", "thread",
                                                 "descriptor", "kernel",  "file"};

static atomic_int armed_kind = -1;
static _Atomic uint64_t first_failing, n_failing, counted, failed, failed_in_gloo;
static atomic_uintptr_t first_maker;

void fail_calls(fail_kind_t kind, uint64_t first, uint64_t count) {
  first_failing = first;
  n_failing = count;
  counted = failed = failed_in_gloo = 0;
  first_maker = 0;
  armed_kind = (int)kind;
}

void fail_no_calls(void) { armed_kind = -1; }
uint64_t calls_counted(void) { return counted; }
uint64_t calls_failed(void) { return failed; }
uint64_t calls_failed_in_gloo(void) { return failed_in_gloo; }
uintptr_t first_failed_call(void) { return first_maker; }
int is_code_of_gloo(uintptr_t code) { return owner_of(code) == kGloo; }

static int fails(fail_kind_t kind, uintptr_t maker) {
  if (!maker || armed_kind != (int)kind) return 0;
  const uint64_t n = atomic_fetch_add(&counted, 1) + 1;
  if (n < first_failing || n - first_failing >= n_failing) return 0;
  uintptr_t none = 0;
  atomic_compare_exchange_strong(&first_maker, &none, maker);
  atomic_fetch_add(&failed, 1);
  if (is_code_of_gloo(maker)) atomic_fetch_add(&failed_in_gloo, 1);
  return 1;
}

/* ---- memory that is held -----------------------------------------------------------------------
 */

/* A hash table of blocks, open addressing; the mark says that a place was used before. */
enum { kPlaces = 1 << 17 };
static void* const kUsed = (void*)1;
static struct {
  void* block;
  uintptr_t maker;
  size_t size;
} places[kPlaces];
static atomic_int tracking;
static pthread_spinlock_t places_lock;

static size_t place_of(const void* block) {
  return (size_t)(((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15ULL >> 40) % kPlaces;
}

static void note_taken(void* block, size_t size, uintptr_t maker) {
  if (!tracking || !block || !maker) return;
  pthread_spin_lock(&places_lock);
  size_t at = place_of(block);
  while (places[at].block && places[at].block != kUsed) at = (at + 1) % kPlaces;
  places[at].block = block;
  places[at].size = size;
  places[at].maker = maker;
  pthread_spin_unlock(&places_lock);
}

static void note_given_back(const void* block) {
  if (!tracking || !block) return;
  pthread_spin_lock(&places_lock);
  for (size_t at = place_of(block); places[at].block; at = (at + 1) % kPlaces) {
    if (places[at].block != block) continue;
    places[at].block = kUsed;
    break;
  }
  pthread_spin_unlock(&places_lock);
}

void track_memory(void) {
  memset(places, 0, sizeof places);
  tracking = 1;
}

size_t tracked_blocks(void) {
  size_t n = 0;
  for (size_t at = 0; at < kPlaces; ++at) n += places[at].block && places[at].block != kUsed;
  return n;
}

uintptr_t tracked_block(size_t index, size_t* out_size) {
  for (size_t at = 0; at < kPlaces; ++at) {
    if (!places[at].block || places[at].block == kUsed || index-- > 0) continue;
    *out_size = places[at].size;
    return places[at].maker;
  }
  return 0;
}

/* ---- the functions -----------------------------------------------------------------------------
 */

/* The C library's, by its names for programs with an allocator of their own. */
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

#define MAKER maker_of(__builtin_return_address(0))
/* The function that this program's stands before. */
#define NEXT(function)                            \
  static __typeof__(&function) next;              \
  if (!next) {                                    \
    ++in_here;                                    \
    *(void**)&next = dlsym(RTLD_NEXT, #function); \
    --in_here;                                    \
  }
#define FAIL_WITH(error, value) \
  do {                          \
    errno = (error);            \
    return (value);             \
  } while (0)

__attribute__((constructor)) static void begin(void) {
  pthread_spin_init(&places_lock, PTHREAD_PROCESS_PRIVATE);
  dl_iterate_phdr(add_ranges, NULL);
  walk_t walk = {0, 0, 0};
  _Unwind_Backtrace(look_at_frame, &walk); /* which the unwinder prepares itself for */
}

void* malloc(size_t size) {
  const uintptr_t maker = MAKER;
  if (fails(kFailMemory, maker)) FAIL_WITH(ENOMEM, NULL);
  void* block = __libc_malloc(size);
  note_taken(block, size, maker);
  return block;
}

void* calloc(size_t n, size_t size) {
  const uintptr_t maker = MAKER;
  if (fails(kFailMemory, maker)) FAIL_WITH(ENOMEM, NULL);
  void* block = __libc_calloc(n, size);
  note_taken(block, n * size, maker);
  return block;
}

void* realloc(void* old, size_t size) {
  const uintptr_t maker = MAKER;
  if (fails(kFailMemory, maker)) FAIL_WITH(ENOMEM, NULL);
  note_given_back(old);
  void* block = __libc_realloc(old, size);
  note_taken(block, size, maker);
  return block;
}

static void* aligned(size_t alignment, size_t size, uintptr_t maker) {
  if (fails(kFailMemory, maker)) FAIL_WITH(ENOMEM, NULL);
  void* block = __libc_memalign(alignment, size);
  note_taken(block, size, maker);
  return block;
}

void* memalign(size_t alignment, size_t size);
void* memalign(size_t alignment, size_t size) { return aligned(alignment, size, MAKER); }
void* aligned_alloc(size_t alignment, size_t size) { return aligned(alignment, size, MAKER); }

int posix_memalign(void** out, size_t alignment, size_t size) {
  const int before = errno;
  void* block = aligned(alignment, size, MAKER);
  errno = before;
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

void free(void* block) {
  note_given_back(block);
  __libc_free(block);
}

/* Where it has no memory, glibc ends the process. */
int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library);
int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) {
  NEXT(__cxa_thread_atexit_impl)
  ++in_here;
  const int result = next(destroy, object, library);
  --in_here;
  return result;
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  NEXT(mmap)
  if (fails(kFailMapping, MAKER)) FAIL_WITH(ENOMEM, MAP_FAILED);
  return next(address, size, protection, flags, fd, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* arg) {
  NEXT(pthread_create)
  if (fails(kFailThread, MAKER)) return EAGAIN;
  return next(thread, attributes, start, arg);
}

int socket(int family, int type, int protocol) {
  NEXT(socket)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(family, type, protocol);
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t* size, int flags) {
  NEXT(accept4)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(fd, address, size, flags);
}

static mode_t mode_of(int flags, va_list args) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

int open(const char* path, int flags, ...) {
  NEXT(open)
  va_list args;
  va_start(args, flags);
  const mode_t mode = mode_of(flags, args);
  va_end(args);
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  NEXT(openat)
  va_list args;
  va_start(args, flags);
  const mode_t mode = mode_of(flags, args);
  va_end(args);
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(directory, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, NULL);
  return next(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, NULL);
  return next(path, mode);
}

int pipe2(int ends[2], int flags) {
  NEXT(pipe2)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(ends, flags);
}

int pipe(int ends[2]) {
  NEXT(pipe)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(ends);
}

int epoll_create(int size) {
  NEXT(epoll_create)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(size);
}

int epoll_create1(int flags) {
  NEXT(epoll_create1)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(flags);
}

int eventfd(unsigned value, int flags) {
  NEXT(eventfd)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(value, flags);
}

int memfd_create(const char* name, unsigned flags) {
  NEXT(memfd_create)
  if (fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(name, flags);
}

long syscall(long number, ...) {
  NEXT(syscall)
  va_list args;
  va_start(args, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(args, long);
  va_end(args);
  if (number == SYS_pidfd_open && fails(kFailDescriptor, MAKER)) FAIL_WITH(EMFILE, -1);
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) {
  NEXT(epoll_ctl)
  if (operation == EPOLL_CTL_ADD && fails(kFailKernel, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(epoll, operation, fd, event);
}

int ftruncate(int fd, off_t size) {
  NEXT(ftruncate)
  if (fails(kFailKernel, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(fd, size);
}

int listen(int fd, int backlog) {
  NEXT(listen)
  if (fails(kFailKernel, MAKER)) FAIL_WITH(EADDRINUSE, -1);
  return next(fd, backlog);
}

/* True for a file, and not for a socket, a pipe or an eventfd. */
static int fails_on_file(int fd, uintptr_t maker) {
  struct stat status;
  return maker && armed_kind == kFailFile && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
         fails(kFailFile, maker);
}

ssize_t read(int fd, void* out, size_t size) {
  NEXT(read)
  if (fails_on_file(fd, MAKER)) FAIL_WITH(EIO, -1);
  return next(fd, out, size);
}

ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  NEXT(pread)
  if (fails_on_file(fd, MAKER)) FAIL_WITH(EIO, -1);
  return next(fd, out, size, offset);
}

ssize_t write(int fd, const void* data, size_t size) {
  NEXT(write)
  if (fails_on_file(fd, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  NEXT(pwrite)
  if (fails_on_file(fd, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(fd, data, size, offset);
}

int fsync(int fd) {
  NEXT(fsync)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EIO, -1);
  return next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(rename)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EIO, -1);
  return next(from, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) {
  NEXT(renameat2)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EIO, -1);
  return next(from_directory, from, to_directory, to, flags);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  NEXT(linkat)
  if (fails(kFailFile, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(from_directory, from, to_directory, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir)
  if (fails(kFailFile, MAKER)) FAIL_WITH(ENOSPC, -1);
  return next(path, mode);
}

DIR* fdopendir(int fd) {
  NEXT(fdopendir)
  if (fails(kFailFile, MAKER)) FAIL_WITH(ENOMEM, NULL);
  return next(fd);
}

DIR* opendir(const char* path) {
  NEXT(opendir)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EMFILE, NULL);
  return next(path);
}

int unlink(const char* path) {
  NEXT(unlink)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EIO, -1);
  return next(path);
}

int unlinkat(int directory, const char* path, int flags) {
  NEXT(unlinkat)
  if (fails(kFailFile, MAKER)) FAIL_WITH(EIO, -1);
  return next(directory, path, flags);
}
