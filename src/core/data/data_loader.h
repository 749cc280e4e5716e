#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/agree/outcome.h"
#include "core/data/token_files.h"

namespace nxd {

// One rank's batches of an endless sequence of samples, read ahead on a thread; see
// nxd_data_loader_create. The sequence is the epochs one after another, so that a position in it
// says all, whatever the ranks and batches are.
class DataLoader {
 public:
  struct Options {
    TokenFiles::Options files;
    int64_t batch_size = 1;
    uint64_t seed = 0;
    bool shuffle = true;
    int prefetch = 2;
    int ranks = 1, rank = 0;  // of the data-parallel group
  };
  // Collective over the world, whose ranks must be given the same; all fail with one that cannot
  // open its files, or whose arguments were none.
  static std::unique_ptr<DataLoader> create(ProcessGroup& world,
                                            const std::vector<std::string>& paths,
                                            const Options& options, const Outcome& given);
  // INVALID_ARGUMENT for options out of range.
  DataLoader(TokenFiles files, const Options& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  const Options& options() const { return options_; }
  // See nxd_data_loader_next. INVALID_STATE while it is lent.
  void next(int64_t* ids, int64_t* labels, size_t count);
  int64_t samples() const { return files_.samples(); }
  // While it is lent, that of the lease.
  int64_t position() const;
  // INVALID_STATE while it is lent.
  void set_position(int64_t position);
  // The errors of that, before anything else is set with it.
  void check_settable(int64_t position) const;

  // A lease: the loader is read by whom it is lent to, on any one thread, as long as that keeps the
  // lease. It says the position behind the batches that the program has seen of those.
  // INVALID_STATE while somebody else has one.
  using Lease = std::shared_ptr<std::atomic<int64_t>>;
  Lease lend();
  // As above, for the holder of the lease.
  void read_next(int64_t* ids, int64_t* labels, size_t count);
  int64_t read_position() const { return position_; }
  void seek(int64_t position);

 private:
  // Tokens that the thread has read, or why it could not.
  struct Batch {
    std::vector<int64_t> tokens;
    std::optional<Error> failure;
  };

  void check_not_lent() const;
  void check_position(int64_t position) const;
  int64_t sample_at(int64_t place) const;
  void read(int64_t position, Batch& out) const noexcept;
  void run();
  void take(int64_t* ids, int64_t* labels);
  void restart(int64_t position, bool paused);
  bool may_read() const { return full_ < ring_.size() && !failed_ && !paused_; }
  int64_t stride() const { return options_.batch_size * options_.ranks; }

  const Options options_;
  const TokenFiles files_;
  int64_t position_ = 0;  // the caller's
  std::weak_ptr<std::atomic<int64_t>> lease_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // A ring. The full batches from first_ on are the caller's, the one behind them is the thread's.
  std::vector<Batch> ring_;
  size_t first_ = 0, full_ = 0;
  int64_t reading_ = 0;    // position of the batch that the thread reads
  uint64_t restarts_ = 0;  // a batch that was begun before the last one is dropped
  bool failed_ = false;    // the last full batch is a failure: nothing is read behind it
  bool paused_ = false;    // after a failure, so that the next call reads anew
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace nxd
