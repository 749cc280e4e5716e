// A checkpoint's manifest.json. A text that is accepted is read as the same once it is written
// again.
#include "core/checkpoint/checkpoint_manifest.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  nxd_fuzz::parse([&] {
    const nxd::CheckpointManifest first = nxd::parse_manifest(text, "manifest.json");
    const std::string written = nxd::manifest_text(first);
    const nxd::CheckpointManifest second = nxd::parse_manifest(written, "manifest.json");
    nxd_fuzz::expect(nxd::manifest_text(second) == written && second.values == first.values,
                     "a manifest changes when it is written");
    for (const nxd::CheckpointFile& file : first.files) {
      nxd_fuzz::expect(file.name.find('/') == std::string::npos && file.name.front() != '.',
                       "a file's name leads out of the directory", file.name);
    }
  });
  return 0;
}
