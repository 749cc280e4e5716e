/** @file
 * All of libnxd, over libnxd_core and libtorch. */
#ifndef NXD_ENGINE_H
#define NXD_ENGINE_H

#include "core.h"

/* A topic includes those that it needs, so that the order is
 * of no concern. */
#include "autograd.h"
#include "device.h"
#include "functional.h"
#include "layers.h"
#include "model.h"
#include "model_pipeline.h"
#include "module.h"
#include "op.h"
#include "serialization.h"
#include "tensor.h"
#include "training.h"
/* nxd.h has a line about each. */

#endif /* NXD_ENGINE_H */
