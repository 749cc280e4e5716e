#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/comm/net/socket.h"

namespace nxd {

// Memory that processes of one host share. It has no name in any file system, so that nothing is
// left behind however its users end: the kernel frees it with the last mapping. Others open it
// through the descriptor of the process that made it, which needs the same user and process
// namespace.
class SharedMemory {
 public:
  // The address by which another process finds the memory. The inode guards against a descriptor
  // used anew.
  struct Address {
    int32_t pid = 0;
    int32_t descriptor = -1;
    uint32_t inode = 0;  // the low half; never 0

    std::string encode() const;
    static Address decode(const std::string& text);
  };

  // Zeroed memory. IO when the system has none.
  static SharedMemory create(size_t size);
  // PEER_LOST when the process that made it, or the memory, is gone; IO when it is out of reach.
  static SharedMemory open(const Address& address);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Only for memory made here whose descriptor is open.
  Address address() const;
  // From now on no other process can open the memory.
  void close_descriptor() { descriptor_.reset(); }
  // Leaves the mapping out of forked children.
  void keep_from_children() noexcept;

 private:
  void map();

  Fd descriptor_;
  int32_t pid_ = 0;  // of the process that made it
  uint32_t inode_ = 0;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nxd
