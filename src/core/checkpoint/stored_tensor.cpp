#include "core/checkpoint/stored_tensor.h"

#include <algorithm>

namespace nxd {
namespace {

// Elements that follow one another in the tensor and in a file.
struct StoredRun {
  int64_t global, count;
  size_t file;
  uint64_t offset;
};

// The runs of all parts between two elements, in order and each element once: of several copies
// the first one counts.
std::vector<StoredRun> runs_between(const StoredTensor& tensor, int64_t low, int64_t high) {
  std::vector<StoredRun> runs;
  for (const StoredPart& part : tensor.parts) {
    part.shard.for_each_run([&](int64_t global, int64_t local, int64_t count) {
      const int64_t first = std::max({int64_t{0}, low - global, part.begin - local});
      const int64_t end = std::min({count, high - global, part.begin + part.count - local});
      if (first >= end) return;
      const auto place = static_cast<uint64_t>(local + first - part.begin);
      runs.push_back(
          {global + first, end - first, part.file, part.offset + place * tensor.element_bytes});
    });
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto& a, const auto& b) { return a.global < b.global; });
  size_t kept = 0;
  int64_t done = low;
  for (StoredRun run : runs) {
    const int64_t again = std::min(std::max(done - run.global, int64_t{0}), run.count);
    if (again == run.count) continue;
    run.global += again;
    run.count -= again;
    run.offset += static_cast<uint64_t>(again) * tensor.element_bytes;
    done = run.global + run.count;
    runs[kept++] = run;
  }
  runs.resize(kept);
  return runs;
}

// Collects runs; those that continue one another become one.
class RunList {
 public:
  explicit RunList(uint64_t element_bytes) : element_bytes_(element_bytes) {}

  void add(const SliceRun& run) {
    if (!runs_.empty()) {
      SliceRun& last = runs_.back();
      const uint64_t end = last.offset + static_cast<uint64_t>(last.count) * element_bytes_;
      if (last.file == run.file && end == run.offset && last.out + last.count == run.out) {
        last.count += run.count;
        return;
      }
    }
    runs_.push_back(run);
  }
  std::vector<SliceRun> take() { return std::move(runs_); }

 private:
  uint64_t element_bytes_;
  std::vector<SliceRun> runs_;
};

// Calls visit(global, out, count) for the runs of the wanted elements.
template <class Visit>
void for_each_wanted(const ShardSpec& shard, int64_t begin, int64_t count, const Visit& visit) {
  shard.for_each_run([&](int64_t global, int64_t local, int64_t run) {
    const int64_t first = std::max(int64_t{0}, begin - local);
    const int64_t end = std::min(run, begin + count - local);
    if (first < end) visit(global + first, local + first - begin, end - first);
  });
}

}  // namespace

std::vector<SliceRun> plan_slice(const StoredTensor& tensor, const ShardSpec& shard, int64_t begin,
                                 int64_t count) {
  RunList list(tensor.element_bytes);
  if (tensor.parts.empty()) {
    for_each_wanted(shard, begin, count, [&](int64_t global, int64_t out, int64_t run) {
      list.add({tensor.file, tensor.begin + static_cast<uint64_t>(global) * tensor.element_bytes,
                out, run});
    });
    return list.take();
  }
  int64_t low = shard.global_size(), high = 0;
  for_each_wanted(shard, begin, count, [&](int64_t global, int64_t, int64_t run) {
    low = std::min(low, global);
    high = std::max(high, global + run);
  });
  const std::vector<StoredRun> stored = runs_between(tensor, low, high);
  for_each_wanted(shard, begin, count, [&](int64_t global, int64_t out, int64_t left) {
    auto at = std::upper_bound(stored.begin(), stored.end(), global,
                               [](int64_t g, const StoredRun& run) { return g < run.global; });
    check_internal(at != stored.begin(), "shares that do not cover their tensor");
    for (--at; left > 0; ++at) {
      check_internal(at != stored.end() && at->global <= global && global < at->global + at->count,
                     "shares that do not cover their tensor");
      const int64_t taken = std::min(left, at->global + at->count - global);
      const auto skipped = static_cast<uint64_t>(global - at->global);
      list.add({at->file, at->offset + skipped * tensor.element_bytes, out, taken});
      global += taken;
      out += taken;
      left -= taken;
    }
  });
  return list.take();
}

}  // namespace nxd
