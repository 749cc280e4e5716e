using NXD, Test, Libdl, InteractiveUtils
using NXD: Options

include("support.jl")
include("json.jl")

const files = ["raw", "arguments", "arrays", "collectives", "faults", "zero1", "checkpoints", "data", "layer_arrays",
               "stages", "tensors", "modules",
               "lifetimes", "programs"]
const leaves_out = !isempty(ARGS) && ARGS[1] == "--without"
const named = ARGS[1 + leaves_out:end]
const unknown = setdiff(named, files)
isempty(unknown) || error("expected names of $(join(files, ", ")), got $(join(unknown, ", "))")
const chosen = leaves_out ? setdiff(files, named) : isempty(named) ? files : named

# Julia starts no more threads than there are processors.
Threads.nthreads() == 2 || error("the suite needs two threads, and so a machine with two processors")

@testset "NXD" begin
    for name in chosen
        seconds = @elapsed @testset "$name" begin
            include(name * ".jl")
        end
        println(rpad(name, 12), round(seconds; digits = 1), " s")
    end
end
println(collections[], " collections were forced")
