/* Directories of the source and build trees. One source alone is compiled with them: all others are
   then the same in every clone, and ccache finds them. */
#pragma once

#ifdef __cplusplus
#include <string>
extern "C" {
#endif

extern const char* const nxd_test_oracles;  /* tests/oracles */
extern const char* const nxd_test_binaries; /* the build directory */

#ifdef __cplusplus
}

namespace nxd_test {

inline std::string oracles() { return nxd_test_oracles; }

}  // namespace nxd_test
#endif
