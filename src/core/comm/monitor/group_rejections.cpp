#include "core/comm/monitor/group_rejections.h"

#include <algorithm>

#include "core/base/environment.h"
#include "core/base/text_stream.h"

namespace nxd {
namespace {

const char* const kCount = "count";
constexpr int64_t kMostEntries = int64_t{1} << 24;
// The wait of one look for entries that do not follow their counts at once.
constexpr int64_t kLookMs = 200;
std::string entry_key(int64_t n) { return "entry/" + std::to_string(n); }

}  // namespace

GroupRejections::GroupRejections(std::shared_ptr<Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size) {}

std::string GroupRejections::encode(const Entry& entry) {
  TextWriter out;
  out << entry.by << " " << entry.culprit << " " << entry.numbers.size();
  for (const auto& [rank, number] : entry.numbers) out << " " << rank << " " << number;
  out << " " << entry.reason;
  check_stream(out);
  return out.str();
}

// An entry that cannot be read is counted, but belongs to no rank.
GroupRejections::Entry GroupRejections::decode(const std::string& text) const {
  const Entry nobodys{-1, -1, {}, ""};
  TextReader in(text);
  Entry entry{};
  int n = 0;
  if (!(in >> entry.by >> entry.culprit >> n)) return nobodys;
  if (!is_rank(entry.by) || !is_rank(entry.culprit) || n < 1 || n > world_size_) return nobodys;
  for (; n > 0; --n) {
    int rank = -1;
    uint64_t number = 0;
    if (!(in >> rank >> number) || !is_rank(rank)) return nobodys;
    entry.numbers[rank] = number;
  }
  in.get();
  std::getline(in, entry.reason);
  return entry;
}

void GroupRejections::reject(const std::vector<int>& ranks, const std::string& reason) noexcept {
  try {
    Entry entry{rank_, rank_, {}, reason};
    for (const int rank : std::set<int>(ranks.begin(), ranks.end())) {
      if (!is_rank(rank) || rank == rank_) continue;
      entry.numbers[rank] = next_number_[rank]++;
    }
    if (!entry.numbers.empty()) publish(entry);
  } catch (...) {
  }
}

void GroupRejections::publish(const Entry& entry) {
  store_->set(entry_key(store_->add(kCount, 1)), encode(entry));
}

// An entry comes right after its count, unless its rank is slow or was lost in between. The
// entries behind it are read meanwhile, and each look looks for it again. Each rank of the world
// may have one on its way. More are missing only where a count is false. The oldest is then given
// up, one in each look, so that a false count delays no rank for long.
void GroupRejections::read_on() {
  const auto count = store_->get(kCount);
  if (!count) return;
  const auto last = env::parse_int(*count);
  if (!last || *last < 0 || *last > kMostEntries) fail_unreadable(kCount, *count);
  look_for_missing();
  const Deadline deadline = Deadline::after_ms(kLookMs);
  for (; next_ <= *last; ++next_) {
    if (const auto entry = store_->wait(entry_key(next_), deadline)) {
      known_.emplace(next_, decode(*entry));
      continue;
    }
    missing_.insert(next_);
    if (missing_.size() <= static_cast<size_t>(world_size_)) continue;
    missing_.erase(missing_.begin());
    ++next_;
    return;
  }
}

void GroupRejections::look_for_missing() {
  for (auto number = missing_.begin(); number != missing_.end();) {
    const auto entry = store_->get(entry_key(*number));
    if (entry) known_.emplace(*number, decode(*entry));
    number = entry ? missing_.erase(number) : std::next(number);
  }
}

bool GroupRejections::tells_all(const Entry& entry, const std::vector<int>& ranks) {
  return entry.by == entry.culprit &&
         std::find(ranks.begin(), ranks.end(), entry.by) != ranks.end() &&
         std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return rank == entry.by || entry.numbers.count(rank) > 0; });
}

// Several ranks may reject one attempt. A rank goes on when it knows of one of them, so the others'
// entries must not count. Two ranks have the same number for the same attempt.
size_t GroupRejections::count_of(const std::vector<int>& ranks) const {
  std::vector<const Entry*> attempts;
  for (const auto& numbered : known_) {
    const Entry& entry = numbered.second;
    if (!tells_all(entry, ranks)) continue;
    const bool is_counted = std::any_of(attempts.begin(), attempts.end(), [&](const Entry* other) {
      return other->by != entry.by && other->numbers.at(entry.by) == entry.numbers.at(other->by);
    });
    if (!is_counted) attempts.push_back(&entry);
  }
  return attempts.size();
}

GroupRejections::Attempt::Attempt(GroupRejections& rejections, const std::vector<int>& ranks)
    : rejections_(rejections) {
  for (const int rank : ranks) {
    if (rank != rejections_.rank_) numbers_[rank] = rejections_.next_number_[rank]++;
  }
}

// A store that fails is for the calls that depend on it to report.
std::optional<Error> GroupRejections::Attempt::rejection(const std::string& name) noexcept {
  try {
    return look_up(name);
  } catch (const Error& e) {
    if (e.status() == NXD_ERROR_CORRUPT) return e;
  } catch (...) {
  }
  return std::nullopt;
}

std::optional<Error> GroupRejections::Attempt::look_up(const std::string& name) {
  rejections_.read_on();
  for (const auto& numbered : rejections_.known_) {
    const Entry& r = numbered.second;
    const auto expected = numbers_.find(r.by);
    const auto meant = r.numbers.find(rejections_.rank_);
    if (expected == numbers_.end() || meant == r.numbers.end()) continue;
    if (expected->second != meant->second) continue;
    const bool all_told = std::all_of(numbers_.begin(), numbers_.end(), [&](const auto& member) {
      return member.first == r.by || r.numbers.count(member.first) > 0;
    });
    const Entry found = r;
    // The culprit has not counted those that its own list left out, who hear of it from others.
    if (found.by != found.culprit) --rejections_.next_number_[found.culprit];
    if (!all_told) rejections_.publish({rejections_.rank_, found.culprit, numbers_, found.reason});
    return Error(NXD_ERROR_INVALID_ARGUMENT,
                 text("nxd_group_create of group \"", name, "\": rank ", found.culprit,
                      " rejected its arguments: ", found.reason),
                 {found.culprit, 0, name, "group_create"});
  }
  return std::nullopt;
}

}  // namespace nxd
