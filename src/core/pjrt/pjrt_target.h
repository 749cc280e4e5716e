#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/launch/launcher.h"

namespace nxd {

// Facts of a plug-in beyond its interface, by which programs are written for it. Neuron's are made
// of public sources: nothing of them has run on that hardware.

// A dtype that a device lacks, and the one that its programs have instead.
struct DtypeMapping {
  nxd_dtype_t dtype;
  nxd_dtype_t on_device;
  const char* variable;  // which asks for it by 1; null: always
};

enum class PjrtQuirk {
  kUnorderedDevices,
  kIndicesOutOfRange,
  kIntegerSplats,
  kIntegerProducts,
};

struct QuirkOfTarget {
  PjrtQuirk quirk;
  const char* what;    // the plug-in, or its compiler, does
  const char* remedy;  // of this library
  const char* source;  // that tells of it
};

// docs/neuron.md has the same rows in the same order.
std::span<const DtypeMapping> neuron_dtypes();
std::span<const QuirkOfTarget> neuron_quirks();

class PjrtTarget {
 public:
  // A plug-in that takes StableHLO as it is.
  PjrtTarget() = default;
  static PjrtTarget neuron(const Variables& variables);

  bool is_neuron() const { return is_neuron_; }
  bool has(PjrtQuirk quirk) const;
  // The dtype itself, where programs have it.
  nxd_dtype_t on_device(nxd_dtype_t dtype) const;

 private:
  bool is_neuron_ = false;
  std::vector<DtypeMapping> dtypes_{};
};

}  // namespace nxd
