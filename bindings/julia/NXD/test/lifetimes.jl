"One maker for every kind of object that a handle stands for."
function makers(ctx)
    g, x = world(ctx), ones(Float32, 4)
    p, grad = [zeros(Float32, 8)], [zeros(Float32, 8)]
    ddp = Ddp(ctx, p, grad)
    model = ModuleNode((self, x) -> op("relu", x), ctx, "Relu")
    input = requires_grad!(Tensor(Float32[1, 2]))
    ["Store" => () -> Store(), "Context" => () -> Context(; store = Store(), rank = 0, size = 1),
     "Group" => () -> Group(ctx, [0]), "Work" => () -> all_reduce_async!(g, x),
     "Ddp" => () -> Ddp(ctx, p, grad), "Optimizer" => () -> adamw(ddp),
     "custom Optimizer" => () -> custom_optimizer(u -> nothing, ddp),
     "Schedule" => () -> Schedule(:gpipe; ranks = 2, microbatches = 4),
     "Pipeline" => () -> Pipeline(ctx; forward = (a...) -> 1.0, backward = (a...) -> nothing,
                                  inputs = [[]], outputs = [[]], num_microbatches = 2),
     "Tensor" => () -> Tensor(x), "shared Tensor" => () -> Tensor(ones(Float32, 100); copy = false),
     "mapped array" => () -> mapped(Tensor(x)), "Operator" => () -> Operator("relu"),
     "CustomFunction" => () -> CustomFunction("test::f", (call, x) -> copy(x)),
     "ModuleNode" => () -> ModuleNode((self, x) -> x, ctx, "M"),
     "layer" => () -> NXD.layer_norm(ctx, 4), "Tape" => () -> NXD.forward_tape(model, input),
     "Parameter" => () -> add_parameter!(ModuleNode(ctx, "P"), "w", (2, 2))]
end

function make_and_drop(make, n)
    for i in 1:n
        make()
        i % 1000 == 0 && GC.gc(false)
    end
    GC.gc()
end

"""
By how many MB memory grew in each round of `n` objects, until one in which it grew by less than 4.
The moments of collections decide how much is held at once, and so when memory grows by chance; a
leak grows in every round.
"""
function growths(make, n)
    make_and_drop(make, 2000)
    rounds = Float64[]
    while length(rounds) < 4 && (isempty(rounds) || rounds[end] >= 4)
        before = resident_mb()
        make_and_drop(make, n)
        push!(rounds, resident_mb() - before)
    end
    rounds
end

# Two objects would end one handle, one of them while the other is used.
@testset "no object is copied with its handle" begin
    alone() do ctx
        for (name, make) in makers(ctx)
            object = make()
            object isa NXD.Object || continue
            e = thrown(() -> deepcopy(Dict(name => object)))
            @test e isa ArgumentError && occursin("cannot be copied", e.msg)
            @test isopen(object)
            close(object)
        end
    end
end

@testset "memory stays flat" begin
    n = long ? 100_000 : 4_000
    without_forcing() do
        alone() do ctx
            for (name, make) in makers(ctx)
                grown = growths(make, n)
                grown[end] < 4 || println("$name: $n made and dropped, memory grew by $grown MB")
                @test grown[end] < 4
            end
            kept = Any[]
            @test growths(() -> push!(kept, Tensor(ones(Float32, 1000))), 4_000)[end] >= 4
            callbacks = length(NXD.registered)
            @test callbacks < 10_000
            NXD.sweep_callbacks()
            @test length(NXD.registered) < 100
        end
    end
end

@testset "explicit closing, in any order" begin
    alone() do ctx
        for round in 1:20
            objects = [make() for (name, make) in makers(ctx)]
            closable = filter(x -> x isa NXD.Object, objects)
            for i in sortperm(rand(length(closable)))
                close(closable[i])
            end
            @test !any(isopen, closable)
        end
    end
    # Objects made from a context outlive it.
    ctx = Context(; store = Store(), rank = 0, size = 1)
    init_model_parallel!(ctx)
    layer = NXD.layer_norm(ctx, 4)
    optimizer = sgd(layer)
    close(ctx)
    @test size(layer(Tensor(ones(Float32, 4)))) == (4,)
    close(layer)
    close(optimizer)
end

# Everything that two ranks have goes at once, in the order the collector likes, on one thread.
@testset "collection on another thread" begin
    dropped = Threads.Atomic{Int}(0)
    function leave_everything()
        ctx = Context(; store = Store(), rank = 0, size = 1)
        init_model_parallel!(ctx)
        objects = [make() for (name, make) in makers(ctx)]
        for x in objects
            x isa NXD.Object && finalizer(_ -> Threads.atomic_add!(dropped, Threads.threadid()), x)
        end
        length(filter(x -> x isa NXD.Object, objects))
    end
    made = sum(1:5) do round
        n = without_forcing(leave_everything)
        fetch(on_thread(() -> (GC.gc(); GC.gc()), 2))
        n
    end
    # Finalizers ran on thread 2; a frame may still hold the objects of the last round or so.
    @test dropped[] >= 2 * (made ÷ 2)
end

@testset "collection after a lost peer" begin
    found = two_ranks(finalize = false) do r, ctx
        function work()
            init_model_parallel!(ctx)
            p, g = [ones(1000)], [ones(1000)]
            ddp = Ddp(ctx, p, g; zero_stage = 1, bucket_bytes = 8)
            optimizer = adamw(ddp)
            r == 1 && return nothing
            NXD.mark_ready!(ddp, 0)
            works = [all_reduce_async!(world(ctx), ones(1000)) for _ in 1:10]
            e = thrown(() -> step!(optimizer))
            (e.status, NXD.parameter_state(optimizer)[1])
        end
        result = work()
        GC.gc()
        GC.gc()
        result
    end
    @test found[1][1] === :peer_lost && found[1][2] in (:old, :partial, :none)
end

@testset "jobs" begin
    for i in 1:(long ? 1000 : 20)
        Job(job -> wait(job), `true`, 2)
    end
    job = Job(`sleep $limit_s`, 2)
    @test length(job) == 2 && NXD.pid(job, 0) > 0 && NXD.exit_code(job, 1) === nothing
    @test thrown(() -> wait(job; timeout_ms = 20)).status === :timeout
    kill(job)
    @test thrown(() -> wait(job)).status === :peer_lost
    @test NXD.exit_code(job, 0) == 128 + Base.SIGTERM
    close(job)
    @test thrown(() -> Job(`/no/such/program`, 1)).status === :io
    for command in (setenv(`true`, "A" => "b"), Cmd(`true`; dir = "/tmp"))
        @test thrown(() -> Job(command, 1)) isa ArgumentError
    end
end

@testset "launchers" begin
    started_by_any, sizes = ("RANK", "WORLD_SIZE", "NXD_SPAWNED"), ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    none = [name => nothing for name in (started_by_any..., sizes..., "SLURM_STEP_ID")]
    started(set...) = withenv(NXD.is_rank, none..., set...)
    @test !started()
    for name in started_by_any
        @test started(name => "1") && !started(name => "")
    end
    for name in sizes
        @test started(name => "2") && !started(name => "1") && !started(name => "")
    end
    of_slurm(step, tasks) = started("SLURM_STEP_ID" => step, "SLURM_STEP_NUM_TASKS" => tasks)
    @test of_slurm("0", "2") && !of_slurm("0", "1")
    @test !of_slurm("4294967291", "2") # a batch script's
end

# A function, which keeps nothing once it has returned.
start_in_own_group(ctx, x) = (all_reduce_async!(Group(ctx, [0, 1]), x); nothing)

@testset "a work goes on when it is dropped with its group" begin
    started = Threads.Atomic{Bool}(false)
    found = two_ranks() do r, ctx
        x = [1.0]
        if r == 0
            start_in_own_group(ctx, x)
            foreach(_ -> GC.gc(), 1:3)
            started[] = true
            until(() -> x[1] == 2)
        else
            own = Group(ctx, [0, 1])
            until(() -> started[])
            all_reduce!(own, x)
        end
        barrier(world(ctx))
        x
    end
    @test found == [[2.0], [2.0]]
end

"Objects, each with a call of its own that closes it."
function closes_itself(ctx)
    optimizer = pipeline = tape = nothing
    params, grads, x = [ones(Float32, 4)], [ones(Float32, 4)], Tensor(ones(Float32, 2))
    optimizer = custom_optimizer(u -> close(optimizer), Ddp(ctx, params, grads))
    pipeline = Pipeline(ctx; forward = (a...) -> (close(pipeline); 1.0), backward = (a...) -> nothing,
                        inputs = [[]], outputs = [[]], num_microbatches = 2)
    layer = NXD.linear(ctx, 2, 2)
    NXD.on_gradient!(p -> close(tape), last(first(parameters(layer))))
    _, tape = NXD.forward_tape(layer, x)
    go_back() = GC.@preserve layer NXD.pullback!(tape, x)
    [(optimizer, () -> step!(optimizer)), (pipeline, () -> run!(pipeline)), (tape, go_back)]
end

@testset "an object is not closed within a call of its own" begin
    alone() do ctx
        for (object, call) in closes_itself(ctx)
            failure = thrown(call)
            @test failure isa NXDError && failure.status === :invalid_state
            @test occursin("close it when that has ended", failure.message) && isopen(object)
            close(object)
            @test !isopen(object)
        end
    end
end
