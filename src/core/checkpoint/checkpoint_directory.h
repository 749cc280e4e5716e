#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_manifest.h"
#include "core/checkpoint/directory.h"

namespace nxd {

// A directory of checkpoints, as one process sees it:
//
//     ROOT/step-000000000020/                   published: complete, for it has its manifest
//     ROOT/.step-000000000030.partial/          being written, or left by a job that ended
//     ROOT/.step-000000000010.removed/          being removed, or left so
//     ROOT/step-000000000020.aside/             published, and to be replaced (try_exchange)
//
// A checkpoint gets its name only when all of it is on the disk, and loses the name before any of
// it is removed. So whenever a job is killed, what has a name is whole.
class CheckpointDirectory {
 public:
  // A relative one leads from the working directory of now. IO where that has been removed.
  explicit CheckpointDirectory(const std::string& root);

  // Absolute, as all paths below it are: the program may go elsewhere meanwhile.
  const std::string& root() const { return root_; }
  std::string published_path(int64_t step) const;
  std::string partial_path(int64_t step) const;
  // Where a published one is read: a job that ended may have left it aside, with none in its place.
  std::string path_of(int64_t step) const;

  // Steps that a name of the directory says are published, the newest first.
  std::vector<int64_t> steps() const;
  // CORRUPT when the manifest is no manifest or is another step's; IO when it cannot be read.
  std::string manifest_text_of(int64_t step) const;
  // CORRUPT for a file that is missing or has another size.
  void check_sizes(int64_t step, const CheckpointManifest& manifest) const;
  // The newest that has a manifest and files of the right sizes. Others are named in the log. IO
  // where a newer one cannot be read: it may well be whole.
  std::optional<int64_t> newest() const;

  // For the one process that writes: makes the partial directory of a step, empty, and removes
  // what jobs have left that ended. A published step that such a job took the name of, and gave to
  // no other, has it again. The log names one that cannot be removed, but that is IO where it has
  // the partial directory's place. The lock is held as long as the result.
  [[nodiscard]] std::unique_ptr<DirectoryLock> begin(int64_t step) const;
  // Gives the partial directory its name, in the place of an older one of the same step. Whatever
  // fails, the partial directory never has the older one's content afterwards.
  void place(int64_t step) const;
  // Afterwards: brings the name to the disk, and removes the older one. The checkpoint can be read
  // also where this fails, with IO, which may be tried again.
  void make_durable(int64_t step) const;
  // Removes those of lower steps than the one that was published last, beyond so many: it counts
  // first, then the others from the highest step on. One that is not complete, or cannot be read,
  // does not count, and stays. Each failure is named in the log, and keeps no other step.
  void prune(int64_t published, int keep_last) const noexcept;

 private:
  std::string removed_path(int64_t step) const;
  bool is_complete(int64_t step) const;
  void clear_leftovers(int64_t step) const;
  void remove_published(int64_t step) const;

  std::string root_;
};

// XXH3 of a file's content, in hexadecimal.
CheckpointFile describe_file(const std::string& directory, const std::string& name);
// CORRUPT when a file is not as described.
void verify_file(const std::string& directory, const CheckpointFile& file);

}  // namespace nxd
