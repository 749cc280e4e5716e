#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace nxd {

// A file of a checkpoint. The checksum is its XXH3 of 128 bits, in hexadecimal.
struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string checksum;
};

// Where random bits continue.
struct SavedRandomState {
  uint64_t seed = 0;
  int64_t step = 0, microbatch = 0;
  // Seeds of ranks that had another one, as data-parallel copies may.
  std::set<uint64_t> other_seeds{};
};

// Sizes of the axes of the job that wrote it; zeros where it had no layout.
struct SavedLayout {
  int tensor = 0, pipeline = 0, data = 0;
};

// The names of a checkpoint's files and all that is saved of it beside them. It is written last:
// where it is, the checkpoint is complete.
struct CheckpointManifest {
  int64_t step = 0;
  int64_t num_ranks = 1;  // of the job that wrote it
  SavedLayout layout;
  std::string library;  // version of libnxd that wrote it
  SavedRandomState random;
  std::map<std::string, std::string> values;  // the user's own
  std::vector<CheckpointFile> files;          // by name
};

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr uint64_t kManifestLimit = uint64_t{64} << 20;

// A name within the checkpoint's directory: no path, not hidden, not the manifest's.
void check_file_name(const std::string& name);
// The same for the name of a file that is there, which may be longer: that of a rank's share.
void check_stored_name(const std::string& name);
// Both are UTF-8 without NUL, so that JSON gives back what it was given.
void check_value(const std::string& key, const std::string& value);

std::string manifest_text(const CheckpointManifest& manifest);
// CORRUPT, with where and the field, for what is no manifest; UNSUPPORTED for one of a later
// version.
CheckpointManifest parse_manifest(const std::string& text, const std::string& where);

}  // namespace nxd
