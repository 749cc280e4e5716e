/* CMocka with the headers it wants before it, also from C++. Include it last: it defines fail(). */
#ifndef NXD_TESTS_SUPPORT_CHECK_H
#define NXD_TESTS_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

/* CMocka 2 has a macro of this name, which methods have as well. */
#undef stop

#endif
