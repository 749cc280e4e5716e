#pragma once

#include <map>
#include <string>

namespace nxd {

// How a program is compiled.
struct PjrtOptions {
  // XLA's lowest level without its emitters of fusions: a fifth of the time to compile, and several
  // times that of a step. For tests.
  bool fast_compile = false;
  // Debug options of XLA by name, such as xla_cpu_enable_fast_math. Numbers and booleans are
  // written as text: 0, true.
  std::map<std::string, std::string> flags;

  // All flags, with those that fast_compile means. A flag of the same name wins.
  std::map<std::string, std::string> all_flags() const;
};

// The message CompileOptionsProto of XLA, for one device.
std::string compile_options_proto(const std::map<std::string, std::string>& flags);

}  // namespace nxd
