#include "support/paths.h"

const char* const nxd_test_oracles = NXD_ORACLES;
const char* const nxd_test_binaries = NXD_BINARY_DIR;
