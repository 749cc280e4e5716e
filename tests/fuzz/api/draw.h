// Arguments for calls of the C interface: what a caller may hand over that has not read the header.
// Everything is drawn from a number, so that a call is made again by its seed.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "nxd.h"

namespace nxd_fuzz {

// The largest struct that the library looks at; see capi/struct_size.h.
constexpr size_t kLargestStruct = 4096;
// Ranks of a group at most, and bytes of an element at most: so much room has a collective's
// buffer.
constexpr size_t kMostRanks = 4, kElementBytes = 8;
// No buffer has so many elements.
constexpr size_t kImpossible = size_t{1} << 60;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // splitmix64 (Steele, Lea and Flood 2014)
    uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  bool once_in(int n) { return below(n) == 0; }
  template <class T, size_t N>
  T of(const T (&values)[N]) {
    return values[below(static_cast<int>(N))];
  }

 private:
  uint64_t state_;
};

// A callback of any signature: it does nothing, and now and then fails.
nxd_status_t callback_status();
struct AnyCallback {
  template <class... Arguments>
  using Function = nxd_status_t (*)(Arguments...);
  template <class... Arguments>
  using Procedure = void (*)(Arguments...);
  template <class... Arguments>
  operator Function<Arguments...>() const {  // NOLINT: it stands for all of them
    return [](Arguments...) { return callback_status(); };
  }
  template <class... Arguments>
  operator Procedure<Arguments...>() const {  // NOLINT: it stands for all of them
    return [](Arguments...) {};
  }
};
void on_destroy(void* user_data);
void on_log(nxd_log_level_t level, const char* message, void* user_data);

// Objects of one rank by type, in whatever states calls have left them.
struct Slot {
  void* handle;
  void* owner;  // of a borrowed one: the object that it ends with
};
using Pools = std::map<const void*, std::vector<Slot>>;
// Its address stands for a type, which need not be complete.
template <class T>
inline constexpr char kTypeTag = 0;

// The arguments of one rank's calls, and the check of what calls give.
class Draw {
 public:
  Draw(int rank, int ranks) : rank_(rank), ranks_(ranks), random_(0) {}
  ~Draw();
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  Random& random() { return random_; }
  void start(uint64_t seed) {
    random_ = Random(seed);
    counts_.clear();
  }
  int rank() const { return rank_; }
  bool is_alone() const { return ranks_ == 1; }
  template <class T>
  std::vector<Slot>& pool() {
    return pools_[&kTypeTag<T>];
  }

  template <class T>
  T* handle() {
    const auto& slots = pool<T>();
    if (slots.empty() || random_.once_in(12)) return nullptr;
    return static_cast<T*>(
        slots[static_cast<size_t>(random_.below(static_cast<int>(slots.size())))].handle);
  }
  // One that may be destroyed; it is taken out of the pool, with what is borrowed of it.
  template <class T>
  T* handle_to_destroy() {
    auto& slots = pool<T>();
    std::vector<size_t> owned;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!slots[i].owner) owned.push_back(i);
    }
    if (owned.empty() || random_.once_in(12)) return nullptr;
    const size_t index = owned[static_cast<size_t>(random_.below(static_cast<int>(owned.size())))];
    T* handle = static_cast<T*>(slots[index].handle);
    slots.erase(slots.begin() + static_cast<ptrdiff_t>(index));
    forget_borrowed(handle);
    return handle;
  }
  template <class T>
  void keep(T* handle, void* owner) {
    if (!handle) return;
    auto& slots = pool<T>();
    for (const Slot& slot : slots) {
      if (slot.handle == handle) return;  // a borrowed one is given again and again
    }
    slots.push_back({handle, owner});
  }
  void forget_borrowed(const void* owner);

  int64_t whole(std::string_view name, int64_t low, int64_t high);
  template <class T>
  T integer(std::string_view name) {
    using Limits = std::numeric_limits<T>;
    constexpr auto kHigh = sizeof(T) < 8 ? static_cast<int64_t>(Limits::max()) : INT64_MAX;
    constexpr auto kLow = std::is_signed_v<T> ? static_cast<int64_t>(Limits::min()) : 0;
    return static_cast<T>(whole(name, kLow, kHigh));
  }
  double real(std::string_view name);
  template <size_t N>
  int32_t enumerator(const int32_t (&values)[N]) {
    static constexpr int32_t kBad[] = {-1, 77, INT_MIN, INT_MAX};
    return random_.once_in(10) ? random_.of(kBad) : random_.of(values);
  }

  // A count of elements, and whether it is one that no buffer has. Arrays of one call that go by
  // one count have that many.
  size_t count(std::string_view name, bool may_be_impossible);
  // As many as an array has room for.
  static size_t elements(size_t n) { return n >= kImpossible ? 64 : n; }
  // Memory of its very size, so that a sanitizer sees what is read or written beyond. It lasts as
  // long as this object, for calls may borrow it.
  void* memory(size_t bytes);
  template <class T>
  T* room(size_t n) {
    return static_cast<T*>(memory(elements(n) * sizeof(T)));
  }
  // NULL now and then.
  template <class T>
  T* or_null(T* pointer) {
    return random_.once_in(16) ? nullptr : pointer;
  }
  template <class T>
  T* numbers(std::string_view name, size_t n) {
    T* out = room<T>(n);
    const bool ascends = name == "ranks" && random_.once_in(2);
    for (size_t i = 0; i < elements(n); ++i) {
      if (ascends) {
        out[i] = static_cast<T>(i);
      } else if constexpr (std::is_floating_point_v<T>) {
        out[i] = real(name);
      } else {
        out[i] = integer<T>(name);
      }
    }
    return or_null(out);
  }
  // The size that a caller gives for its struct, beside the room that there is.
  size_t struct_size(size_t right) {
    static constexpr size_t kSizes[] = {0, 1, sizeof(size_t), kLargestStruct, kLargestStruct + 1};
    const int which = random_.below(16);
    return which == 0   ? random_.of(kSizes)
           : which == 1 ? right - 1
           : which == 2 ? right + 8
                        : right;
  }
  // Counts that add up to less than n * most.
  size_t* few(size_t n, int most, bool may_be_impossible);
  void* bytes(size_t n) { return or_null(memory(elements(n))); }
  const char* string(std::string_view name);
  const char* const* strings(std::string_view name, size_t n, bool ends_with_null);
  template <class T>
  T** handles(size_t n) {
    T** out = room<T*>(n);
    // The oldest in their order now and then: a model's inputs, where there is a model.
    const auto& slots = pool<T>();
    const bool in_order = random_.once_in(2);
    for (size_t i = 0; i < elements(n); ++i) {
      out[i] = in_order && i < slots.size() ? static_cast<T*>(slots[i].handle) : handle<T>();
    }
    return or_null(out);
  }
  // Room for results, in which there is something before the call.
  template <class T>
  T** results(size_t n) {
    T** out = room<T*>(n);
    std::memset(static_cast<void*>(out), 0x5a, elements(n) * sizeof *out);
    return or_null(out);
  }
  // The index-th has the same shape in every list of a call.
  DLTensor* tensor(size_t index);
  DLTensor** tensors(size_t n);
  // A tensor of a layer over buffers, as generate.py writes its extents and elements: mostly one
  // that fits the others of the call.
  DLTensor* layer_tensor(const char* fitting);
  DLTensor** layer_tensors(const char* fitting, size_t n);

  // A struct of the size that it says: the right one mostly.
  template <class T>
  T* sized(const T& content) {
    static constexpr size_t kSizes[] = {0,
                                        3,
                                        sizeof(size_t),
                                        sizeof(T) - 1,
                                        sizeof(T) + 8,
                                        kLargestStruct,
                                        kLargestStruct + 1,
                                        kImpossible,
                                        SIZE_MAX};
    const size_t size = random_.once_in(16) ? random_.of(kSizes) : sizeof(T);
    const size_t room = size > kLargestStruct || size < sizeof(size_t) ? sizeof(size_t) : size;
    auto* out = static_cast<unsigned char*>(memory(room));
    std::memset(out, random_.once_in(4) ? 0xa5 : 0, room);
    std::memcpy(out, &content, room < sizeof(T) ? room : sizeof(T));
    std::memcpy(out, &size, sizeof size);
    return reinterpret_cast<T*>(out);
  }

  // Where a call is to put a result: filled with what it may not leave there.
  template <class T>
  T* output() {
    T* out = room<T>(1);
    std::memset(static_cast<void*>(out), 0x5a, sizeof(T));
    return or_null(out);
  }
  template <class T>
  void check_zero(const T* out, const char* name) {
    if (!out) return;
    const T zero{};
    if (std::memcmp(out, &zero, sizeof zero) != 0) complain(name, "is not 0 after a failure");
  }
  void check_text(const char* text);

  // Around every call: the log is told first, so that a crash is known by its call.
  void begin(const char* function);
  // True if the call went well; complains when what it gives is no answer.
  bool end(nxd_status_t status);
  nxd_status_t last_status() const { return last_status_; }
  void complain(const char* what, const char* why);

 private:
  const int rank_, ranks_;
  Random random_;
  Pools pools_;
  std::map<std::string, size_t, std::less<>> counts_;
  std::vector<void*> memory_;
  const char* function_ = "";
  nxd_status_t last_status_ = NXD_OK;
};

// One function of the interface. The generator makes a table of them.
struct Function {
  const char* name;
  void (*call)(Draw& draw);
  bool is_collective;
  bool gives_status;
};
extern const Function kFunctions[];
extern const size_t kFunctionCount;
// Puts what takes many right calls to make into the pools of a rank: a model and what goes with it.
void furnish(Draw& draw, nxd_context_t* ctx);
// Destroys everything that a rank has left, in any order.
void destroy_all(Draw& draw);

}  // namespace nxd_fuzz
