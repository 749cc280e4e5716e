# The files of tests that are named; runtests.jl starts it.
using NXD, Test, Libdl, InteractiveUtils
using NXD: Options

include("support.jl")
include("json.jl")

# Julia starts no more threads than there are processors.
Threads.nthreads() == 2 || error("the suite needs two threads, and so a machine with two processors")

@testset "NXD" begin
    for name in ARGS
        seconds = @elapsed @testset "$name" begin
            include(name * ".jl")
        end
        println(rpad(name, 12), round(seconds; digits = 1), " s")
    end
end
println(collections[], " collections were forced")
