/* A small header by the rules of nxd.h, for the test of the ABI gate. */
#ifndef NXD_H
#define NXD_H

#include "nxd/core.h"
#include "nxd/engine.h"

#endif
