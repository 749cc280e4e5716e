#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace nxd {

class Module;

// A function of the library's own, or of a caller's, that is called as a whole.
using WholeFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Records this thread's calls of modules and functions for a trace. Tensors hold no values then, so
// that kernels and collectives only give shapes.
class CallRecorder {
 public:
  virtual ~CallRecorder() = default;

  // Runs the module's forward by run, as one call or part by part.
  virtual std::vector<at::Tensor> call_module(
      Module& module, const std::vector<at::Tensor>& inputs,
      const std::function<std::vector<at::Tensor>()>& run) = 0;
  virtual std::vector<at::Tensor> call_function(const char* name,
                                                const std::vector<at::Tensor>& inputs,
                                                const WholeFunction& function) = 0;
  // Fails a request that only values could answer: INVALID_STATE names the module and the
  // operation.
  [[noreturn]] virtual void refuse_read(const std::string& operation) = 0;
  // The same, unless the tensor's values are known: then they come from no input and no parameter.
  // A host that may write to a tensor is refused one that the trace has seen, known or not, as it
  // cannot see the write.
  enum class Access { kRead, kWrite };
  virtual void check_access(const at::Tensor& tensor, Access access, const char* operation) = 0;

  // This thread's; null: there is none.
  static CallRecorder* current() noexcept;
};

// Makes a recorder this thread's for a scope; null: there is none in it.
class RecordingScope {
 public:
  explicit RecordingScope(CallRecorder* recorder) noexcept;
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  CallRecorder* outer_;
};

// Whether this thread is tracing.
inline bool is_tracing() noexcept { return CallRecorder::current() != nullptr; }

// To be called before the host reads a tensor's data, or may write to it.
inline void check_access(const at::Tensor& tensor, CallRecorder::Access access,
                         const char* operation) {
  if (CallRecorder* recorder = CallRecorder::current()) {
    recorder->check_access(tensor, access, operation);
  }
}

// Fails while this thread is tracing, when there are no values to compute with.
inline void check_not_tracing(const char* operation) {
  if (CallRecorder* recorder = CallRecorder::current()) recorder->refuse_read(operation);
}

// Calls a function as one node where this thread is tracing, and just calls it elsewhere. Whatever
// the library offers beside operators and modules goes through here. inputs: all the tensors that
// it computes with, parameters too; an undefined one is left out. The function is kept and called
// with other inputs later.
std::vector<at::Tensor> call_whole(const char* name, const std::vector<at::Tensor>& inputs,
                                   const WholeFunction& function);

}  // namespace nxd
