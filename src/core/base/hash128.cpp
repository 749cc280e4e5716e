#include "core/base/hash128.h"

// The hash becomes part of this library, which then needs no other one at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nxd {

struct Hash128::State {
  XXH3_state_t xxh;
};

void Hash128::Delete::operator()(State* state) const { delete state; }

void Hash128::pass_on() {
  if (!state_) {
    state_.reset(new State);
    XXH3_128bits_reset(&state_->xxh);
  }
  XXH3_128bits_update(&state_->xxh, bytes_.data(), used_);
  used_ = 0;
}

Hash128& Hash128::add(std::string_view bytes) {
  if (bytes.size() <= kRoom - used_) {
    bytes.copy(&bytes_[used_], bytes.size());
    used_ += bytes.size();
    return *this;
  }
  pass_on();
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
  return *this;
}

Hash128::Value Hash128::value() const {
  if (!state_) {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), used_);
    return {hash.high64, hash.low64};
  }
  State all = *state_;
  XXH3_128bits_update(&all.xxh, bytes_.data(), used_);
  const XXH128_hash_t hash = XXH3_128bits_digest(&all.xxh);
  return {hash.high64, hash.low64};
}

}  // namespace nxd
