const examples = joinpath(package, "examples")
const programs = joinpath(@__DIR__, "programs")
# Output of the C examples of the same names, where they are built.
const c_examples = get(ENV, "NXD_C_EXAMPLES", "")

function c_example(name, args...)
    path = joinpath(c_examples, name)
    isfile(path) || return nothing
    read(`timeout $limit_s $path $args`, String)
end

numbers(text, pattern) = [parse(Float64, m.captures[1]) for m in eachmatch(pattern, text)]
const loss = r"step +\d+(?:/\d+)? +loss +([0-9.e-]+)"

# Programs with few calls take less time to interpret than to compile.
const interpreted = ("-O0", "--compile=min")

# It mostly waits, and so may go on beside the others.
const interrupted = started(joinpath(programs, "interrupt.jl"))

@testset "tensor-parallel MLP" begin
    text = succeeding(joinpath(examples, "mlp_tensor_parallel.jl"); julia = interpreted)
    found = numbers(text, r"Output sum is ([-0-9.]+)")
    @test length(found) == 1
    expected = c_example("mlp_tensor_parallel")
    expected === nothing ? println("no C examples in NXD_C_EXAMPLES: not compared") :
        @test found == numbers(expected, r"Output sum is ([-0-9.]+)")
end

@testset "ZeRO-1 over the program's arrays" begin
    found = numbers(two_processes(joinpath(examples, "embed_zero1.jl")), loss)
    @test length(found) == 40 && found[40] < 0.5 * found[1]
    expected = c_example("embed_zero1") # on one rank
    expected === nothing || @test maximum(abs.(found .- numbers(expected, loss))) <= 2e-6
end

@testset "tensor parallelism, and ZeRO-1, over the program's arrays" begin
    path = joinpath(examples, "embed_tensor_parallel.jl")
    expected = c_example("embed_tensor_parallel") # on one rank
    one = numbers(expected === nothing ? succeeding(path, "1") : expected, loss)
    @test length(one) == 40 && one[40] < 0.5 * one[1]
    for tp in ("2", "1")
        found = numbers(two_processes(path, "2", tp), loss)
        @test length(found) == 40 && maximum(abs.(found .- one)) <= 1e-5
    end
    for (tp, message) in (("3", "32 units do not divide by 3"), ("1", "64 samples by 3"))
        code, text = program(path, "3", tp; julia = interpreted)
        @test code != 0 && occursin(message, text)
    end
end

@testset "a forward, an activation and a loss in Julia" begin
    found = numbers(two_processes(joinpath(examples, "custom_model.jl")), loss)
    expected = json(read(joinpath(root, "tests", "oracles", "custom_model", "expected.json"), String))["losses"]
    @test length(found) == length(expected) && maximum(abs.(found .- expected)) <= 1e-5
end

@testset "pipeline stages in Julia" begin
    found = numbers(two_processes(joinpath(examples, "pipeline_stages.jl"), "zero-bubble"), loss)
    @test length(found) == 30 && found[30] < 0.5 * found[1]
    expected = c_example("pipeline_callbacks") # on one rank, with the C library's tanh
    expected === nothing || @test maximum(abs.(found .- numbers(expected, loss))) <= 1e-6
    long && @test numbers(two_processes(joinpath(examples, "pipeline_stages.jl")), loss) == found
end

@testset "an error's message, and a rank that is killed" begin
    text = succeeding(joinpath(examples, "lost_peer.jl"); julia = interpreted)
    @test count("ranks disagree: rank 0 calls all_reduce of 4 x f32 (sum), rank 1 calls all_reduce of 5 x f32 (sum)", text) == 2
    @test occursin(r"rank 0: lost rank 1 in all_reduce #\d+ after", text)
    @test occursin("job: NXDError: PEER_LOST: ", text) && occursin("signal 9", text)
end

@testset "Ctrl-C" begin
    text = finished(interrupted)
    for what in ("all_reduce!", "wait of a work", "receive_from!", "a forward in Julia", "Context")
        @test occursin("$what: InterruptException", text)
    end
end

@testset "the end of a process that closed nothing" begin
    for how in ("objects", "works", "lost")
        text = two_processes(joinpath(programs, "exits.jl"), how; julia = long ? () : interpreted)
        @test occursin("leaving with $how", text)
    end
end

@testset "a Ctrl-C in a close" begin
    text = succeeding(joinpath(programs, "closes.jl"); julia = interpreted)
    @test text == "InterruptException\nended: true\n"
end

@testset "a Ctrl-C before objects are collected" begin
    text = succeeding(joinpath(programs, "collected.jl"); julia = interpreted)
    @test text == "InterruptException\nall ended\n"
end

@testset "ranks of a script whose directory is left" begin
    mktempdir() do directory
        write(joinpath(directory, "leaves.jl"),
              "using NXD\ncd(\"/\")\nNXD.is_rank() ? print(\"a rank\\n\") : spawn_ranks(2)\n")
        text = cd(() -> succeeding("leaves.jl"; julia = interpreted), directory)
        @test text == "a rank\na rank\n"
    end
end

@testset "libnxd_core alone" begin
    @test occursin("no libtorch", succeeding(joinpath(programs, "core_only.jl"); julia = interpreted))
end

@testset "benchmark" begin
    text = two_processes(joinpath(dirname(package), "bench", "bench.jl"))
    @test occursin(r"^empty_call_ns [0-9.]+\nall_reduce_1k_us [0-9.]+\n$", text)
end

@testset "code of the README" begin
    blocks = [m.captures[1] for m in eachmatch(r"```julia\n(.*?)```"s, read(joinpath(dirname(package), "README.md"), String))]
    @test length(blocks) >= 2
    for block in blocks
        mktempdir() do directory
            path = joinpath(directory, "readme.jl")
            write(path, block)
            two_processes(path; julia = interpreted)
        end
    end
end
