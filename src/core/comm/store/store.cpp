#include "core/comm/store/store.h"

#include "core/base/environment.h"
#include "core/base/printable.h"
#include "core/base/sleep.h"
#include "core/comm/net/interrupt.h"

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
    sleep_for(std::min(pause, left));
    pause = std::min(pause * 3 / 2, microseconds(longest_pause));
  }
}

std::shared_ptr<Store> Store::open_channel(int64_t) { return shared_from_this(); }

int Store::next_world(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  return worlds_[rank]++;
}

int64_t parse_counter(const std::string& key, const std::string& value) {
  const auto number = env::parse_int(value);
  check_argument(number.has_value(), "store key \"", printable(key),
                 "\": expected an integer to add to, got \"", printable(value, kShownOfValue),
                 "\"");
  return *number;
}

void fail_unreadable(const std::string& key, const std::string& value) {
  fail(NXD_ERROR_CORRUPT, "store key \"", printable(key), "\": cannot read \"",
       printable(value, 80),
       "\": another version of the library wrote it, or a program that is no rank of this world");
}

}  // namespace nxd
