@testset "identity" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        (rank_in(ctx), size(ctx), rank_in(g), size(g), NXD.ranks(g), NXD.transport(g),
         NXD.is_model_parallel(ctx))
    end
    @test found == [(r, 2, r, 2, [0, 1], :shared_memory, false) for r in 0:1]
end

@testset "over every element type" begin
    for T in (Float32, Float64, Float16, Int32, Int64)
        found = two_ranks() do r, ctx
            x, y = T[1, 2, 3] .* T(r + 1), similar(T[1, 2, 3])
            all_reduce!(world(ctx), y, x)
            all_reduce!(world(ctx), x; op = :max)
            (x, y)
        end
        @test found == [(T[2, 4, 6], T[3, 6, 9]) for r in 0:1]
    end
    @test two_ranks((r, ctx) -> (x = BFloat16[r + 1]; all_reduce!(world(ctx), x); Float32(x[1]))) == [3, 3]
end

@testset "each collective" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        own = [10.0r + 1 10r + 3; 10r + 2 10r + 4]
        gathered = all_gather(g, own)
        half = zeros(2)
        reduce_scatter!(g, half, own)
        from = fill(Int32(r), 3)
        broadcast_from!(g, from, 1)
        swapped = zeros(2, 2)
        all_to_all!(g, swapped, own)
        x = zeros(3)
        r == 0 ? send_to(g, [1.0, 2.0, 3.0], 1; tag = 4) : receive_from!(g, x, 0; tag = 4)
        barrier(g)
        (gathered, half, from, swapped, x)
    end
    a, b = [1.0 3; 2 4], [11.0 13; 12 14]
    for r in 0:1
        gathered, half, from, swapped, x = found[r + 1]
        @test size(gathered) == (2, 2, 2) && gathered[:, :, 1] == a && gathered[:, :, 2] == b
        @test half == (a + b)[:, r + 1] # parts are columns: what follows in memory
        @test from == fill(1, 3)
        @test swapped == hcat(a[:, r + 1], b[:, r + 1])
        @test r == 0 || x == [1, 2, 3]
    end
end

@testset "contiguous views, arenas, groups of some ranks" begin
    found = two_ranks() do r, ctx
        a = ones(4, 3)
        all_reduce!(world(ctx), view(a, :, 2:3))
        all_reduce!(world(ctx), view(a, 1:0, :)) # without elements there is no order
        shared = NXD.arena(ctx, Float32, 8)
        fill!(shared, r + 1)
        all_reduce!(world(ctx), shared)
        sums = sum(shared)
        NXD.free_arena!(ctx, shared)
        turned = Group(ctx, [1, 0]; name = "turned")
        x = [1.0]
        all_reduce!(turned, x)
        place = rank_in(turned)
        close(turned)
        (a, sums, place, x)
    end
    @test found == [([1 2 2; 1 2 2; 1 2 2; 1 2 2], 24, 1 - r, [2.0]) for r in 0:1]
end

@testset "works" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        x, y, z = ones(1000), zeros(2000), [r]
        works = [all_reduce_async!(g, x), all_gather_async!(g, y, fill(Float64(r), 1000)),
                 broadcast_from_async!(g, z, 1), barrier_async(g)]
        @assert all(work -> reinterpret(Int32, NXD.descriptor(work)) >= 0, works)
        foreach(wait, works)
        NXD.set_next_key!(g, r)
        differ = thrown(() -> barrier(g))
        @assert differ isa NXDError && differ.status === :invalid_argument
        @assert all(NXD.isdone, works) && all(w -> NXD.error_of(w) === nothing, works)
        message = [0.0]
        work = r == 0 ? send_to_async(g, [7.0], 1) : receive_from_async!(g, message, 0)
        wait(work)
        (x[1], y[1], y[2000], z, r == 0 || message == [7.0])
    end
    @test found == [(2, 0, 1, [1], true) for r in 0:1]

    waited = Threads.Atomic{Bool}(false)
    found = two_ranks() do r, ctx
        x = [1.0]
        r == 1 && until(() -> waited[])
        work = all_reduce_async!(world(ctx), x)
        early = r == 0 ? thrown(() -> wait(work; timeout_ms = 20)) : nothing
        waited[] = true
        wait(work)
        (early isa NXDError ? early.status : early, x)
    end
    @test found == [(:timeout, [2.0]), (nothing, [2.0])]
end

# Nobody has the works and their arrays any more: both live until the works are done.
@testset "works that are dropped" begin
    found = two_ranks() do r, ctx
        g = world(ctx)
        for i in 1:200
            all_reduce_async!(g, rand(100_000))
            i % 50 == 0 && GC.gc()
        end
        x = [1.0]
        all_reduce!(g, x)
        x
    end
    @test found == [[2.0], [2.0]]
end

@testset "a waiting task lets others run" begin
    n, done = Threads.Atomic{Int}(0), Threads.Atomic{Bool}(false)
    found = two_ranks() do r, ctx
        # The other task of rank 0's thread must count on for rank 1 to come to the barrier.
        r == 0 && @async while !done[]
            Threads.atomic_add!(n, 1)
            yield()
        end
        r == 1 && until(() -> n[] > 5)
        wait(barrier_async(world(ctx)))
        done[] = true
    end
    @test found == [true, true]
end

# The other rank is inside of a collective all the while, and asks for nothing that could let Julia
# in: did the collector not see it outside of Julia, the first collection would wait for it, and it
# for this rank, until the timeout.
@testset "a blocked thread does not hold up another's garbage collection" begin
    comes = Threads.Atomic{Bool}(false)
    found = two_ranks(interrupt = C_NULL) do r, ctx
        x, started, collected = [1.0], time(), 0.0
        if r == 0
            comes[] = true
        else
            until(() -> comes[])
            Libc.systemsleep(0.1) # most likely the first rank is inside
            for i in 1:10
                garbage = [rand(10) for _ in 1:1000]
                GC.gc()
            end
            collected = time()
        end
        all_reduce!(world(ctx), x)
        (x, started, collected, time())
    end
    @test found[1][1] == found[2][1] == [2.0]
    @test found[1][2] < found[2][3] < found[1][4] # the first rank was at it all along
end

@testset "a blocked thread does not hold up another's timers" begin
    found = two_ranks() do r, ctx
        r == 1 && sleep(0.2) # the event loop is thread 1's, which is inside of the barrier
        barrier(world(ctx))
        true
    end
    @test found == [true, true]
end

@testset "layouts" begin
    @test NXD.layout_groups(8, :tensor; tensor_parallel_size = 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    @test NXD.layout_place(8, :tensor, 5; tensor_parallel_size = 2) == (2, 1)
    @test thrown(() -> NXD.layout_groups(8, :tensor; tensor_parallel_size = 3)).status === :invalid_argument
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        g = group(ctx, :tensor)
        x = [r]
        all_reduce!(g, x)
        state = (x, NXD.parallel_size(ctx, :tensor), NXD.parallel_rank(ctx, :tensor),
                 NXD.source_rank(ctx, :tensor), NXD.group_list(ctx, :data), NXD.next_stage_rank(ctx))
        NXD.destroy_model_parallel!(ctx)
        @assert !isopen(g) # it went with the layout
        state
    end
    @test found == [([1], 2, r, 0, [[0], [1]], r) for r in 0:1]
end

@testset "stores" begin
    mktempdir() do directory
        for store in (Store(), Store(joinpath(directory, "file")), Store("127.0.0.1", 0; server = true),
                      (kept = Dict{String,Vector{UInt8}}();
                       Store((k, v) -> (kept[k] = v), k -> get(kept, k, nothing),
                             (k, n) -> (v = n + parse(Int, String(copy(get(kept, k, [0x30]))));
                                        kept[k] = Vector{UInt8}(string(v)); v))))
            store["key"] = "value"
            store["long"] = fill(0x07, 5000)
            @test String(get(store, "key", 0)) == "value" && get(store, "long", 0) == fill(0x07, 5000)
            @test (NXD.add!(store, "n", 2), NXD.add!(store, "n", 3)) == (2, 5)
            @test thrown(() -> get(store, "absent", 10)).status === :timeout
            close(store)
        end
        @test NXD.port(Store("127.0.0.1", 0; server = true)) > 0
    end
    # Ranks meet through a store of one's own; what its functions throw comes back as it is.
    kept, guard = Dict{String,Any}(), ReentrantLock()
    function store()
        Store((k, v) -> lock(() -> kept[k] = v, guard), k -> lock(() -> get(kept, k, nothing), guard),
              (k, n) -> lock(() -> kept[k] = get(kept, k, 0) + n, guard))
    end
    found = map(fetch, [on_thread(r + 1) do
        Context(; store = store(), rank = r, size = 2, timeout_ms = timeout_ms) do ctx
            x = [1.0]
            all_reduce!(world(ctx), x)
            x
        end
    end for r in 0:1])
    @test found == [[2.0], [2.0]]
    broken = Store((k, v) -> throw(KeyError(k)), k -> nothing, (k, n) -> 0)
    @test thrown(() -> (broken["a"] = "b")) == KeyError("a")
end

@testset "log callback" begin
    lines, guard = [], Threads.SpinLock()
    # A group that fails says that it cannot write its flight record.
    function written()
        empty!(lines)
        two_ranks(finalize = false) do r, ctx
            r == 0 && @test thrown(() -> barrier(world(ctx))).status === :peer_lost
        end
        copy(lines)
    end
    withenv("NXD_FLIGHT_RECORD" => "/no/such/directory/record.") do
        NXD.set_log_callback((level, message) -> lock(() -> push!(lines, (level, message)), guard))
        @test any(line -> line[1] === :warn && occursin("flight record", line[2]), written())
        NXD.set_log_level(:error)
        @test isempty(written())
        NXD.set_log_level(:debug)
        @test !isempty(written())
        NXD.set_log_level(:off)
        NXD.set_log_callback(nothing)
        @test isempty(written())
    end
    NXD.set_log_level(:warn)
end

@testset "what the library says of itself and the machine" begin
    @test occursin(r"^\d+\.\d+\.\d+$", NXD.version()) && occursin("gloo", lowercase(NXD.build_info()))
    @test occursin("NXD_TIMEOUT_MS", NXD.environment_table())
    @test NXD.memory_stats().bytes_in_use >= 0 && NXD.measure_gemm_peak(Float32, 64) > 0
    phases = NXD.profile(() -> two_ranks((r, ctx) -> all_reduce!(world(ctx), ones(100))))
    @test only(p.calls for p in phases if p.name == "communication" || occursin("ommunication", p.name)) > 0
    NXD.memory_trim()
    NXD.release_threads()
end

# A string never changes: others may hold it, or be looked up by it.
@testset "nothing is written into a string" begin
    text = "abcd"
    found = two_ranks() do r, ctx
        g = world(ctx)
        read, room = codeunits(text), zeros(UInt8, 4)
        outputs = (view(read, 1:2), reshape(read, 2, 2), reinterpret(Int8, read), read)
        errors = Any[thrown(() -> broadcast_from!(g, r == 0 ? fill!(similar(a, eltype(a)), 0x41) : a)) for a in outputs]
        push!(errors, thrown(() -> all_gather!(g, r == 0 ? room : read, room[1:2])))
        push!(errors, thrown(() -> all_gather!(g, zeros(UInt8, 8), read)))
        broadcast_from!(g, r == 0 ? read : room)
        r == 0 ? send_to(g, read, 1) : receive_from!(g, room, 0)
        (errors, String(room))
    end
    @test text == "abcd"
    @test all(e -> e isa NXDError && occursin("code units of a string", e.message), found[1][1][1:5])
    @test all(e -> e isa ArgumentError, found[2][1][1:5])
    @test found[1][1][6] === found[2][1][6] === nothing && found[2][2] == text
    @test thrown(() -> Tensor(codeunits(text); copy = false)) isa ArgumentError
    @test Array(Tensor(codeunits(text))) == codeunits(text)
    @test thrown(() -> copyto!(codeunits(text), Tensor(UInt8[1, 2, 3, 4]))) isa ArgumentError
    @test text == "abcd"
    alone() do ctx
        @test thrown(() -> Ddp(ctx, [reinterpret(Float32, codeunits(text))], [ones(Float32, 1)])) isa ArgumentError
    end
end
