#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/comm/store/store.h"

namespace nxd {

// Tells members of a group that cannot be made because one of them was given bad arguments. This
// rank does not know which group the others are making, only the ranks that it was given. Two ranks
// count the groups that they make together, so both know the number of this one.
//
// Rejections are one list in the store: a rank that has read one can rely on it that its peers find
// it too.
class GroupRejections {
 public:
  GroupRejections(std::shared_ptr<Store> store, int rank, int world_size);

  // Tells these ranks that this one cannot make a group with them, as far as they are other ranks
  // of the world. Never throws: a store that fails cannot be helped here.
  void reject(const std::vector<int>& ranks, const std::string& reason) noexcept;

  // One attempt to make a group of these ranks.
  class Attempt {
   public:
    Attempt(GroupRejections& rejections, const std::vector<int>& ranks);
    // A member's rejection of this very attempt, if there is one yet. Asks the store, and passes it
    // on to members that the list of the rank that rejected left out. CORRUPT when the list in the
    // store is none. Takes a fraction of a second at most.
    std::optional<Error> rejection(const std::string& name) noexcept;

   private:
    std::optional<Error> look_up(const std::string& name);

    GroupRejections& rejections_;
    std::map<int, uint64_t> numbers_;  // by member: the how many-th group together
  };

  // The number of rejected attempts at a group of these ranks, by a rank that told them all.
  // Members agree on it, so that keys of a rejected attempt are not taken for part of the next.
  size_t count_of(const std::vector<int>& ranks) const;

 private:
  struct Entry {
    int by;
    int culprit;                      // another than by when by has passed it on
    std::map<int, uint64_t> numbers;  // by the ranks it is meant for
    std::string reason;
  };

  // True if it is the word of one of the ranks itself, to all the others.
  static bool tells_all(const Entry& entry, const std::vector<int>& ranks);
  void publish(const Entry& entry);
  static std::string encode(const Entry& entry);
  Entry decode(const std::string& text) const;
  bool is_rank(int rank) const { return rank >= 0 && rank < world_size_; }
  void read_on();
  void look_for_missing();

  const std::shared_ptr<Store> store_;
  const int rank_, world_size_;
  std::map<int, uint64_t> next_number_;  // by other rank
  std::map<int64_t, Entry> known_;       // by number in the list, this rank's own included
  std::set<int64_t> missing_;            // numbers that were counted, and had no entry
  int64_t next_ = 1;                     // all before it are known, missing, or given up
};

}  // namespace nxd
