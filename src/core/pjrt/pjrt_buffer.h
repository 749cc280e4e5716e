#pragma once

#include <cstddef>
#include <memory>

#include "core/pjrt/custom_call_scope.h"
#include "core/pjrt/pjrt_plugin.h"
#include "core/pjrt/pjrt_type.h"

namespace nxd {

// How a buffer gets its memory.
enum class HostMemory {
  kCopied,    // a copy of the caller's
  kShared,    // the caller's, which neither side writes as long as the buffer lives
  kDonatable  // the caller's, which a program with tf.aliasing_output on the parameter writes
};

// Memory that is shared begins at such a multiple; XLA would copy other memory without a word.
constexpr size_t kPjrtAlignment = 64;

// An array of the plug-in's. It may hold values that a running program has yet to write.
class PjrtBuffer {
 public:
  // Owner keeps shared memory alive, as long as the buffer does or a program reads it. The scope is
  // that of the execution whose result this is.
  PjrtBuffer(std::shared_ptr<PjrtPlugin> plugin, pjrt_abi::Buffer* handle,
             std::shared_ptr<void> owner = nullptr,
             std::shared_ptr<const CustomCallScope> scope = nullptr);
  ~PjrtBuffer();
  PjrtBuffer(PjrtBuffer&& other) noexcept;
  PjrtBuffer& operator=(PjrtBuffer&& other) noexcept;

  // UNSUPPORTED for an element type that is no dtype.
  PjrtType type() const;
  // The plug-in's memory itself, valid as long as the buffer, where that is the host's: UNSUPPORTED
  // elsewhere. Values are there after wait().
  void* data() const;
  // Until values are there; the error of the program that should have written them.
  void wait() const;
  // Waits. INVALID_ARGUMENT unless size is that of the array.
  void copy_to_host(void* out, size_t size) const;
  // True once a program has taken the memory for a result of its own.
  bool is_donated() const;

  pjrt_abi::Buffer* handle() const { return handle_; }
  const std::shared_ptr<void>& owner() const { return owner_; }
  const std::shared_ptr<const CustomCallScope>& scope() const { return scope_; }

 private:
  // Awaits the event; the execution's own error instead of XLA's text of it.
  void await(pjrt_abi::Event* event, const char* action) const;

  std::shared_ptr<PjrtPlugin> plugin_;
  pjrt_abi::Buffer* handle_ = nullptr;
  std::shared_ptr<void> owner_;
  std::shared_ptr<const CustomCallScope> scope_;
};

}  // namespace nxd
