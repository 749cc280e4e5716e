#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/agree/outcome.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/comm/process_group.h"

namespace nxd {

// A checkpoint of a job, which all its ranks write or read together. Its files are of the user's
// making; here is what makes them one: all appear at once, or none does.
//
// Every rank has to see the directory, as on a file system that hosts share. A failure on one rank
// is one on all.
class Checkpoint {
 public:
  // Begins to write. The first rank makes the directory. given: all ranks fail with one whose
  // arguments are none. Collective.
  static std::unique_ptr<Checkpoint> create(const std::shared_ptr<ProcessGroup>& group,
                                            const std::string& root, int64_t step,
                                            const Outcome& given = {});
  // The published one of a step, or the newest that is complete: null where there is none. With
  // verify the ranks share the reading of all files, and compare their checksums. Collective.
  static std::unique_ptr<Checkpoint> open(const std::shared_ptr<ProcessGroup>& group,
                                          const std::string& root, std::optional<int64_t> step,
                                          bool verify, const Outcome& given = {});
  // Removes what was not published, on the first rank.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  int64_t step() const { return manifest_.step; }
  const SavedRandomState& random() const { return manifest_.random; }
  const std::map<std::string, std::string>& values() const { return manifest_.values; }
  // The path of a file in it; when it was opened, of one that it has.
  std::string path(const std::string& name) const;

  // Only while it is written. Ranks that set one key give it one value.
  void set_value(const std::string& key, const std::string& value);
  // Brings all files to the disk, writes their manifest, and gives the checkpoint its name. Then
  // older ones than the newest so many are removed; 0 keeps all. Nothing can be written after.
  // given: as above. Collective.
  void publish(const SavedRandomState& random, int keep_last, const Outcome& given = {});

 private:
  Checkpoint(std::shared_ptr<ProcessGroup> group, const std::string& root);

  bool is_first() const { return group_->rank() == 0; }
  std::string current_path() const;
  void gather_values();
  void describe_files();
  void check_files(bool verify);

  std::shared_ptr<ProcessGroup> group_;
  CheckpointDirectory directory_;
  std::unique_ptr<DirectoryLock> lock_;  // on the first rank, while it is written
  bool is_writing_ = false;
  CheckpointManifest manifest_;
};

}  // namespace nxd
