#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/dtype.h"
#include "core/checkpoint/float_convert.h"

namespace nxd {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// The format's own bound on a header; also that of an index.
constexpr uint64_t kMaximumHeader = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr int kMaximumDepth = 3;
constexpr size_t kConversionElements = 65536;
constexpr char kMetadata[] = "__metadata__";

struct DtypeRow {
  const char* name;
  nxd_dtype_t dtype;
  uint64_t size;
};
constexpr DtypeRow kDtypes[] = {
    {"F64", NXD_DTYPE_F64, 8},         {"F32", NXD_DTYPE_F32, 4},
    {"F16", NXD_DTYPE_F16, 2},         {"BF16", NXD_DTYPE_BF16, 2},
    {"I64", NXD_DTYPE_I64, 8},         {"I32", NXD_DTYPE_I32, 4},
    {"I16", NXD_DTYPE_I16, 2},         {"I8", NXD_DTYPE_I8, 1},
    {"U8", NXD_DTYPE_U8, 1},           {"BOOL", NXD_DTYPE_BOOL, 1},
    {"U16", NXD_DTYPE_INVALID, 2},     {"U32", NXD_DTYPE_INVALID, 4},
    {"U64", NXD_DTYPE_INVALID, 8},     {"F8_E4M3", NXD_DTYPE_INVALID, 1},
    {"F8_E5M2", NXD_DTYPE_INVALID, 1}, {"F8_E8M0", NXD_DTYPE_INVALID, 1},
    {"C64", NXD_DTYPE_INVALID, 8}};

std::string text_of(const std::string& path, const std::string& name) {
  return path + ": tensor \"" + name + "\": ";
}

// Strict JSON: an object whose keys do not repeat, no deeper than the format needs.
Json parse_object(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  const auto visit = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaximumDepth) fail(NXD_ERROR_CORRUPT, path, ": the JSON is nested too deeply");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail(NXD_ERROR_CORRUPT, path, ": \"", parsed.get<std::string>(), "\" appears twice");
    return true;
  };
  try {
    Json json = Json::parse(text, visit);
    if (!json.is_object()) fail(NXD_ERROR_CORRUPT, path, ": expected a JSON object");
    return json;
  } catch (const Json::exception& e) {
    fail(NXD_ERROR_CORRUPT, path, ": invalid JSON: ", e.what());
  }
}

// One tensor's entry of a header. data_begin is where tensors begin in the file.
StoredTensor parse_tensor(const Json& entry, uint64_t data_begin, uint64_t data_size,
                          const std::string& where) {
  const auto corrupt = [&](const auto&... parts) { fail(NXD_ERROR_CORRUPT, where, parts...); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2)
    corrupt("expected dtype, shape and two data_offsets");
  StoredTensor tensor = {entry["dtype"], NXD_DTYPE_INVALID, {}, 0, 0, 0};
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                 [&](const DtypeRow& r) { return tensor.dtype_text == r.name; });
  if (row == std::end(kDtypes))
    fail(NXD_ERROR_UNSUPPORTED, where, "unknown dtype \"", tensor.dtype_text, "\"");
  tensor.dtype = row->dtype;

  uint64_t bytes = row->size;
  for (const Json& extent : entry["shape"]) {
    constexpr uint64_t kMaximum = std::numeric_limits<int64_t>::max() / 16;
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > kMaximum)
      corrupt("expected extents of a shape, got ", entry["shape"].dump());
    const auto n = extent.get<uint64_t>();
    if (n > 0 && bytes > kMaximum / n) corrupt("shape ", entry["shape"].dump(), " is too large");
    bytes *= n;
    tensor.shape.push_back(static_cast<int64_t>(n));
  }
  const Json& offsets = entry["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    corrupt("expected two offsets, got ", offsets.dump());
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data_size)
    corrupt("offsets ", offsets.dump(), " lie outside the file's ", data_size, " bytes of data");
  if (end - begin != bytes)
    corrupt("expected ", bytes, " bytes for shape ", shape_text(tensor.shape), " of ",
            tensor.dtype_text, ", got offsets ", offsets.dump());
  tensor.begin = data_begin + begin;
  tensor.end = data_begin + end;
  return tensor;
}

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
      fail(NXD_ERROR_CORRUPT, path, ": tensor \"", *name, "\": ",
           tensor->begin < position ? "its data overlap those of another tensor"
                                    : "the data before it belong to no tensor");
    position = tensor->end;
  }
  if (position != file_size)
    fail(NXD_ERROR_CORRUPT, path, ": the last ", file_size - position,
         " bytes belong to no tensor");
}

void parse_metadata(const Json& json, const std::string& path,
                    std::map<std::string, std::string>& out) {
  if (!json.is_object()) fail(NXD_ERROR_CORRUPT, path, ": expected an object in ", kMetadata);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      fail(NXD_ERROR_CORRUPT, path, ": expected a string for \"", key, "\" in ", kMetadata);
    out[key] = value.get<std::string>();
  }
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
  const Json header = parse_object(text, path);
  const uint64_t data_begin = kLengthBytes + length;
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      parse_metadata(entry, path, metadata);
    } else {
      tensors[name] =
          parse_tensor(entry, data_begin, file.size() - data_begin, text_of(path, name));
    }
  }
  check_coverage(tensors, data_begin, file.size(), path);
  return tensors;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  const std::string index = path + "/model.safetensors.index.json";
  if (!is_directory(path)) {
    open_file(path);
  } else if (file_exists(index)) {
    open_index(path, index);
  } else {
    open_file(path + "/model.safetensors");
  }
}

void SafetensorsReader::open_file(const std::string& path) {
  files_.emplace_back(path);
  for (auto& [name, tensor] : parse_header(files_.back(), metadata_)) {
    tensor.file = files_.size() - 1;
    tensors_[name] = tensor;
  }
}

void SafetensorsReader::open_index(const std::string& directory, const std::string& path) {
  const Json index = parse_object(read_text(path, kMaximumHeader), path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object())
    fail(NXD_ERROR_CORRUPT, path, ": expected an object weight_map");
  std::map<std::string, std::vector<std::string>> names_of;
  for (const auto& [name, file] : index["weight_map"].items()) {
    // A file of the set lies beside the index; nothing leads out of the directory.
    if (!file.is_string() || file.get<std::string>().empty() ||
        file.get<std::string>().find('/') != std::string::npos)
      fail(NXD_ERROR_CORRUPT, path, ": tensor \"", name, "\": expected a file name, got ",
           file.dump());
    names_of[file.get<std::string>()].push_back(name);
  }
  for (const auto& [file, names] : names_of) {
    files_.emplace_back(directory + "/" + file);
    auto stored = parse_header(files_.back(), metadata_);
    for (const std::string& name : names) {
      const auto found = stored.find(name);
      if (found == stored.end())
        fail(NXD_ERROR_CORRUPT, path, ": tensor \"", name, "\" is not in ", file);
      found->second.file = files_.size() - 1;
      tensors_[name] = found->second;
    }
  }
}

const StoredTensor& SafetensorsReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  check_argument(found != tensors_.end(), path_, ": no tensor \"", name, "\"");
  return found->second;
}

void SafetensorsReader::read_slice(const std::string& name, const ShardSpec& spec, void* out,
                                   nxd_dtype_t out_dtype) const {
  const StoredTensor& stored = tensor(name);
  const InputFile& file = files_[stored.file];
  const std::string where = text_of(file.path(), name);
  check_argument(out || spec.local_size() == 0, where, "out: expected a pointer, got NULL");
  check_argument(stored.shape == spec.shape(), where, "expected shape ", shape_text(spec.shape()),
                 ", the file has ", shape_text(stored.shape));
  const size_t out_size = dtype_size(out_dtype);
  if (stored.dtype == NXD_DTYPE_INVALID)
    fail(NXD_ERROR_UNSUPPORTED, where, "dtype ", stored.dtype_text, " cannot be read");
  check_argument(can_convert(stored.dtype, out_dtype), where, "dtype ", stored.dtype_text,
                 " cannot be read as ", dtype_name(out_dtype));
  const size_t size = dtype_size(stored.dtype);
  auto* target = static_cast<unsigned char*>(out);
  if (spec.has_padding() && target)
    std::memset(target, 0, static_cast<size_t>(spec.local_size()) * out_size);
  std::vector<unsigned char> buffer;
  spec.for_each_run([&](int64_t global, int64_t local, int64_t count) {
    const uint64_t offset = stored.begin + static_cast<uint64_t>(global) * size;
    unsigned char* run = target + static_cast<size_t>(local) * out_size;
    auto left = static_cast<size_t>(count);
    if (stored.dtype == out_dtype) return file.read(offset, run, left * size);
    buffer.resize(std::min(std::max(left * size, buffer.size()), kConversionElements * size));
    for (size_t done = 0; left > 0;) {
      const size_t part = std::min(left, kConversionElements);
      file.read(offset + done * size, buffer.data(), part * size);
      convert_elements(buffer.data(), stored.dtype, run + done * out_size, out_dtype, part);
      done += part;
      left -= part;
    }
  });
}

namespace {

size_t bytes_of(const TensorEntry& entry) {
  return static_cast<size_t>(ShardSpec::replicated(entry.shape).global_size()) *
         dtype_size(entry.dtype);
}

// The header with its length before it.
std::string header_of(const std::string& path, const std::vector<TensorEntry>& entries,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t position = 0;
  for (const size_t index : SafetensorsWriter::order(entries)) {
    const TensorEntry& entry = entries[index];
    const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeRow& r) { return r.dtype == entry.dtype; });
    check_argument(entry.name != kMetadata && !header.contains(entry.name), path,
                   ": tensor name \"", entry.name, "\" is taken");
    const uint64_t end = position + bytes_of(entry);
    header[entry.name] = {
        {"dtype", row->name}, {"shape", entry.shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& e) {
    fail(NXD_ERROR_INVALID_ARGUMENT, path, ": names and metadata: expected UTF-8: ", e.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check_argument(text.size() <= kMaximumHeader, path, ": a header of ", text.size(),
                 " bytes is too large for the format");
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

std::vector<size_t> SafetensorsWriter::order(const std::vector<TensorEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_size(entries[a].dtype) > dtype_size(entries[b].dtype);
  });
  return order;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorEntry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : header_(header_of(path, entries, metadata)), file_(path) {
  for (const size_t index : order(entries)) sizes_.push_back(bytes_of(entries[index]));
  file_.write(header_.data(), header_.size());
}

void SafetensorsWriter::write(const void* data) {
  check_internal(written_ < sizes_.size(), "more tensors than the header has");
  file_.write(data, sizes_[written_++]);
}

void SafetensorsWriter::commit() {
  check_internal(written_ == sizes_.size(), "fewer tensors than the header has");
  file_.commit();
}

void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const TensorToStore& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    check_argument(tensor.data || bytes_of(entries.back()) == 0, text_of(path, tensor.name),
                   "data: expected a pointer, got NULL");
  }
  SafetensorsWriter writer(path, entries, metadata);
  for (const size_t index : SafetensorsWriter::order(entries)) writer.write(tensors[index].data);
  writer.commit();
}

}  // namespace nxd
