#include "core/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "core/base/absolute_path.h"
#include "core/base/log.h"
#include "core/checkpoint/checksum.h"
#include "core/checkpoint/file.h"

namespace nxd {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 12;
constexpr std::string_view kPartial = ".partial", kRemoved = ".removed";

std::string name_of(int64_t step) {
  const std::string digits = std::to_string(step);
  const size_t zeros = digits.size() < kDigits ? kDigits - digits.size() : 0;
  return std::string(kPrefix) + std::string(zeros, '0') + digits;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  constexpr size_t kMostDigits = 18;
  if (digits.size() < kDigits || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  const int64_t step = std::stoll(std::string(digits));
  return name_of(step) == name ? std::optional(step) : std::nullopt;
}

// The step of one that a killed job took the name of, to give it to another of the same step.
std::optional<int64_t> step_put_aside(std::string_view name) {
  if (!name.ends_with(kAside)) return std::nullopt;
  return step_of(name.substr(0, name.size() - kAside.size()));
}

// A name that a killed job leaves behind: a step's, with one of these around it.
bool is_leftover(std::string_view entry) {
  const auto is_step_between = [entry](std::string_view begin, std::string_view end) {
    return entry.starts_with(begin) && entry.ends_with(end) &&
           entry.size() > begin.size() + end.size() &&
           step_of(entry.substr(begin.size(), entry.size() - begin.size() - end.size()));
  };
  return is_step_between(".", kPartial) || is_step_between(".", kRemoved) || step_put_aside(entry);
}

// Removes a leftover, but for a published step whose place no other took: that has its name again.
void clear_away(const std::string& leftover) {
  if (leftover.ends_with(kAside)) {
    const std::string published = leftover.substr(0, leftover.size() - kAside.size());
    if (!has_entry(published)) {
      static_cast<void>(try_rename(leftover, published));
      return;
    }
  }
  remove_tree(leftover);
}

std::string checksum_of(const InputFile& file) { return Checksum().add(file).hex(); }

}  // namespace

CheckpointDirectory::CheckpointDirectory(const std::string& root) : root_(absolute_path(root)) {
  check_argument(!root_.empty(), "directory: expected a path, got \"\"");
}

std::string CheckpointDirectory::published_path(int64_t step) const {
  return root_ + "/" + name_of(step);
}

std::string CheckpointDirectory::path_of(int64_t step) const {
  const std::string published = published_path(step), aside = published + std::string(kAside);
  return !has_entry(published) && has_entry(aside) ? aside : published;
}

std::string CheckpointDirectory::partial_path(int64_t step) const {
  return root_ + "/." + name_of(step) + std::string(kPartial);
}

std::string CheckpointDirectory::removed_path(int64_t step) const {
  return root_ + "/." + name_of(step) + std::string(kRemoved);
}

std::vector<int64_t> CheckpointDirectory::steps() const {
  std::vector<int64_t> steps;
  // One that cannot be looked at may have some: a run would start anew in spite of them.
  if (!leads_anywhere(root_)) return steps;
  for (const std::string& entry : entries_of(root_)) {
    const auto step = step_of(entry), aside = step_put_aside(entry);
    if (step || aside) steps.push_back(step ? *step : *aside);
  }
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::string CheckpointDirectory::manifest_text_of(int64_t step) const {
  const std::string path = path_of(step) + "/" + kManifestName;
  std::string content = read_text(path, kManifestLimit);
  const CheckpointManifest manifest = parse_manifest(content, path);
  if (manifest.step != step) {
    fail(NXD_ERROR_CORRUPT, path, ": step: expected ", step, ", got ", manifest.step);
  }
  return content;
}

void CheckpointDirectory::check_sizes(int64_t step, const CheckpointManifest& manifest) const {
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = path_of(step) + "/" + file.name;
    if (!is_regular_file(path)) {
      fail(NXD_ERROR_CORRUPT, path, ": expected a file, as its manifest has it");
    }
    const uint64_t bytes = InputFile(path).size();
    if (bytes != file.bytes) {
      fail(NXD_ERROR_CORRUPT, path, ": expected ", file.bytes, " bytes, got ", bytes);
    }
  }
}

// One that cannot be read at the moment, as where descriptors or memory lack, is an error: an older
// one in its place would go unnoticed.
bool CheckpointDirectory::is_complete(int64_t step) const {
  try {
    const std::string path = path_of(step) + "/" + kManifestName;
    if (!is_regular_file(path)) fail(NXD_ERROR_CORRUPT, path, ": expected a file");
    check_sizes(step, parse_manifest(manifest_text_of(step), path));
    return true;
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_IO) throw;
    log(NXD_LOG_WARN, "checkpoint of step ", step, " is passed over: ", e.what());
    return false;
  }
}

std::optional<int64_t> CheckpointDirectory::newest() const {
  for (const int64_t step : steps()) {
    if (is_complete(step)) return step;
  }
  return std::nullopt;
}

std::unique_ptr<DirectoryLock> CheckpointDirectory::begin(int64_t step) const {
  make_directories(root_);
  auto lock = std::make_unique<DirectoryLock>(root_);
  clear_leftovers(step);
  make_directory(partial_path(step));
  return lock;
}

// One of another user, say, may stay for good: it keeps no step from being saved but one whose own
// place it has.
void CheckpointDirectory::clear_leftovers(int64_t step) const {
  std::string first_reason;
  int num_left = 0;
  for (const std::string& entry : entries_of(root_)) {
    if (!is_leftover(entry)) continue;
    const std::string path = root_ + "/" + entry;
    try {
      clear_away(path);
    } catch (const Error& e) {
      if (path == partial_path(step)) throw;
      if (num_left++ == 0) first_reason = e.what();
    }
  }
  if (num_left == 0) return;
  log(NXD_LOG_WARN, "remains of jobs that ended are left, ", num_left,
      " of them; the first: ", first_reason);
}

void CheckpointDirectory::place(int64_t step) const {
  const std::string partial = partial_path(step), published = published_path(step);
  synchronise_directory(partial);
  if (!has_entry(published)) return rename_path(partial, published);
  // The old one leaves the partial one's place at once: it would be published if what follows fails
  // and the caller tries again. Where it cannot leave, nothing has changed.
  if (try_exchange(partial, published)) {
    try {
      return rename_path(partial, removed_path(step));
    } catch (...) {
      if (!try_exchange(partial, published)) log(NXD_LOG_WARN, partial, " is an older checkpoint");
      throw;
    }
  }
  remove_tree(published);
  rename_path(partial, published);
}

void CheckpointDirectory::make_durable(int64_t step) const {
  try {
    synchronise_directory(root_);
  } catch (const Error& e) {
    fail(e.status(), e.what(), "; ", published_path(step),
         " is complete and can be loaded, but may be lost if the machine fails now: publish or "
         "save it again");
  }
  try {
    remove_tree(removed_path(step));
  } catch (const Error& e) {  // the next checkpoint tries again
    log(NXD_LOG_WARN, "a checkpoint that was replaced is left: ", e.what());
  }
}

void CheckpointDirectory::remove_published(int64_t step) const {
  const std::string path = path_of(step), doomed = removed_path(step);
  remove_tree(try_rename(path, doomed) ? doomed : path);
}

void CheckpointDirectory::prune(int64_t published, int keep_last) const noexcept {
  try {
    int complete = 1;
    for (const int64_t step : steps()) {
      if (step == published) continue;
      try {
        if (!is_complete(step)) continue;
        if (++complete > keep_last && step < published) remove_published(step);
      } catch (const Error& e) {
        log(NXD_LOG_WARN, "the checkpoint of step ", step, " is left: ", e.what());
      }
    }
  } catch (const std::exception& e) {
    log(NXD_LOG_WARN, "old checkpoints are not all removed: ", e.what());
  }
}

CheckpointFile describe_file(const std::string& directory, const std::string& name) {
  const InputFile file(directory + "/" + name);
  return {name, file.size(), checksum_of(file)};
}

void verify_file(const std::string& directory, const CheckpointFile& file) {
  const std::string path = directory + "/" + file.name;
  const InputFile input(path);
  if (input.size() != file.bytes) {
    fail(NXD_ERROR_CORRUPT, path, ": expected ", file.bytes, " bytes, got ", input.size());
  }
  const std::string checksum = checksum_of(input);
  if (checksum != file.checksum) {
    fail(NXD_ERROR_CORRUPT, path, ": its content is not as it was saved: XXH128 ", checksum,
         ", expected ", file.checksum);
  }
}

}  // namespace nxd
