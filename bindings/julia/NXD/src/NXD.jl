"""
Distributed training over libnxd: ranks and collectives over Julia arrays, ZeRO-1 and pipelines
over arrays and functions of one's own, and sharded models.

One rule for memory: an array of `size` (a, b, c) is a tensor of shape [c, b, a], the same bytes.
Ranks, groups' indices and the dimensions that options name count from 0, as in `nxd.h`.
"""
module NXD

using Libdl

# This code passes things on: compiling it soon is worth more than compiling it well.
Base.Experimental.@optlevel 1

include("call.jl")
include("raw.jl")
include("errors.jl")
include("object.jl")
include("callback.jl")
include("array.jl")
include("options.jl")
include("basics.jl")
include("store.jl")
include("context.jl")
include("parallel.jl")
include("group.jl")
include("work.jl")
include("job.jl")
include("machine.jl")
include("data_parallel.jl")
include("data.jl")
include("optimizer.jl")
include("schedule.jl")
include("planner.jl")
include("tensor.jl")
include("device.jl")
include("op.jl")
include("autograd.jl")
include("module.jl")
include("layers.jl")
include("functional.jl")
include("training.jl")
include("checkpoint.jl")
include("serialization.jl")
include("layer_arrays.jl")
include("pipeline.jl")

export NXDError, Store, Context, Group, Work, Job, DataLoader, Ddp, Optimizer, Schedule, Pipeline, Tensor,
    Operator, CustomFunction, ModuleNode, Parameter, Tape, BFloat16,
    finalize!, abort, init_model_parallel!, world, group, rank_in, master_print,
    all_reduce!, all_gather!, all_gather, reduce_scatter!, broadcast_from!, all_to_all!, send_to,
    receive_from!, barrier, all_reduce_async!, all_gather_async!, reduce_scatter_async!,
    broadcast_from_async!, all_to_all_async!, send_to_async, receive_from_async!, barrier_async,
    spawn_ranks, adamw, sgd, custom_optimizer, step!, backward, grad, no_grad, parameters,
    add_child!, add_parameter!, zero_grad!, shape, mapped, op, requires_grad!, train!, run!

function __init__()
    program_file[] = isempty(PROGRAM_FILE) ? "" : abspath(PROGRAM_FILE)
    load_core()
    make_callbacks()
end

end
