#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

struct iovec;

namespace nxd::tcp_store {

// A value is shared by the store and by the answers that carry it, so that a client that asks and
// does not read costs a reference and not a copy.
using Value = std::shared_ptr<const std::string>;

// The keys of a store, and how much memory all values take that are kept or on their way out.
class Values {
 public:
  explicit Values(size_t limit) : limit_(limit) {}

  // Null when the key is absent.
  Value find(const std::string& key) const;
  // 0 when it is absent.
  size_t size_of(const std::string& key) const;
  // Each is false, and nothing is changed, when all values would take more than the limit.
  bool set(const std::string& key, std::string value);
  bool append(const std::string& key, std::string_view more);
  bool erase(const std::string& key) { return values_.erase(key) > 0; }
  size_t count() const { return values_.size(); }
  size_t bytes() const { return *held_; }
  size_t limit() const { return limit_; }

 private:
  // A value, the references to which count it.
  struct Entry {
    Entry(std::string b, size_t c, std::shared_ptr<size_t> h)
        : bytes(std::move(b)), counted(c), held(std::move(h)) {
      *held += counted;
    }
    ~Entry() { *held -= counted; }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    std::string bytes;
    size_t counted;
    const std::shared_ptr<size_t> held;
  };

  const size_t limit_;
  const std::shared_ptr<size_t> held_ = std::make_shared<size_t>(0);
  std::unordered_map<std::string, std::shared_ptr<Entry>> values_;
};

// Answers of one client that are still to be sent.
class Answers {
 public:
  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }

  template <class T>
  void put(T number) {
    put_copy(std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
  }
  void put_copy(std::string_view bytes);
  // Its size and its bytes.
  void put_value(const Value& value);

  // The first segments to be sent; gives their number.
  size_t front(iovec* segments, size_t most) const;
  void remove(size_t bytes);

 private:
  // Either bytes of its own or those of a value.
  struct Segment {
    std::string own;
    Value value;
    const std::string& bytes() const { return value ? *value : own; }
  };
  std::deque<Segment> segments_;
  size_t sent_ = 0;  // of the first segment
  size_t bytes_ = 0;
};

}  // namespace nxd::tcp_store
