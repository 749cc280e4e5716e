#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// Operations on directories; failures are IO and name the path.
// With those above it that are missing. The names of new ones survive a crash of the machine.
void make_directories(const std::string& path);
void make_directory(const std::string& path);
// Names of what it contains, but "." and "..", sorted.
std::vector<std::string> entries_of(const std::string& path);
bool is_regular_file(const std::string& path);
// True where there is something at the end of the path. IO where that cannot be told.
bool leads_anywhere(const std::string& path);
// A file, a directory, or a link wherever it leads.
bool has_entry(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// False, with nothing changed, for a directory that cannot be renamed: overlayfs renames none of a
// lower layer, such as one that a container's image has.
[[nodiscard]] bool try_rename(const std::string& from, const std::string& to);
// Two paths of one directory change their names, at once where the file system can. Elsewhere a
// crash may leave b's content under its name and this ending, with or without a's under b. False as
// of try_rename.
inline constexpr std::string_view kAside = ".aside";
[[nodiscard]] bool try_exchange(const std::string& a, const std::string& b);
// With all that it contains. Links are removed, and what they lead to stays.
void remove_tree(const std::string& path);
// The content of a file survives a crash of the machine from now on. A link is IO.
void synchronise(const std::string& path);
// The same for the names in a directory, to which a link may lead, as far as the file system can
// say so (synchronise_open).
void synchronise_directory(const std::string& path);

// A lock that ends with this object, or with the process. It is a file, which stays.
class DirectoryLock {
 public:
  static constexpr const char* kName = ".lock";
  static constexpr const char* kBusy = "another checkpoint is being written here";

  // INVALID_STATE when another holds it, with what that one does.
  explicit DirectoryLock(const std::string& directory, const std::string& name = kName,
                         const std::string& busy = kBusy);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // False where the file has lost its name: the next to lock it has another one.
  bool is_in_place() const;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace nxd
