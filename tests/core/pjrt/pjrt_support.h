#pragma once

// Helpers of the tests of this room: aligned arrays, modules in StableHLO, and errors that are
// expected.
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/pjrt/pjrt_client.h"
#include "support/check.h"
#include "support/pjrt.h"

namespace nxd_test {

// Floats at an address that can be shared.
class AlignedFloats {
 public:
  explicit AlignedFloats(std::vector<float> values) : size_(values.size()) {
    data_.reset(static_cast<float*>(
        ::operator new(size_ * sizeof(float) + 1, std::align_val_t(nxd::kPjrtAlignment))));
    for (size_t i = 0; i < size_; ++i) data_[i] = values[i];
  }
  float* data() { return data_.get(); }
  float& operator[](size_t i) { return data_[i]; }
  std::vector<float> values() const { return {data_.get(), data_.get() + size_}; }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t(nxd::kPjrtAlignment)); }
  };
  size_t size_;
  std::unique_ptr<float[], Free> data_;
};

// A main has seen that there is a plug-in. Its path is found once, as threads ask for it at a time.
inline const std::string& plugin_path() {
  static const std::string path = nxd_test_pjrt_plugin();
  return path;
}

inline nxd::PjrtType f32(std::vector<int64_t> shape) { return {NXD_DTYPE_F32, std::move(shape)}; }

// The status of what a function throws, and whether its message has the part.
inline void expect_error(nxd_status_t status, const std::string& part,
                         const std::function<void()>& call) {
  std::string message = "no error";
  nxd_status_t got = NXD_OK;
  try {
    call();
  } catch (const nxd::Error& error) {
    message = error.what();
    got = error.status();
  }
  if (got != status || message.find(part) == std::string::npos) {
    fail_msg("expected %s with \"%s\", got %s: %s", nxd_status_string(status), part.c_str(),
             nxd_status_string(got), message.c_str());
  }
}

// All values of a buffer of f32, when they are there.
inline std::vector<float> values_of(const nxd::PjrtBuffer& buffer) {
  std::vector<float> values(buffer.type().bytes() / sizeof(float));
  buffer.copy_to_host(values.data(), values.size() * sizeof(float));
  return values;
}

// Runs a program with inputs that are copied, and waits.
inline std::shared_ptr<nxd::PjrtExecution> run(nxd::PjrtExecutable& program,
                                               const std::vector<nxd::PjrtBuffer*>& inputs,
                                               void* rank_data = nullptr) {
  auto execution = program.execute(inputs, rank_data);
  execution->wait();
  return execution;
}

inline nxd::PjrtOptions fast() {
  nxd::PjrtOptions options;
  options.fast_compile = true;
  return options;
}

// A module with one function of this signature and body.
inline std::string module_of(const std::string& arguments, const std::string& results,
                             const std::string& body) {
  return "module @test {\n  func.func @main(" + arguments + ") -> (" + results + ") {\n" + body +
         "\n  }\n}\n";
}

}  // namespace nxd_test
