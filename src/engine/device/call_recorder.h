#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace nxd {

class Module;

// A function of the library's own, or of a caller's, that is called as a whole.
using WholeFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Who watches this thread's calls of modules and functions: a trace. Tensors hold no values then,
// so that kernels and collectives only give shapes.
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
  // Fails, for whoever wants a tensor's data: INVALID_STATE names the module and the operation.
  [[noreturn]] virtual void refuse_read(const char* operation) = 0;

  // This thread's; null: nobody watches.
  static CallRecorder* current() noexcept;
};

// Makes a recorder this thread's for a scope.
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

// Calls a function as one node where this thread is tracing, and just calls it elsewhere. Whatever
// the library offers beside operators and modules goes through here.
std::vector<at::Tensor> call_whole(const char* name, const std::vector<at::Tensor>& inputs,
                                   const WholeFunction& function);

}  // namespace nxd
