#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/agree/outcome.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/snapshot.h"
#include "core/world/context.h"

namespace nxd {

// A checkpoint of a job, which all its ranks write or read together. Its files are of the user's
// making; here is what makes them one: all appear at once, or none does.
//
// Every rank has to see the directory, as on a file system that hosts share. A failure on one rank
// is one on all. A context publishes one checkpoint at a time in the background: collective calls
// wait for it first.
class Checkpoint {
 public:
  // Begins to write. The first rank makes the directory. given: all ranks fail with one whose
  // arguments are none. Collective.
  static std::unique_ptr<Checkpoint> create(const std::shared_ptr<Context>& context,
                                            const std::string& root, int64_t step,
                                            const Outcome& given = {});
  // The published one of a step, or the newest that is complete: null where there is none. With
  // verify the ranks share the reading of all files, and compare their checksums. Collective.
  static std::unique_ptr<Checkpoint> open(const std::shared_ptr<Context>& context,
                                          const std::string& root, std::optional<int64_t> step,
                                          bool verify, const Outcome& given = {});
  // Waits for the background. Removes what was not published, on the first rank.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  int64_t step() const { return manifest_.step; }
  const std::map<std::string, std::string>& values() const { return manifest_.values; }
  const std::shared_ptr<Context>& context() const { return context_; }
  bool is_writing() const { return is_writing_; }  // neither opened nor published
  // The path of a file in it; when it was opened, of one that it has.
  std::string path(const std::string& name) const;

  // Only while it is written. Ranks that set one key give it one value.
  void set_value(const std::string& key, const std::string& value);
  // Takes a snapshot, on every rank, that is written when the checkpoint is published, as the file
  // of that name. Collective: where one rank's attempt fails none is taken.
  using Take = std::function<std::unique_ptr<Snapshot>(Context& context)>;
  void add_snapshot(const std::string& name, const Take& take);
  // Writes the snapshots, brings all files to the disk, writes their manifest, and gives the
  // checkpoint its name. Then older ones than the newest so many are removed; 0 keeps all. Nothing
  // can be written after. Where the name alone cannot be brought to the disk the checkpoint is one
  // to read, and the next call tries that again. given: as above. Collective.
  void publish(int keep_last, const Outcome& given = {});

  // The same in the background. The caller may wait for it, or ask; INVALID_STATE before it has
  // begun.
  void publish_async(int keep_last, const Outcome& given = {});
  void wait(int64_t timeout_ms);  // as Work::wait
  bool is_done() const;

  // The context's random bits continue where those of the checkpoint's writer did. INVALID_STATE
  // for another seed, which can be asked for before.
  void check_random_state() const;
  void restore_random_state();

 private:
  Checkpoint(std::shared_ptr<Context> context, const std::string& root);

  bool is_first() const { return context_->rank() == 0; }
  ProcessGroup& world() const { return *context_->world(); }
  std::string current_path() const;
  void check_settled() const;
  const Work& published_work() const;
  void check_names_of_snapshots() const;
  void agree_to_publish(int keep_last, bool in_background, const Outcome& given);
  void complete(ProcessGroup& group, int keep_last, const Outcome& given);
  void place(ProcessGroup& group);
  void gather_values();
  void gather_seeds();
  void take_random_state();
  void describe_files(ProcessGroup& group, const std::vector<CheckpointFile>& written);
  std::vector<CheckpointFile> describe_share(const std::vector<std::string>& names, int rank,
                                             int size) const;
  void check_files(const std::string& manifest, bool verify);

  std::shared_ptr<Context> context_;
  CheckpointDirectory directory_;
  std::unique_ptr<DirectoryLock> lock_;  // on the first rank, while it is written
  bool is_writing_ = false;
  bool is_durable_ = true;  // false: it has its name, which may not be on the disk
  CheckpointManifest manifest_;
  bool has_random_state_ = false;
  std::vector<std::pair<std::string, std::unique_ptr<Snapshot>>> snapshots_;  // until published
  bool were_snapshots_written_ = false;  // or some, by an attempt to publish that failed
  // The last attempt in the background. All of the above is its own until it is done.
  std::shared_ptr<Work> publishing_;
  bool was_heard_ = false;  // how that attempt ended
};

}  // namespace nxd
