/** @file
 * The second library. */
#ifndef NXD_ENGINE_H
#define NXD_ENGINE_H

#include "core.h"
#include "thing.h"

#endif
