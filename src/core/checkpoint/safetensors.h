#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/file_set.h"
#include "core/checkpoint/stored_tensor.h"
#include "core/layout/shard_spec.h"

namespace nxd {

// Reads one file, or a set of files: by the model.safetensors.index.json of their directory, or by
// an index of ranks' shares. All headers are checked on opening: CORRUPT names the file and the
// tensor. Reading is safe from several threads.
class SafetensorsReader {
 public:
  // A .safetensors file, an index of shares, or a directory with a model.safetensors or one of the
  // indexes; with both a file and an index of whole tensors the file is read, and a line of the log
  // says so.
  explicit SafetensorsReader(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // True if the path is that of a file with tensors of these.
  bool reads(const std::string& path) const { return files_.contains(path); }
  // INVALID_ARGUMENT, with near names, when there is none of the name.
  const StoredTensor& tensor(const std::string& name) const;
  // The file that has a tensor, or its first part.
  const std::string& path_of(const StoredTensor& tensor) const { return files_.path(tensor.file); }
  // Bytes of a tensor from an offset on, as they are stored: whole elements of one that ranks have
  // shared.
  void read_bytes(const StoredTensor& tensor, uint64_t offset, void* out, size_t size) const;
  // True if two tensors are of one type and shape and have the same bytes.
  bool same(const std::string& a, const std::string& b) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Reads the elements of a shard, and no others, converted among the float types. out holds
  // spec.local_size() elements; padding becomes zero. INVALID_ARGUMENT when spec has another global
  // shape than the file; UNSUPPORTED for a type that is not computed with. After a failure the
  // content of out is undefined.
  void read_slice(const std::string& name, const ShardSpec& spec, void* out,
                  nxd_dtype_t out_dtype) const {
    read_span(name, spec, 0, spec.local_size(), out, out_dtype);
  }
  // The same for count elements of the shard from begin on, in its local order.
  void read_span(const std::string& name, const ShardSpec& spec, int64_t begin, int64_t count,
                 void* out, nxd_dtype_t out_dtype) const;

 private:
  void open_file(const std::string& path);
  void open_index(const std::string& directory, const std::string& path);
  void open_shares(const std::string& path);
  void read_runs(const StoredTensor& tensor, const std::vector<SliceRun>& runs, unsigned char* out,
                 nxd_dtype_t out_dtype) const;

  std::string path_;
  FileSet files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Header entry of a tensor in a file.
struct TensorEntry {
  std::string name;
  nxd_dtype_t dtype;
  std::vector<int64_t> shape;
};

// Writes a file whose path holds either the old content or all of the new, one tensor at a time.
// INVALID_ARGUMENT for names that repeat or are reserved.
class SafetensorsWriter {
 public:
  // The order in which data follow one another, as indices of entries: wide elements first, so that
  // every tensor is aligned to its element; by name among equals, so that whatever writes the same
  // tensors, cut in whatever way, makes the same file.
  static std::vector<size_t> order(const std::vector<TensorEntry>& entries);

  // INVALID_ARGUMENT for what cannot be a file's content.
  static void check(const std::string& path, const std::vector<TensorEntry>& entries,
                    const std::map<std::string, std::string>& metadata);

  // The checksum, if it is not null, gets the file's bytes.
  SafetensorsWriter(const std::string& path, const std::vector<TensorEntry>& entries,
                    const std::map<std::string, std::string>& metadata,
                    Checksum* checksum = nullptr);

  // All elements of the next tensor of the order.
  void write(const void* data);
  // The next bytes of it: parts of any sizes, or one empty part where it is empty.
  void write_part(const void* data, size_t size);
  // After the last tensor. Without it the path keeps what it had. Removes the index beside a
  // model.safetensors, once that is in place: it is that of an older save.
  void commit();
  uint64_t file_size() const;  // of the whole file, in bytes

 private:
  std::string header_;  // made before the file, so that what is rejected leaves none
  std::string path_;
  AtomicFile file_;
  std::vector<size_t> sizes_;  // in bytes, in order
  size_t written_ = 0;         // tensors
  size_t part_ = 0;            // bytes of the next one
};

}  // namespace nxd
