// A .safetensors file, and every tensor that it claims to have.
#include "core/base/dtype.h"
#include "core/checkpoint/safetensors.h"
#include "fuzz.h"

namespace {

void read_all(const nxd::SafetensorsReader& reader) {
  for (const auto& entry : reader.tensors()) {
    const nxd::StoredTensor& tensor = entry.second;
    nxd_fuzz::parse([&] {
      const nxd::ShardSpec whole = nxd::ShardSpec::replicated(tensor.shape);
      for (const nxd_dtype_t dtype : {tensor.dtype, nxd_dtype_t{NXD_DTYPE_F32}}) {
        if (dtype == NXD_DTYPE_INVALID) continue;
        // As long as the file, as its header was checked against it, or four times that.
        std::vector<char> out(static_cast<size_t>(whole.local_size()) * nxd::dtype_size(dtype));
        reader.read_slice(entry.first, whole, out.data(), dtype);
      }
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static nxd_fuzz::MemoryFile file;
  file.set(std::string(reinterpret_cast<const char*>(data), size));
  nxd_fuzz::parse([] { read_all(nxd::SafetensorsReader(file.path())); });
  return 0;
}
