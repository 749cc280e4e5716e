# Generated from include/nxd.h by scripts/bindings: do not edit.

const NXD_ABI_VERSION = 0
const NXD_VERSION_MAJOR = 0
const NXD_VERSION_MINOR = 1
const NXD_VERSION_PATCH = 0

include("raw/dlpack.jl")
include("raw/base.jl")
include("raw/store.jl")
include("raw/context.jl")
include("raw/parallel.jl")
include("raw/tensor_parallel.jl")
include("raw/buffer_layers.jl")
include("raw/checkpoint.jl")
include("raw/data.jl")
include("raw/group.jl")
include("raw/weights.jl")
include("raw/data_parallel.jl")
include("raw/job.jl")
include("raw/machine.jl")
include("raw/memory.jl")
include("raw/optimizer.jl")
include("raw/pipeline.jl")
include("raw/planner.jl")
include("raw/training_state.jl")
include("raw/work.jl")
include("raw/tensor.jl")
include("raw/autograd.jl")
include("raw/device.jl")
include("raw/functional.jl")
include("raw/module.jl")
include("raw/layers.jl")
include("raw/model.jl")
include("raw/model_pipeline.jl")
include("raw/op.jl")
include("raw/serialization.jl")
include("raw/training.jl")
