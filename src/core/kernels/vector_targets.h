#pragma once

// Included before anything of Highway. The kernels keep vectors in arrays, which the types of
// scalable vectors do not allow (Arm then uses NEON). SSSE3 and AVX3_DL would add nothing over
// their neighbours but time to compile. SSE4 would help only processors older than 2013.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
