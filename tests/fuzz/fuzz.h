// Support for the fuzzers of this directory. Each has one entry, LLVMFuzzerTestOneInput,
// which libFuzzer calls with inputs of its own and replay.cpp with those that are kept.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/store/store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace nxd_fuzz {

[[noreturn]] inline void found(const char* why, const std::string& detail = "") {
  std::fprintf(stderr, "fuzz: %s%s%s\n", why, detail.empty() ? "" : ": ", detail.c_str());
  std::abort();
}

inline void expect(bool holds, const char* why, const std::string& detail = "") {
  if (!holds) found(why, detail);
}

// True if a status is one of the errors that input may cause.
inline bool is_rejection(nxd_status_t status) {
  return status < NXD_OK && status >= NXD_ERROR_USER && status != NXD_ERROR_INTERNAL;
}

// Runs a parser. Input may make it fail in the library's own way alone: with a known status that is
// not INTERNAL unless the input says that a peer has it, and with a reason. True when it did not
// fail.
template <class Function>
bool parse(Function&& function, bool relays_internal = false) {
  try {
    std::forward<Function>(function)();
    return true;
  } catch (const nxd::Error& e) {
    const bool is_relayed = relays_internal && e.status() == NXD_ERROR_INTERNAL;
    expect(is_rejection(e.status()) || is_relayed, "an input gives status",
           std::to_string(e.status()) + ": " + e.what());
    expect(*e.what() != '\0', "an error without a reason");
  } catch (const std::exception& e) {
    found("an exception that is not the library's", e.what());
  }
  return false;
}

// Takes an input apart, from its front; past its end all is zero and empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  size_t left() const { return static_cast<size_t>(end_ - at_); }
  template <class T>
  T number() {
    T value{};
    const size_t size = std::min(sizeof value, left());
    if (size > 0) std::memcpy(&value, at_, size);
    at_ += size;
    return value;
  }
  int byte() { return number<uint8_t>(); }
  // A number from low to high.
  int choice(int low, int high) { return low + byte() % (high - low + 1); }
  std::string bytes(size_t size) {
    size = std::min(size, left());
    std::string out(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return out;
  }
  std::string rest() { return bytes(left()); }
  // Up to the mark, which is taken too, or to the end.
  std::string until(char mark) {
    const uint8_t* stop = std::find(at_, end_, static_cast<uint8_t>(mark));
    std::string out(reinterpret_cast<const char*>(at_), static_cast<size_t>(stop - at_));
    at_ = stop == end_ ? end_ : stop + 1;
    return out;
  }
  // An edge or a small number more often than chance would have it.
  double real() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kEdges[] = {0, 1, -1, 0.5, 1e-300, 1e300, kInfinity, -kInfinity, kNan};
    const int which = byte();
    if (which < static_cast<int>(std::size(kEdges))) return kEdges[which];
    return which < 128 ? which - 9 : number<double>();
  }

 private:
  const uint8_t* at_;
  const uint8_t* const end_;
};

// A file in memory whose content is the input.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("nxd-fuzz", MFD_CLOEXEC)) {
    expect(fd_ >= 0, "memfd_create failed");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void set(const std::string& content) {
    expect(::ftruncate(fd_, 0) == 0, "ftruncate failed");
    const auto size = static_cast<ssize_t>(content.size());
    expect(::pwrite(fd_, content.data(), content.size(), 0) == size, "a short write");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A store in which every key that nobody has set holds the next of the given values, in turns: what
// peers and an earlier job may have left there. An empty value is an absent key.
class InputStore : public nxd::Store {
 public:
  explicit InputStore(std::vector<std::string> values) : given_(std::move(values)) {}

  void set(const std::string& key, const std::string& value) override { values_[key] = value; }
  std::optional<std::string> get(const std::string& key) override {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (given_.empty()) return std::nullopt;
    std::string value = given_[next_++ % given_.size()];
    if (value.empty()) return std::nullopt;
    return values_[key] = std::move(value);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    std::string& value = values_[key];
    const int64_t old = value.empty() ? 0 : nxd::parse_counter(key, value);
    const int64_t sum = nxd::wrapping_sum(old, amount);
    value = std::to_string(sum);
    return sum;
  }

 private:
  std::vector<std::string> given_;
  size_t next_ = 0;
  std::map<std::string, std::string> values_;
};

// The rest of an input, cut at a mark.
inline std::vector<std::string> pieces(Input& in, char mark, size_t most = 64) {
  std::vector<std::string> out;
  while (in.left() > 0 && out.size() < most) out.push_back(in.until(mark));
  return out;
}

}  // namespace nxd_fuzz
