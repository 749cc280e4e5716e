#include "core/checkpoint/share_index.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>

#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/printable.h"
#include "core/checkpoint/file.h"

namespace nxd {
namespace {

constexpr const char* kShareFormat = "nxd-shares";
constexpr int64_t kShareVersion = 1;
constexpr int64_t kMostShareElements = std::numeric_limits<int64_t>::max() / 16;

void write_numbers(JsonWriter& out, std::initializer_list<int64_t> numbers) {
  out.begin_array();
  for (const int64_t number : numbers) out.number(number);
  out.end_array();
}

void write_shard_entry(JsonWriter& out, const ShareIndex::Shard& shard) {
  out.begin_object();
  if (!shard.ranges.empty()) {
    out.key("ranges");
    out.begin_array();
    for (const auto& range : shard.ranges) write_numbers(out, {range.begin, range.end});
    out.end_array();
  }
  out.key("parts");
  out.begin_array();
  for (const auto& part : shard.parts) {
    write_numbers(out, {static_cast<int64_t>(part.file), part.begin, part.count});
  }
  out.end_array();
  out.end_object();
}

void write_tensor_entry(JsonWriter& out, const ShareIndex::Tensor& tensor) {
  out.begin_object();
  out.key("shape");
  out.begin_array();
  for (const int64_t extent : tensor.shape) out.number(extent);
  out.end_array();
  if (tensor.dim >= 0) {
    out.key("dim");
    out.number(tensor.dim);
  }
  out.key("shards");
  out.begin_array();
  for (const ShareIndex::Shard& shard : tensor.shards) write_shard_entry(out, shard);
  out.end_array();
  out.end_object();
}

class ShareIndexParser {
 public:
  explicit ShareIndexParser(const std::string& where) : where_(where) {}

  ShareIndex parse(JsonValue root) {
    const JsonValue format = member(root, "format"), version = member(root, "version");
    if (!format.is_string() || format.string() != kShareFormat)
      wrong("format", "nxd-shares", format);
    if (version.integer() != kShareVersion) {
      fail(NXD_ERROR_UNSUPPORTED, where_, ": version: expected ", kShareVersion, ", got ",
           version.shown());
    }
    ShareIndex index;
    read_metadata(member(root, "metadata"), index.metadata);
    read_files(member(root, "files"), index.files);
    const JsonValue tensors = member(root, "tensors");
    if (!tensors.is_object()) wrong("tensors", "an object", tensors);
    tensors.for_each_member([&](std::string_view name, JsonValue value) {
      name_ = name;
      index.tensors.emplace(name, read_tensor(value, index.files.size()));
    });
    return index;
  }

 private:
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(NXD_ERROR_CORRUPT, where_, ": tensor \"", printable(name_), "\": ", parts...);
  }
  [[noreturn]] void wrong(const char* name, const char* expected, JsonValue got) const {
    fail(NXD_ERROR_CORRUPT, where_, ": ", name, ": expected ", expected, ", got ", got.shown());
  }

  JsonValue member(JsonValue object, const char* name) const {
    if (!object.is_object()) fail(NXD_ERROR_CORRUPT, where_, ": expected a JSON object");
    const auto found = object.find(name);
    if (!found) fail(NXD_ERROR_CORRUPT, where_, ": ", name, " is missing");
    return *found;
  }

  void read_metadata(JsonValue object, std::map<std::string, std::string>& out) const {
    if (!object.is_object()) wrong("metadata", "an object", object);
    object.for_each_member([&](std::string_view key, JsonValue value) {
      if (!value.is_string()) wrong("metadata", "strings", value);
      out.emplace(key, value.string());
    });
  }

  // Nothing leads out of the directory of the index.
  void read_files(JsonValue list, std::vector<std::string>& out) const {
    if (!list.is_array()) wrong("files", "an array", list);
    std::set<std::string> known;
    list.for_each([&](JsonValue entry) {
      if (!entry.is_string() || !is_plain_name(entry.string()) || entry.string().front() == '.')
        wrong("files", "names of files beside it", entry);
      if (!known.emplace(entry.string()).second) wrong("files", "each file once", entry);
      out.emplace_back(entry.string());
    });
  }

  // Whole numbers from 0 on.
  std::vector<int64_t> read_numbers(JsonValue list, const char* what) const {
    if (!list.is_array()) corrupt(what, ": expected an array, got ", list.shown());
    std::vector<int64_t> out;
    list.for_each([&](JsonValue entry) {
      const auto number = entry.integer();
      if (!number || *number < 0) {
        corrupt(what, ": expected whole numbers from 0 on, got ", entry.shown());
      }
      out.push_back(*number);
    });
    return out;
  }

  JsonValue of_tensor(JsonValue object, const char* name) const {
    const auto found = object.is_object() ? object.find(name) : std::nullopt;
    if (!found) corrupt(name, " is missing");
    return *found;
  }

  ShareIndex::Tensor read_tensor(JsonValue value, size_t files) const {
    ShareIndex::Tensor tensor;
    tensor.shape = read_numbers(of_tensor(value, "shape"), "shape");
    for (int64_t room = kMostShareElements; const int64_t extent : tensor.shape) {
      if (extent > room) corrupt("its shape is too large");
      room /= std::max(extent, int64_t{1});
    }
    if (const auto dim = value.find("dim")) {
      const auto number = dim->integer();
      if (!number || *number < 0 || static_cast<uint64_t>(*number) >= tensor.shape.size()) {
        corrupt("dim: expected a dimension of its shape, got ", dim->shown());
      }
      tensor.dim = static_cast<int>(*number);
    }
    const JsonValue shards = of_tensor(value, "shards");
    if (!shards.is_array() || (tensor.dim < 0 && shards.size() != 1)) {
      corrupt("shards: expected an array, of one without dim, got ", shards.shown());
    }
    shards.for_each(
        [&](JsonValue shard) { tensor.shards.push_back(read_shard(shard, tensor, files)); });
    if (tensor.dim >= 0) check_ranges(tensor);
    return tensor;
  }

  ShareIndex::Shard read_shard(JsonValue value, const ShareIndex::Tensor& tensor,
                               size_t files) const {
    ShareIndex::Shard shard;
    const auto ranges = value.is_object() ? value.find("ranges") : std::nullopt;
    if (ranges && (tensor.dim < 0 || !ranges->is_array())) {
      corrupt("ranges: expected an array, and only with dim, got ", ranges->shown());
    }
    if (ranges) {
      ranges->for_each([&](JsonValue entry) { shard.ranges.push_back(read_range(entry, tensor)); });
    }
    const JsonValue parts = of_tensor(value, "parts");
    if (!parts.is_array()) corrupt("parts: expected an array, got ", parts.shown());
    parts.for_each([&](JsonValue entry) {
      const std::vector<int64_t> numbers = read_numbers(entry, "parts");
      if (numbers.size() != 3 || static_cast<uint64_t>(numbers[0]) >= files) {
        corrupt("parts: expected file, begin and count, got ", entry.shown());
      }
      shard.parts.push_back({static_cast<size_t>(numbers[0]), numbers[1], numbers[2]});
    });
    check_parts(shard, tensor);
    return shard;
  }

  ShardSpec::Range read_range(JsonValue entry, const ShareIndex::Tensor& tensor) const {
    const std::vector<int64_t> ends = read_numbers(entry, "ranges");
    const int64_t extent = tensor.shape[static_cast<size_t>(tensor.dim)];
    if (ends.size() != 2 || ends[0] > ends[1] || ends[1] > extent) {
      corrupt("ranges: expected two ends within 0 to ", extent, ", got ", entry.shown());
    }
    return {ends[0], ends[1]};
  }

  void check_parts(ShareIndex::Shard& shard, const ShareIndex::Tensor& tensor) const {
    int64_t room = kMostShareElements;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (static_cast<int>(d) != tensor.dim) room /= std::max(tensor.shape[d], int64_t{1});
    }
    for (const auto& range : shard.ranges) {
      room -= range.end - range.begin;
      if (room < 0) corrupt("ranges: a shard is too large");
    }
    std::sort(shard.parts.begin(), shard.parts.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const int64_t size = tensor.spec(shard).local_size();
    int64_t at = 0;
    for (const auto& part : shard.parts) {
      if (part.begin != at || part.count > size - at) {
        corrupt("parts: expected each of a shard's ", size, " elements once, got ", part.count,
                " from element ", part.begin, " on after ", at);
      }
      at += part.count;
    }
    if (at != size) corrupt("parts: expected ", size, " elements of a shard, got ", at);
  }

  void check_ranges(const ShareIndex::Tensor& tensor) const {
    std::vector<ShardSpec::Range> all;
    for (const auto& shard : tensor.shards) {
      all.insert(all.end(), shard.ranges.begin(), shard.ranges.end());
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int64_t covered = 0;
    for (const auto& range : all) {
      if (range.begin > covered) break;
      covered = std::max(covered, range.end);
    }
    const int64_t extent = tensor.shape[static_cast<size_t>(tensor.dim)];
    if (covered < extent) {
      corrupt("no shard has index ", covered, " of dimension ", tensor.dim, " of ", extent);
    }
  }

  const std::string& where_;
  std::string_view name_;
};

}  // namespace

ShardSpec ShareIndex::Tensor::spec(const Shard& shard) const {
  if (dim < 0) return ShardSpec::replicated(shape);
  return ShardSpec::ranges(shape, dim, shard.ranges, shape[static_cast<size_t>(dim)]);
}

std::string share_index_text(const ShareIndex& index) {
  JsonWriter out;
  out.begin_object();
  out.key("format");
  out.string(kShareFormat);
  out.key("version");
  out.number(kShareVersion);
  out.key("metadata");
  out.begin_object();
  for (const auto& [key, value] : index.metadata) {
    out.key(key);
    out.string(value);
  }
  out.end_object();
  out.key("files");
  out.begin_array();
  for (const std::string& file : index.files) out.string(file);
  out.end_array();
  out.key("tensors");
  out.begin_object();
  for (const auto& [name, tensor] : index.tensors) {
    out.key(name);
    write_tensor_entry(out, tensor);
  }
  out.end_object();
  out.end_object();
  std::string json = out.take() + "\n";
  check_argument(json.size() <= kShareIndexLimit, "index of shares: expected at most ",
                 kShareIndexLimit, " bytes, got ", json.size());
  return json;
}

ShareIndex parse_share_index(std::string_view text, const std::string& where) {
  const JsonDocument document = JsonDocument::parse(text, where, NXD_ERROR_CORRUPT);
  return ShareIndexParser(where).parse(document.root());
}

}  // namespace nxd
