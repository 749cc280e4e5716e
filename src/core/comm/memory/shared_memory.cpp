#include "core/comm/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/proc_file.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

struct stat status_of(int descriptor, const char* what) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    fail(NXD_ERROR_IO, what, ": fstat: ", std::strerror(errno));
  }
  return status;
}

uint32_t low_half(uint64_t inode) { return static_cast<uint32_t>(inode); }

// Where it fails errno says why.
Fd open_at(const SharedMemory::Address& address) {
  Fd found;
  int code = ENOENT;
  find_in_proc(address.pid, [&](const std::string& directory) {
    const std::string path = text(directory, "/fd/", address.descriptor);
    found = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (found) return true;
    // Another user than root may not even look at what a thread that has ended leaves.
    const bool may_differ = errno == ENOENT || errno == EACCES || errno == EPERM;
    if (errno != ENOENT) code = errno;
    return !may_differ;
  });
  errno = code;
  return found;
}

}  // namespace

std::string SharedMemory::Address::encode() const { return text(pid, " ", descriptor, " ", inode); }

SharedMemory::Address SharedMemory::Address::decode(const std::string& text) {
  Address address;
  TextReader in(text);
  in >> address.pid >> address.descriptor >> address.inode;
  if (in.fail() || address.pid <= 0 || address.descriptor < 0) {
    fail(NXD_ERROR_CORRUPT, "expected the address of shared memory, got \"", text.substr(0, 80),
         "\"");
  }
  return address;
}

SharedMemory SharedMemory::create(size_t size) {
  SharedMemory memory;
  memory.descriptor_ = Fd(::memfd_create("nxd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.descriptor_) {
    fail(NXD_ERROR_IO, "shared memory: memfd_create: ", std::strerror(errno),
         errno == EPERM || errno == ENOSYS ? " (NXD_TRANSPORT=gloo does without it)" : "");
  }
  const int fd = memory.descriptor_.get();
  {
    const HeldSignal no_sigxfsz(SIGXFSZ);
    if (::ftruncate(fd, static_cast<off_t>(size)) != 0) {
      fail(NXD_ERROR_OUT_OF_MEMORY, "shared memory of ", size, " bytes: ", std::strerror(errno),
           errno == EFBIG ? " (the limit on file sizes, ulimit -f, counts for it too)" : "");
    }
  }
  // A peer that made it shorter would take the memory from under the others.
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  memory.pid_ = ::getpid();
  memory.size_ = size;
  memory.inode_ = low_half(status_of(fd, "shared memory").st_ino);
  memory.map();
  return memory;
}

SharedMemory SharedMemory::open(const Address& address) {
  SharedMemory memory;
  memory.descriptor_ = open_at(address);
  if (!memory.descriptor_ && errno == ENOENT && ::access(own_proc("fd").c_str(), X_OK) != 0) {
    fail(NXD_ERROR_IO, "cannot open the shared memory of process ", address.pid,
         ": /proc is not mounted here; expected it, or NXD_TRANSPORT=gloo");
  }
  if (!memory.descriptor_ && (errno == EACCES || errno == EPERM)) {
    fail(
        NXD_ERROR_IO, "cannot open the shared memory of process ", address.pid, ": ",
        std::strerror(errno),
        " (it needs the same user and user namespace there, and a process that PR_SET_DUMPABLE has "
        "not closed; NXD_TRANSPORT=gloo does without it)");
  }
  if (!memory.descriptor_) {
    fail(errno == ENOENT ? NXD_ERROR_PEER_LOST : NXD_ERROR_IO,
         "cannot open the shared memory of process ", address.pid, ": ", std::strerror(errno),
         " (it has ended, or cannot be seen from here: ranks with one NXD_HOST_ID need one process "
         "namespace)");
  }
  const struct stat status = status_of(memory.descriptor_.get(), "shared memory of a process");
  memory.inode_ = low_half(status.st_ino);
  if (memory.inode_ != address.inode) {
    fail(NXD_ERROR_PEER_LOST, "the shared memory of process ", address.pid, " is gone");
  }
  // As the store may name any process, and root may open all.
  if (status.st_uid != ::geteuid()) {
    fail(NXD_ERROR_IO, "the shared memory of process ", address.pid, " is of another user, ",
         status.st_uid);
  }
  memory.size_ = static_cast<size_t>(status.st_size);
  memory.map();
  memory.close_descriptor();
  return memory;
}

void SharedMemory::map() {
  void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      descriptor_.get(), 0);
  if (data == MAP_FAILED) {
    fail(NXD_ERROR_OUT_OF_MEMORY, "shared memory: mapping ", size_,
         " bytes: ", std::strerror(errno));
  }
  data_ = static_cast<char*>(data);
  ::madvise(data_, size_, MADV_HUGEPAGE);  // where the system is set up for it
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      pid_(other.pid_),
      inode_(other.inode_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(pid_, other.pid_);
  std::swap(inode_, other.inode_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, size_);
}

SharedMemory::Address SharedMemory::address() const { return {pid_, descriptor_.get(), inode_}; }

void SharedMemory::keep_from_children() noexcept { ::madvise(data_, size_, MADV_DONTFORK); }

}  // namespace nxd
