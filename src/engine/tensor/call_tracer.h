#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace nxd {

class Module;

// A function of the library's own, or of a caller's, that is called as a whole.
using OpaqueFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Records this thread's calls of modules and functions for a trace. Tensors hold no values then, so
// that kernels and collectives only give shapes.
class CallTracer {
 public:
  virtual ~CallTracer() = default;

  // Runs the module's forward by run, as one call or part by part.
  virtual std::vector<at::Tensor> call_module(
      Module& module, const std::vector<at::Tensor>& inputs,
      const std::function<std::vector<at::Tensor>()>& run) = 0;
  virtual std::vector<at::Tensor> call_function(const char* name,
                                                const std::vector<at::Tensor>& inputs,
                                                const OpaqueFunction& function) = 0;
  // Fails a request that only values could answer: INVALID_STATE names the module and the
  // operation.
  [[noreturn]] virtual void reject_read(const std::string& operation) = 0;
  // The same, unless the tensor's values are known: then they come from no input and no parameter.
  // A host that may write to a tensor is refused one that the trace has seen, known or not, as it
  // cannot see the write.
  enum class Access { kRead, kWrite };
  virtual void check_access(const at::Tensor& tensor, Access access, const char* operation) = 0;

  // This thread's; null: there is none.
  static CallTracer* current() noexcept;
};

// Makes a tracer this thread's for a scope; null: there is none in it.
class TracingScope {
 public:
  explicit TracingScope(CallTracer* tracer) noexcept;
  ~TracingScope();
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;

 private:
  CallTracer* outer_;
};

// True if this thread is tracing.
inline bool is_tracing() noexcept { return CallTracer::current() != nullptr; }

// To be called before the host reads a tensor's data, or may write to it.
inline void check_access(const at::Tensor& tensor, CallTracer::Access access,
                         const char* operation) {
  if (CallTracer* tracer = CallTracer::current()) {
    tracer->check_access(tensor, access, operation);
  }
}

// Fails while this thread is tracing, when there are no values to compute with.
inline void check_not_tracing(const char* operation) {
  if (CallTracer* tracer = CallTracer::current()) tracer->reject_read(operation);
}

// Calls a function as one node where this thread is tracing, and just calls it elsewhere. Whatever
// the library offers beside operators and modules goes through here. inputs: all the tensors that
// it computes with, parameters too; an undefined one is left out. The function is kept and called
// with other inputs later.
std::vector<at::Tensor> call_opaque(const char* name, const std::vector<at::Tensor>& inputs,
                                    const OpaqueFunction& function);

}  // namespace nxd
