#include "engine/training/tensor_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/agree/agree.h"
#include "core/base/absolute_path.h"
#include "core/base/exchange_record.h"
#include "core/base/printable.h"
#include "core/base/suggestions.h"
#include "core/world/host_map.h"
#include "engine/device/device_tensor.h"
#include "engine/ops/collectives.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/host_copy.h"
#include "engine/tensor/pooled_tensor.h"

namespace nxd {
namespace {

// Dense, and in the host's memory: the tensor itself where it is both.
at::Tensor dense_on_host(const at::Tensor& tensor) {
  return (is_recorded(tensor) ? tensor.to(at::kCPU) : tensor).contiguous();
}

// Also on a rank that does not write.
void check_content(const std::string& path, const TensorFileContent& content) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : content.tensors) {
    const std::string what = "tensor " + printable(name);
    check_argument(!tensor.is_meta(), what, ": it has no values, since it is on the meta device");
    if (!is_recorded(tensor)) check_host_memory(tensor, what.c_str());
    entries.push_back({name, to_nxd_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  SafetensorsWriter::check(path, entries, content.texts);
}

// The first of a host's ranks with local rank 0, which a program may give to several; the world's
// first one writes in any case.
bool writes(const Context& context, const SaveOptions& options,
            const std::vector<int64_t>& local_ranks) {
  if (!options.master_only) return true;
  if (!options.each_host) return context.rank() == 0;
  const HostMap& hosts = context.hosts();
  const std::vector<int>& on_host = hosts.ranks_of(hosts.host_of(context.rank()));
  const auto may_write = [&](int rank) {
    return rank == 0 || local_ranks[static_cast<size_t>(rank)] == 0;
  };
  const auto first = std::find_if(on_host.begin(), on_host.end(), may_write);
  return first != on_host.end() && *first == context.rank();
}

// The file of a path, however it is spelled; links are not followed. Ranks that share a file may
// have other working directories.
std::string identity_of(const std::string& path, bool is_shared) {
  const std::filesystem::path whole = is_shared ? path : absolute_path(path);
  return whole.lexically_normal().string();
}

// All ranks come to the same answer. Gives the local ranks of all.
std::vector<int64_t> compare_options(const Context& context, const std::string& path,
                                     const SaveOptions& options, const Outcome& ready) {
  RecordWriter own;
  own.number(context.local_rank());
  own.number(options.master_only ? 1 : 0);
  own.number(options.each_host ? 1 : 0);
  own.string(path);
  const Outcome named = Outcome::of(context.rank(), [&] {
    ready.rethrow();
    own.string(identity_of(path, options.master_only));
  });
  std::set<std::string> paths;
  std::string first, first_identity;
  std::vector<int64_t> local_ranks;
  int rank = 0;
  for (const std::string& bytes : gather_texts(context.world().get(), own.take(), named)) {
    RecordReader in(bytes);
    local_ranks.push_back(in.number());
    const bool same_kind = in.number() == (options.master_only ? 1 : 0);
    const bool same_hosts = in.number() == (options.each_host ? 1 : 0);
    check_argument(same_kind && same_hosts, "options: expected the same master_only and each_host ",
                   "on all ranks, rank ", rank, " has others");
    const std::string other = in.string(), identity = in.string();
    check_argument(options.master_only || paths.insert(identity).second,
                   "path: expected one of its ", "own for each rank without master_only, rank ",
                   rank, " has ", printable(other), ", as another rank does");
    if (rank == 0) first = other, first_identity = identity;
    check_argument(!options.master_only || identity == first_identity,
                   "path: expected the same on all ranks ", "with master_only, got ",
                   printable(first), " on rank 0 and ", printable(other), " on rank ", rank);
    ++rank;
  }
  return local_ranks;
}

void write_file(const std::string& path, const TensorFileContent& content, bool all_at_once) {
  std::vector<TensorEntry> entries;
  std::vector<at::Tensor> copies(content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    entries.push_back({name, to_nxd_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(path, entries, content.texts);
  for (size_t i = 0; all_at_once && i < copies.size(); ++i) {
    copies[i] = dense_on_host(content.tensors[i].second);
  }
  for (const size_t index : SafetensorsWriter::order(entries)) {
    if (!all_at_once) copies[index] = dense_on_host(content.tensors[index].second);
    writer.write(copies[index].data_ptr());
    copies[index].reset();
  }
  writer.commit();
}

}  // namespace

void save_tensors(const Context& context, const std::string& path, const TensorFileContent& content,
                  const SaveOptions& options, const Outcome& given) {
  context.check_usable();
  const at::NoGradGuard no_grad;
  const Outcome ready = Outcome::of(context.rank(), [&] {
    // The ranks meet in the collectives of what was recorded, and some ranks write nothing.
    run_recorded_before("nxd_save");
    given.rethrow();
    check_not_tracing("saving tensors");
    check_content(path, content);
  });
  const std::vector<int64_t> local_ranks = compare_options(context, path, options, ready);
  Outcome written;
  if (writes(context, options, local_ranks)) {
    written = Outcome::of(context.rank(), [&] { write_file(path, content, options.all_at_once); });
  }
  gather_texts(context.world().get(), "", written);
}

TensorFile::TensorFile(const std::string& path)
    : reader_(path), texts_(reader_.metadata().begin(), reader_.metadata().end()) {
  for (const auto& [name, stored] : reader_.tensors()) names_.push_back(name);
}

at::Tensor TensorFile::read(const std::string& name, nxd_device_t device) const {
  check_not_tracing("nxd_serialization_create_tensor");
  check_argument(device == NXD_DEVICE_CPU || device == NXD_DEVICE_XLA,
                 "device: expected NXD_DEVICE_CPU or NXD_DEVICE_XLA, got ", device);
  check_argument(reader_.contains(name), "name: no tensor \"", printable(name), "\"",
                 Suggestions(name, names_));
  const at::NoGradGuard no_grad;
  const StoredTensor& stored = reader_.tensor(name);
  if (stored.dtype == NXD_DTYPE_INVALID) {
    fail(NXD_ERROR_UNSUPPORTED, "tensor ", printable(name), ": dtype ", stored.dtype_text,
         " cannot be read");
  }
  at::Tensor value = pooled_empty(stored.shape, to_scalar_type(stored.dtype));
  reader_.read_slice(name, ShardSpec::replicated(stored.shape), value.data_ptr(), stored.dtype);
  return value.to(to_device(device));
}

}  // namespace nxd
