#include "engine/device/call_signature.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "core/base/hash.h"
#include "core/base/thread_own.h"

namespace nxd {
namespace {

constexpr size_t kMostCalls = 1 << 14;

enum Tag : uint64_t { kNone = 1, kBool, kInt, kDouble, kList, kString, kDevice, kOther, kDefault };

// Groups of one form are one group of each rank: the same graph for all.
void add_exchange(GraphHash& hash, const RecordedExchange& exchange) {
  hash.add(static_cast<uint64_t>(exchange.kind))
      .add(exchange.in_one_process ? 1 : 0)
      .add(exchange.all_record ? 1 : 0);
  hash.add(exchange.ranks.size());
  for (const int rank : exchange.ranks) {
    hash.add(static_cast<uint64_t>(int64_t{rank} - exchange.ranks.front()));
  }
}

// A scalar's kind decides on the result's dtype; its value is an input.
uint64_t kind_of(const c10::IValue& scalar) {
  return scalar.isNone() ? kNone : scalar.isInt() ? kInt : scalar.isBool() ? kBool : kDouble;
}

using CallsByKey = std::unordered_map<GraphHash::Value, KnownCall, HashOfGraphHash>;
CallsByKey& known_calls() { return ThreadOwn<CallsByKey>::get(); }

}  // namespace

void add_shape(GraphHash& hash, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    hash.add(kNone);
    return;
  }
  hash.add(static_cast<uint64_t>(tensor.scalar_type()) * 100 + static_cast<uint64_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) hash.add(static_cast<uint64_t>(size));
}

bool add_argument(GraphHash& hash, const c10::IValue& value) {
  if (value.isNone()) {
    hash.add(kNone);
  } else if (value.isBool()) {
    hash.add(kBool).add(value.toBool() ? 1 : 0);
  } else if (value.isInt()) {
    hash.add(kInt).add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    hash.add(kDouble).add(bits);
  } else if (value.isString()) {
    hash.add(kString).add(Hash().add(value.toStringRef()).value());
  } else if (value.isList()) {
    const auto list = value.toListRef();
    hash.add(kList).add(list.size());
    bool is_whole = true;
    for (const c10::IValue& element : list) is_whole = add_argument(hash, element) && is_whole;
    return is_whole;
  } else {
    hash.add(value.isDevice() ? kDevice : kOther);
    return value.isDevice();
  }
  return true;
}

void CallSignature::seal() {
  GraphHash all;
  all.add(op->hash);
  if (!attributes.empty()) all.add(Hash().add(attributes).value());
  for (const RecordedExchange& exchange : exchanges) add_exchange(all, exchange);
  for (size_t a = 0; a < arguments.size(); ++a) {
    const ListArgument& list = lists[a];
    if (list.kind != ListArgument::Kind::kNone) {
      all.add(static_cast<uint64_t>(list.kind)).add(list.size);
    } else if (op->is_scalar[a]) {
      all.add(op->is_default(a, arguments[a]) ? uint64_t{kDefault} : kind_of(arguments[a]));
    } else {
      add_argument(all, arguments[a]);
    }
  }
  for (const InputPlace& place : places) {
    all.add(static_cast<uint64_t>(place.argument)).add(static_cast<uint64_t>(place.element + 1));
  }
  for (const at::Tensor& result : results) add_shape(all, result);
  for (const int input : overwrites) all.add(static_cast<uint64_t>(input + 1));
  hash = all.value();
}

const KnownCall* KnownCalls::find(const GraphHash::Value& key) {
  const CallsByKey& known = known_calls();
  const auto found = known.find(key);
  return found == known.end() ? nullptr : &found->second;
}

void KnownCalls::add(const GraphHash::Value& key, KnownCall call) {
  CallsByKey& known = known_calls();
  if (known.size() >= kMostCalls) known.clear();
  known[key] = std::move(call);
}

}  // namespace nxd
