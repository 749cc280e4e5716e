#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

namespace nxd {

// Values by their keys; beyond a number of them the least recently used one leaves.
template <class Key, class Value, class Hash = std::hash<Key>>
class LruMap {
 public:
  using Entry = std::pair<Key, Value>;

  explicit LruMap(size_t most) : most_(most) {}
  LruMap(const LruMap&) = delete;
  LruMap& operator=(const LruMap&) = delete;

  // Null if there is none. Valid until the next change. It counts as a use.
  Value* find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &entries_.front().second;
  }
  // For a key that is not there. Gives the entry that leaves for it, so that a caller with a lock
  // can let go of it behind that. Without memory for it the map stays as it was.
  std::optional<Entry> add(Key key, Value value) {
    std::list<Entry> added;
    added.emplace_front(std::move(key), std::move(value));
    index_.emplace(added.front().first, added.begin());
    entries_.splice(entries_.begin(), added);
    return entries_.size() > most_ ? take_oldest() : std::nullopt;
  }
  // The least recently used entry, if there is any, which leaves.
  std::optional<Entry> take_oldest() {
    return entries_.empty() ? std::nullopt : take(entries_.back().first);
  }
  // The entry, if there is one, which leaves.
  std::optional<Entry> take(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return std::nullopt;
    const auto place = found->second;
    index_.erase(found);
    std::optional<Entry> out(std::move(*place));
    entries_.erase(place);
    return out;
  }

  size_t size() const { return entries_.size(); }
  size_t most() const { return most_; }

 private:
  size_t most_;
  std::list<Entry> entries_;  // the most recently used one first
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hash> index_;
};

}  // namespace nxd
