// A file store's file, which a writer that died may have left in any state.
#include "core/comm/store/file_store.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static nxd_fuzz::MemoryFile file;
  file.set(std::string(reinterpret_cast<const char*>(data), size));
  nxd_fuzz::parse([] {
    nxd::FileStore store(file.path());
    store.get("key");
    nxd_fuzz::parse([&] { store.add("counter", 1); });
    store.set("key", "value");
    // Whatever was there before: a key that was set is there, for a new reader too.
    nxd_fuzz::expect(store.get("key") == "value", "a value was lost");
    nxd::FileStore again(file.path());
    nxd_fuzz::expect(again.get("key") == "value", "a value was lost with its writer");
  });
  return 0;
}
