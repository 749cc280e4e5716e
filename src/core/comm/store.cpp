#include "core/comm/store.h"

#include <charconv>
#include <thread>

namespace nxd {

std::optional<std::string> Store::wait(const std::string& key, const Deadline& deadline) {
  using std::chrono::microseconds;
  microseconds pause(200);
  for (;;) {
    if (auto value = get(key)) return value;
    const auto now = Deadline::Clock::now();
    if (now >= deadline.at()) return std::nullopt;
    const auto left = std::chrono::ceil<microseconds>(deadline.at() - now);
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 3 / 2, microseconds(20000));
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

}  // namespace nxd
