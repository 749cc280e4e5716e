#include "core/checkpoint/training_state.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/agree/agree.h"
#include "core/base/log.h"
#include "core/base/printable.h"

namespace nxd {
namespace {

constexpr const char* kFileEnding = ".safetensors";

int64_t parse_position(const std::string& name, const std::string& value) {
  int64_t position = 0;
  const char* end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, position);
  if (error != std::errc() || at != end) {
    fail(NXD_ERROR_CORRUPT, "checkpoint: expected a position under \"", printable(name),
         "\", got \"", printable(value, 60), "\"");
  }
  return position;
}

}  // namespace

TrainingState::TrainingState(std::shared_ptr<Context> context) : context_(std::move(context)) {}

void TrainingState::check_new_part(const std::string& name) const {
  const auto taken = [&](const auto& part) { return part.name == name; };
  check_argument(std::none_of(files_.begin(), files_.end(), taken) &&
                     std::none_of(positions_.begin(), positions_.end(), taken),
                 "name: the training state has a part \"", printable(name), "\" already");
}

void TrainingState::add_file(FileKind kind, const std::string& name, Checkpoint::Take take,
                             Load load) {
  check_argument(!name.empty(), "name: expected a name, got \"\"");
  check_file_name(name + kFileEnding);
  check_new_part(name);
  files_.push_back({kind, name, std::move(take), std::move(load)});
}

void TrainingState::add_position(const std::string& name, std::function<int64_t()> get,
                                 std::function<void(int64_t)> set,
                                 std::function<void(int64_t)> check_settable) {
  check_value(name, "");
  check_new_part(name);
  check_argument(values_.count(name) == 0, "name: the training state has a text \"",
                 printable(name), "\" already");
  positions_.push_back({name, std::move(get), std::move(set), std::move(check_settable)});
}

void TrainingState::set_value(const std::string& key, const std::string& value) {
  check_value(key, value);
  check_argument(std::none_of(positions_.begin(), positions_.end(),
                              [&](const Position& part) { return part.name == key; }),
                 "key: \"", printable(key), "\" is the name of a data loader");
  values_[key] = value;
}

std::string TrainingState::part_list() const {
  std::string list;
  const auto add = [&list](const char* kind, const std::string& name) {
    list += text(list.empty() ? "" : ", ", kind, " \"", name, "\"");
  };
  for (const File& file : files_) {
    add(file.kind == FileKind::kParameters ? "module" : "optimizer", file.name);
  }
  for (const Position& part : positions_) add("data loader", part.name);
  return list;
}

// An attempt of every rank; all fail when one does.
void TrainingState::on_all(const std::function<void()>& attempt) const {
  agree({context_->world().get()}, Proposal(context_->rank()).attempt(attempt));
}

// The same, of ranks that have the same parts. The checkpoint is not in use by the background.
void TrainingState::check_parts(const Checkpoint& checkpoint,
                                const std::function<void()>& attempt) const {
  context_->background().wait("training state");
  const std::string own = part_list();
  const Outcome outcome = Outcome::of(context_->rank(), [&] {
    check_argument(checkpoint.context() == context_,
                   "checkpoint: expected one of the training state's context, got another's");
    attempt();
  });
  int rank = 0;
  for (const std::string& list : gather_texts(context_->world().get(), own, outcome)) {
    check_argument(list == own, "training state: expected the same parts on all ranks, got (",
                   printable(own), ") and on rank ", rank, " (", printable(list), ")");
    ++rank;
  }
}

void TrainingState::snapshot(Checkpoint& checkpoint) {
  check_parts(checkpoint, [&] {
    check_state(checkpoint.is_writing(), "checkpoint: snapshots are taken before it is published");
  });
  const int64_t microbatch = context_->microbatch();
  if (microbatch != 0 && !files_.empty() && context_->rank() == 0) {
    log(NXD_LOG_WARN, "training state: the checkpoint of step ", checkpoint.step(),
        " is taken at microbatch ", microbatch,
        ", without the gradients that have added up so far");
  }
  for (const File& file : files_) checkpoint.add_snapshot(file.name + kFileEnding, file.take);
  on_all([&] {
    for (const Position& part : positions_) {
      checkpoint.set_value(part.name, std::to_string(part.get()));
    }
    for (const auto& [key, value] : values_) checkpoint.set_value(key, value);
  });
}

TrainingState::Found TrainingState::find_in(const Checkpoint& checkpoint) const {
  check_state(!checkpoint.is_writing(), "checkpoint: expected one that was opened to be read");
  checkpoint.check_random_state();
  Found found;
  for (const File& file : files_) found.paths.push_back(checkpoint.path(file.name + kFileEnding));
  for (const Position& part : positions_) {
    const auto value = checkpoint.values().find(part.name);
    check_argument(value != checkpoint.values().end(), "name: the checkpoint of step ",
                   checkpoint.step(), " has no position \"", printable(part.name), "\"");
    found.positions.push_back(parse_position(part.name, value->second));
    part.check_settable(found.positions.back());
  }
  return found;
}

void TrainingState::restore(Checkpoint& checkpoint) {
  Found found;
  check_parts(checkpoint, [&] { found = find_in(checkpoint); });
  for (const FileKind kind : {FileKind::kParameters, FileKind::kOptimizerState}) {
    for (size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].kind == kind) on_all([&] { files_[i].load(found.paths[i]); });
    }
  }
  on_all([&] {
    for (size_t i = 0; i < positions_.size(); ++i) positions_[i].set(found.positions[i]);
    checkpoint.restore_random_state();
    std::map<std::string, std::string> values = checkpoint.values();
    for (const Position& part : positions_) values.erase(part.name);
    values_ = std::move(values);
  });
}

void TrainingState::save(const std::string& root, int64_t step, int keep_last, bool background,
                         const Outcome& given) {
  // A rank that has waited before knows how the last save ended, and others may not yet: those that
  // fail by it tell all.
  const Outcome ready = Outcome::of(context_->rank(), [&] {
    wait(-1);
    given.rethrow();
  });
  auto checkpoint = Checkpoint::create(context_, root, step, ready);
  snapshot(*checkpoint);
  if (!background) return checkpoint->publish(keep_last);
  checkpoint->publish_async(keep_last);
  saving_ = std::move(checkpoint);
}

std::optional<int64_t> TrainingState::load_newest(const std::string& root, bool verify,
                                                  const Outcome& given) {
  const auto checkpoint = Checkpoint::open(context_, root, std::nullopt, verify, given);
  if (!checkpoint) return std::nullopt;
  restore(*checkpoint);
  return checkpoint->step();
}

void TrainingState::wait(int64_t timeout_ms) {
  if (!saving_) return;
  try {
    saving_->wait(timeout_ms);
  } catch (const Error&) {
    if (!saving_->is_done()) throw;
  }
  const auto ended = std::move(saving_);
  ended->wait(-1);  // how it ended, also where that was just behind the timeout
}

}  // namespace nxd
