#include "core/checkpoint/share_write.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/agree/agree.h"
#include "core/base/dtype.h"
#include "core/base/exchange_record.h"
#include "core/base/printable.h"
#include "core/checkpoint/checksum.h"
#include "core/checkpoint/file_metadata.h"
#include "core/checkpoint/share_index.h"

namespace nxd {
namespace {

constexpr std::string_view kShareEnding = ".safetensors";

// The same elements but for padding.
ShardSpec without_padding(const ShardSpec& shard) {
  if (!shard.has_padding()) return shard;
  const int64_t extent = shard.shape()[static_cast<size_t>(shard.dim())];
  std::vector<ShardSpec::Range> real;
  for (const ShardSpec::Range& range : shard.ranges()) {
    if (range.begin < extent) real.push_back({range.begin, std::min(range.end, extent)});
  }
  return ShardSpec::ranges(shard.shape(), shard.dim(), real, extent);
}

// Calls visit(begin, count) for the runs of a share's elements that are no padding, as indices
// within its shard.
template <class Visit>
void for_each_real(const TensorShare& share, const Visit& visit) {
  share.shard.for_each_run([&](int64_t, int64_t local, int64_t count) {
    const int64_t first = std::max(local, share.begin);
    const int64_t end = std::min(local + count, share.begin + share.count);
    if (first < end) visit(first, end - first);
  });
}

// A share as the ranks know each other's: without padding.
struct SharePlace {
  TensorEntry entry;
  int dim;
  std::vector<ShardSpec::Range> ranges;
  int64_t begin, count, shard_size;

  auto key() const {
    std::vector<int64_t> ends;
    for (const auto& range : ranges) ends.insert(ends.end(), {range.begin, range.end});
    return std::tuple(dim, ends, begin, count);
  }
  bool is_whole() const {
    const int64_t extent = dim < 0 ? 0 : entry.shape[static_cast<size_t>(dim)];
    const bool all = dim < 0 || extent == 0 || ranges == std::vector<ShardSpec::Range>{{0, extent}};
    return all && begin == 0 && count == shard_size;
  }
};

SharePlace place_of(const TensorShare& share) {
  const ShardSpec real = without_padding(share.shard);
  // An empty tensor has no shards, but a part nevertheless, which says its type.
  if (real.global_size() == 0) return {share.entry, -1, {}, 0, 0, 0};
  SharePlace place{share.entry, real.dim(),  real.ranges(),
                   share.begin, share.count, real.local_size()};
  if (!share.shard.has_padding()) return place;
  place.begin = place.count = 0;
  share.shard.for_each_run([&](int64_t, int64_t local, int64_t count) {
    place.begin += std::clamp(share.begin - local, int64_t{0}, count);
  });
  for_each_real(share, [&](int64_t, int64_t count) { place.count += count; });
  return place;
}

// A rank's shares, and its part of the metadata.
struct Brought {
  std::vector<SharePlace> places;
  std::map<std::string, std::string> metadata;
};

std::string brought_text(const Brought& own) {
  RecordWriter out;
  out.number(static_cast<int64_t>(own.places.size()));
  for (const SharePlace& place : own.places) {
    out.string(place.entry.name);
    out.number(place.entry.dtype);
    out.number(static_cast<int64_t>(place.entry.shape.size()));
    for (const int64_t extent : place.entry.shape) out.number(extent);
    out.number(place.dim);
    out.number(static_cast<int64_t>(place.ranges.size()));
    for (const auto& range : place.ranges) {
      out.number(range.begin);
      out.number(range.end);
    }
    for (const int64_t number : {place.begin, place.count, place.shard_size}) out.number(number);
  }
  for (const auto& [key, value] : own.metadata) {
    out.string(key);
    out.string(value);
  }
  return out.take();
}

SharePlace read_place(RecordReader& in) {
  SharePlace place;
  place.entry.name = in.string();
  place.entry.dtype = static_cast<nxd_dtype_t>(in.number());
  place.entry.shape.resize(in.count());
  for (int64_t& extent : place.entry.shape) extent = in.number();
  place.dim = static_cast<int>(in.number());
  place.ranges.resize(in.count());
  for (auto& range : place.ranges) {
    range.begin = in.number();
    range.end = in.number();
  }
  place.begin = in.number();
  place.count = in.number();
  place.shard_size = in.number();
  return place;
}

Brought read_brought(const std::string& bytes) {
  RecordReader in(bytes);
  Brought brought;
  for (size_t left = in.count(); left > 0; --left) brought.places.push_back(read_place(in));
  while (!in.done()) {
    const std::string key = in.string();
    brought.metadata.emplace(key, in.string());
  }
  return brought;
}

// The texts of all ranks of all groups: those of a tensor-parallel group follow one another, and
// those of a stage.
std::vector<std::string> gather_over(const std::vector<ProcessGroup*>& groups, std::string own) {
  std::vector<std::string> texts = {std::move(own)};
  for (ProcessGroup* group : groups) {
    RecordWriter out;
    for (const std::string& text : texts) out.string(text);
    texts.clear();
    for (const std::string& bytes : gather_texts(group, out.take(), {})) {
      RecordReader in(bytes);
      while (!in.done()) texts.push_back(in.string());
    }
  }
  return texts;
}

int place_in(const ProcessGroup* group) { return group ? group->rank() : 0; }
int places_of(const ProcessGroup* group) { return group ? group->size() : 1; }

// Shares end as the file of whole tensors would: those of "a" and of "a.safetensors" are others.
std::string share_name(std::string_view name, size_t index, size_t count) {
  const std::string_view ending = name.ends_with(kShareEnding) ? kShareEnding : "";
  return text(name.substr(0, name.size() - ending.size()), ".share-", std::setfill('0'),
              std::setw(5), index + 1, "-of-", std::setw(5), count, ending);
}

// One of them, among however many.
bool is_share_of(const std::string& file, std::string_view name) {
  const size_t at = file.rfind(".share-");
  size_t index = 0, count = 0;
  return at != std::string::npos &&
         std::sscanf(file.c_str() + at, ".share-%zu-of-%zu", &index, &count) == 2 && index > 0 &&
         share_name(name, index - 1, count) == file;
}

// Who writes what: known to every rank, and the same on all.
class SharePlan {
 public:
  SharePlan(const std::string& path, const std::vector<Brought>& all, size_t ranks_of_stage)
      : written_(all.size()) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (const auto& [key, value] : all[rank].metadata) add_metadata(index_.metadata, key, value);
      for (size_t i = 0; i < all[rank].places.size(); ++i) {
        if (take(all[rank].places[i], static_cast<int>(rank / ranks_of_stage))) {
          written_[rank].push_back(i);
        }
      }
    }
    name_files(path);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (const size_t i : written_[rank]) add_to_index(all[rank].places[i], files_[rank]);
    }
    size_t writers = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (written_[rank].empty()) continue;
      ++writers;
      plain_rank_ = rank;
      for (const size_t i : written_[rank]) plain_ = plain_ && all[rank].places[i].is_whole();
    }
    plain_ = plain_ && writers < 2;
  }

  // One rank writes whole tensors, and nothing else is there.
  bool is_plain() const { return plain_; }
  size_t plain_rank() const { return plain_rank_; }
  // Indices of a rank's shares that it writes.
  const std::vector<size_t>& written_by(size_t rank) const { return written_[rank]; }
  const std::string& file_of(size_t rank) const { return index_.files[files_[rank]]; }
  const ShareIndex& index() const { return index_; }

 private:
  struct Known {
    TensorEntry entry;
    int stage, dim;
    std::set<decltype(std::declval<SharePlace>().key())> keys;
  };

  bool take(const SharePlace& place, int stage) {
    const TensorEntry& entry = place.entry;
    const auto [at, added] = known_.emplace(entry.name, Known{entry, stage, place.dim, {}});
    Known& first = at->second;
    check_argument(first.entry.dtype == entry.dtype && first.entry.shape == entry.shape, "tensor ",
                   printable(entry.name), ": ", dtype_name(first.entry.dtype), " of shape ",
                   shape_text(first.entry.shape), " in stage ", first.stage, " of the pipeline, ",
                   dtype_name(entry.dtype), " of shape ", shape_text(entry.shape), " in stage ",
                   stage);
    if (first.stage != stage) return false;
    check_argument(first.dim == place.dim, "tensor ", printable(entry.name),
                   ": expected one sharded dimension on all ranks, got ", first.dim, " and ",
                   place.dim);
    const bool is_empty = ShardSpec::replicated(entry.shape).global_size() == 0;
    return (is_empty ? added : place.count > 0) && first.keys.insert(place.key()).second;
  }

  void name_files(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    const auto count = static_cast<size_t>(std::count_if(
        written_.begin(), written_.end(), [](const auto& places) { return !places.empty(); }));
    for (const auto& places : written_) {
      files_.push_back(index_.files.size());
      if (!places.empty()) index_.files.push_back(share_name(name, index_.files.size(), count));
    }
  }

  void add_to_index(const SharePlace& place, size_t file) {
    ShareIndex::Tensor& tensor = index_.tensors[place.entry.name];
    tensor.shape = place.entry.shape;
    tensor.dim = place.dim;
    auto shard = std::find_if(tensor.shards.begin(), tensor.shards.end(),
                              [&](const auto& known) { return known.ranges == place.ranges; });
    if (shard == tensor.shards.end()) {
      shard = tensor.shards.insert(shard, {place.ranges, {}});
    }
    shard->parts.push_back({file, place.begin, place.count});
  }

  ShareIndex index_;
  std::vector<std::vector<size_t>> written_;  // by rank
  std::vector<size_t> files_;                 // by rank: of those that write
  std::map<std::string, Known> known_;
  bool plain_ = true;
  size_t plain_rank_ = 0;
};

CheckpointFile write_share(const std::string& path, const std::vector<TensorShare>& shares,
                           const std::vector<size_t>& written, bool is_plain,
                           const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const size_t i : written) {
    const SharePlace place = place_of(shares[i]);
    entries.push_back(place.entry);
    if (is_plain) continue;
    const bool whole_shard = place.count == place.shard_size;
    entries.back().shape = whole_shard ? without_padding(shares[i].shard).local_shape()
                                       : std::vector<int64_t>{place.count};
  }
  Checksum checksum;
  SafetensorsWriter writer(path, entries, metadata, &checksum);
  for (const size_t at : SafetensorsWriter::order(entries)) {
    const TensorShare& share = shares[written[at]];
    const size_t element = dtype_size(share.entry.dtype);
    const auto* data = static_cast<const char*>(share.data);
    if (!share.shard.has_padding()) {
      writer.write(data);
      continue;
    }
    for_each_real(share, [&](int64_t begin, int64_t count) {
      writer.write_part(data + static_cast<size_t>(begin - share.begin) * element,
                        static_cast<size_t>(count) * element);
    });
  }
  writer.commit();
  return {path.substr(path.rfind('/') + 1), writer.file_size(), checksum.hex()};
}

void write_index(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

}  // namespace

std::vector<CheckpointFile> write_shares(const std::string& path, const ShareGroups& groups,
                                         const std::vector<TensorShare>& shares,
                                         const std::map<std::string, std::string>& metadata) {
  const std::vector<ProcessGroup*> axes = {groups.tensor, groups.data, groups.pipeline};
  Brought own{{}, metadata};
  for (const TensorShare& share : shares) own.places.push_back(place_of(share));
  std::vector<Brought> all;
  for (const std::string& bytes : gather_over(axes, brought_text(own)))
    all.push_back(read_brought(bytes));
  const auto tensor = static_cast<size_t>(places_of(groups.tensor));
  const auto of_stage = tensor * static_cast<size_t>(places_of(groups.data));
  const size_t rank = static_cast<size_t>(place_in(groups.pipeline)) * of_stage +
                      static_cast<size_t>(place_in(groups.data)) * tensor +
                      static_cast<size_t>(place_in(groups.tensor));
  const SharePlan plan(path, all, of_stage);
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string index_path = path + std::string(kShareIndexEnding);
  const std::vector<size_t>& written = plan.written_by(rank);

  std::string index;
  std::vector<CheckpointFile> files;
  agree(axes, Proposal(groups.world_rank).attempt([&] {
    if (plan.is_plain()) {
      if (rank == plan.plain_rank())
        files.push_back(write_share(path, shares, written, true, plan.index().metadata));
      return;
    }
    check_replaceable(index_path);  // on each rank, so that none has written its share
    if (rank == 0) {
      index = share_index_text(plan.index());
      static_cast<void>(parse_share_index(index, index_path));  // all elements are there
    }
    if (!written.empty()) {
      files.push_back(write_share(directory + plan.file_of(rank), shares, written, false, {}));
    }
  }));
  if (plan.is_plain()) return files;
  agree(axes, Proposal(groups.world_rank).attempt([&] {
    if (rank == 0) write_index(index_path, index);
  }));
  return files;
}

bool is_name_of_shares(const std::string& file, const std::string& name) {
  return file == name || file == name + std::string(kShareIndexEnding) || is_share_of(file, name);
}

}  // namespace nxd
