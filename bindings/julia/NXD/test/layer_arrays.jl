"The product of (in, out) weights with (in, rows)."
linear(w, x, b = 0) = w' * x .+ b

@testset "layers over arrays of one's own" begin
    x, dy = sin.(reshape(0.0:29.0, 6, 5)), cos.(reshape(0.0:19.0, 4, 5))
    w1, b1 = sin.(reshape(1.0:48.0, 6, 8)), cos.(1.0:8.0)
    w2 = cos.(reshape(1.0:32.0, 8, 4))
    hidden = linear(w1, x, b1)
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        mine = 4r + 1:4r + 4
        # The row layer's weight is a view: its columns are as far apart as the whole's.
        up, down = w1[:, mine], view(w2, mine, :)
        h, y = zeros(4, 5), zeros(4, 5)
        NXD.column_linear_forward!(ctx, x, up, b1[mine], h)
        NXD.row_linear_forward!(ctx, h, down, nothing, y)
        dh, dw2, dx, dw1, db1 = zeros(4, 5), ones(4, 4), zeros(6, 5), zeros(6, 4), zeros(4)
        NXD.row_linear_backward!(ctx, h, down, dy, dh, dw2, nothing; accumulate_grads = true)
        NXD.column_linear_backward!(ctx, x, up, dh, dx, dw1, db1)
        (h, y, dw2, dx, dw1, db1)
    end
    for (r, (h, y, dw2, dx, dw1, db1)) in zip(0:1, found)
        mine = 4r + 1:4r + 4
        dh = w2 * dy
        @test h ≈ hidden[mine, :] && y ≈ linear(w2, hidden)
        @test dw2 ≈ hidden[mine, :] * dy' .+ 1 && dx ≈ w1 * dh
        @test dw1 ≈ x * dh[mine, :]' && db1 ≈ vec(sum(dh[mine, :]; dims = 2))
    end
end

@testset "several weights of one array" begin
    x, weights = sin.(reshape(1.0:24.0, 6, 4)), (cos.(reshape(1.0:48.0, 6, 8)), sin.(reshape(1.0:24.0, 6, 4)))
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        own = (weights[1][:, 4r + 1:4r + 4], weights[2][:, 2r + 1:2r + 2])
        ys, dx, dw = (zeros(4, 4), zeros(2, 4)), zero(x), zeros(6, 2)
        NXD.column_linears_forward!(ctx, x, own, nothing, ys)
        NXD.column_linears_backward!(ctx, x, own, ys, dx, (nothing, dw), nothing)
        why = sprint(showerror, thrown(() -> NXD.column_linears_forward!(ctx, x, own, nothing, ys[1:1])))
        (ys, dx, dw, why)
    end
    for (r, (ys, dx, dw, why)) in zip(0:1, found)
        a, b = linear(weights[1], x), linear(weights[2], x)
        @test ys[1] ≈ a[4r + 1:4r + 4, :] && ys[2] ≈ b[2r + 1:2r + 2, :]
        @test dx ≈ weights[1] * a + weights[2] * b && dw ≈ x * ys[2]'
        @test occursin("ys: expected one for each of 2 weights, got 1", why)
    end
end

@testset "norms, dropout, losses and weights over arrays" begin
    x, head = sin.(reshape(1.0:24.0, 6, 4)), cos.(reshape(1.0:48.0, 6, 8))
    logits, labels = head' * x, Int64[1, 7, -100, 4]
    losses = [log(sum(exp, logits[:, i])) - logits[labels[i] + 1, i] for i in (1, 2, 4)]
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        y, inv, dw = zero(x), zeros(4), zeros(6)
        NXD.rms_norm_forward!(ctx, x, nothing, y, inv; eps = 0.5)
        NXD.rms_norm_backward!(ctx, x, nothing, inv, x, nothing, dw; eps = 0.5, sequence_parallel = true)
        whole, part = zero(x), zeros(6, 2)
        NXD.dropout_forward!(ctx, "drop", x, whole; p = 0.5)
        NXD.dropout_forward!(ctx, "drop", x[:, 2r + 1:2r + 2], part; p = 0.5, has_shard_dim = true)
        loss = fill(0.0)
        NXD.linear_cross_entropy_forward!(ctx, x, head[:, 4r + 1:4r + 4], nothing, labels, nothing, loss)
        full, shard, again = zeros(6, 8), zeros(6, 4), zeros(6, 8)
        NXD.shard_initialize!(ctx, "head.weight", :normal, 0, 0.5, full)
        NXD.shard_initialize!(ctx, "head.weight", :normal, 0, 0.5, shard; dim = 2)
        NXD.shard_gather_full!(ctx, shard, again; dim = 2)
        (y, inv, dw, whole, part, loss[], full, shard, again)
    end
    for (r, (y, inv, dw, whole, part, loss, full, shard, again)) in zip(0:1, found)
        expected = 1 ./ sqrt.(vec(sum(abs2, x; dims = 1)) ./ 6 .+ 0.5)
        @test inv ≈ expected && y ≈ x .* expected'
        @test dw ≈ 2 .* vec(sum(x .* x .* expected'; dims = 2)) # of both ranks
        @test part == whole[:, 2r + 1:2r + 2] && any(iszero, whole) && all(v in (0, 2) for v in whole ./ x)
        @test loss ≈ sum(losses) / 3
        @test shard == full[:, 4r + 1:4r + 4] && again == full && 0.2 < sqrt(sum(abs2, full) / 48) < 0.8
    end
end

@testset "an array that is bad on one rank is an error on both" begin
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        x, w, y = zeros(3, 2), zeros(3, 4), zeros(4, 2)
        map(("text", zeros(4, 3), y)) do bad
            try
                NXD.column_linear_forward!(ctx, x, w, nothing, r == 0 ? y : bad)
                :good
            catch e
                e isa NXDError ? e.status : typeof(e)
            end
        end
    end
    @test found[1] == (:invalid_argument, :invalid_argument, :good)
    @test found[2] == (MethodError, :invalid_argument, :good)
end

@testset "an array that is none, without a layout" begin
    found = two_ranks() do r, ctx
        x = r == 1 ? ["a"] : ones(Float32, 4, 2)
        failure = thrown(() -> NXD.column_linear_forward!(ctx, x, ones(Float32, 4, 3), nothing, zeros(Float32, 3, 2)))
        barrier(world(ctx)) # which the layer's call is not
        failure isa NXDError ? failure.status : typeof(failure)
    end
    @test found[1] === :invalid_state && found[2] <: Union{ArgumentError,MethodError}
end

@testset "a dimension that an array has not" begin
    alone() do ctx
        full, shard = reshape(Float32.(1:6), 2, 3), zeros(Float32, 2, 3)
        calls = (dim -> NXD.shard_initialize!(ctx, "w", :normal, 0, 1, shard; dim = dim),
                 dim -> NXD.shard_set_full!(ctx, full, shard; dim = dim),
                 dim -> NXD.shard_gather_full!(ctx, shard, zeros(Float32, 2, 3); dim = dim))
        for call in calls, dim in (-2, -1, 0, 3, 4, big(2)^70, 1.5)
            @test thrown(() -> call(dim)) isa ArgumentError
        end
        @test all(call -> call(1) === call(2) === nothing, calls)
    end
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        ddp = Ddp(ctx, [zeros(Float32, 2, 3)], [zeros(Float32, 2, 3)])
        errors = Any[]
        for dim in (0, -1, 3, 4)
            push!(errors, thrown(() -> NXD.set_placements!(ddp, [r == 1 ? dim : 2])))
            push!(errors, thrown(() -> NXD.set_shards!(ddp, [(dim = r == 1 ? dim : 2,)])))
            push!(errors, thrown() do
                NXD.shard_gather_full!(ctx, zeros(2, 3), zeros(2, 6); dim = r == 1 ? dim : 2)
            end)
        end
        NXD.set_placements!(ddp, [1])
        NXD.set_shards!(ddp, [(dim = 2,)])
        errors
    end
    @test all(e -> e isa NXDError && e.root_rank == 1, found[1])
    @test all(e -> e isa ArgumentError && occursin("that has 2, counted from 1", e.msg), found[2])
end
