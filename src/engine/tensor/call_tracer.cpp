#include "engine/tensor/call_tracer.h"

#include <utility>

namespace nxd {
namespace {

thread_local CallTracer* tracer_of_thread = nullptr;

}  // namespace

CallTracer* CallTracer::current() noexcept { return tracer_of_thread; }

TracingScope::TracingScope(CallTracer* tracer) noexcept
    : outer_(std::exchange(tracer_of_thread, tracer)) {}

TracingScope::~TracingScope() { tracer_of_thread = outer_; }

std::vector<at::Tensor> call_opaque(const char* name, const std::vector<at::Tensor>& inputs,
                                    const OpaqueFunction& function) {
  CallTracer* tracer = CallTracer::current();
  return tracer ? tracer->call_function(name, inputs, function) : function(inputs);
}

}  // namespace nxd
