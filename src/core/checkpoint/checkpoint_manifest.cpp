#include "core/checkpoint/checkpoint_manifest.h"

#include <limits>

#include "core/base/build_info.h"
#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"
#include "core/checkpoint/checksum.h"

namespace nxd {
namespace {

constexpr const char* kManifestFormat = "nxd-checkpoint";
constexpr const char* kChecksumName = "xxh128";
constexpr const char* kOtherSeeds = "other_seeds";
constexpr int64_t kVersion = 1;
constexpr size_t kNameLimit = 200, kStoredNameLimit = 255, kKeyLimit = 256,
                 kValueLimit = size_t{1} << 20;

// Reads fields of one object; every failure names the file and the field.
class Fields {
 public:
  Fields(JsonValue object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) wrong("an object", object_);
  }

  JsonValue member(const char* name) const {
    const auto found = object_.find(name);
    if (!found) fail(NXD_ERROR_CORRUPT, where_, ": ", name, " is missing");
    return *found;
  }
  int64_t whole(const char* name) const {
    const JsonValue value = member(name);
    const auto number = value.integer();
    if (!number || *number < 0) wrong(name, "a whole number from 0 on", value);
    return *number;
  }
  int extent(const char* name) const {
    const int64_t number = whole(name);
    if (number > std::numeric_limits<int>::max()) {
      wrong(name, "the size of an axis", member(name));
    }
    return static_cast<int>(number);
  }
  uint64_t natural(const char* name) const {
    const JsonValue value = member(name);
    const auto number = value.natural();
    if (!number) wrong(name, "a whole number from 0 on", value);
    return *number;
  }
  std::string string(const char* name) const {
    const JsonValue value = member(name);
    if (!value.is_string()) wrong(name, "a string", value);
    return std::string(value.string());
  }
  Fields object(const char* name) const { return Fields(member(name), where_ + ": " + name); }
  const std::string& where() const { return where_; }
  JsonValue value() const { return object_; }

  [[noreturn]] void wrong(const std::string& name, const char* expected, JsonValue got) const {
    fail(NXD_ERROR_CORRUPT, where_, ": ", printable(name), ": expected ", expected, ", got ",
         got.shown());
  }

 private:
  [[noreturn]] void wrong(const char* expected, JsonValue got) const {
    fail(NXD_ERROR_CORRUPT, where_, ": expected ", expected, ", got ", got.shown());
  }

  JsonValue object_;
  std::string where_;
};

std::string name_fault(const std::string& name, size_t limit) {
  if (name.empty() || name.size() > limit) return text("1 to ", limit, " bytes");
  if (name.find('/') != std::string::npos) return "a name without '/'";
  if (name.front() == '.') return "a name that does not begin with '.'";
  if (name == kManifestName) return text("another name than the manifest's");
  if (!is_utf8(name) || name.find('\0') != std::string::npos) return "UTF-8";
  return "";
}

// Absent where all ranks had one seed.
std::set<uint64_t> read_other_seeds(const Fields& random) {
  std::set<uint64_t> out;
  const auto seeds = random.value().find(kOtherSeeds);
  if (!seeds) return out;
  if (!seeds->is_array()) random.wrong(kOtherSeeds, "an array", *seeds);
  seeds->for_each([&](JsonValue seed) {
    if (!seed.natural()) random.wrong(kOtherSeeds, "whole numbers from 0 on", seed);
    out.insert(*seed.natural());
  });
  return out;
}

std::map<std::string, std::string> read_values(const Fields& values) {
  std::map<std::string, std::string> out;
  values.value().for_each_member([&](std::string_view key, JsonValue value) {
    if (!value.is_string()) values.wrong(std::string(key), "a string", value);
    out.emplace(key, value.string());
  });
  return out;
}

CheckpointFile read_file_entry(const Fields& entry) {
  CheckpointFile file{entry.string("name"), entry.natural("bytes"), entry.string(kChecksumName)};
  const std::string fault = name_fault(file.name, kStoredNameLimit);
  if (!fault.empty()) {
    fail(NXD_ERROR_CORRUPT, entry.where(), ": name: expected ", fault, ", got ",
         printable(file.name));
  }
  if (file.checksum.size() != kChecksumDigits ||
      file.checksum.find_first_not_of("0123456789abcdef") != std::string::npos) {
    entry.wrong(kChecksumName, "32 hexadecimal digits", entry.member(kChecksumName));
  }
  return file;
}

std::vector<CheckpointFile> read_files(const Fields& manifest) {
  const JsonValue list = manifest.member("files");
  if (!list.is_array()) manifest.wrong("files", "an array", list);
  std::vector<CheckpointFile> files;
  std::set<std::string> names;
  list.for_each([&](JsonValue entry) {
    files.push_back(
        read_file_entry(Fields(entry, text(manifest.where(), ": files[", files.size(), "]"))));
    if (!names.insert(files.back().name).second) {
      fail(NXD_ERROR_CORRUPT, manifest.where(), ": ", printable(files.back().name),
           " is there twice");
    }
  });
  return files;
}

void check_name(const std::string& name, size_t limit) {
  const std::string fault = name_fault(name, limit);
  check_argument(fault.empty(), "name: expected ", fault, ", got \"", printable(name), "\"");
}

}  // namespace

void check_file_name(const std::string& name) { check_name(name, kNameLimit); }

void check_stored_name(const std::string& name) { check_name(name, kStoredNameLimit); }

void check_value(const std::string& key, const std::string& value) {
  check_argument(!key.empty() && key.size() <= kKeyLimit && is_utf8(key), "key: expected 1 to ",
                 kKeyLimit, " bytes of UTF-8, got \"", printable(key), "\"");
  check_argument(value.size() <= kValueLimit && is_utf8(value), "value: expected at most ",
                 kValueLimit, " bytes of UTF-8, got ", value.size(), " bytes");
}

std::string manifest_text(const CheckpointManifest& manifest) {
  JsonWriter out;
  const auto number = [&](const char* name, int64_t value) {
    out.key(name);
    out.number(value);
  };
  out.begin_object();
  out.key("format");
  out.string(kManifestFormat);
  number("version", kVersion);
  number("step", manifest.step);
  number("num_ranks", manifest.num_ranks);
  out.key("layout");
  out.begin_object();
  number("tensor", manifest.layout.tensor);
  number("pipeline", manifest.layout.pipeline);
  number("data", manifest.layout.data);
  out.end_object();
  out.key("library");
  out.string(build_info::version());
  out.key("random");
  out.begin_object();
  out.key("seed");
  out.natural(manifest.random.seed);
  number("step", manifest.random.step);
  number("microbatch", manifest.random.microbatch);
  if (!manifest.random.other_seeds.empty()) {
    out.key(kOtherSeeds);
    out.begin_array();
    for (const uint64_t seed : manifest.random.other_seeds) out.natural(seed);
    out.end_array();
  }
  out.end_object();
  out.key("values");
  out.begin_object();
  for (const auto& [key, value] : manifest.values) {
    out.key(key);
    out.string(value);
  }
  out.end_object();
  out.key("files");
  out.begin_array();
  for (const CheckpointFile& file : manifest.files) {
    out.begin_object();
    out.key("name");
    out.string(file.name);
    out.key("bytes");
    out.natural(file.bytes);
    out.key(kChecksumName);
    out.string(file.checksum);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.take() + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& where) {
  const JsonDocument document = JsonDocument::parse(text, where, NXD_ERROR_CORRUPT);
  const Fields fields(document.root(), where);
  if (fields.string("format") != kManifestFormat) {
    fields.wrong("format", "\"nxd-checkpoint\"", fields.member("format"));
  }
  const int64_t version = fields.whole("version");
  if (version != kVersion) {
    fail(NXD_ERROR_UNSUPPORTED, where, ": version: expected ", kVersion, ", got ", version);
  }
  CheckpointManifest manifest;
  manifest.step = fields.whole("step");
  manifest.num_ranks = fields.whole("num_ranks");
  const Fields layout = fields.object("layout");
  manifest.layout = {layout.extent("tensor"), layout.extent("pipeline"), layout.extent("data")};
  manifest.library = fields.string("library");
  const Fields random = fields.object("random");
  manifest.random = {random.natural("seed"), random.whole("step"), random.whole("microbatch"),
                     read_other_seeds(random)};
  manifest.values = read_values(fields.object("values"));
  manifest.files = read_files(fields);
  return manifest;
}

}  // namespace nxd
