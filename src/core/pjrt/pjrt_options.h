#pragma once

#include <map>
#include <string>

namespace nxd {

// How a program is compiled.
struct PjrtOptions {
  // XLA's lowest level without its emitters of fusions: a fifth of the time to compile, and several
  // times that of a step. For tests.
  bool fast_compile = false;
  // Devices, of this process and of others, that run the program together: its collectives are
  // those of StableHLO, whose replica groups have the numbers 0 to replicas - 1. Device i of the
  // plug-in is replica i.
  int replicas = 1;
  // Debug options of XLA by name, such as xla_cpu_enable_fast_math. Numbers and booleans are
  // written as text: 0, true.
  std::map<std::string, std::string> flags;

  // All flags, with those that fast_compile means. A flag of the same name wins.
  std::map<std::string, std::string> all_flags() const;
};

// The message CompileOptionsProto of XLA. INVALID_ARGUMENT unless replicas is 1 or more.
std::string compile_options_proto(const std::map<std::string, std::string>& flags, int replicas);

}  // namespace nxd
