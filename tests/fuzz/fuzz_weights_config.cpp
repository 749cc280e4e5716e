// A config.json whose weights get another type: nothing else in it changes, as another reader has
// it.
#include <nlohmann/json.hpp>

#include "core/checkpoint/convert_weights.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const std::string config = in.rest();
  std::string changed;
  if (!nxd_fuzz::parse(
          [&] { changed = nxd::config_of_dtype(config, NXD_DTYPE_BF16, "config.json"); })) {
    return 0;
  }
  // It refuses some that are JSON, such as numbers beyond its range.
  auto expected = nlohmann::json::parse(config, nullptr, false);
  if (expected.is_discarded()) return 0;
  for (const char* name : {"torch_dtype", "dtype"}) {
    if (expected.contains(name) && expected[name].is_string()) expected[name] = "bfloat16";
  }
  nxd_fuzz::expect(nlohmann::json::parse(changed, nullptr, false) == expected,
                   "another change than that of the type", changed);
  return 0;
}
