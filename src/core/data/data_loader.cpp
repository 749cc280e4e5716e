#include "core/data/data_loader.h"

#include <algorithm>
#include <utility>

#include "core/agree/agree.h"
#include "core/base/buffer_limit.h"
#include "core/base/callback_thread.h"
#include "core/base/start_thread.h"
#include "core/data/epoch_sampler.h"

namespace nxd {
namespace {

constexpr int64_t kLastPosition = int64_t{1} << 53;  // exact as a double
constexpr int64_t kMostEpochs = int64_t{1} << 39;    // half of a sampler's
constexpr int64_t kLargestBatch = int64_t{1} << 30;
constexpr int kMostPrefetched = 1024;

DataLoader::Options checked(const DataLoader::Options& o) {
  check_argument(o.batch_size >= 1 && o.batch_size <= kLargestBatch,
                 "batch_size: expected 1 to 2^30, got ", o.batch_size);
  check_argument(o.prefetch >= 1 && o.prefetch <= kMostPrefetched, "prefetch: expected 1 to ",
                 kMostPrefetched, " batches, got ", o.prefetch);
  check_internal(o.rank >= 0 && o.rank < o.ranks, "no rank ", o.rank, " of ", o.ranks);
  return o;
}

}  // namespace

std::unique_ptr<DataLoader> DataLoader::create(ProcessGroup& world,
                                               const std::vector<std::string>& paths,
                                               const Options& options, const Outcome& given) {
  std::unique_ptr<DataLoader> made;
  Proposal proposal(world.rank(), "data_loader_create");
  proposal.attempt([&] {
    given.rethrow();
    made = std::make_unique<DataLoader>(TokenFiles(paths, options.files), options);
  });
  const auto same = [&](const char* name, int64_t value) {
    proposal.same(name, static_cast<double>(value));
  };
  same("num_paths", static_cast<int64_t>(paths.size()));
  same("batch_size", options.batch_size);
  same("sequence_length", options.files.sequence_length);
  same("vocab_size", options.files.vocab_size);
  same("format", options.files.format);
  same("next_labels", options.files.next_labels);
  same("shuffle", options.shuffle);
  same("options.seed, lower 32 bits", static_cast<uint32_t>(options.seed));
  same("options.seed, upper 32 bits", static_cast<uint32_t>(options.seed >> 32U));
  same("samples of the files", made ? made->samples() : 0);
  same("hash of the files' sizes", made ? made->files_.digest() : 0);
  agree({&world}, proposal);
  return made;
}

DataLoader::DataLoader(TokenFiles files, const Options& options)
    : options_(checked(options)), files_(std::move(files)) {
  const auto samples =
      static_cast<size_t>(options_.batch_size) * static_cast<size_t>(options_.prefetch);
  const auto tokens = static_cast<size_t>(files_.sample_tokens());
  check_argument(tokens <= kBufferLimit / sizeof(int64_t) / samples, "prefetch: ", samples,
                 " samples of ", tokens, " tokens do not fit in memory");
  ring_.resize(static_cast<size_t>(options_.prefetch));
  for (Batch& batch : ring_) {
    batch.tokens.resize(static_cast<size_t>(options_.batch_size) * tokens);
  }
  thread_ = start_thread("that reads data ahead", [this] { run(); });
}

DataLoader::~DataLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DataLoader::check_not_lent() const {
  check_state(lease_.expired(), "loader: a device loader reads it; destroy that first");
}

DataLoader::Lease DataLoader::lend() {
  check_not_lent();
  auto lease = std::make_shared<std::atomic<int64_t>>(position_);
  lease_ = lease;
  return lease;
}

int64_t DataLoader::position() const {
  const Lease lease = lease_.lock();
  return lease ? lease->load() : position_;
}

void DataLoader::next(int64_t* ids, int64_t* labels, size_t count) {
  check_not_lent();
  read_next(ids, labels, count);
}

void DataLoader::check_settable(int64_t position) const {
  check_not_lent();
  check_position(position);
}

void DataLoader::set_position(int64_t position) {
  check_not_lent();
  seek(position);
}

int64_t DataLoader::sample_at(int64_t place) const {
  const int64_t samples = files_.samples();
  const EpochSampler epoch({samples, 1, place / samples, options_.seed, options_.shuffle, false});
  return epoch.sample(0, place % samples);
}

void DataLoader::read(int64_t position, Batch& out) const noexcept {
  try {
    out.failure.reset();
    int64_t* tokens = out.tokens.data();
    for (int64_t i = 0; i < options_.batch_size; ++i) {
      files_.read(sample_at(position + i * options_.ranks + options_.rank), tokens);
      tokens += files_.sample_tokens();
    }
  } catch (...) {
    out.failure = Error::current();
  }
}

void DataLoader::run() {
  const InternalThread internal;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || may_read(); });
    if (stop_) return;
    Batch& batch = ring_[(first_ + full_) % ring_.size()];
    const uint64_t begun = restarts_;
    const int64_t position = reading_;
    lock.unlock();
    read(position, batch);
    lock.lock();
    if (begun != restarts_) continue;
    ++full_;
    reading_ += stride();
    failed_ = batch.failure.has_value();
    changed_.notify_all();
  }
}

void DataLoader::restart(int64_t position, bool paused) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++restarts_;
    full_ = 0;
    failed_ = false;
    paused_ = paused;
    reading_ = position;
  }
  changed_.notify_all();
  position_ = position;
}

void DataLoader::take(int64_t* ids, int64_t* labels) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::exchange(paused_, false)) changed_.notify_all();
  changed_.wait(lock, [this] { return full_ > 0; });
  const Batch& batch = ring_[first_];
  // It stays full until it is copied, so that the thread does not write to it.
  lock.unlock();
  if (batch.failure) throw Error(*batch.failure);
  const int64_t length = options_.files.sequence_length;
  const int64_t* tokens = batch.tokens.data();
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    std::copy_n(tokens, length, ids + i * length);
    if (labels) std::copy_n(tokens + 1, length, labels + i * length);
    tokens += files_.sample_tokens();
  }
  lock.lock();
  first_ = (first_ + 1) % ring_.size();
  --full_;
  lock.unlock();
  changed_.notify_all();
  position_ += stride();
}

void DataLoader::read_next(int64_t* ids, int64_t* labels, size_t count) {
  const auto each = static_cast<size_t>(options_.batch_size * options_.files.sequence_length);
  check_argument(ids, "ids: expected room for ", count, " ids, got NULL");
  const bool wanted = options_.files.next_labels;
  check_argument((labels != nullptr) == wanted, "labels: expected ",
                 wanted ? "room for them" : "NULL without next_labels", ", got ",
                 wanted ? "NULL" : "a pointer");
  check_argument(count > 0 && count % each == 0, "count: expected a multiple of ",
                 options_.batch_size, " samples of ", options_.files.sequence_length,
                 " tokens, got ", count);
  const int64_t before = position_;
  try {
    for (size_t done = 0; done < count; done += each) {
      take(ids + done, labels ? labels + done : nullptr);
    }
  } catch (...) {
    restart(before, true);
    throw;
  }
}

void DataLoader::check_position(int64_t position) const {
  check_argument(position >= 0 && position <= kLastPosition && position / samples() < kMostEpochs,
                 "position: expected 0 to 2^53, and less than 2^39 epochs of ", samples(),
                 " samples, got ", position);
}

void DataLoader::seek(int64_t position) {
  check_position(position);
  restart(position, false);
}

}  // namespace nxd
