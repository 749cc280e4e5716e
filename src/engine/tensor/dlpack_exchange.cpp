#include "engine/tensor/dlpack_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/buffer_limit.h"
#include "core/base/uncancelled.h"
#include "engine/tensor/call_tracer.h"
#include "engine/tensor/dtype_map.h"
#include "engine/tensor/host_copy.h"

namespace nxd {
namespace {

at::ScalarType type_of(const DLDataType& dtype) {
  const int bits = dtype.bits;
  if (dtype.lanes == 1) {
    switch (dtype.code) {
      case kDLFloat:
        if (bits == 32) return at::kFloat;
        if (bits == 64) return at::kDouble;
        if (bits == 16) return at::kHalf;
        break;
      case kDLBfloat:
        if (bits == 16) return at::kBFloat16;
        break;
      case kDLInt:
        if (bits == 8) return at::kChar;
        if (bits == 16) return at::kShort;
        if (bits == 32) return at::kInt;
        if (bits == 64) return at::kLong;
        break;
      case kDLUInt:
        if (bits == 8) return at::kByte;
        break;
      case kDLBool:
        if (bits == 8) return at::kBool;
        break;
      default: break;
    }
  }
  fail(NXD_ERROR_UNSUPPORTED, "dtype: code ", static_cast<int>(dtype.code), " with ", bits,
       " bits and ", dtype.lanes, " lanes has no NXD_DTYPE_*");
}

DLDataType dl_type_of(at::ScalarType type) {
  const auto bits = static_cast<uint8_t>(8 * c10::elementSize(type));
  switch (to_nxd_dtype(type)) {
    case NXD_DTYPE_BF16: return {kDLBfloat, bits, 1};
    case NXD_DTYPE_BOOL: return {kDLBool, bits, 1};
    case NXD_DTYPE_U8: return {kDLUInt, bits, 1};
    case NXD_DTYPE_F32:
    case NXD_DTYPE_F64:
    case NXD_DTYPE_F16: return {kDLFloat, bits, 1};
    default: return {kDLInt, bits, 1};
  }
}

// The checked content of a DLTensor.
struct Description {
  char* data;  // of the first element
  at::ScalarType type;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  bool empty = false;
  bool negative_stride = false;
};

std::vector<int64_t> strides_in_c_order(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

// The bytes between the first element and the farthest one must be countable, or pointer
// arithmetic on them wraps.
void check_extent(const Description& d, size_t element_size) {
  int64_t extent = static_cast<int64_t>(element_size);
  for (size_t i = 0; i < d.shape.size(); ++i) {
    int64_t reach = 0;
    bool overflow = __builtin_mul_overflow(d.shape[i] - 1, d.strides[i], &reach);
    overflow =
        __builtin_mul_overflow(reach, static_cast<int64_t>(element_size), &reach) || overflow;
    overflow =
        __builtin_add_overflow(extent, reach < 0 ? -(reach + 1) : reach, &extent) || overflow;
    check_argument(!overflow, "strides[", i, "]: ", d.strides[i],
                   " reaches farther than int64 can count");
  }
}

Description describe(const DLTensor& source) {
  if (source.device.device_type != kDLCPU) {
    fail(NXD_ERROR_UNSUPPORTED, "device: expected kDLCPU (1), got ",
         static_cast<int>(source.device.device_type));
  }
  Description d;
  d.type = type_of(source.dtype);
  const size_t element_size = c10::elementSize(d.type);
  d.shape = checked_shape(source.shape, source.ndim, element_size);
  d.empty = std::find(d.shape.begin(), d.shape.end(), 0) != d.shape.end();
  check_argument(source.data || d.empty, "data: expected memory, got NULL");
  check_argument(source.byte_offset <= kBufferLimit,
                 "byte_offset: expected a place within memory, got ", source.byte_offset);
  d.data = source.data ? static_cast<char*>(source.data) + source.byte_offset : nullptr;
  if (source.strides && !d.empty) {
    d.strides.assign(source.strides, source.strides + d.shape.size());
    check_extent(d, element_size);
  } else {
    d.strides = strides_in_c_order(d.shape);
  }
  for (size_t i = 0; i < d.shape.size(); ++i) {
    d.negative_stride = d.negative_stride || (d.strides[i] < 0 && d.shape[i] > 1);
    // The stride of a dimension of one element moves nothing, and libtorch rejects negative ones.
    if (d.shape[i] == 1 && d.strides[i] < 0) d.strides[i] = 1;
  }
  return d;
}

// Copies the elements below dimension dim, which lie at source, to target in C order; gives the end
// of what was written.
char* copy_strided(const Description& d, size_t dim, const char* source, char* target) {
  const size_t element_size = c10::elementSize(d.type);
  const bool last = dim + 1 >= d.shape.size();
  const int64_t size = dim < d.shape.size() ? d.shape[dim] : 1;
  const int64_t stride = dim < d.shape.size() ? d.strides[dim] : 1;
  if (last && stride == 1) {
    const size_t bytes = static_cast<size_t>(size) * element_size;
    std::memcpy(target, source, bytes);
    return target + bytes;
  }
  const int64_t step = stride * static_cast<int64_t>(element_size);
  for (int64_t i = 0; i < size; ++i) {
    const char* element = source + i * step;
    if (last) {
      std::memcpy(target, element, element_size);
      target += element_size;
    } else {
      target = copy_strided(d, dim + 1, element, target);
    }
  }
  return target;
}

// Kernels count a byte of 2 as two, and copies have made it 1.
void check_bools(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kBool) return;
  const bool others = tensor.view(at::kByte).gt(1).any().item<bool>();
  check_argument(!others, "data: expected bytes of 0 or 1 for BOOL, got others; ",
                 "nxd_tensor_from_dltensor copies them as 1");
}

// Owns a managed tensor once the import has succeeded.
template <class Managed>
struct Import {
  Managed* managed;
  bool taken = false;

  static void destroy(void* context) {
    std::unique_ptr<Import> self(static_cast<Import*>(context));
    if (self->taken && self->managed->deleter) self->managed->deleter(self->managed);
  }
};

template <class Managed>
at::Tensor import_managed(Managed* managed) {
  const Description d = describe(managed->dl_tensor);
  if (d.negative_stride) {
    fail(NXD_ERROR_UNSUPPORTED,
         "strides: negative strides cannot be shared; nxd_tensor_from_dltensor copies them");
  }
  const size_t element_size = c10::elementSize(d.type);
  check_argument(reinterpret_cast<uintptr_t>(d.data) % element_size == 0,
                 "data: expected an address that is a multiple of the element size ", element_size,
                 ", got ", static_cast<const void*>(d.data));
  // The context, not a std::function over the data: that is skipped when the data is NULL, as it
  // may be without elements.
  auto owner = std::make_unique<Import<Managed>>(Import<Managed>{managed});
  Import<Managed>* import = owner.get();
  at::Tensor out = at::for_blob(d.data, d.shape)
                       .strides(d.strides)
                       .context(owner.release(), &Import<Managed>::destroy)
                       .options(at::TensorOptions().dtype(d.type).device(at::kCPU))
                       .target_device(at::Device(at::kCPU))
                       .make_tensor();
  check_bools(out);
  import->taken = true;
  return out;
}

template <class Managed>
struct Export {
  at::Tensor tensor;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  Managed managed;

  static void destroy(Managed* managed) {
    const Uncancelled whole_call;
    delete static_cast<Export*>(managed->manager_ctx);
  }
};

template <class Managed>
std::unique_ptr<Export<Managed>> export_managed(const at::Tensor& tensor) {
  check_access(tensor, CallTracer::Access::kWrite, "nxd_tensor_to_dlpack");
  check_host_memory(tensor, "tensor");
  check_argument(!tensor.requires_grad(),
                 "tensor: it requires a gradient; export what nxd_tensor_detach gives");
  auto out = std::make_unique<Export<Managed>>();
  std::memset(&out->managed, 0, sizeof(Managed));
  out->tensor = tensor;
  // Consumers may read the arrays' addresses also without dimensions: they are never NULL.
  out->shape.reserve(static_cast<size_t>(tensor.dim()) + 1);
  out->strides.reserve(static_cast<size_t>(tensor.dim()) + 1);
  out->shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  out->strides.assign(tensor.strides().begin(), tensor.strides().end());
  DLTensor& d = out->managed.dl_tensor;
  d.data = tensor.data_ptr();
  d.device = {kDLCPU, 0};
  d.ndim = static_cast<int32_t>(tensor.dim());
  d.dtype = dl_type_of(tensor.scalar_type());
  d.shape = out->shape.data();
  d.strides = out->strides.data();
  d.byte_offset = 0;
  out->managed.manager_ctx = out.get();
  out->managed.deleter = &Export<Managed>::destroy;
  return out;
}

}  // namespace

at::Tensor copy_dltensor(const DLTensor& source) {
  const Description d = describe(source);
  return host_values([&] {
    at::Tensor out = at::empty(d.shape, at::TensorOptions().dtype(d.type).device(at::kCPU));
    if (!d.empty) copy_strided(d, 0, d.data, static_cast<char*>(out.data_ptr()));
    normalise_bools(out);
    return out;
  });
}

at::Tensor import_dlpack(DLManagedTensor* managed) { return import_managed(managed); }

at::Tensor import_dlpack(DLManagedTensorVersioned* managed) {
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    fail(NXD_ERROR_UNSUPPORTED, "managed: expected DLPack version ", DLPACK_MAJOR_VERSION,
         ".x, got ", managed->version.major, ".", managed->version.minor);
  }
  check_argument((managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0,
                 "managed: the memory is read-only, and tensors can be written; "
                 "nxd_tensor_from_dltensor copies it");
  return import_managed(managed);
}

void export_dlpack(const at::Tensor& tensor, DLManagedTensor*& out) {
  out = &export_managed<DLManagedTensor>(tensor).release()->managed;
}

void export_dlpack(const at::Tensor& tensor, DLManagedTensorVersioned*& out) {
  auto made = export_managed<DLManagedTensorVersioned>(tensor);
  made->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  out = &made.release()->managed;
}

}  // namespace nxd
