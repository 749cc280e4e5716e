#include "engine/tensor/call_recorder.h"

#include <utility>

namespace nxd {
namespace {

thread_local CallRecorder* recorder_of_thread = nullptr;

}  // namespace

CallRecorder* CallRecorder::current() noexcept { return recorder_of_thread; }

RecordingScope::RecordingScope(CallRecorder* recorder) noexcept
    : outer_(std::exchange(recorder_of_thread, recorder)) {}

RecordingScope::~RecordingScope() { recorder_of_thread = outer_; }

std::vector<at::Tensor> call_whole(const char* name, const std::vector<at::Tensor>& inputs,
                                   const WholeFunction& function) {
  CallRecorder* recorder = CallRecorder::current();
  return recorder ? recorder->call_function(name, inputs, function) : function(inputs);
}

}  // namespace nxd
