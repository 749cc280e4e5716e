#pragma once

#include <cstdint>
#include <vector>

#include "nxd.h"

namespace nxd {

// Says which gradients travel together, and which rank has which part of them. Pure, and the same
// on all ranks that give the same sizes.
class BucketPlan {
 public:
  struct Parameter {
    int64_t count;  // elements
    nxd_dtype_t dtype;
    nxd_dtype_t value_dtype = NXD_DTYPE_INVALID;  // of the parameter itself
    int replica_group = 0;  // it shares buckets with parameters of this number alone
  };
  // A parameter's place in its bucket.
  struct Item {
    size_t parameter;
    int64_t offset;
    int64_t count;
  };
  struct Bucket {
    nxd_dtype_t dtype;
    int64_t used;  // elements; the rest, up to size, is padding
    int64_t size;  // divides among the ranks
    std::vector<Item> items;
    nxd_dtype_t value_dtype = NXD_DTYPE_INVALID;
    int replica_group = 0;
  };
  // A span of one parameter's elements.
  struct Segment {
    size_t parameter;
    int64_t parameter_offset;
    int64_t bucket_offset;
    int64_t count;
  };

  enum class Parts {
    kWholeLines,  // of several parameters, in whole cache lines
    kAlike,       // of one parameter: every rank's have one size, to be run as one program
  };

  // Buckets take parameters from the last to the first, since backward passes end with the first,
  // and of one replica group and one dtype each, of gradients and of values; a parameter is never
  // cut. Their order is that in which a backward pass has filled them. Empty parameters are in no
  // bucket.
  BucketPlan(const std::vector<Parameter>& parameters, int64_t bucket_bytes, int ranks,
             Parts parts = Parts::kWholeLines);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // The bucket of a parameter; -1 for an empty one.
  int bucket_of(size_t parameter) const { return bucket_of_[parameter]; }
  int64_t offset_of(size_t parameter) const { return offset_of_[parameter]; }
  int ranks() const { return ranks_; }
  bool has_parts_alike() const { return parts_ == Parts::kAlike; }

  // Elements of a rank's part, which starts at rank times this.
  int64_t part_size(size_t bucket) const { return buckets_[bucket].size / ranks_; }
  // The segments of a bucket's parameters that lie in a rank's part: none where it has padding
  // alone.
  std::vector<Segment> part(size_t bucket, int rank) const;
  // All of a bucket's parameters.
  std::vector<Segment> full(size_t bucket) const;

 private:
  std::vector<Segment> segments_between(size_t bucket, int64_t begin, int64_t end) const;

  int ranks_;
  Parts parts_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
  std::vector<int64_t> offset_of_;
};

}  // namespace nxd
