#include "core/pjrt/pjrt_buffer.h"

#include <utility>

namespace nxd {

using pjrt_abi::make_args;
using pjrt_abi::Slot;

PjrtBuffer::PjrtBuffer(std::shared_ptr<PjrtPlugin> plugin, pjrt_abi::Buffer* handle,
                       std::shared_ptr<void> owner, std::shared_ptr<const CustomCallScope> scope)
    : plugin_(std::move(plugin)),
      handle_(handle),
      owner_(std::move(owner)),
      scope_(std::move(scope)) {}

PjrtBuffer::~PjrtBuffer() {
  if (plugin_) plugin_->release(Slot::kBufferDestroy, handle_);
}

PjrtBuffer::PjrtBuffer(PjrtBuffer&& other) noexcept
    : plugin_(std::move(other.plugin_)),
      handle_(std::exchange(other.handle_, nullptr)),
      owner_(std::move(other.owner_)),
      scope_(std::move(other.scope_)) {}

PjrtBuffer& PjrtBuffer::operator=(PjrtBuffer&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(handle_, other.handle_);
  std::swap(owner_, other.owner_);
  std::swap(scope_, other.scope_);
  return *this;
}

PjrtType PjrtBuffer::type() const {
  auto element = make_args<pjrt_abi::IntegerArgs>();
  element.object = handle_;
  plugin_->call(Slot::kBufferElementType, &element, "element type");
  auto shape = make_args<pjrt_abi::DimensionsArgs>();
  shape.buffer = handle_;
  plugin_->call(Slot::kBufferDimensions, &shape, "shape");
  PjrtType type{dtype_of_pjrt_element(element.value), {}};
  if (type.dtype == NXD_DTYPE_INVALID) {
    fail(NXD_ERROR_UNSUPPORTED, "PJRT buffer: its element type is PJRT's number ", element.value,
         ", which is no dtype of this library");
  }
  type.shape.assign(shape.dimensions, shape.dimensions + shape.count);
  return type;
}

void* PjrtBuffer::data() const {
  auto on_cpu = make_args<pjrt_abi::BooleanArgs>();
  on_cpu.object = handle_;
  plugin_->call(Slot::kBufferIsOnCpu, &on_cpu, "place");
  if (!on_cpu.value) {
    fail(NXD_ERROR_UNSUPPORTED, "PJRT buffer: its memory is a device's; copy it to the host");
  }
  auto args = make_args<pjrt_abi::PointerArgs>();
  args.object = handle_;
  plugin_->call(Slot::kBufferUnsafePointer, &args, "memory");
  return args.value;
}

void PjrtBuffer::await(pjrt_abi::Event* event, const char* action) const {
  try {
    plugin_->await(event, action);
  } catch (const Error& error) {
    const auto own = scope_ ? scope_->error() : std::nullopt;
    throw own.value_or(error);
  }
}

void PjrtBuffer::wait() const {
  auto args = make_args<pjrt_abi::PointerArgs>();
  args.object = handle_;
  plugin_->call(Slot::kBufferReadyEvent, &args, "wait");
  await(static_cast<pjrt_abi::Event*>(args.value), "wait");
}

void PjrtBuffer::copy_to_host(void* out, size_t size) const {
  const size_t wanted = type().bytes();
  check_argument(size == wanted, "size: expected ", wanted, " bytes, got ", size);
  if (size == 0) return wait();
  check_argument(out != nullptr, "out: expected memory, got NULL");
  auto args = make_args<pjrt_abi::BufferToHostArgs>();
  args.buffer = handle_;
  args.data = out;
  args.data_size = size;
  plugin_->call(Slot::kBufferToHost, &args, "copy to the host");
  await(args.done, "copy to the host");
}

bool PjrtBuffer::is_donated() const {
  auto args = make_args<pjrt_abi::BooleanArgs>();
  args.object = handle_;
  plugin_->call(Slot::kBufferIsDeleted, &args, "state");
  return args.value;
}

}  // namespace nxd
