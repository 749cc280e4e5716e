#include "core/comm/store/tcp_store_table.h"

#include <algorithm>
#include <utility>

#include "core/base/environment.h"
#include "core/base/log.h"
#include "core/comm/store/store.h"

namespace nxd::tcp_store {
namespace {

// A key that a client waits for: the nodes of both tables, about; and the bytes of one client.
constexpr size_t kAwaitedBytes = 256;
constexpr size_t kWaitsOfOne = size_t{64} << 20;

}  // namespace

bool Table::serve(Session& session, uint8_t query, RequestReader in) {
  switch (query) {
    case kSet:
    case kCheckedSet:
    case kCompareSet:
    case kGet:
    case kAdd:
    case kCheckedAdd:
    case kAppend:
    case kDeleteKey: return serve_value(session, query, in);
    case kCheck:
    case kWait:
    case kCancelWait: return serve_waits(session, query, in);
    case kGetNumKeys:
    case kMultiGet:
    case kMultiSet: return serve_many(session, query, in);
    case kPing: session.out.put(in.number<uint32_t>()); return true;
    default: return false;
  }
}

bool Table::serve_value(Session& session, uint8_t query, RequestReader in) {
  const std::string key(in.bytes());
  switch (query) {
    case kSet: return store_or_reject(key, in.bytes());
    case kCheckedSet: return serve_checked_set(session, key, in.bytes());
    case kAppend: return append(key, in.bytes());
    case kAdd:
    case kCheckedAdd: return serve_add(session, query, key, in.number<int64_t>());
    case kDeleteKey: session.out.put<int64_t>(values_.erase(key) ? 1 : 0); return true;
    default: break;
  }
  const Value found = values_.find(key);
  switch (query) {
    case kCompareSet: {
      const std::string_view expected = in.bytes(), desired = in.bytes();
      // As torch has it: an absent key equals an empty expectation, and otherwise the expectation
      // comes back.
      if (!found && !expected.empty()) {
        session.out.put<uint64_t>(expected.size());
        session.out.put_copy(expected);
        return true;
      }
      if ((!found || *found == expected) && !store_or_reject(key, desired)) return false;
      session.out.put_value(values_.find(key));
      return true;
    }
    default:
      if (!found) return false;
      session.out.put_value(found);
      return true;
  }
}

bool Table::serve_checked_set(Session& session, const std::string& key, std::string_view value) {
  if (store(key, value)) {
    session.out.put(kDone);
  } else {
    say_full(session);
  }
  return true;
}

// A client of torch's that adds to something else than an integer is disconnected, as torch does.
bool Table::serve_add(Session& session, uint8_t query, const std::string& key, int64_t amount) {
  const Value found = values_.find(key);
  const auto old = found ? env::parse_int(*found) : 0;
  if (!old) {
    if (query == kAdd) return false;
    const std::string_view start = std::string_view(*found).substr(0, kShownOfValue);
    session.out.put(kNoInteger);
    session.out.put<uint64_t>(start.size());
    session.out.put_copy(start);
    return true;
  }
  const int64_t sum = wrapping_sum(*old, amount);
  const std::string digits = std::to_string(sum);
  if (query == kAdd && !store_or_reject(key, digits)) return false;
  if (query == kCheckedAdd) {
    if (!store(key, digits)) {
      say_full(session);
      return true;
    }
    session.out.put(kDone);
  }
  session.out.put(sum);
  return true;
}

bool Table::serve_waits(Session& session, uint8_t query, RequestReader in) {
  if (query == kCancelWait) {
    leave(session);
    session.out.put(kWaitCanceled);
    return true;
  }
  const auto keys = in.list();
  const bool all_there = std::all_of(keys.begin(), keys.end(), [&](std::string_view key) {
    return values_.find(std::string(key)) != nullptr;
  });
  if (query == kWait && !all_there) return wait(session, keys);
  session.out.put(query == kWait ? kStopWaiting : all_there ? kReady : kNotReady);
  return true;
}

// Takes the place of what the session waited for before.
bool Table::wait(Session& session, const std::vector<std::string_view>& keys) {
  leave(session);
  for (const std::string_view key : keys) {
    if (values_.find(std::string(key)) || await(session, key)) continue;
    if (!std::exchange(has_said_full_of_waits_, true)) {
      log(NXD_LOG_WARN, "the store lets a client go that waits for ", keys.size(),
          " keys: all that is waited for takes ", waits_bytes_, " bytes, and may take ",
          waits_limit_, ", and ", kWaitsOfOne, " of one client");
    }
    return false;
  }
  return true;
}

// False when there is no room for it.
bool Table::await(Session& session, std::string_view key) {
  const size_t bytes = kAwaitedBytes + key.size();
  if (session.awaited_bytes + bytes > kWaitsOfOne || waits_bytes_ + bytes > waits_limit_) {
    return false;
  }
  const auto place = waiting_.try_emplace(std::string(key)).first;
  // In this order, so that a session that is short of memory and let go is in no list.
  if (!session.awaited.insert(&place->first).second) return true;
  place->second.insert(&session);
  session.awaited_bytes += bytes;
  waits_bytes_ += bytes;
  return true;
}

bool Table::serve_many(Session& session, uint8_t query, RequestReader in) {
  if (query == kGetNumKeys) {
    session.out.put(static_cast<int64_t>(values_.count()));
    return true;
  }
  if (query == kMultiGet) {
    size_t bytes = 0;
    for (const std::string_view key : in.list()) {
      const Value found = values_.find(std::string(key));
      if (!found || (bytes += found->size()) > kRequestLimit) return false;
      session.out.put_value(found);
    }
    return true;
  }
  for (auto count = in.number<uint64_t>(); count > 0; --count) {
    const std::string_view key = in.bytes(), value = in.bytes();
    if (!store_or_reject(std::string(key), value)) return false;
  }
  return true;
}

// False when there is no room for the value.
bool Table::store(const std::string& key, std::string_view value) {
  if (!values_.set(key, std::string(value))) return false;
  wake_waiting(key);
  return true;
}

bool Table::store_or_reject(const std::string& key, std::string_view value) {
  return store(key, value) || reject_value(value.size());
}

bool Table::append(const std::string& key, std::string_view more) {
  const size_t size = values_.size_of(key) + more.size();
  if (size > kValueLimit) return false;
  if (!values_.append(key, more)) return reject_value(size);
  wake_waiting(key);
  return true;
}

void Table::say_full(Session& session) const {
  session.out.put(kNoRoom);
  session.out.put<uint64_t>(values_.bytes());
  session.out.put<uint64_t>(values_.limit());
}

// For clients of torch's, whose requests have no answer that says so.
bool Table::reject_value(size_t size) {
  if (std::exchange(has_said_full_, true)) return false;
  log(NXD_LOG_WARN, "the store lets a client go that sets a value of ", size,
      " bytes: all values take ", values_.bytes(), " bytes, and may take ", values_.limit());
  return false;
}

// A session and its key refer to each other, or neither does, also where there is no memory to
// answer: one that is left in the table would be read after its end.
void Table::wake_waiting(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  std::unordered_set<Session*>& sessions = found->second;
  woken_.reserve(woken_.size() + sessions.size());
  while (!sessions.empty()) {
    Session& session = **sessions.begin();
    if (session.awaited.size() == 1) {
      session.out.put(kStopWaiting);
      woken_.push_back(session.fd);
    }
    session.awaited.erase(&found->first);
    session.awaited_bytes -= kAwaitedBytes + key.size();
    waits_bytes_ -= kAwaitedBytes + key.size();
    sessions.erase(sessions.begin());
  }
  waiting_.erase(found);
}

void Table::take_woken(std::vector<int>& to) {
  to.insert(to.end(), woken_.begin(), woken_.end());
  woken_.clear();
}

void Table::leave(Session& session) {
  for (const std::string* key : std::exchange(session.awaited, {})) {
    const auto found = waiting_.find(*key);
    found->second.erase(&session);
    if (found->second.empty()) waiting_.erase(found);
  }
  waits_bytes_ -= std::exchange(session.awaited_bytes, 0);
}

}  // namespace nxd::tcp_store
