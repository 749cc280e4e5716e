using NXD, Test, Libdl, InteractiveUtils
using NXD: Options

include("support.jl")
include("json.jl")

const files = ["raw", "arrays", "collectives", "faults", "zero1", "checkpoints", "data", "layer_arrays",
               "stages", "tensors", "modules",
               "lifetimes", "programs"]
const chosen = isempty(ARGS) ? files : ARGS[1] == "--without" ? setdiff(files, ARGS[2:end]) : ARGS

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
