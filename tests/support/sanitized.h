/* Tests that a sanitizer slows many times make fewer rounds then. */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kSanitized = 1 };
#else
enum { kSanitized = 0 };
#endif
