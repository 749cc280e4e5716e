// A model.safetensors.index.json beside two files of one tensor each, "a" and "b". After a zero
// byte the input goes on with a third file, "other.safetensors".
#include <fstream>

#include "core/checkpoint/safetensors.h"
#include "fuzz.h"
#include "support/safetensors_file.h"
#include "support/temp_dir.h"

namespace {

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

const std::string& directory() {
  static const nxd_test::TempDir temporary;
  static const std::string& path = [&]() -> const std::string& {
    const float value[2] = {1, 2};
    for (const char* name : {"a", "b"}) {
      nxd_test::write_safetensors(temporary.path() + "/" + name + ".safetensors",
                                  {{name, NXD_DTYPE_F32, {2}, value}}, {{"file", name}});
    }
    return temporary.path();
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  write(directory() + "/model.safetensors.index.json", in.until('\0'));
  write(directory() + "/other.safetensors", in.rest());
  nxd_fuzz::parse([] {
    const nxd::SafetensorsReader reader(directory());
    for (const auto& [name, tensor] : reader.tensors()) {
      nxd_fuzz::expect(reader.contains(name) && tensor.begin <= tensor.end, "a tensor's place");
    }
  });
  return 0;
}
