// An index of ranks' shares, beside a share of each of two ranks: "a" is split by rows, "b" by
// columns, and "c" is whole. An index that is accepted is read in full.
#include <fstream>

#include "core/base/dtype.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/share_index.h"
#include "fuzz.h"
#include "support/safetensors_file.h"
#include "support/temp_dir.h"

namespace {

const std::string& directory() {
  static const nxd_test::TempDir temporary;
  static const std::string& path = [&]() -> const std::string& {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    for (const char* name : {"1", "2"}) {
      std::vector<nxd_test::TensorToStore> tensors = {{"a", NXD_DTYPE_F32, {1, 3}, values},
                                                      {"b", NXD_DTYPE_F32, {2, 2}, values}};
      if (*name == '1') tensors.push_back({"c", NXD_DTYPE_F32, {6}, values});
      nxd_test::write_safetensors(temporary.path() + "/" + name, tensors, {});
    }
    return temporary.path();
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = directory() + "/model.shares.json";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  nxd_fuzz::parse([&] {
    const nxd::SafetensorsReader reader(path);
    for (const auto& [name, tensor] : reader.tensors()) {
      const auto spec = nxd::ShardSpec::replicated(tensor.shape);
      // Parts have no more elements than the files.
      nxd_fuzz::expect(spec.local_size() <= 12, "a tensor that no file has", name);
      std::vector<double> values(static_cast<size_t>(spec.local_size()), -1);
      reader.read_slice(name, spec, values.data(), NXD_DTYPE_F64);
      for (const double value : values) {
        nxd_fuzz::expect(value >= 1 && value <= 6, "an element that no part has", name);
      }
    }
  });
  return 0;
}
