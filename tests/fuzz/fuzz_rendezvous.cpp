// Values that a rank reads in the store at the rendezvous: lines of the input are the values. The
// first byte chooses the rank and the size of the world.
#include <algorithm>
#include <cstdlib>

#include "core/world/host_map.h"
#include "core/world/rendezvous.h"
#include "fuzz.h"

namespace {

// A map of many ranks takes time in proportion, and finds nothing.
bool has_large_number(const std::string& text) {
  int digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits == 6) return true;
  }
  return false;
}

// True if a peer's failure, which starts with its status, is an internal one.
bool is_internal_failure(const std::string& value) {
  return std::strtol(value.c_str(), nullptr, 10) == NXD_ERROR_INTERNAL;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const int manner = in.byte();
  // The ranks' facts about themselves have several lines.
  const std::vector<std::string> values = nxd_fuzz::pieces(in, '\0');
  if (values.empty()) return 0;
  for (const std::string& value : values) {
    if (value.empty()) return 0;  // an absent key is waited for
    if (has_large_number(value)) return 0;
  }
  nxd_fuzz::parse([&] {
    const nxd::HostMap hosts = nxd::HostMap::decode(values[0]);
    nxd_fuzz::expect(nxd::HostMap::decode(hosts.encode()) == hosts, "a map of hosts");
  });
  nxd::RankInfo m;
  m.size = 2 + manner % 3;
  m.rank = manner / 3 % m.size;
  m.prefix = "nxd/";
  m.store = std::make_shared<nxd_fuzz::InputStore>(values);
  const bool relays_internal = std::any_of(values.begin(), values.end(), is_internal_failure);
  const auto meet = [&] {
    const nxd::WorldFacts world = nxd::join_world(m, 50);
    nxd_fuzz::expect(world.hosts.size() == m.size, "a size of the world");
    for (int rank = 0; rank < m.size; ++rank) {
      const int lost = world.lost_with_store(rank);
      nxd_fuzz::expect(lost >= -1 && lost < m.size, "a rank that is lost with the store");
    }
  };
  nxd_fuzz::parse(meet, relays_internal);
  return 0;
}
