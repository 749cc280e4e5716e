#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/pjrt/pjrt_execution.h"

namespace nxd {

namespace pjrt_abi::call {
struct Frame;
}

// An operand or result of a custom call, in the plug-in's memory, in the order of rows.
struct CustomCallBuffer {
  nxd_dtype_t dtype;  // NXD_DTYPE_INVALID for element types that are no dtype, such as u32
  std::vector<int64_t> shape;
  void* data;
  size_t bytes;  // 0 without a dtype
};

// A call out of a running program into this library. In StableHLO:
//   stablehlo.custom_call with call_target_name = "nxd_call", api_version = 4 : i32 and
//   backend_config = {function = "NAME", ...}, whose other entries are the call's attributes.
// XLA puts calls that do not depend on one another into an order of its own, so those that other
// ranks take part in pass a token from one to the next. Tokens are no inputs or outputs here.
class CustomCall {
 public:
  CustomCall(const pjrt_abi::call::Frame& frame, void* rank_data);

  const std::vector<CustomCallBuffer>& inputs() const { return inputs_; }
  const std::vector<CustomCallBuffer>& outputs() const { return outputs_; }
  // As given to PjrtExecutable::execute.
  void* rank_data() const { return rank_data_; }

  // Attributes. INVALID_ARGUMENT when there is none of the name, or it is of another kind.
  bool has(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;

 private:
  const pjrt_abi::call::Frame& frame_;
  void* rank_data_;
  std::vector<CustomCallBuffer> inputs_, outputs_;
};

// Runs on a thread of the plug-in's or on the one that executes, and must not call the plug-in.
// An nxd::Error of it is the execution's.
using CustomCallFunction = std::function<void(const CustomCall&)>;

// For all plug-ins and for good, before or after programs that call it are compiled.
// INVALID_ARGUMENT if the name is taken.
void register_custom_call(const std::string& name, CustomCallFunction function);

// Custom calls of one plug-in.
class CustomCallPort {
 public:
  // Null where the plug-in has none; the same for all clients of a plug-in. UNSUPPORTED beyond a
  // number of plug-ins in one process.
  static std::shared_ptr<CustomCallPort> open(std::shared_ptr<PjrtPlugin> plugin);
  // The scope lives until the context is destroyed.
  pjrt_abi::ExecuteContext* make_context(CustomCallScope& scope) const;

 private:
  CustomCallPort(std::shared_ptr<PjrtPlugin> plugin, size_t place);

  std::shared_ptr<PjrtPlugin> plugin_;
  size_t place_;
};

}  // namespace nxd
