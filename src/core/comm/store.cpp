#include "core/comm/store.h"

#include <charconv>
#include <thread>

#include "core/comm/interrupt.h"

namespace nxd {

std::optional<std::vector<std::string>> Store::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const std::string& key : keys) {
    auto value = get(key);
    if (!value) return std::nullopt;
    values.push_back(std::move(*value));
  }
  return values;
}

std::optional<std::string> Store::wait(const std::string& key, const Deadline& deadline,
                                       std::chrono::milliseconds longest_pause) {
  using std::chrono::microseconds;
  microseconds pause =
      longest_pause > kUsualPause ? microseconds(longest_pause) / 4 : microseconds(200);
  for (;;) {
    if (auto value = get(key)) return value;
    InterruptScope::check();
    const auto now = Deadline::Clock::now();
    if (now >= deadline.at()) return std::nullopt;
    const auto left = std::chrono::ceil<microseconds>(deadline.at() - now);
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 3 / 2, microseconds(longest_pause));
  }
}

std::shared_ptr<Store> Store::open_channel(int64_t) { return shared_from_this(); }

int Store::next_world(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  return worlds_[rank]++;
}

int64_t parse_counter(const std::string& key, const std::string& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  check_argument(error == std::errc() && end == value.data() + value.size(), "store key \"", key,
                 "\": expected an integer to add to, got \"", value.substr(0, 40), "\"");
  return number;
}

int64_t add_to_counter(const std::string& key, const std::string* value, int64_t amount) {
  const int64_t counter = value ? parse_counter(key, *value) : 0;
  int64_t sum = 0;
  check_argument(!__builtin_add_overflow(counter, amount, &sum), "store key \"", key,
                 "\": expected a sum of 64 bits, got ", counter, " and ", amount);
  return sum;
}

}  // namespace nxd
