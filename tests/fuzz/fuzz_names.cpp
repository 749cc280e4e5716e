// Names that callers look for: near names, and an optimizer's patterns. A line is a known name, the
// first the one that is wanted.
#include "core/base/suggestions.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nxd_fuzz::Input in(data, size);
  const std::string wanted = in.until('\n');
  const auto known = nxd_fuzz::pieces(in, '\n', 256);
  const std::string near = nxd::suggestions(wanted, known);
  nxd_fuzz::expect(near.empty() || !known.empty(), "a name near to none");
  return 0;
}
