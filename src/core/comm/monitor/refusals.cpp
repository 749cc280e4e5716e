#include "core/comm/monitor/refusals.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/base/environment.h"

namespace nxd {
namespace {

const char* const kCount = "count";
constexpr int64_t kMostEntries = int64_t{1} << 24;
// Between a count and its entry.
constexpr int64_t kEntryPatienceMs = 200;
std::string entry_key(int64_t n) { return "entry/" + std::to_string(n); }

}  // namespace

Refusals::Refusals(std::shared_ptr<Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {}

std::string Refusals::encode(const Refusal& refusal) {
  std::ostringstream out;
  out << refusal.by << " " << refusal.culprit << " " << refusal.numbers.size();
  for (const auto& [rank, number] : refusal.numbers) out << " " << rank << " " << number;
  out << " " << refusal.reason;
  check_stream(out);
  return out.str();
}

// An entry that cannot be read is nobody's, and counts as one.
Refusals::Refusal Refusals::decode(const std::string& text) const {
  const Refusal nobodys{-1, -1, {}, ""};
  std::istringstream in(text);
  Refusal refusal{};
  int n = 0;
  if (!(in >> refusal.by >> refusal.culprit >> n)) return nobodys;
  if (!is_rank(refusal.by) || !is_rank(refusal.culprit) || n < 1 || n > world_size_) return nobodys;
  for (; n > 0; --n) {
    int rank = -1;
    uint64_t number = 0;
    if (!(in >> rank >> number) || !is_rank(rank)) return nobodys;
    refusal.numbers[rank] = number;
  }
  in.get();
  std::getline(in, refusal.reason);
  return refusal;
}

void Refusals::refuse(const std::vector<int>& ranks, const std::string& reason) noexcept {
  try {
    Refusal refusal{rank_, rank_, {}, reason};
    for (const int rank : std::set<int>(ranks.begin(), ranks.end())) {
      if (!is_rank(rank) || rank == rank_) continue;
      refusal.numbers[rank] = next_number_[rank]++;
    }
    if (!refusal.numbers.empty()) publish(refusal);
  } catch (...) {
  }
}

void Refusals::publish(const Refusal& refusal) {
  store_->set(entry_key(store_->add(kCount, 1)), encode(refusal));
}

// An entry comes right after its count. One that does not come is of a rank that was lost: it is
// passed over, one each time, so that a count that is a lie keeps nobody waiting.
void Refusals::read_on() {
  const auto count = store_->get(kCount);
  if (!count) return;
  const auto last = env::parse_int(*count);
  if (!last || *last < 0 || *last > kMostEntries) fail_unreadable(kCount, *count);
  const Deadline patience = Deadline::after_ms(kEntryPatienceMs);
  while (known_.size() < static_cast<size_t>(*last)) {
    const auto key = entry_key(static_cast<int64_t>(known_.size()) + 1);
    const auto entry = store_->wait(key, patience);
    known_.push_back(entry ? decode(*entry) : Refusal{-1, -1, {}, ""});
    if (!entry) return;
  }
}

size_t Refusals::count_of(const std::vector<int>& ranks) const {
  return static_cast<size_t>(std::count_if(known_.begin(), known_.end(), [&](const Refusal& r) {
    return r.by == r.culprit && std::find(ranks.begin(), ranks.end(), r.by) != ranks.end() &&
           std::all_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return rank == r.by || r.numbers.count(rank) > 0; });
  }));
}

Refusals::Attempt::Attempt(Refusals& refusals, const std::vector<int>& ranks)
    : refusals_(refusals) {
  for (const int rank : ranks) {
    if (rank != refusals_.rank_) numbers_[rank] = refusals_.next_number_[rank]++;
  }
}

// A store that fails is for the calls that depend on it to report.
std::optional<Error> Refusals::Attempt::refusal(const std::string& name) noexcept {
  try {
    return look_up(name);
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_CORRUPT) return e;
  } catch (...) {
  }
  return std::nullopt;
}

std::optional<Error> Refusals::Attempt::look_up(const std::string& name) {
  refusals_.read_on();
  for (const Refusal& r : refusals_.known_) {
    const auto expected = numbers_.find(r.by);
    const auto meant = r.numbers.find(refusals_.rank_);
    if (expected == numbers_.end() || meant == r.numbers.end()) continue;
    if (expected->second != meant->second) continue;
    const bool all_told = std::all_of(numbers_.begin(), numbers_.end(), [&](const auto& member) {
      return member.first == r.by || r.numbers.count(member.first) > 0;
    });
    const Refusal found = r;
    // The culprit has not counted those that its own list left out, who hear of it from others.
    if (found.by != found.culprit) --refusals_.next_number_[found.culprit];
    if (!all_told) refusals_.publish({refusals_.rank_, found.culprit, numbers_, found.reason});
    return Error(NXD_ERROR_INVALID_ARGUMENT,
                 text("nxd_group_create of group \"", name, "\": rank ", found.culprit,
                      " refused its arguments: ", found.reason),
                 {found.culprit, 0, name, "group_create"});
  }
  return std::nullopt;
}

}  // namespace nxd
