#include "core/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/agree/agree.h"
#include "core/base/exchange_record.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/checkpoint/file.h"
#include "core/checkpoint/share_index.h"
#include "core/checkpoint/share_write.h"

namespace nxd {
namespace {

void check_step(int64_t step) {
  constexpr int64_t kMostSteps = int64_t{1} << 52;  // exact as a double, for the comparison
  check_argument(step >= 0 && step <= kMostSteps, "step: expected 0 to 2^52, got ", step);
}

// The text that an attempt of the first rank gives, on all ranks.
std::string from_first(ProcessGroup& group, const std::function<std::string()>& attempt) {
  std::string own;
  Outcome outcome;
  if (group.rank() == 0) outcome = Outcome::of(group.rank(), [&] { own = attempt(); });
  return gather_texts(&group, own, outcome).front();
}

// An attempt of every rank; all fail when one does.
void on_all(ProcessGroup& group, const std::function<void()>& attempt) {
  agree({&group}, Proposal(group.rank()).attempt(attempt));
}

// The name of something that no other job has made.
std::string new_mark() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return text(".made-by-", ::getpid(), "-", now.count());
}

std::string encode(const std::map<std::string, std::string>& values) {
  RecordWriter out;
  for (const auto& [key, value] : values) {
    out.string(key);
    out.string(value);
  }
  return out.take();
}

std::string encode(const std::vector<CheckpointFile>& files) {
  RecordWriter out;
  for (const CheckpointFile& file : files) {
    out.string(file.name);
    out.number(static_cast<int64_t>(file.bytes));
    out.string(file.checksum);
  }
  return out.take();
}

// Files of all ranks, by name.
std::map<std::string, CheckpointFile> gather_files(ProcessGroup& group,
                                                   const std::vector<CheckpointFile>& own,
                                                   const Outcome& outcome) {
  std::map<std::string, CheckpointFile> files;
  for (const std::string& bytes : gather_texts(&group, encode(own), outcome)) {
    RecordReader in(bytes);
    while (!in.done()) {
      const std::string name = in.string();
      const auto count = static_cast<uint64_t>(in.number());
      const bool added = files.emplace(name, CheckpointFile{name, count, in.string()}).second;
      check_argument(added, "name: two snapshots of the checkpoint write the file \"",
                     printable(name), "\"");
    }
  }
  return files;
}

// Names of the files of a directory, and nothing but files.
std::string list_of(const std::string& directory) {
  RecordWriter out;
  for (const std::string& name : entries_of(directory)) {
    check_stored_name(name);
    check_argument(is_regular_file(directory + "/" + name), directory, ": expected files, got \"",
                   printable(name), "\" of another kind");
    out.string(name);
  }
  return out.take();
}

SavedLayout layout_of(const Context& context) {
  const auto layout = context.find_parallel();
  if (!layout) return {};
  return {layout->size(NXD_AXIS_TENSOR), layout->size(NXD_AXIS_PIPELINE),
          layout->size(NXD_AXIS_DATA)};
}

}  // namespace

Checkpoint::Checkpoint(std::shared_ptr<Context> context, const std::string& root)
    : context_(std::move(context)), directory_(root) {}

std::unique_ptr<Checkpoint> Checkpoint::create(const std::shared_ptr<Context>& context,
                                               const std::string& root, int64_t step,
                                               const Outcome& given) {
  context->background().wait("nxd_checkpoint_create");
  ProcessGroup& ranks = *context->world();
  std::unique_ptr<Checkpoint> made;
  Proposal proposal(ranks.rank());
  proposal.same("step", static_cast<double>(step)).attempt([&] {
    given.rethrow();
    check_step(step);
    made.reset(new Checkpoint(context, root));
  });
  agree({&ranks}, proposal);
  made->manifest_.step = step;
  const std::string path = made->directory_.partial_path(step);
  const std::string mark = from_first(ranks, [&] {
    made->lock_ = made->directory_.begin(step);
    made->is_writing_ = true;  // a failure from here on removes the directory
    std::string name = new_mark();
    make_directories(path + "/" + name);
    return name;
  });
  made->is_writing_ = true;
  // A directory of the same name may be there that a killed job has left on another disk.
  on_all(ranks, [&] {
    if (!is_directory(path + "/" + mark)) {
      fail(NXD_ERROR_IO, path,
           ": made by the first rank, but not to be seen on this one: expected "
           "one directory, in a file system that all ranks share");
    }
  });
  from_first(ranks, [&] {
    remove_tree(path + "/" + mark);
    return std::string();
  });
  return made;
}

std::unique_ptr<Checkpoint> Checkpoint::open(const std::shared_ptr<Context>& context,
                                             const std::string& root, std::optional<int64_t> step,
                                             bool verify, const Outcome& given) {
  context->background().wait("nxd_checkpoint_open");
  ProcessGroup& ranks = *context->world();
  std::unique_ptr<Checkpoint> made;
  Proposal proposal(ranks.rank());
  proposal.same("step", static_cast<double>(step.value_or(-1))).same("verify", verify ? 1 : 0);
  agree({&ranks}, proposal.attempt([&] {
    given.rethrow();
    if (step) check_step(*step);
    made.reset(new Checkpoint(context, root));
  }));
  const CheckpointDirectory& directory = made->directory_;
  const std::string content = from_first(ranks, [&] {
    const std::optional<int64_t> found = step ? step : directory.newest();
    return found ? directory.manifest_text_of(*found) : std::string();
  });
  if (content.empty()) return nullptr;
  made->manifest_ = parse_manifest(content, root);
  made->check_files(content, verify);
  return made;
}

Checkpoint::~Checkpoint() {
  if (publishing_) {
    publishing_->wait_until_done(nullptr, nullptr);
    try {
      if (!was_heard_) publishing_->throw_error();
    } catch (const std::exception& e) {
      log(NXD_LOG_WARN, "the checkpoint of step ", step(), " is not published: ", e.what());
    }
  }
  if (!is_writing_ || !is_first()) return;
  try {
    remove_tree(directory_.partial_path(step()));
  } catch (const std::exception& e) {
    log(NXD_LOG_WARN, "a checkpoint that was not published is left: ", e.what());
  }
}

std::string Checkpoint::current_path() const {
  return is_writing_ ? directory_.partial_path(step()) : directory_.path_of(step());
}

// The rank's own calls do not wait for the background: they would, on this rank alone.
void Checkpoint::check_settled() const {
  check_state(!publishing_ || publishing_->is_done(),
              "checkpoint: it is being published in the background (nxd_checkpoint_wait comes "
              "first)");
}

// A file that a snapshot wrote in shares is found by their index.
std::string Checkpoint::path(const std::string& name) const {
  check_file_name(name);
  check_settled();
  if (is_writing_) return current_path() + "/" + name;
  const auto& files = manifest_.files;
  for (const std::string& known : {name, name + std::string(kShareIndexEnding)}) {
    const bool found = std::any_of(files.begin(), files.end(),
                                   [&](const CheckpointFile& file) { return file.name == known; });
    if (found) return current_path() + "/" + known;
  }
  fail(NXD_ERROR_INVALID_ARGUMENT, "name: the checkpoint of step ", step(), " has no file \"",
       printable(name), "\"");
}

void Checkpoint::set_value(const std::string& key, const std::string& value) {
  check_settled();
  check_state(is_writing_, "checkpoint: values are set before it is published");
  check_value(key, value);
  manifest_.values[key] = value;
}

void Checkpoint::add_snapshot(const std::string& name, const Take& take) {
  context_->background().wait("snapshot for a checkpoint");
  std::unique_ptr<Snapshot> snapshot;
  const Outcome outcome = Outcome::of(context_->rank(), [&] {
    check_state(is_writing_, "checkpoint: snapshots are taken before it is published");
    snapshot = take(*context_);
    check_file_name(name);
    check_argument(!name.ends_with(kShareIndexEnding), "name: expected another ending than ",
                   kShareIndexEnding, ", which an index of shares has, got \"", printable(name),
                   "\"");
    for (const auto& [other, of_other] : snapshots_) {
      check_argument(other != name, "name: the checkpoint has a snapshot \"", printable(name),
                     "\" already");
    }
  });
  int rank = 0;
  for (const std::string& given : gather_texts(&world(), name, outcome)) {
    check_argument(given == name, "name: expected the same on all ranks, got \"", printable(name),
                   "\" and on rank ", rank, " \"", printable(given), "\"");
    ++rank;
  }
  // Groups connect while the program's thread is here, for a store may be of its callbacks.
  for (ProcessGroup* group : snapshot->groups()) {
    if (group) group->run(Call::barrier());
  }
  snapshots_.emplace_back(name, std::move(snapshot));
  take_random_state();
}

// That of the first snapshot, or of the first attempt to publish where there is none: what is
// written later, or again, is of that step still.
void Checkpoint::take_random_state() {
  if (has_random_state_) return;
  manifest_.random = {context_->seed(), context_->step(), context_->microbatch()};
  has_random_state_ = true;
}

// A rank whose directory is another than the first one's, such as another run's, would read a part
// of another checkpoint.
void Checkpoint::check_files(const std::string& manifest, bool verify) {
  on_all(world(), [&] {
    directory_.check_sizes(step(), manifest_);
    check_argument(is_first() || directory_.manifest_text_of(step()) == manifest,
                   "directory: expected one checkpoint of step ", step(),
                   " on all ranks, got another in ", directory_.root(), " than on the first rank");
    const auto stride = static_cast<size_t>(context_->size());
    for (auto i = static_cast<size_t>(context_->rank()); verify && i < manifest_.files.size();
         i += stride) {
      verify_file(current_path(), manifest_.files[i]);
    }
  });
}

// All ranks have the values of all then, or the same failure.
void Checkpoint::gather_values() {
  std::map<std::string, std::string> values;
  int rank = 0;
  for (const std::string& bytes : gather_texts(&world(), encode(manifest_.values), {})) {
    RecordReader in(bytes);
    while (!in.done()) {
      const std::string key = in.string(), value = in.string();
      const auto [at, added] = values.emplace(key, value);
      check_argument(added || at->second == value, "value of \"", printable(key),
                     "\": expected the same on all ranks, got \"", printable(at->second, 60),
                     "\" and \"", printable(value, 60), "\" on rank ", rank);
    }
    ++rank;
  }
  manifest_.values = std::move(values);
}

void Checkpoint::gather_seeds() {
  RecordWriter own;
  own.number(static_cast<int64_t>(context_->seed()));
  std::set<uint64_t>& others = manifest_.random.other_seeds;
  for (const std::string& bytes : gather_texts(&world(), own.take(), {})) {
    others.insert(static_cast<uint64_t>(RecordReader(bytes).number()));
  }
  others.erase(context_->seed());
}

// This rank's part of the files that no rank can describe: brings them to the disk, and reads them.
std::vector<CheckpointFile> Checkpoint::describe_share(const std::vector<std::string>& names,
                                                       int rank, int size) const {
  const std::string directory = current_path();
  std::vector<CheckpointFile> files;
  for (auto i = static_cast<size_t>(rank); i < names.size(); i += static_cast<size_t>(size)) {
    synchronise(directory + "/" + names[i]);
    files.push_back(describe_file(directory, names[i]));
  }
  return files;
}

// A rank that wrote a file from a snapshot knows its content: such files are on the disk, and are
// not read again. The ranks share the others.
void Checkpoint::describe_files(ProcessGroup& group, const std::vector<CheckpointFile>& written) {
  const std::string directory = current_path();
  const std::string list = from_first(group, [&] {
    const std::string manifest = directory + "/" + kManifestName;
    if (file_exists(manifest)) remove_file(manifest);  // of an attempt that failed
    return list_of(directory);
  });
  std::map<std::string, CheckpointFile> files = gather_files(group, written, {});
  std::vector<std::string> others;
  for (RecordReader names(list); !names.done();) {
    const std::string name = names.string();
    if (files.count(name) == 0) others.push_back(name);
  }
  std::vector<CheckpointFile> own;
  const Outcome outcome =
      Outcome::of(group.rank(), [&] { own = describe_share(others, group.rank(), group.size()); });
  files.merge(gather_files(group, own, outcome));
  manifest_.files.clear();
  for (const auto& entry : files) manifest_.files.push_back(entry.second);
}

// Before any snapshot is written, a file that has the name of one is the caller's.
void Checkpoint::check_names_of_snapshots() const {
  for (const std::string& file : entries_of(current_path())) {
    for (const auto& [name, snapshot] : snapshots_) {
      check_argument(!is_name_of_shares(file, name), "name: the snapshot \"", printable(name),
                     "\" would replace a file of the caller's, \"", printable(file), "\" in ",
                     current_path());
    }
  }
}

// Ranks settle on the program's thread in what they differ, and what the program may change next.
void Checkpoint::agree_to_publish(int keep_last, bool in_background, const Outcome& given) {
  context_->background().wait("nxd_checkpoint_publish");
  Proposal proposal(context_->rank());
  proposal.same("in the background (1) or not (0)", in_background ? 1 : 0);
  proposal.same("keep_last", keep_last).attempt([&] {
    given.rethrow();
    check_argument(keep_last >= 0, "keep_last: expected 0 or more, got ", keep_last);
    check_state(is_writing_ || !is_durable_,
                "checkpoint: it is published already, or was opened to be read");
    if (is_first() && is_writing_ && !were_snapshots_written_) check_names_of_snapshots();
  });
  agree({&world()}, proposal);
  if (!is_writing_) return publishing_.reset();
  gather_values();
  manifest_.num_ranks = context_->size();
  manifest_.layout = layout_of(*context_);
  take_random_state();
  gather_seeds();
  publishing_.reset();
}

// The group is one that nothing else uses meanwhile.
void Checkpoint::complete(ProcessGroup& group, int keep_last, const Outcome& given) {
  on_all(group, [&] { given.rethrow(); });
  if (is_writing_) place(group);
  from_first(group, [&] {
    directory_.make_durable(step());
    if (keep_last > 0) directory_.prune(step(), keep_last);
    return std::string();
  });
  is_durable_ = true;
  lock_.reset();
}

void Checkpoint::place(ProcessGroup& group) {
  were_snapshots_written_ = true;
  std::vector<CheckpointFile> written;
  for (const auto& entry : snapshots_) {
    on_all(group, [&] {
      const auto files = entry.second->write(current_path() + "/" + entry.first);
      written.insert(written.end(), files.begin(), files.end());
    });
  }
  describe_files(group, written);
  from_first(group, [&] {
    const std::string content = manifest_text(manifest_);
    check_argument(content.size() <= kManifestLimit, "values and names of files: expected at most ",
                   kManifestLimit, " bytes, got ", content.size());
    AtomicFile file(current_path() + "/" + kManifestName);
    file.write(content.data(), content.size());
    file.commit();
    directory_.place(step());
    return std::string();
  });
  is_writing_ = false;
  is_durable_ = false;
  snapshots_.clear();
}

void Checkpoint::publish(int keep_last, const Outcome& given) {
  agree_to_publish(keep_last, false, given);
  complete(world(), keep_last, {});
}

void Checkpoint::publish_async(int keep_last, const Outcome& given) {
  agree_to_publish(keep_last, true, given);
  const auto group = context_->background_group(context_->world());
  group->run(Call::barrier());
  was_heard_ = false;
  try {
    publishing_ =
        context_->background().start("nxd_checkpoint_publish_async",
                                     [this, group, keep_last] { complete(*group, keep_last, {}); });
  } catch (const std::exception&) {
    // The peers' threads wait for this rank's.
    complete(*group, keep_last, Outcome::from_current_exception(context_->rank()));
  }
}

const Work& Checkpoint::published_work() const {
  check_state(publishing_ != nullptr,
              "checkpoint: nothing to wait for (nxd_checkpoint_publish_async comes first)");
  return *publishing_;
}

void Checkpoint::wait(int64_t timeout_ms) {
  static_cast<void>(published_work());
  try {
    publishing_->wait(timeout_ms);
  } catch (const Error& error) {
    // That may be this call's own timeout, with the end right behind it.
    const bool is_own = timeout_ms >= 0 && error.status() == NXD_ERROR_TIMEOUT;
    was_heard_ = publishing_->is_done() && !is_own;
    throw;
  }
}

bool Checkpoint::is_done() const { return published_work().is_done(); }

void Checkpoint::check_random_state() const {
  const SavedRandomState& saved = manifest_.random;
  check_state(saved.seed == context_->seed() || saved.other_seeds.count(context_->seed()) != 0,
              "checkpoint: expected the seed ", saved.seed,
              saved.other_seeds.empty() ? "" : ", or that of another rank,",
              " that it was written with, the context has ", context_->seed());
}

void Checkpoint::restore_random_state() {
  check_settled();
  check_state(!is_writing_, "checkpoint: expected one that was opened to be read, or is published");
  check_random_state();
  const SavedRandomState& saved = manifest_.random;
  context_->set_step(saved.step, saved.microbatch);
}

}  // namespace nxd
