# Julia values as arguments of C, and settings of the thread they are given on.

@testset "off is not the default" begin
    nan = () -> (Ddp, [zeros(Float32, 3)], [fill(NaN32, 3)])
    alone() do ctx
        for (off, fails) in (false => false, :off => false, true => true, :default => true, nothing => true)
            make, params, grads = nan()
            failure = thrown(() -> NXD.finish!(make(ctx, params, grads); check_finite = off))
            @test (failure isa NXDError && failure.status === :invalid_state) == fails
        end
        file = joinpath(mktempdir(), "tokens.u16")
        write(file, htol.(UInt16.(0:63)))
        for off in (false, :off)
            loader = DataLoader(ctx, [file], 4, 4; shuffle = off)
            @test vec(NXD.next!(loader, zeros(Int64, 4, 4))) == 0:15
            close(loader)
        end
        loader = DataLoader(ctx, [file], 4, 4; shuffle = true)
        @test vec(NXD.next!(loader, zeros(Int64, 4, 4))) != 0:15
        close(loader)
    end
    @test NXD.Options(NXD.nxd_ddp_options_t; overlap = false).ref[].overlap === NXD.NXD_TOGGLE_OFF
end

@testset "options of a step that are none fail on all ranks" begin
    failures = two_ranks() do r, ctx
        optimizer = sgd(Ddp(ctx, [ones(Float32, 3)], [ones(Float32, 3)]))
        calls = (bad -> step!(optimizer; max_norm = bad ? "one" : 1.0),
                 bad -> NXD.step_without_report!(optimizer; (bad ? (nothing_known = 1,) : ())...),
                 bad -> NXD.finish!(Ddp(ctx, [ones(3)], [ones(3)]); (bad ? (norm_type = [],) : ())...))
        found = [thrown(() -> call(r == 1)) for call in calls]
        @assert step!(optimizer).updates == 1
        [e isa NXDError ? (e.status, e.root_rank) : typeof(e) for e in found]
    end
    @test failures[1] == fill((:invalid_argument, 1), 3)
    @test all(kind -> kind <: Union{ArgumentError,MethodError}, failures[2])
end

@testset "options of a ddp that are none fail on all ranks" begin
    failures = two_ranks() do r, ctx
        init_model_parallel!(ctx)
        model = NXD.linear(ctx, 3, 2)
        failure = thrown(() -> Ddp(model; zero_stage = r == 1 ? "one" : 1))
        close(Ddp(model))
        failure isa NXDError ? (failure.status, failure.root_rank) : typeof(failure)
    end
    @test failures[1] == (:invalid_argument, 1) && failures[2] <: Union{ArgumentError,MethodError}
end

@testset "options of a loss that are none fail on all ranks" begin
    failures = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        x, weight, labels = Tensor(ones(Float32, 8, 1)), Tensor(ones(Float32, 8, 4)), Tensor([1])
        map((options -> NXD.parallel_cross_entropy(ctx, x, labels; options...),
             options -> NXD.linear_cross_entropy(ctx, x, weight, labels; options...))) do loss
            failure = thrown(() -> loss(r == 1 ? (smooth = 1,) : NamedTuple()))
            loss(NamedTuple())
            failure isa NXDError ? (failure.status, failure.root_rank) : typeof(failure)
        end
    end
    @test all(==((:invalid_argument, 1)), failures[1])
    @test all(kind -> kind <: Union{ArgumentError,MethodError}, failures[2])
end

@testset "a rank without a store" begin
    for fields in ((rank = 1, size = 2), (size = 2,), (rank = 0,))
        failure = thrown(() -> Context(; fields...))
        @test failure isa NXDError && failure.status === :invalid_argument
    end
    @test thrown(() -> Context(; rank = 0, size = 1, rendezvous = :environment)) isa ArgumentError
    Context(; rank = nothing, size = nothing) do ctx
        @test (rank_in(ctx), size(ctx)) == (0, 1)
    end
end

@testset "a flag names nothing" begin
    alone() do ctx
        sum_of = thrown(() -> all_reduce!(world(ctx), ones(3); op = true))
        @test sum_of isa ArgumentError &&
              sum_of.msg == "expected one of :sum, :avg, :max, :min, :prod, got true"
        ddp = Ddp(ctx, [zeros(Float32, 3)], [ones(Float32, 3)])
        @test thrown(() -> adamw(ddp; formula = true)) isa ArgumentError
        placed = thrown(() -> NXD.set_placements!(ddp, [true]))
        @test placed isa NXDError && placed.status === :invalid_argument
        NXD.set_placements!(ddp, [1])
    end
end

@testset "numbers beyond those of C" begin
    failures = two_ranks() do r, ctx
        g = world(ctx)
        failure = thrown(() -> broadcast_from!(g, ones(3), r == 1 ? 2^40 : 0))
        barrier(g)
        failure isa NXDError ? failure.status : typeof(failure)
    end
    @test failures == [:invalid_argument, InexactError]
    alone() do ctx
        @test thrown(() -> send_to(world(ctx), ones(3), 0; tag = 2^40)) isa InexactError
        for (options, reason) in (((local_rank = 2^40,), "local_rank: expected a number that Int32 holds, got $(2^40)"),
                                  ((seed = -1,), "seed: expected a number that UInt64 holds, got -1"),
                                  ((seed = 1.5,), "seed: expected a number that UInt64 holds, got 1.5"))
            @test thrown(() -> NXD.Context(; options...)).msg == reason
        end
        @test_throws OverflowError NXD.arena(ctx, Float64, 2^61, 8)
        @test_throws ArgumentError NXD.arena(ctx, Any, 3)
    end
end

@testset "what a store of one's own gives" begin
    for (given, bytes) in ("é-ü" => Vector{UInt8}("é-ü"), view(UInt8[1, 2, 3, 4, 5], 1:2:5) => [1, 3, 5],
                           [7, 8] => [7, 8], UInt8[] => UInt8[])
        store = Store((key, value) -> nothing, key -> given, (key, amount) -> 0)
        @test get(store, "key", 0) == bytes
    end
end

@testset "a wait for a key lets other tasks run" begin
    store = Store()
    @async store["late"] = "x"
    @test get(store, "late", 1000 * limit_s) == UInt8['x']
    @test thrown(() -> get(store, "never", 60)).status === :timeout
end

@testset "a task stays on its thread" begin
    for settings in (f -> NXD.no_grad(f), f -> NXD.autocast(f), f -> NXD.deferred_init(f))
        before, inside, after = fetch(Threads.@spawn begin
            task = current_task()
            (task.sticky, settings(() -> task.sticky), task.sticky)
        end)
        @test (before, inside, after) == (false, true, false)
    end
    stays = Bool[]
    store = Store((key, value) -> push!(stays, current_task().sticky), key -> nothing, (key, amount) -> 0)
    wait(Threads.@spawn begin
        store["key"] = "value"
        push!(stays, current_task().sticky)
    end)
    @test stays == [true, false]
end

# Functions, which keep nothing once they have returned.
make_arena() = NXD.arena(Context(; store = Store(), rank = 0, size = 1), Float32, 1000)
function use_arena()
    shared = make_arena()
    foreach(_ -> GC.gc(), 1:3)
    shared .= 1
    matrix = reshape(shared, 10, 100)
    shared = nothing
    foreach(_ -> GC.gc(), 1:3)
    sum(matrix)
end

@testset "an arena keeps its context" begin
    @test use_arena() == 1000
    foreach(_ -> GC.gc(), 1:3)
    @test all(entry -> entry.object === nothing, NXD.needed)
end

@testset "a finalizer closes an object" begin
    # As if it ran while this thread holds the lock.
    NXD.any_released[] = true
    tensor = Tensor(ones(3))
    NXD.locked(() -> close(tensor))
    @test !isopen(tensor)
    NXD.sweep_callbacks()
    @test !NXD.any_released[]
end

@testset "a parameter that another stage counts" begin
    alone() do ctx
        params, grads = [zeros(Float32, 4), zeros(Float32, 9)], [ones(Float32, 4), ones(Float32, 9)]
        ddp = Ddp(ctx, params, grads)
        @test thrown(() -> NXD.set_placements!(ddp, [:replicated, :replicated]; tied = [2])) isa ArgumentError
        for lists in ((tied = [true],), (partial_grads = Bool[],))
            @test thrown(() -> NXD.set_shards!(ddp, [nothing, nothing]; lists...)) isa DimensionMismatch
        end
        @test thrown(() -> NXD.set_shards!(ddp, [nothing, nothing, nothing])) isa DimensionMismatch
        NXD.set_placements!(ddp, [:replicated, :replicated]; tied = [1])
        @test NXD.finish!(ddp) == 2
    end
end

@testset "a pipeline keeps its ddp" begin
    alone() do ctx
        model = NXD.sequential(ctx, NXD.layer_norm(ctx, 4), NXD.layer_norm(ctx, 4))
        x = Tensor(ones(Float32, 4, 2))
        pipeline = Pipeline(model, x; num_microbatches = 1)
        seen = WeakRef(nothing)
        give() = (ddp = Ddp(NXD.local_module(pipeline)); NXD.ddp!(pipeline, ddp); seen.value = ddp; nothing)
        give()
        foreach(_ -> GC.gc(), 1:3)
        @test seen.value !== nothing
        NXD.ddp!(pipeline, nothing)
        @test pipeline.kept[2] === nothing
        @test thrown(() -> NXD.set_placements!(Ddp(NXD.local_module(pipeline)), [:replicated])) isa NXDError
    end
end

@testset "shards that are told to the peers" begin
    failures = two_ranks() do r, ctx
        init_model_parallel!(ctx)
        ddp = Ddp(ctx, [zeros(Float32, 4)], [zeros(Float32, 4)])
        bad = r == 1
        calls = [() -> NXD.set_shards!(ddp, [nothing]; tied = bad ? Bool[] : [false]),
                 () -> NXD.set_shards!(ddp, [nothing]; partial_grads = bad ? [0.5] : [false]),
                 () -> NXD.set_placements!(ddp, [bad ? 2^40 : :replicated]),
                 () -> NXD.set_placements!(ddp, [:replicated]; tied = bad ? ["w"] : ())]
        errors = [thrown(call) for call in calls]
        NXD.set_shards!(ddp, [nothing])
        [e isa NXDError ? e.root_rank : typeof(e) for e in errors]
    end
    @test failures == [fill(1, 4), [DimensionMismatch, InexactError, ArgumentError, MethodError]]
end

@testset "an option that is given counts" begin
    counted(T; fields...) = NXD.Options(T; fields...).ref[]
    alone() do ctx
        logits, labels = Float32[2 0 0; 0 1 0; 0 0 3], [0, 1, 2]
        losses = -log.([exp(logits[i, i]) / sum(exp, logits[:, i]) for i in 1:3])
        of_arrays(; options...) = (loss = fill(0f0);
            NXD.parallel_cross_entropy_forward!(ctx, logits, labels, nothing, loss; options...); loss[])
        of_tensors(; options...) = NXD.parallel_cross_entropy(ctx, Tensor(logits), Tensor(labels); options...)[]
        for loss in (of_arrays, of_tensors)
            @test loss(ignore_index = 0) ≈ sum(losses[2:3]) / 2
            @test loss() ≈ loss(ignore_index = nothing) ≈ loss(ignore_index = 0, has_ignore_index = false) ≈
                  sum(losses) / 3
        end
        table = NXD.parallel_embedding(ctx, 4, 2; padding_idx = 0)
        @test all(iszero, Array(table(Tensor([0]))))
        weight = add_parameter!(ModuleNode(ctx, "M"), "w", (2, 3); shard_dim = 1)
        @test NXD.shard(weight) == (1, [1:2])
        x, dropped = ones(100), [zeros(100) for _ in 1:3]
        NXD.dropout_forward!(ctx, "drop", x, dropped[1]; p = 0.5)
        NXD.dropout_forward!(ctx, "drop", x, dropped[2]; p = 0.5, microbatch = 1)
        NXD.dropout_forward!(ctx, "drop", x, dropped[3]; p = 0.5, step = 1)
        @test allunique(dropped)
    end
    options = counted(NXD.nxd_pp_options_t; labels_input = 2, ignore_index = 0)
    @test (options.has_labels_input, options.has_ignore_index) == (1, 1)
    @test counted(NXD.nxd_data_loader_options_t; seed = 0).has_seed == 1
    @test counted(NXD.nxd_data_loader_options_t; seed = nothing).has_seed == 0
end
