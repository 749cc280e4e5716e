@testset "ranks that disagree fail together, and go on" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        e = thrown(() -> all_reduce!(g, ones(4 + r)))
        x = [1.0]
        all_reduce!(g, x)
        (e, x)
    end
    for (r, (e, x)) in enumerate(found)
        @test e isa NXDError && e.status === :invalid_argument && x == [2.0]
        @test e.group == "world" && e.operation == "all_reduce" && e.sequence isa Int && e.root_rank == 1
        @test e.parameters === :none && e.step === nothing
        @test occursin("4 x f64", e.message) && occursin("5 x f64", e.message)
        @test occursin("INVALID_ARGUMENT: ", sprint(showerror, e))
    end
end

# One rank's array is refused before the library sees it: its peer must not wait.
@testset "arrays that are of no use fail on every rank" begin
    bad = [g -> all_reduce!(g, view(ones(4, 4), 1:2, :)), g -> all_reduce!(g, ones(3), ones(4)),
           g -> all_reduce!(g, ["a"]), g -> all_gather!(g, ones(3), ones(2)),
           g -> reduce_scatter!(g, ones(2), ones(3)), g -> all_to_all!(g, ones(3), ones(3)),
           g -> broadcast_from!(g, view(ones(4), 1:2:3)), g -> all_reduce!(g, ones(4); op = :mean),
           g -> wait(all_reduce_async!(g, ones(Float32, 2), ones(2)))]
    good = [g -> all_reduce!(g, ones(8)), g -> all_reduce!(g, ones(4)), g -> all_reduce!(g, ones(4)),
            g -> all_gather!(g, ones(4), ones(2)), g -> reduce_scatter!(g, ones(2), ones(4)),
            g -> all_to_all!(g, ones(2), ones(2)), g -> broadcast_from!(g, ones(2)),
            g -> all_reduce!(g, ones(4)), g -> wait(all_reduce_async!(g, ones(2)))]
    found = two_ranks() do r, ctx
        g = world(ctx)
        errors = [thrown(() -> (r == 0 ? bad : good)[i](g)) for i in 1:length(bad)]
        x = [1.0]
        all_reduce!(g, x)
        (errors, x)
    end
    @test all(e -> e isa Union{ArgumentError,DimensionMismatch}, found[1][1])
    @test all(e -> e isa NXDError && e.status === :invalid_argument, found[2][1])
    @test found[1][2] == found[2][2] == [2.0]
    @test occursin("strides (1, 4)", found[1][1][1].msg)
    for (own, told) in zip(found[1][1], found[2][1])
        @test occursin("rank 0 rejected its arguments: ", told.message) &&
              occursin(first(NXD.reason(own), 100), told.message)
    end
end

@testset "a program tells the peers of a call that it cannot make" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        x = [1.0]
        told = map(["bias: expected a dense array", ArgumentError("another reason")]) do why
            r == 1 ? NXD.reject(g, "all_reduce", why) : thrown(() -> all_reduce!(g, x))
        end
        all_reduce!(g, x)
        (told, x)
    end
    @test found[2] == ([nothing, nothing], [2.0]) && found[1][2] == [2.0]
    for (error, why) in zip(found[1][1], ["bias: expected a dense array", "another reason"])
        @test error isa NXDError && error.status === :invalid_argument &&
              occursin("rank 1 rejected its arguments: all_reduce: " * why, error.message)
    end
end

@testset "a ddp over arrays that one rank cannot use fails on every rank" begin
    w, g = ones(3), zeros(3)
    bad = [c -> Ddp(c, [w], [g, g]), c -> Ddp(c, [["a"]], [g]), c -> Ddp(c, [w], [g]; names = ["a\0"]),
           c -> Ddp(c, [w], [g]; names = ["a", "b"]), c -> Ddp(c, [w], [g]; stage = 1),
           c -> Ddp(c, [w], [g]; group = world(c), names = [7])]
    found = two_ranks() do r, ctx
        make(i) = r == 0 ? bad[i](ctx) :
            Ddp(ctx, [copy(w)], [copy(g)]; group = i == length(bad) ? world(ctx) : nothing)
        errors = Any[thrown(() -> make(i)) for i in 1:length(bad)]
        init_model_parallel!(ctx)
        push!(errors, thrown(() -> make(1)))
        close(Ddp(ctx, [copy(w)], [copy(g)]))
        errors
    end
    @test all(f -> f isa Vector, found)
    for (own, told) in zip(found...)
        @test own !== nothing && !(own isa NXDError)
        @test told isa NXDError && told.status === :invalid_argument &&
              occursin("rank 0 rejected its arguments: call: ", told.message)
    end
    @test occursin("expected one gradient for each of 1 parameters, got 2", found[2][1].message)
    @test occursin("names: expected one for each of 1 parameters, got 2", found[2][4].message)
end

@testset "what Julia cannot hand over fails on every rank" begin
    stages(c, value; options...) = Pipeline(c; forward = (a...) -> 0.0, backward = (a...) -> nothing,
        inputs = [rank_in(c) == 0 ? () : (value,)], outputs = [rank_in(c) == 0 ? (value,) : ()], options...)
    good = ("x", Float32, (2,))
    calls = [(c, bad) -> stages(c, bad ? ("a\0", Float32, (2,)) : good),
             (c, bad) -> stages(c, bad ? ("x", String, (2,)) : good),
             (c, bad) -> stages(c, good; (bad ? (nothing_known = 1,) : NamedTuple())...),
             (c, bad) -> NXD.rendezvous(world(c), bad ? "a\0" : "a"),
             (c, bad) -> Group(c, bad ? [0, 1.5] : [0, 1]),
             (c, bad) -> Group(c, bad ? nothing : [0, 1]),
             (c, bad) -> Group(c, [0, 1]; name = bad ? "a\0" : "pair")]
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; pipeline_parallel_size = 2)
        errors = Any[thrown(() -> call(ctx, r == 1)) for call in calls]
        barrier(world(ctx))
        errors
    end
    @test all(f -> f isa Vector, found)
    for (told, own) in zip(found...)
        @test own !== nothing && !(own isa NXDError)
        @test told isa NXDError && told.status === :invalid_argument && told.root_rank == 1
    end
end

@testset "options and tensors that are none fail on every rank" begin
    found = two_ranks(finalize = false) do r, ctx
        layout(bad) = init_model_parallel!(ctx; (bad ? (tensor_parallel = 2,) : (tensor_parallel_size = 2,))...)
        errors = Any[thrown(() -> layout(r == 1))]
        layout(false)
        x, labels, closed = Tensor(ones(Float32, 4, 2)), Tensor([1, 2]), Tensor(ones(Float32, 4, 2))
        close(closed)
        linear = NXD.row_parallel_linear(ctx, 8, 4; input_is_parallel = 1)
        calls = [x -> linear(x), x -> NXD.forward_tape(linear, x),
                 x -> NXD.reduce_from_tensor_region(ctx, x), x -> NXD.gather_from_tensor_region(ctx, x),
                 x -> NXD.gather_from_sequence_region(ctx, x),
                 x -> NXD.reduce_scatter_to_sequence_region(ctx, x),
                 x -> NXD.parallel_cross_entropy(ctx, x, labels),
                 x -> NXD.linear_cross_entropy(ctx, x, Tensor(ones(Float32, 4, 3)), labels),
                 x -> NXD.pad!(linear, 2, 4; wrapped_classes = ["RowParallelLinear" * (x === closed ? "\0" : "")])]
        append!(errors, [thrown(() -> call(r == 1 ? closed : x)) for call in calls])
        @assert shape(linear(x)) == (2, 4)
        # In the middle of a backward pass nobody goes on.
        tape = last(NXD.forward_tape(NXD.column_parallel_linear(ctx, 4, 8; gather_output = false), x))
        (errors, thrown(() -> NXD.pullback!(tape, r == 1 ? closed : x)))
    end
    @test all(f -> f isa Tuple, found)
    @test occursin("rank 1 rejected", found[1][2].message) && found[2][2] isa ArgumentError
    for (told, own) in zip(found[1][1], found[2][1])
        @test own isa ArgumentError
        @test told isa NXDError && told.status === :invalid_argument && occursin("rank 1", told.message)
    end
end

@testset "a rank that leaves" begin
    found = two_ranks(finalize = false) do r, ctx
        r == 1 && return nothing # closes the context
        first = thrown(() -> all_reduce!(world(ctx), [1.0]))
        (first, thrown(() -> barrier(world(ctx))))
    end
    first, second = found[1]
    @test first.status === :peer_lost && first.root_rank == 1 && first.operation == "all_reduce"
    @test second.status === :peer_lost # the group is poisoned
end

@testset "timeouts and aborts" begin
    over = Threads.Atomic{Bool}(false)
    found = two_ranks(finalize = false) do r, ctx
        r == 1 && return until(() -> over[])
        NXD.set_timeout!(world(ctx), 300)
        e = thrown(() -> barrier(world(ctx)))
        over[] = true
        e
    end
    @test found[1].status === :timeout && found[1].root_rank == 1
    found = two_ranks(finalize = false) do r, ctx
        r == 1 && (sleep(0.3); abort(ctx); return thrown(() -> barrier(world(ctx)))) # most likely rank 0 waits
        thrown(() -> barrier(world(ctx)))
    end
    @test found[1].status in (:peer_lost, :aborted) && found[2].status === :aborted
end

@testset "works that fail, and works taken back" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        work = all_reduce_async!(g, ones(2 + r))
        e = thrown(() -> wait(work))
        info = NXD.error_of(work)
        (e.status, info.status, info.operation, thrown(() -> wait(work)).status)
    end
    @test found == [(:invalid_argument, :invalid_argument, "all_reduce", :invalid_argument) for r in 0:1]
    cancelled = Threads.Atomic{Bool}(false)
    found = two_ranks() do r, ctx
        g = world(ctx)
        r == 1 && until(() -> cancelled[])
        first, second = barrier_async(g), all_reduce_async!(g, [1.0])
        r == 0 && (NXD.cancel(second); cancelled[] = true)
        wait(first)
        thrown(() -> wait(second)).status
    end
    @test found == [:aborted, :invalid_argument]
end

@testset "a do block finalizes, or leaves at once when it throws" begin
    store = Store()
    tasks = [on_thread(r + 1) do
        thrown() do
            Context(; store = store, rank = r, size = 2, timeout_ms = timeout_ms) do ctx
                r == 1 && error("mine")
                barrier(world(ctx))
            end
        end
    end for r in 0:1]
    lost, mine = map(fetch, tasks)
    @test mine == ErrorException("mine") && lost.status === :peer_lost
end

@testset "peers hear of options of a context that are none" begin
    for bad in ((host_id = "a\0b",), (interface_name = "lo\0",), (seed = "one",), (colour = 1,))
        store = Store()
        join(r) = thrown(() -> Context(; store = store, rank = r, size = 2, timeout_ms = timeout_ms,
                                       (r == 1 ? bad : NamedTuple())...))
        lost, mine = map(fetch, [on_thread(() -> join(r), r + 1) for r in 0:1])
        @test lost isa NXDError && lost.status === :peer_lost
        @test mine isa Union{ArgumentError,MethodError}
    end
end

@testset "wrong order" begin
    Context(; store = Store(), rank = 0, size = 1) do ctx
        @test thrown(() -> group(ctx, :tensor)).status === :invalid_state
        finalize!(ctx)
        @test thrown(() -> barrier(world(ctx))).status === :invalid_state
    end
    ctx = Context(; store = Store(), rank = 0, size = 1)
    g = world(ctx)
    close(ctx)
    @test occursin("closed", thrown(() -> barrier(g)).msg) # a borrowed group goes with its context
    @test thrown(() -> Context(rank = 3, size = 2, store = Store())).status === :invalid_argument
    @test occursin("colour", thrown(() -> Context(colour = 1)).msg)
end

@testset "a callback throws an error of a status that is none" begin
    alone() do ctx
        for status in (:nonsense, :ok, :timeout)
            mine = NXDError(status, "mine", nothing, "", "", nothing, nothing, :none)
            optimizer = custom_optimizer(u -> throw(mine), Ddp(ctx, [ones(Float32, 3)], [ones(Float32, 3)]))
            @test thrown(() -> step!(optimizer)) === mine
            @test thrown(() -> CustomFunction("test::fails", (call, x) -> throw(mine))(Tensor([1.0]))) === mine
        end
        barrier(world(ctx))
    end
end

@testset "texts, numbers and options that are none fail layers and files on every rank" begin
    directory = mktempdir()
    file, root = joinpath(directory, "x.safetensors"), joinpath(directory, "checkpoints")
    data, huge = joinpath(directory, "tokens.u16"), big(2)^70
    write(data, zeros(UInt16, 64))
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        x, y, w = ones(Float32, 2, 2), zeros(Float32, 2, 2), [ones(Float32, 2, 2)]
        t, closed = Tensor(x), Tensor(x)
        close(closed)
        tensors(bad) = Dict("a" => bad ? closed : t)
        unknown(bad) = bad ? (nothing_known = 1,) : NamedTuple()
        state = NXD.TrainingState(ctx)
        writing = NXD.Checkpoint(ctx, root, 1)
        calls = [bad -> NXD.dropout_forward!(ctx, bad ? "a\0b" : "ab", x, y; p = 0.5),
                 bad -> NXD.dropout_backward!(ctx, "ab", x, y; p = 0.5, unknown(bad)...),
                 bad -> NXD.region_mapping_forward!(ctx, bad ? :nothing_known : :reduce_from, 0, x, y),
                 bad -> NXD.region_mapping_forward!(ctx, :gather_from, bad ? huge : 0, x, zeros(Float32, 2, 4)),
                 bad -> NXD.shard_gather_full!(ctx, x, zeros(Float32, 2, 4); dim = 2, unknown(bad)...),
                 bad -> NXD.column_linears_forward!(ctx, x, bad ? nothing : w, nothing, [y]),
                 bad -> NXD.gather_from_sequence_region(ctx, t, bad ? huge : 0),
                 bad -> NXD.save(ctx, file, tensors(false); unknown(bad)...),
                 bad -> NXD.save(ctx, file, tensors(bad)),
                 bad -> NXD.serialization_save(ctx, file, tensors(bad)),
                 bad -> NXD.save(ctx, file, Dict((bad ? "a\0" : "a") => t)),
                 bad -> NXD.save(ctx, file, tensors(false); texts = Dict("a" => bad ? "\0" : "b")),
                 bad -> NXD.Checkpoint(ctx, root, bad ? huge : 2),
                 bad -> NXD.open_checkpoint(ctx, root, bad ? huge : 2),
                 bad -> NXD.save(state, root, bad ? huge : 3),
                 bad -> NXD.save(state, root, 3; keep_last = bad ? 2^40 : 1),
                 bad -> NXD.publish(writing; keep_last = bad ? 2^40 : 1),
                 bad -> DataLoader(ctx, [data], bad ? huge : 1, 2)]
        errors = Any[thrown(() -> call(r == 1)) for call in calls]
        barrier(world(ctx))
        NXD.destroy_model_parallel!(ctx)
        init_model_parallel!(ctx)
        push!(errors, thrown(() -> NXD.loss_weights(ctx, (Tensor([1]),); ignore_index = r == 1 ? huge : 0)))
    end
    @test all(f -> f isa Vector, found)
    for (told, own) in zip(found...)
        @test own isa Exception && !(own isa NXDError)
        @test told isa NXDError && told.status === :invalid_argument && told.root_rank == 1
    end
end
