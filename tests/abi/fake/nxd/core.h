/** @file
 * The first library. */
#ifndef NXD_CORE_H
#define NXD_CORE_H

#include "box.h"

#endif
