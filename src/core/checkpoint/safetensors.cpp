#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/element_count.h"
#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/base/round_up.h"
#include "core/base/suggestions.h"
#include "core/base/utf8.h"
#include "core/checkpoint/file.h"
#include "core/checkpoint/float_convert.h"
#include "core/checkpoint/share_index.h"

namespace nxd {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// The format's own bound on a header; also that of an index.
constexpr uint64_t kMaximumHeader = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kRunElements = 65536;
constexpr char kMetadata[] = "__metadata__";
constexpr char kFile[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

struct DtypeRow {
  const char* name;
  nxd_dtype_t dtype;
  uint64_t bits;
};
constexpr DtypeRow kDtypes[] = {
    {"F64", NXD_DTYPE_F64, 64},        {"F32", NXD_DTYPE_F32, 32},
    {"F16", NXD_DTYPE_F16, 16},        {"BF16", NXD_DTYPE_BF16, 16},
    {"I64", NXD_DTYPE_I64, 64},        {"I32", NXD_DTYPE_I32, 32},
    {"I16", NXD_DTYPE_I16, 16},        {"I8", NXD_DTYPE_I8, 8},
    {"U8", NXD_DTYPE_U8, 8},           {"BOOL", NXD_DTYPE_BOOL, 8},
    {"U16", NXD_DTYPE_INVALID, 16},    {"U32", NXD_DTYPE_INVALID, 32},
    {"U64", NXD_DTYPE_INVALID, 64},    {"C64", NXD_DTYPE_INVALID, 64},
    {"F8_E4M3", NXD_DTYPE_INVALID, 8}, {"F8_E4M3FNUZ", NXD_DTYPE_INVALID, 8},
    {"F8_E5M2", NXD_DTYPE_INVALID, 8}, {"F8_E5M2FNUZ", NXD_DTYPE_INVALID, 8},
    {"F8_E8M0", NXD_DTYPE_INVALID, 8}, {"F6_E2M3", NXD_DTYPE_INVALID, 6},
    {"F6_E3M2", NXD_DTYPE_INVALID, 6}, {"F4", NXD_DTYPE_INVALID, 4}};

std::string text_of(const std::string& path, std::string_view name) {
  return path + ": tensor \"" + printable(name) + "\": ";
}

JsonDocument parse_object(std::string_view text, const std::string& path) {
  JsonDocument document = JsonDocument::parse(text, path, NXD_ERROR_CORRUPT);
  if (!document.root().is_object()) fail(NXD_ERROR_CORRUPT, path, ": expected a JSON object");
  return document;
}

// Reads and checks a header's entry of one tensor. data_begin is where tensors begin in the file.
class TensorParser {
 public:
  TensorParser(const std::string& path, uint64_t data_begin, uint64_t data_size)
      : path_(path), data_begin_(data_begin), data_size_(data_size) {}

  StoredTensor parse(std::string_view name, const JsonValue& entry) {
    name_ = name;
    const auto dtype = member(entry, "dtype"), shape = member(entry, "shape"),
               offsets = member(entry, "data_offsets");
    if (!dtype || !dtype->is_string() || !shape || !shape->is_array() || !offsets ||
        !offsets->is_array() || offsets->size() != 2)
      corrupt("expected dtype, shape and two data_offsets");
    StoredTensor tensor = {std::string(dtype->string()), NXD_DTYPE_INVALID, 1, {}, 0, 0, 0, {}};
    const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeRow& r) { return tensor.dtype_text == r.name; });
    if (row == std::end(kDtypes))
      fail(NXD_ERROR_UNSUPPORTED, text_of(path_, name_), "unknown dtype \"",
           printable(tensor.dtype_text), "\"");
    tensor.dtype = row->dtype;
    tensor.element_bytes = std::max<uint64_t>(row->bits / 8, 1);  // smaller ones are not read
    const uint64_t bits = read_shape(*shape, row->bits, tensor.shape);
    if (bits % 8 != 0)
      corrupt("expected whole bytes, got shape ", shape_text(tensor.shape), " of ",
              tensor.dtype_text);
    read_place(*offsets, bits / 8, tensor);
    return tensor;
  }

 private:
  static std::optional<JsonValue> member(const JsonValue& entry, const char* name) {
    return entry.is_object() ? entry.find(name) : std::nullopt;
  }

  // Made only where it fails: a file may have very many tensors.
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(NXD_ERROR_CORRUPT, text_of(path_, name_), parts...);
  }

  // The bits of all elements.
  uint64_t read_shape(const JsonValue& list, uint64_t bits, std::vector<int64_t>& shape) const {
    constexpr uint64_t kMaximum = std::numeric_limits<int64_t>::max() / 2;
    list.for_each([&](const JsonValue& extent) {
      const std::optional<uint64_t> n = extent.natural();
      if (!n || *n > kMaximum) corrupt("expected extents of a shape, got ", list.shown());
      shape.push_back(static_cast<int64_t>(*n));
    });
    const auto count = element_count(shape, static_cast<int64_t>(kMaximum / bits));
    if (!count) corrupt("shape ", list.shown(), " is too large");
    return static_cast<uint64_t>(*count) * bits;
  }

  void read_place(const JsonValue& offsets, uint64_t bytes, StoredTensor& tensor) const {
    uint64_t ends[2] = {0, 0};
    size_t i = 0;
    offsets.for_each([&](const JsonValue& offset) {
      if (!offset.natural()) corrupt("expected two offsets, got ", offsets.shown());
      ends[i++] = *offset.natural();
    });
    const auto [begin, end] = ends;
    if (begin > end || end > data_size_)
      corrupt("offsets ", offsets.shown(), " lie outside the file's ", data_size_,
              " bytes of data");
    if (end - begin != bytes)
      corrupt("expected ", bytes, " bytes for shape ", shape_text(tensor.shape), " of ",
              tensor.dtype_text, ", got offsets ", offsets.shown());
    tensor.begin = data_begin_ + begin;
    tensor.end = data_begin_ + end;
  }

  const std::string& path_;
  const uint64_t data_begin_, data_size_;
  std::string_view name_;
};

// The format leaves no byte of data to two tensors or to none.
void check_coverage(const std::map<std::string, StoredTensor>& tensors, uint64_t data_begin,
                    uint64_t file_size, const std::string& path) {
  std::vector<std::pair<const std::string*, const StoredTensor*>> order;
  for (const auto& [name, tensor] : tensors) order.emplace_back(&name, &tensor);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t position = data_begin;
  for (const auto& [name, tensor] : order) {
    if (tensor->begin != position)
      fail(NXD_ERROR_CORRUPT, text_of(path, *name),
           tensor->begin < position ? "its data overlap those of another tensor"
                                    : "the data before it belong to no tensor");
    position = tensor->end;
  }
  if (position != file_size)
    fail(NXD_ERROR_CORRUPT, path, ": the last ", file_size - position,
         " bytes belong to no tensor");
}

// Some writers, MLX among them, give null where there are none.
void parse_metadata(const JsonValue& json, const std::string& path,
                    std::map<std::string, std::string>& out) {
  if (json.is_null()) return;
  if (!json.is_object()) fail(NXD_ERROR_CORRUPT, path, ": expected an object in ", kMetadata);
  json.for_each_member([&](std::string_view key, const JsonValue& value) {
    if (!value.is_string())
      fail(NXD_ERROR_CORRUPT, path, ": expected a string for \"", printable(key), "\" in ",
           kMetadata);
    out[std::string(key)] = value.string();
  });
}

std::map<std::string, StoredTensor> parse_header(const InputFile& file,
                                                 std::map<std::string, std::string>& metadata) {
  const std::string& path = file.path();
  if (file.size() < kLengthBytes)
    fail(NXD_ERROR_CORRUPT, path, ": expected a safetensors file, got ", file.size(), " bytes");
  uint64_t length = 0;
  file.read(0, &length, sizeof length);
  if (length > kMaximumHeader || length > file.size() - kLengthBytes)
    fail(NXD_ERROR_CORRUPT, path, ": a header of ", length, " bytes does not fit the file's ",
         file.size());
  std::string text(static_cast<size_t>(length), '\0');
  file.read(kLengthBytes, text.data(), text.size());
  const JsonDocument header = parse_object(text, path);
  const uint64_t data_begin = kLengthBytes + length;
  std::map<std::string, StoredTensor> tensors;
  TensorParser parser(path, data_begin, file.size() - data_begin);
  header.root().for_each_member([&](std::string_view name, const JsonValue& entry) {
    if (name == kMetadata) {
      parse_metadata(entry, path, metadata);
    } else {
      tensors.emplace(name, parser.parse(name, entry));
    }
  });
  check_coverage(tensors, data_begin, file.size(), path);
  return tensors;
}

// The directory has weights, but in a form that is a program.
void check_no_pickle(const std::string& directory) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!file_exists(directory + "/" + name)) continue;
    fail(NXD_ERROR_IO, directory, ": expected ", kFile, " or ", kIndex, ", got ", name,
         ", of pickles, which are not read; transformers' save_pretrained writes the former");
  }
}

}  // namespace

// As transformers has it: a file comes before an index, which may be that of an older save.
SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  const std::string file = path + "/" + kFile, index = path + "/" + kIndex;
  const std::string shares = file + std::string(kShareIndexEnding);
  if (path.ends_with(kShareIndexEnding)) {
    open_shares(path);
  } else if (!is_directory(path)) {
    open_file(path);
  } else if (file_exists(file)) {
    open_file(file);
    if (!file_exists(index)) return;
    log(NXD_LOG_WARN, path, ": it has both ", kFile, ", which is read, and ", kIndex,
        ", which is not");
  } else if (file_exists(index)) {
    open_index(path, index);
  } else if (file_exists(shares)) {
    open_shares(shares);
  } else {
    check_no_pickle(path);
    open_file(file);
  }
}

void SafetensorsReader::open_file(const std::string& path) {
  for (auto& [name, tensor] : parse_header(*files_.add(path), metadata_)) {
    tensor.file = files_.size() - 1;
    tensors_.emplace(name, std::move(tensor));
  }
}

void SafetensorsReader::open_index(const std::string& directory, const std::string& path) {
  const std::string content = read_text(path, kMaximumHeader);
  const JsonDocument document = parse_object(content, path);
  const std::optional<JsonValue> map = document.root().find("weight_map");
  if (!map || !map->is_object()) fail(NXD_ERROR_CORRUPT, path, ": expected an object weight_map");
  std::map<std::string, std::vector<std::string>, std::less<>> names_of;
  map->for_each_member([&](std::string_view name, const JsonValue& file) {
    // A file of the set lies beside the index; nothing leads out of the directory.
    if (!file.is_string() || !is_plain_name(file.string()))
      fail(NXD_ERROR_CORRUPT, text_of(path, name), "expected a file name, got ", file.shown());
    const auto known = names_of.find(file.string());
    auto& names = known == names_of.end() ? names_of[std::string(file.string())] : known->second;
    names.emplace_back(name);
  });
  for (const auto& [file, names] : names_of) {
    auto stored = parse_header(*files_.add(directory + "/" + file), metadata_);
    for (const std::string& name : names) {
      const auto found = stored.find(name);
      if (found == stored.end())
        fail(NXD_ERROR_CORRUPT, path, ": tensor \"", printable(name), "\" is not in ",
             printable(file));
      found->second.file = files_.size() - 1;
      tensors_[name] = found->second;
    }
  }
}

void SafetensorsReader::open_shares(const std::string& path) {
  const ShareIndex index = parse_share_index(read_text(path, kShareIndexLimit), path);
  metadata_ = index.metadata;
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<std::map<std::string, StoredTensor>> stored;
  for (const std::string& file : index.files) {
    std::map<std::string, std::string> of_file;
    stored.push_back(parse_header(*files_.add(directory + file), of_file));
  }
  for (const auto& [name, shared] : index.tensors) {
    StoredTensor tensor;
    for (const ShareIndex::Shard& shard : shared.shards) {
      const ShardSpec spec = shared.spec(shard);
      for (const ShareIndex::Part& part : shard.parts) {
        const auto found = stored[part.file].find(name);
        const std::string tensor_text = text_of(files_.path(part.file), name);
        const auto corrupt = [&tensor_text](const auto&... parts) {
          fail(NXD_ERROR_CORRUPT, tensor_text, parts...);
        };
        if (found == stored[part.file].end()) corrupt("expected a part of it, as ", path, " says");
        const StoredTensor& own = found->second;
        if ((own.end - own.begin) / own.element_bytes != static_cast<uint64_t>(part.count)) {
          corrupt("expected ", part.count, " elements, as ", path, " says, got shape ",
                  shape_text(own.shape));
        }
        if (tensor.parts.empty()) tensor = own;
        if (tensor.dtype_text != own.dtype_text) {
          corrupt("expected ", tensor.dtype_text, ", as other parts of it are, got ",
                  own.dtype_text);
        }
        tensor.parts.push_back({part.file, own.begin, spec, part.begin, part.count});
      }
    }
    if (tensor.parts.empty()) fail(NXD_ERROR_CORRUPT, text_of(path, name), "it has no parts");
    tensor.shape = shared.shape;
    tensor.begin = 0;
    tensor.end = static_cast<uint64_t>(ShardSpec::replicated(shared.shape).global_size()) *
                 tensor.element_bytes;
    tensor.file = tensor.parts.front().file;
    tensors_.emplace(name, std::move(tensor));
  }
}

const StoredTensor& SafetensorsReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [stored, tensor] : tensors_) known.push_back(printable(stored));
  fail(NXD_ERROR_INVALID_ARGUMENT, path_, ": no tensor \"", printable(name), "\"",
       suggestions(name, known));
}

bool SafetensorsReader::same(const std::string& a, const std::string& b) const {
  constexpr size_t kPart = size_t{1} << 20U;
  const StoredTensor& first = tensor(a);
  const StoredTensor& second = tensor(b);
  if (first.dtype_text != second.dtype_text || first.shape != second.shape) return false;
  std::vector<char> left(kPart), right(kPart);
  const uint64_t bytes = first.end - first.begin;
  for (uint64_t done = 0; done < bytes; done += kPart) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(kPart, bytes - done));
    read_bytes(first, done, left.data(), part);
    read_bytes(second, done, right.data(), part);
    if (std::memcmp(left.data(), right.data(), part) != 0) return false;
  }
  return true;
}

namespace {

// Reads runs of a tensor to their places, converted.
class RunReader {
 public:
  RunReader(const StoredTensor& tensor, unsigned char* out, nxd_dtype_t out_dtype)
      : tensor_(tensor), out_(out), out_dtype_(out_dtype), out_size_(dtype_size(out_dtype)) {}

  void read(const InputFile& file, const SliceRun& run) {
    const size_t size = tensor_.element_bytes, count = static_cast<size_t>(run.count);
    if (tensor_.dtype == out_dtype_) return file.read(run.offset, place(run), count * size);
    for (size_t done = 0; done < count; done += kRunElements) {
      const size_t part = std::min(count - done, kRunElements);
      read_to_buffer(file, run.offset + done * size, part);
      convert_elements(buffer_.data(), tensor_.dtype, place(run) + done * out_size_, out_dtype_,
                       part);
    }
  }

  // Runs with so many elements in all, at most kRunElements, without a gap between them.
  void read_together(const InputFile& file, const SliceRun* runs, size_t count, size_t elements) {
    read_to_buffer(file, runs->offset, elements);
    const unsigned char* from = buffer_.data();
    for (const SliceRun* run = runs; run < runs + count; ++run) {
      convert_elements(from, tensor_.dtype, place(*run), out_dtype_,
                       static_cast<size_t>(run->count));
      from += static_cast<size_t>(run->count) * tensor_.element_bytes;
    }
  }

 private:
  unsigned char* place(const SliceRun& run) const {
    return out_ + static_cast<size_t>(run.out) * out_size_;
  }
  void read_to_buffer(const InputFile& file, uint64_t offset, size_t elements) {
    buffer_.resize(std::max(buffer_.size(), elements * tensor_.element_bytes));
    file.read(offset, buffer_.data(), elements * tensor_.element_bytes);
  }

  const StoredTensor& tensor_;
  unsigned char* out_;
  const nxd_dtype_t out_dtype_;
  const size_t out_size_;
  std::vector<unsigned char> buffer_;
};

}  // namespace

void SafetensorsReader::read_bytes(const StoredTensor& tensor, uint64_t offset, void* out,
                                   size_t size) const {
  if (tensor.parts.empty()) return files_.open(tensor.file)->read(tensor.begin + offset, out, size);
  const uint64_t element = tensor.element_bytes;
  check_internal(offset % element == 0 && size % element == 0, "a read of parts of elements");
  const ShardSpec all = ShardSpec::replicated(tensor.shape);
  for (const SliceRun& run : plan_slice(tensor, all, static_cast<int64_t>(offset / element),
                                        static_cast<int64_t>(size / element))) {
    files_.open(run.file)->read(run.offset,
                                static_cast<char*>(out) + static_cast<uint64_t>(run.out) * element,
                                static_cast<size_t>(run.count) * element);
  }
}

void SafetensorsReader::read_span(const std::string& name, const ShardSpec& spec, int64_t begin,
                                  int64_t count, void* out, nxd_dtype_t out_dtype) const {
  const StoredTensor& stored = tensor(name);
  const std::string where = text_of(path_of(stored), name);
  check_argument(out || count == 0, where, "out: expected a pointer, got NULL");
  check_argument(stored.shape == spec.shape(), where, "expected shape ", shape_text(spec.shape()),
                 ", the file has ", shape_text(stored.shape));
  if (stored.dtype == NXD_DTYPE_INVALID)
    fail(NXD_ERROR_UNSUPPORTED, where, "dtype ", stored.dtype_text, " cannot be read");
  check_argument(can_convert(stored.dtype, out_dtype), where, "dtype ", stored.dtype_text,
                 " cannot be read as ", dtype_name(out_dtype));
  auto* target = static_cast<unsigned char*>(out);
  if (spec.has_padding() && target)
    std::memset(target, 0, static_cast<size_t>(count) * dtype_size(out_dtype));
  std::vector<SliceRun> runs = plan_slice(stored, spec, begin, count);
  if (!stored.parts.empty()) {  // files are read from front to back
    std::sort(runs.begin(), runs.end(), [](const SliceRun& a, const SliceRun& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
  }
  read_runs(stored, runs, target, out_dtype);
  // Files may have other bytes, which would be none of a program's booleans.
  if (out_dtype == NXD_DTYPE_BOOL)
    std::replace_if(
        target, target + count, [](unsigned char byte) { return byte > 1; }, 1);
}

// Runs that follow one another in a file are read together, and then put in their places.
void SafetensorsReader::read_runs(const StoredTensor& tensor, const std::vector<SliceRun>& runs,
                                  unsigned char* out, nxd_dtype_t out_dtype) const {
  RunReader reader(tensor, out, out_dtype);
  for (size_t i = 0; i < runs.size();) {
    size_t next = i + 1;
    auto elements = static_cast<size_t>(runs[i].count);
    for (; next < runs.size() && runs[next].file == runs[i].file &&
           runs[next].offset == runs[i].offset + elements * tensor.element_bytes &&
           elements + static_cast<size_t>(runs[next].count) <= kRunElements;
         ++next) {
      elements += static_cast<size_t>(runs[next].count);
    }
    const FileSet::File file = files_.open(runs[i].file);
    if (next == i + 1) {
      reader.read(*file, runs[i]);
    } else {
      reader.read_together(*file, &runs[i], next - i, elements);
    }
    i = next;
  }
}

namespace {

size_t entry_bytes(const TensorEntry& entry) {
  return static_cast<size_t>(ShardSpec::replicated(entry.shape).global_size()) *
         dtype_size(entry.dtype);
}

void write_entry(JsonWriter& out, const TensorEntry& entry, uint64_t begin) {
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                 [&](const DtypeRow& r) { return r.dtype == entry.dtype; });
  out.begin_object();
  out.key("data_offsets");
  out.begin_array();
  out.natural(begin);
  out.natural(begin + entry_bytes(entry));
  out.end_array();
  out.key("dtype");
  out.string(row->name);
  out.key("shape");
  out.begin_array();
  for (const int64_t extent : entry.shape) out.number(extent);
  out.end_array();
  out.end_object();
}

void write_metadata(JsonWriter& out, const std::map<std::string, std::string>& metadata) {
  out.begin_object();
  for (const auto& [key, value] : metadata) {
    out.key(key);
    out.string(value);
  }
  out.end_object();
}

void check_text(const std::string& path, const std::string& name) {
  check_argument(is_utf8(name), path, ": names and metadata: expected UTF-8, got \"",
                 printable(name), "\"");
  check_argument(name.find('\0') == std::string::npos, path,
                 ": names and metadata: expected no NUL, got \"", printable(name), "\"");
}

// The header with its length before it: entries in the order of their names, which is the same
// whatever ranks write the file.
std::string header_of(const std::string& path, const std::vector<TensorEntry>& entries,
                      const std::map<std::string, std::string>& metadata) {
  struct Place {
    const TensorEntry* entry;  // null: the metadata
    uint64_t begin;
  };
  std::map<std::string_view, Place> members;
  for (const auto& [key, value] : metadata) {
    check_text(path, key);
    check_text(path, value);
  }
  if (!metadata.empty()) members[kMetadata] = {nullptr, 0};
  uint64_t position = 0;
  for (const size_t index : SafetensorsWriter::order(entries)) {
    const TensorEntry& entry = entries[index];
    check_text(path, entry.name);
    const bool added = members.emplace(entry.name, Place{&entry, position}).second;
    check_argument(added && entry.name != kMetadata, path, ": tensor name \"",
                   printable(entry.name), "\" is taken");
    position += entry_bytes(entry);
  }
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, place] : members) {
    out.key(name);
    place.entry ? write_entry(out, *place.entry, place.begin) : write_metadata(out, metadata);
  }
  out.end_object();
  std::string text = out.take();
  text.resize(round_up(text.size(), 8), ' ');
  check_argument(text.size() <= kMaximumHeader, path, ": a header of ", text.size(),
                 " bytes is too large for the format");
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

// An index beside a file of the whole model is that of an older save in pieces: who prefers it
// would read old values, or pieces of both.
void remove_old_index(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  if (path.compare(name, std::string::npos, kFile) != 0) return;
  const std::string index = path.substr(0, name) + kIndex;
  if (!file_exists(index)) return;
  try {
    remove_file(index);
  } catch (const Error& error) {
    log(NXD_LOG_WARN, error.what(), "; it is that of an older save, not of ", path);
  }
}

}  // namespace

std::vector<size_t> SafetensorsWriter::order(const std::vector<TensorEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t width = dtype_size(entries[a].dtype), other = dtype_size(entries[b].dtype);
    return width != other ? width > other : entries[a].name < entries[b].name;
  });
  return order;
}

void SafetensorsWriter::check(const std::string& path, const std::vector<TensorEntry>& entries,
                              const std::map<std::string, std::string>& metadata) {
  static_cast<void>(header_of(path, entries, metadata));
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorEntry>& entries,
                                     const std::map<std::string, std::string>& metadata,
                                     Checksum* checksum)
    : header_(header_of(path, entries, metadata)), path_(path), file_(path, checksum) {
  for (const size_t index : order(entries)) sizes_.push_back(entry_bytes(entries[index]));
  file_.write(header_.data(), header_.size());
}

void SafetensorsWriter::write(const void* data) {
  check_internal(written_ < sizes_.size(), "more tensors than the header has");
  write_part(data, sizes_[written_]);
}

void SafetensorsWriter::write_part(const void* data, size_t size) {
  check_internal(written_ < sizes_.size() && size <= sizes_[written_] - part_,
                 "more bytes than the header has");
  file_.write(data, size);
  part_ += size;
  if (part_ < sizes_[written_]) return;
  ++written_;
  part_ = 0;
}

uint64_t SafetensorsWriter::file_size() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{header_.size()});
}

void SafetensorsWriter::commit() {
  check_internal(written_ == sizes_.size(), "fewer tensors than the header has");
  file_.commit();
  remove_old_index(path_);
}

}  // namespace nxd
