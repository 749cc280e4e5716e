/* libnxd: distributed training as an embeddable library.
 *
 * How to read this header
 *
 * Every function that can fail returns nxd_status_t: 0 is success, every error is negative, and
 * nxd_last_error() then says on the same thread what was expected and what was given. Outputs are
 * the last arguments, named out_*; they are set to NULL or 0 on entry and stay so when a call
 * fails, save a size that tells how much more than cap there is.
 *
 * The comment of a function begins with its tag. [local] means that no other rank needs to call.
 * [blocking] means the same, and that the call may wait for another rank, a process or a store.
 * [collective: G] means that every rank of group G calls the same function, in the same order as
 * its other collectives; such a call is bounded by the group's timeout. Finalizers of
 * garbage-collected languages may only call [local] functions.
 *
 * Ownership: *_create, *_create_KIND and *_from_* give an object that the caller destroys,
 * *_share_* a handle of the caller's own on a tensor that something else keeps, *_gather_* a tensor
 * put together from all ranks' parts. *_get_* and *_find_* give a borrowed pointer, valid until its
 * owner is destroyed or changed, and are local. Strings are UTF-8 and copied. Nothing is
 * ever handed out for the caller to free(). Destroying NULL does nothing; objects keep alive what
 * they use, so local objects may be destroyed in any order.
 *
 * Threads: different objects may be used concurrently; one object by one thread at a time. Objects
 * that share storage, a module or an autograd graph count as one object. nxd_context_abort,
 * nxd_group_abort, nxd_work_test, nxd_context_get_flight_record and all functions of a store are
 * safe from any thread. After fork() every object is unusable in the child: calls return
 * NXD_ERROR_INVALID_STATE.
 *
 * Callbacks return: a longjmp, or another language's error, that leaves one is undefined.
 * Exceptions of C++ are caught where the callback has a status. Calls compute in the default
 * floating-point environment, callbacks on the caller's thread in the caller's.
 *
 * Options structs start with struct_size; NULL options mean all defaults, and a field that is zero
 * means its default. Initialise with nxd_*_options_init or the NXD_*_OPTIONS_INIT macro. A field
 * that is off by default is an int32_t, 0 or 1; any other switch is a nxd_toggle_t.
 *
 * Absent: a pointer is NULL. An index is -1 as an argument or a result; in options has_X says
 * whether X counts. A quantity num_X is how many X there are, count how many elements.
 *
 * Topics. Each is a header of its own below nxd/, and may be included alone.
 *
 * nxd/core.h, in libnxd_core (pkg-config nxd-core), needs no libtorch:
 *   base            versions, status codes and errors, dtypes and devices, logging
 *   store           the key-value stores through which ranks find one another
 *   context         one rank: joining the world, leaving it, its settings
 *   group           collectives and messages over buffers of the caller's
 *   work            the same without waiting; calls that a rank cannot make
 *   memory          the pool of tensors, and memory that ranks of a host share
 *   parallel        which ranks share tensors, stages and data
 *   job             starting processes
 *   checkpoint      directories of files that appear at once, or not at all
 *   data            batches from files of token ids, for data-parallel ranks
 *   machine         the device, limits to compare with, where the time goes
 *   data_parallel   gradients reduced over ranks in buckets, ZeRO-1, samplers
 *   tensor_parallel layers that ranks share, forward and backward, over buffers
 *   buffer_layers   norms, dropout, and a head with its loss, over buffers
 *   weights         shards of weights: initial values, copies, safetensors
 *   optimizer       AdamW, SGD, a caller's own rule; learning rates over time
 *   training_state  all that a run goes on from, saved and loaded by one call
 *   pipeline        schedules, and stages that the caller computes
 *   planner         the cost of a layout, from counts alone
 *
 * nxd/engine.h, in libnxd (pkg-config nxd), which uses libnxd_core and libtorch:
 *   tensor          tensors, DLPack
 *   op              any operator of ATen by name
 *   device          the recorded device: a step as one graph
 *   autograd        gradients, a caller's own functions, automatic casts
 *   module          the tree of modules and parameters; loading and saving
 *   serialization   tensors of the caller's by name, in one file
 *   layers          layers that are split over tensor-parallel ranks
 *   functional      region mappings, losses
 *   model           models from Hugging Face configurations
 *   training        optimizers and data parallelism over modules, recomputation
 *   model_pipeline  models cut into stages */
#ifndef NXD_H
#define NXD_H

#include "nxd/core.h"
#include "nxd/engine.h"

#endif /* NXD_H */
