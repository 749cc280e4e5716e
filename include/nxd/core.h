/** @file
 * All of libnxd_core, which needs no libtorch. */
#ifndef NXD_CORE_H
#define NXD_CORE_H

/* A topic includes those that it needs, so that the order is
 * of no concern. */
#include "base.h"
#include "buffer_layers.h"
#include "checkpoint.h"
#include "context.h"
#include "data.h"
#include "data_parallel.h"
#include "group.h"
#include "job.h"
#include "machine.h"
#include "memory.h"
#include "optimizer.h"
#include "parallel.h"
#include "pipeline.h"
#include "planner.h"
#include "store.h"
#include "tensor_parallel.h"
#include "training_state.h"
#include "weights.h"
#include "work.h"
/* nxd.h has a line about each. */

#endif /* NXD_CORE_H */
