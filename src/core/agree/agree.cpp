#include "core/agree/agree.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/dtype.h"
#include "core/base/exact_number.h"
#include "core/base/shortened.h"
#include "core/comm/take_for_call.h"

namespace nxd {
namespace {

// Below every value that is given.
constexpr double kNothing = -HUGE_VAL;
constexpr size_t kReasonLimit = 512;
// A rank and a status are one number: the rank times this, and the status.
constexpr int kStatuses = 1 << 20;

void highest_over(const std::vector<ProcessGroup*>& groups, void* values, size_t count,
                  nxd_dtype_t dtype) {
  for (ProcessGroup* group : groups) {
    if (!group || group->size() == 1) continue;
    group->run(Call::all_reduce(values, values, count, dtype, NXD_REDUCE_MAX));
  }
}

// The name of the one group that there is; "" for several.
std::string name_of(const std::vector<ProcessGroup*>& groups) {
  return groups.size() == 1 && groups.front() ? groups.front()->name() : "";
}

// The lowest rank that rejects comes out highest.
double rejection_of(const Outcome& own) {
  if (own.good()) return kNothing;
  const nxd_status_t status = is_error(own.status) ? own.status : NXD_ERROR_USER;
  return -(static_cast<double>(own.rank) * kStatuses - status);
}

// Why the rank rejects, which it alone knows so far.
[[noreturn]] void fail_as(double rejection, const std::vector<ProcessGroup*>& groups,
                          const Outcome& own) {
  Outcome found;
  found.group = name_of(groups);
  found.operation = own.operation;
  found.rank = static_cast<int>(-rejection / kStatuses);
  found.status = static_cast<nxd_status_t>(std::fmod(rejection, kStatuses));
  std::vector<int32_t> characters(kReasonLimit, 0);
  if (own.rank == found.rank) {
    char reason[kReasonLimit];
    std::copy_n(reason, copy_shortened(own.reason, reason, sizeof reason), characters.begin());
  }
  for (int32_t& character : characters) character &= 0xff;
  try {
    highest_over(groups, characters.data(), characters.size(), NXD_DTYPE_I32);
  } catch (const Error&) {
    own.rethrow();
    throw;
  }
  own.rethrow();
  for (const int32_t character : characters) {
    if (character != 0) found.reason += static_cast<char>(character);
  }
  found.rethrow();
  fail(NXD_ERROR_INTERNAL, "a rejection without a status");
}

// A digest tells no more than that it is another.
std::string shown(Proposal::Kind kind, double least, int low, double most, int high) {
  if (kind == Proposal::Kind::kDigest) {
    return text("another on rank ", std::max(low, high), " than on rank ", std::min(low, high));
  }
  const auto one = [&](double value) {
    return kind == Proposal::Kind::kDtype ? text(dtype_name(static_cast<nxd_dtype_t>(value)))
                                          : exact_number(value);
  };
  return text(one(least), " on rank ", low, " and ", one(most), " on rank ", high);
}

// The ranks that give the lowest value and the highest.
[[noreturn]] void fail_by_difference(const Proposal::Value& value, double least, double most,
                                     const std::vector<ProcessGroup*>& groups, const Outcome& own) {
  const auto first = [&](double of) {
    return value.given && value.value == of ? -own.rank : kNothing;
  };
  std::array<double, 2> ranks{first(least), first(most)};
  highest_over(groups, ranks.data(), ranks.size(), NXD_DTYPE_F64);
  const int low = static_cast<int>(-ranks[0]), high = static_cast<int>(-ranks[1]);
  throw Error(NXD_ERROR_INVALID_ARGUMENT,
              text(value.name, ": expected the same on all ranks, got ",
                   shown(value.kind, least, low, most, high)),
              {std::max(low, high), 0, name_of(groups), own.operation});
}

}  // namespace

std::vector<bool> agree(const std::vector<ProcessGroup*>& groups, const Proposal& proposal) {
  const Outcome& own = proposal.own();
  // In front, a rank that rejects. Then the largest of x and of -x over all ranks: equal but for
  // the sign when all gave the same.
  std::vector<double> highest{rejection_of(own)};
  for (const Proposal::Value& value : proposal.values()) {
    highest.push_back(value.given ? value.value : kNothing);
    highest.push_back(value.given ? -value.value : kNothing);
  }
  try {
    highest_over(groups, highest.data(), highest.size(), NXD_DTYPE_F64);
  } catch (const Error&) {
    own.rethrow();
    throw;
  }
  if (highest[0] != kNothing) fail_as(highest[0], groups, own);
  std::vector<bool> alike;
  for (size_t i = 0; i < proposal.values().size(); ++i) {
    const Proposal::Value& value = proposal.values()[i];
    const double most = highest[1 + 2 * i], least = -highest[2 + 2 * i];
    if (value.name.empty()) {
      if (value.given) alike.push_back(most == least);
    } else if (most != least && most != kNothing) {
      fail_by_difference(value, least, most, groups, own);
    }
  }
  return alike;
}

std::vector<std::string> gather_texts(ProcessGroup* group, const std::string& own,
                                      const Outcome& outcome) {
  if (!group || group->size() == 1) {
    outcome.rethrow();
    return {own};
  }
  const auto ranks = static_cast<size_t>(group->size());
  // Before the texts go their lengths, and which ranks bring a reason to fail.
  const std::string& given = outcome.good() ? own : outcome.reason;
  const std::array<int64_t, 2> head{static_cast<int64_t>(given.size()), outcome.status};
  std::vector<std::array<int64_t, 2>> heads;
  take_for_call(group, "all_gather", [&] { heads.resize(ranks); });
  group->run(Call::all_gather(head.data(), heads.data(), head.size(), NXD_DTYPE_I64));
  size_t most = 0;
  for (const auto& other : heads) most = std::max(most, static_cast<size_t>(other[0]));
  std::string padded, all;
  std::vector<std::string> texts;
  take_for_call(group, "all_gather", [&] {
    padded = given;
    padded.resize(most);
    all.resize(most * ranks);
    texts.resize(ranks);
    for (size_t r = 0; r < ranks; ++r) texts[r].reserve(static_cast<size_t>(heads[r][0]));
  });
  group->run(Call::all_gather(padded.data(), all.data(), most, NXD_DTYPE_U8));
  outcome.rethrow();
  for (size_t r = 0; r < ranks; ++r) {
    texts[r].assign(all, r * most, static_cast<size_t>(heads[r][0]));
    Outcome other;
    other.status = static_cast<nxd_status_t>(heads[r][1]);
    if (other.good()) continue;
    other.rank = group->ranks()[r];
    other.reason = texts[r];
    other.group = group->name();
    other.rethrow();
  }
  return texts;
}

}  // namespace nxd
