#include "core/checkpoint/convert_weights.h"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/printable.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/float_convert.h"
#include "core/checkpoint/safetensors.h"

namespace nxd {
namespace {

// 2 MiB of F64 as they come, and as many as they go.
constexpr size_t kElementsAtOnce = size_t{1} << 18U;
constexpr uint64_t kLargestConfig = uint64_t{1} << 24U;
constexpr const char* kSuffix = ".safetensors";
constexpr const char* kConfig = "config.json";
constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "vocab.txt",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "tekken.json",
                                       "tiktoken.model",
                                       "chat_template.json",
                                       "chat_template.jinja"};
constexpr std::string_view kTokenizerVersions = "tokenizer.model.";  // of Mistral's, such as v3
constexpr const char* kTemplates = "additional_chat_templates";

template <class Word>
size_t count_equal(const void* data, size_t count, Word magnitude, Word wanted) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    found += (word & magnitude) == wanted;
  }
  return found;
}

size_t count_infinities(const void* data, nxd_dtype_t dtype, size_t count) {
  switch (dtype) {
    case NXD_DTYPE_F64:
      return count_equal<uint64_t>(data, count, ~uint64_t{0} >> 1U, uint64_t{0x7ff} << 52U);
    case NXD_DTYPE_F32: return count_equal<uint32_t>(data, count, 0x7fffffffU, 0x7f800000U);
    case NXD_DTYPE_BF16: return count_equal<uint16_t>(data, count, 0x7fff, 0x7f80);
    default: return count_equal<uint16_t>(data, count, 0x7fff, 0x7c00);
  }
}

size_t elements_in(const std::vector<int64_t>& shape) {
  return static_cast<size_t>(ShardSpec::replicated(shape).global_size());
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return std::string("model") + kSuffix;
  return text("model-", std::setfill('0'), std::setw(5), index + 1, "-of-", std::setw(5), count,
              kSuffix);
}

void write_file(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

void copy_file(const std::string& from, const std::string& to) {
  const InputFile in(from);
  AtomicFile out(to);
  std::vector<char> part(size_t{1} << 20U);
  for (uint64_t done = 0; done < in.size();) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(part.size(), in.size() - done));
    in.read(done, part.data(), size);
    out.write(part.data(), size);
    done += size;
  }
  out.commit();
}

class WeightsCopy {
 public:
  WeightsCopy(const std::string& from, const WeightConversion& conversion,
              const ConversionProgress& progress)
      : reader_(from), conversion_(conversion), progress_(progress) {
    check_argument(!conversion.dtype || dtype_is_float(*conversion.dtype),
                   "dtype: expected F32, F64, BF16 or F16, got ",
                   conversion.dtype ? dtype_name(*conversion.dtype) : "");
    plan();
  }

  size_t num_shards() const { return shards_.size(); }

  bool reads(const std::string& path) const { return reader_.reads(path); }

  void write_shard(size_t index, const std::string& path) {
    const std::vector<TensorEntry>& entries = shards_[index];
    auto metadata = reader_.metadata();
    metadata.emplace("format", "pt");  // without it releases of transformers reject the file
    SafetensorsWriter writer(path, entries, metadata);
    for (const size_t i : SafetensorsWriter::order(entries)) copy(entries[i], writer);
    writer.commit();
  }

  std::string index() const {
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < shards_.size(); ++i) {
      for (const TensorEntry& entry : shards_[i]) places[entry.name] = i;
    }
    JsonWriter out;
    out.begin_object();
    out.key("metadata");
    out.begin_object();
    out.key("total_size");
    out.natural(total_);
    out.end_object();
    out.key("weight_map");
    out.begin_object();
    for (const auto& [name, shard] : places) {
      out.key(name);
      out.string(shard_name(shard, shards_.size()));
    }
    out.end_object();
    out.end_object();
    return out.take();
  }

 private:
  // In the order of the source's files, which are then read from front to back.
  void plan() {
    std::vector<std::pair<const std::string*, const StoredTensor*>> order;
    for (const auto& [name, tensor] : reader_.tensors()) order.emplace_back(&name, &tensor);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second->file, a.second->begin) <
             std::pair(b.second->file, b.second->begin);
    });
    uint64_t shard_bytes = 0;
    shards_.emplace_back();
    for (const auto& [name, tensor] : order) {
      if (tensor->dtype == NXD_DTYPE_INVALID)
        fail(NXD_ERROR_UNSUPPORTED, reader_.path_of(*tensor), ": tensor \"", printable(*name),
             "\": dtype ", tensor->dtype_text, " cannot be converted");
      const bool converted = conversion_.dtype && dtype_is_float(tensor->dtype);
      const nxd_dtype_t dtype = converted ? *conversion_.dtype : tensor->dtype;
      const uint64_t bytes = elements_in(tensor->shape) * dtype_size(dtype);
      const uint64_t most = conversion_.max_shard_bytes;
      if (most != 0 && !shards_.back().empty() && shard_bytes + bytes > most) {
        shards_.emplace_back();
        shard_bytes = 0;
      }
      shards_.back().push_back({*name, dtype, tensor->shape});
      shard_bytes += bytes;
      total_ += bytes;
    }
  }

  void copy(const TensorEntry& entry, SafetensorsWriter& writer) {
    const StoredTensor& stored = reader_.tensor(entry.name);
    const size_t from = dtype_size(stored.dtype), to = dtype_size(entry.dtype);
    size_t done = 0, left = elements_in(entry.shape);
    do {
      const size_t count = std::min(left, kElementsAtOnce);
      in_.resize(std::max(in_.size(), count * from));
      reader_.read_bytes(stored, done * from, in_.data(), count * from);
      if (entry.dtype == stored.dtype) {
        writer.write_part(in_.data(), count * to);
      } else {
        out_.resize(std::max(out_.size(), count * to));
        convert_elements(in_.data(), stored.dtype, out_.data(), entry.dtype, count);
        check_range(entry, stored.dtype, count);
        writer.write_part(out_.data(), count * to);
      }
      done += count;
      left -= count;
      written_ += count * to;
      if (progress_) progress_(written_, total_);
    } while (left > 0);
  }

  void check_range(const TensorEntry& entry, nxd_dtype_t stored, size_t count) const {
    check_argument(count_infinities(out_.data(), entry.dtype, count) ==
                       count_infinities(in_.data(), stored, count),
                   "tensor \"", printable(entry.name), "\": a value of ", dtype_name(stored),
                   " is beyond the range of ", dtype_name(entry.dtype));
  }

  const SafetensorsReader reader_;
  const WeightConversion& conversion_;
  const ConversionProgress& progress_;
  std::vector<std::vector<TensorEntry>> shards_;
  uint64_t total_ = 0, written_ = 0;  // bytes
  std::vector<unsigned char> in_, out_;
};

// A directory of Hugging Face's, below a hidden name until it is complete. The next conversion to
// the same path removes what one that was killed has left. One at a time writes: its lock is a file
// beside, so that it has the directory to itself also while that is renamed or removed.
class NewDirectory {
 public:
  explicit NewDirectory(const std::string& path) : path_(path) {
    const size_t slash = path.rfind('/');
    parent_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    check_argument(!name.empty() && name != "." && name != "..",
                   "expected the name of a new directory, got \"", printable(path), "\"");
    check_absent();
    partial_name_ = "." + name + ".partial";
    make_directories(parent_);
    lock();
    try {
      check_absent();
      remove_tree(partial());
      make_directory(partial());
    } catch (...) {
      unlock();
      throw;
    }
  }
  ~NewDirectory() {
    try {
      if (!is_published_) remove_tree(partial());
    } catch (const std::exception&) {  // the one that led here counts
    }
    unlock();
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  std::string in(const std::string& name) const { return partial() + "/" + name; }

  void publish() {
    synchronise_directory(partial());
    rename_path(partial(), path_);
    is_published_ = true;
    synchronise_directory(parent_);
  }

 private:
  std::string partial() const { return parent_ + "/" + partial_name_; }
  std::string lock_name() const { return partial_name_ + ".lock"; }

  void check_absent() const {
    check_argument(!has_entry(path_), path_, ": expected a directory that is not there yet");
  }

  // One that ends takes its file along: whoever opened that before has no lock on the next one's.
  void lock() {
    constexpr int kMostTries = 100;
    const std::string busy = "another conversion to " + path_ + " is under way";
    for (int i = 0; i < kMostTries; ++i) {
      lock_.emplace(parent_, lock_name(), busy);
      if (lock_->is_in_place()) return;
      lock_.reset();
    }
    fail(NXD_ERROR_INVALID_STATE, parent_, ": ", busy);
  }

  void unlock() noexcept {
    try {
      remove_tree(parent_ + "/" + lock_name());
    } catch (const std::exception&) {  // a file that the next conversion locks and removes
    }
    lock_.reset();
  }

  std::string path_, parent_, partial_name_;
  std::optional<DirectoryLock> lock_;
  bool is_published_ = false;
};

void check_config(const std::string& config, const std::string& where) {
  const JsonDocument document = JsonDocument::parse(config, where, NXD_ERROR_CORRUPT);
  if (!document.root().is_object()) fail(NXD_ERROR_CORRUPT, where, ": expected a JSON object");
}

void copy_tokenizer(const std::string& from, const NewDirectory& to) {
  for (const char* name : kCompanions) {
    const std::string path = from + "/" + name;
    if (file_exists(path)) copy_file(path, to.in(name));
  }
  for (const std::string& name : entries_of(from)) {
    if (name.starts_with(kTokenizerVersions)) copy_file(from + "/" + name, to.in(name));
  }
  const std::string templates = from + "/" + kTemplates, copies = to.in(kTemplates);
  if (!is_directory(templates)) return;
  make_directory(copies);
  for (const std::string& name : entries_of(templates)) {
    if (name.ends_with(".jinja")) copy_file(templates + "/" + name, copies + "/" + name);
  }
  synchronise_directory(copies);
}

void copy_companions(const std::string& from, const WeightConversion& conversion,
                     const NewDirectory& to) {
  const bool named = !conversion.config.empty();
  const std::string config = named ? conversion.config : from + "/" + kConfig;
  check_argument(named || is_directory(from), from,
                 ": a file has no config.json beside it that is surely its own; name one");
  // As in the directory of a checkpoint's step.
  if (!named && !file_exists(config)) {
    fail(NXD_ERROR_IO, config, ": cannot open: there is no such file; name one");
  }
  std::string text = read_text(config, kLargestConfig);
  if (conversion.dtype) text = config_of_dtype(text, *conversion.dtype, config);
  // The source's own is copied as it is; any file may have been named.
  if (named) check_config(text, config);
  write_file(to.in(kConfig), text);
  if (is_directory(from)) copy_tokenizer(from, to);
}

const char* torch_name(nxd_dtype_t dtype) {
  switch (dtype) {
    case NXD_DTYPE_F64: return "float64";
    case NXD_DTYPE_F32: return "float32";
    case NXD_DTYPE_BF16: return "bfloat16";
    default: return "float16";
  }
}

// The end of the string that begins at a quotation mark, behind its last one.
size_t string_end(const std::string& json, size_t begin) {
  size_t end = begin + 1;
  while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  return end + 1;
}

size_t skip_blanks(const std::string& json, size_t at) {
  return std::min(json.find_first_not_of(" \t\r\n", at), json.size());
}

}  // namespace

std::string config_of_dtype(const std::string& config, nxd_dtype_t dtype,
                            const std::string& where) {
  check_config(config, where);  // the scan below holds for what is JSON
  std::string out = config;
  int depth = 0;
  for (size_t at = 0; at < out.size();) {
    if (out[at] == '{' || out[at] == '[') ++depth;
    if (out[at] == '}' || out[at] == ']') --depth;
    if (out[at] != '"') {
      ++at;
      continue;
    }
    const size_t begin = at;
    at = string_end(out, begin);
    const size_t colon = skip_blanks(out, at);
    if (depth != 1 || out[colon] != ':') continue;
    // A name may be written with escapes.
    const JsonDocument key = JsonDocument::parse(std::string_view(out).substr(begin, at - begin),
                                                 where, NXD_ERROR_CORRUPT);
    if (key.root().string() != "torch_dtype" && key.root().string() != "dtype") continue;
    at = skip_blanks(out, colon + 1);
    if (out[at] != '"') continue;  // null: none is said
    const std::string value = std::string("\"") + torch_name(dtype) + "\"";
    out.replace(at, string_end(out, at) - at, value);
    at += value.size();
  }
  return out;
}

void convert_weights(const std::string& from, const std::string& to,
                     const WeightConversion& conversion, const ConversionProgress& progress) {
  WeightsCopy copy(from, conversion, progress);
  if (to.ends_with(kSuffix)) {
    check_argument(conversion.max_shard_bytes == 0, to,
                   ": shards of a size need a directory, got a file");
    check_argument(conversion.config.empty(), to, ": a config.json needs a directory, got a file");
    check_argument(!copy.reads(to), to, ": expected another file than those that are read, ", from);
    copy.write_shard(0, to);
    return;
  }
  std::string path = to;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  NewDirectory directory(path);
  copy_companions(from, conversion, directory);
  const size_t count = copy.num_shards();
  for (size_t i = 0; i < count; ++i) copy.write_shard(i, directory.in(shard_name(i, count)));
  if (count > 1) write_file(directory.in("model.safetensors.index.json"), copy.index());
  directory.publish();
}

}  // namespace nxd
