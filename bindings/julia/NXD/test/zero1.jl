"Quadratic bowls, whose gradient on each rank is half of the whole one's."
function descend(ctx, make; steps = 12, ranks = size(ctx), T = Float32, zero_stage = 1)
    params = [fill(T(2), 3, 2), T[1, -1, 3, 4, 5]]
    grads = map(zero, params)
    ddp = Ddp(ctx, params, grads; names = ["bowl", "slope"], zero_stage = zero_stage, bucket_bytes = 16)
    optimizer = make(ddp)
    reports = map(1:steps) do _
        foreach((g, p) -> g .= 2 .* p ./ ranks, grads, params)
        step!(optimizer; max_norm = 100.0)
    end
    (params, reports, NXD.state_bytes(optimizer), NXD.parameter_state(optimizer), names(ddp))
end

"AdamW as torch.optim writes it."
function reference(p; steps = 12, rate = 0.1, decay = 0.01)
    p, m, v = Float64.(p), zeros(size(p)), zeros(size(p))
    for t in 1:steps
        g = 2 .* p
        p .-= rate .* decay .* p
        m .= 0.9 .* m .+ 0.1 .* g
        v .= 0.999 .* v .+ 0.001 .* g .^ 2
        p .-= rate .* (m ./ (1 - 0.9^t)) ./ (sqrt.(v ./ (1 - 0.999^t)) .+ 1e-8)
    end
    p
end

@testset "ZeRO-1 over arrays of one's own" begin
    for T in (Float32, Float64)
        found = two_ranks() do r, ctx
            descend(ctx, ddp -> adamw(ddp; learning_rate = 0.1, weight_decay = 0.01); T = T)
        end
        for (params, reports, bytes, state, names) in found
            @test params[1] ≈ reference(fill(2.0, 3, 2)) rtol = 1e-5
            @test params[2] ≈ reference([1, -1, 3, 4, 5]) rtol = 1e-5
            @test reports[1].norm ≈ 2 * sqrt(6 * 4 + 52) rtol = 1e-5
            @test reports[12].updates == 12 && !reports[1].skipped && reports[1].learning_rate ≈ 0.1
            @test state == (:new, 11) && names == ["bowl", "slope"]
        end
        @test found[1][1] == found[2][1]
        @test found[1][3] + found[2][3] == 2 * 11 * sizeof(T) # the state is divided
    end
end

@testset "optimizers" begin
    Context(; store = Store(), rank = 0, size = 1) do ctx
        params, = descend(ctx, ddp -> sgd(ddp; learning_rate = 0.25, momentum = 0.5); steps = 1, zero_stage = 0)
        @test params[1] == fill(1.0f0, 3, 2)

        p, g = [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]
        ddp = Ddp(ctx, [p], [g])
        seen = []
        rule = function (u)
            push!(seen, (u.parameter, u.first, u.step, u.learning_rate, eltype(u.param)))
            u.states[1] .+= 1
            u.param .-= u.learning_rate .* u.grad_scale .* u.grad .* u.states[1]
        end
        optimizer = custom_optimizer(rule, ddp; states = 1, learning_rate = 0.5)
        step!(optimizer)
        @test p == [0.5, 1.5, 2.5] && seen[1] == ("0", 1, 1, 0.5, Float64)
        NXD.learning_rate!(optimizer, 0.25)
        NXD.schedule!(optimizer, :linear; warmup_steps = 0, total_steps = 4)
        step!(optimizer) # states are 2 now
        @test NXD.learning_rate(optimizer) ≈ 0.25 * NXD.lr_schedule_factor(:linear, 2; total_steps = 4)
        @test p ≈ [0.5, 1.5, 2.5] .- 2 * 0.25 * NXD.lr_schedule_factor(:linear, 1; total_steps = 4)

        broken = custom_optimizer(u -> throw(DomainError(u.step)), Ddp(ctx, [ones(2)], [ones(2)]))
        @test thrown(() -> step!(broken)) isa DomainError

        adam = adamw(ddp; learning_rate = 0.1)
        groups = NXD.add_group!(adam, ["0"])
        NXD.set_hyperparameter!(adam, :beta1, 0.5; group = groups)
        @test NXD.hyperparameter(adam, :beta1; group = groups) == 0.5
        @test NXD.hyperparameter(adam, :beta1) == 0.9
        @test occursin("near", thrown(() -> NXD.add_group!(adam, ["1"])).message)

        g .= NaN
        report = step!(adam)
        @test report.skipped && all(isfinite, p)
        mktempdir() do directory
            path = joinpath(directory, "state.safetensors")
            g .= 1
            step!(adam)
            NXD.save(adam, path)
            NXD.load!(adam, path)
            write(path, "no safetensors")
            @test thrown(() -> NXD.load!(adam, path)).status in (:corrupt, :io)
        end
    end
end

@testset "finishing, marking, moving" begin
    found = two_ranks() do r, ctx
        p, g = [[1.0, 2.0], [3.0]], [[0.0, 0.0], [0.0]]
        ddp = Ddp(ctx, p, g; reduce = :avg)
        g[1] .= r
        g[2] .= r + 1
        NXD.mark_ready!(ddp, 1)
        NXD.mark_ready!(ddp, 0)
        norm = NXD.finish!(ddp)
        moved = [5.0, 6.0]
        NXD.rebind!(ddp, 0, nothing, moved)
        @assert thrown(() -> NXD.rebind!(ddp, 0, nothing, zeros(3))).status === :invalid_argument
        NXD.sync!(ddp, true)
        @assert NXD.buffer_bytes(ddp) >= 0 && length(ddp) == 2
        NXD.finish!(ddp)
        (g, norm, moved)
    end
    for (g, norm, moved) in found
        @test g == [[0.5, 0.5], [1.5]] && norm ≈ sqrt(0.5 + 1.5^2) && moved == [5.0, 6.0]
    end
    @test_throws DimensionMismatch alone(ctx -> Ddp(ctx, [ones(2)], Vector{Float64}[]))
    @test alone(ctx -> thrown(() -> Ddp(ctx, [view(ones(4, 4), 1:2, :)], [ones(2, 4)]))).status === :invalid_argument
end

# An array whose dimensions lie in another order trains as the same one in Julia's does, and their saved
# states are one.
@testset "dimensions in another order" begin
    turn(a) = PermutedDimsArray(permutedims(a, (3, 1, 2, 4)), (2, 3, 1, 4)) # the third one innermost
    whole = reshape(Float32.(0:23), 2, 2, 3, 2)
    mktempdir() do directory
        path = joinpath(directory, "state.safetensors")
        found = two_ranks() do r, ctx
            make(p, g) = sgd(Ddp(ctx, [p], [g]; names = ["w"], zero_stage = 1); learning_rate = 0.5, momentum = 0.5)
            p, g = turn(100 .- whole), turn(whole)
            optimizer = make(p, g)
            step!(optimizer)
            NXD.save(optimizer, path)
            after = Array(p)
            loaded = make(after, zero(after))
            NXD.load!(loaded, path)
            g .= 0
            step!(loaded)
            step!(optimizer)
            (p, after)
        end
        for (p, after) in found
            @test strides(p) == (3, 6, 1, 12) && p == after == 100 .- 2.5f0 .* whole
        end
    end
    refused = alone(ctx -> thrown(() -> Ddp(ctx, [turn(whole)], [Array(whole)])))
    @test refused.status === :invalid_argument && occursin("order of dimensions", refused.message)
end

@testset "arrays live as long as the optimizer" begin
    alone() do ctx
        function make()
            p = [ones(100_000)]
            adamw(Ddp(ctx, p, [ones(100_000)])), WeakRef(p[1])
        end
        optimizer, array = make()
        GC.gc()
        GC.gc()
        @test array.value !== nothing
        step!(optimizer)
        close(optimizer)
    end
end

@testset "samples of an epoch" begin
    parts = [NXD.sample_epoch(10, 2, r, 3; seed = 5) for r in 0:1]
    @test sort(vcat(parts...)) == 1:10
    @test NXD.sample_epoch(5, 2, 1, 0; shuffle = false) == [2, 4, 1]
end

@testset "planning" begin
    config = """{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
                 "intermediate_size": 704, "vocab_size": 256, "max_position_embeddings": 256}"""
    model = NXD.plan_model(config)
    @test model.hidden_size == 256 && model.num_layers == 4
    one = NXD.predict(model; sequence_length = 128)
    fast = NXD.predict(model; sequence_length = 128, machine = (gemm_rate_f32 = 1e15,))
    @test 0 < fast.gemm_seconds < one.gemm_seconds && one.total_bytes > 0
    best = NXD.search(model; count = 3, world_size = 4, sequence_length = 128, batch_size = 8)
    @test length(best) == 3 && issorted([b.prediction.step_seconds for b in best])
    @test all(b -> b.layout.tensor_parallel_size * b.layout.pipeline_parallel_size * b.layout.data_parallel_size == 4, best)
    @test thrown(() -> NXD.predict(model)).status === :invalid_argument
    @test thrown(() -> NXD.plan_model("{")).status === :invalid_argument
end
