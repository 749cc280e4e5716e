// Files of the compile cache: the input as a file, and as the content behind a digest that is
// right.
#include "core/checkpoint/digest.h"
#include "core/pjrt/cache_entry.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string digest = nxd::Digest().add(bytes).hex();
  for (const std::string& file : {bytes, "nxd-compiled-1 " + digest + " " + bytes}) {
    const auto entry = nxd::read_cache_entry(file);
    if (!entry) continue;
    const auto again = nxd::read_cache_entry(nxd::write_cache_entry(*entry));
    nxd_fuzz::expect(again && again->key == entry->key && again->status == entry->status &&
                         again->content == entry->content,
                     "an entry that is not read as it was written");
  }
  return 0;
}
