#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace nxd {

class Checksum;

// An open file for reading at any offset, also from several threads. Failures are IO and name the
// path.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Says which file it is, whatever name it has.
  struct Identity {
    uint64_t device, number, size;
    bool operator==(const Identity&) const = default;
  };
  Identity identity() const { return {device_, number_, size_}; }
  // CORRUPT when the file ends before offset + size, as after it was truncated while open.
  void read(uint64_t offset, void* out, size_t size) const;
  // Calls visit for the whole content, from its start, a megabyte at a time.
  void for_each_part(const std::function<void(std::string_view part)>& visit) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0, device_ = 0, number_ = 0;
};

// IO for a path of anything but a regular file or a link to one: a rename would put a file in the
// place of a device or a pipe.
void check_replaceable(const std::string& path);

// Writes a file so that its path holds either the old content or all of the new, also across a
// crash: a temporary file in the same directory, synchronised and then renamed. Without commit()
// nothing is left behind, also when the process is killed. The file has no name until it is
// complete. If the file system cannot do that, the next writer of the same path removes it.
class AtomicFile {
 public:
  // IO as check_replaceable(), before anything is written.
  // All bytes are added to the checksum, too, which outlives the file; null: to none.
  explicit AtomicFile(const std::string& path, Checksum* checksum = nullptr);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void commit();

 private:
  std::string next_name() const;
  void create_named();
  void give_name();
  void hand_over(uint64_t size);
  void begin_writing(uint64_t begin, uint64_t end);
  void let_go(uint64_t begin, uint64_t end);
  void write_piece(std::string_view bytes);

  std::string path_, directory_;
  std::string stem_;  // of temporary names beside the path
  Checksum* checksum_;
  std::string temporary_;  // the file's name until it is renamed; "": it has none
  int fd_ = -1;
  // Bytes: all; those that the disk has been told to take; those whose memory has been given back.
  uint64_t written_ = 0, handed_over_ = 0, let_go_ = 0;
};

// As fsync; but a directory of a file system without that call, such as AFS and VirtualBox's shared
// folders, has no error: its names reach the disk as the file system sees to it.
int synchronise_open(int fd) noexcept;
bool is_directory(const std::string& path);
bool file_exists(const std::string& path);
void remove_file(const std::string& path);
// True for a name of a file that lies beside the one that tells of it: no path, and nothing that
// would make two lines of a message.
bool is_plain_name(std::string_view name);
// The whole content. CORRUPT beyond the limit, so that a wrong path cannot exhaust memory.
std::string read_text(const std::string& path, uint64_t limit);

}  // namespace nxd
