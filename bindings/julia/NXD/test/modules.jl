@testset "trees" begin
    alone(seed = 7) do ctx
        root, child = ModuleNode(ctx, "Root"), ModuleNode(ctx, "Child")
        add_child!(root, "a", child)
        p = add_parameter!(child, "w", (3, 2); init = :normal, init_b = 1.0)
        add_parameter!(root, "b", (4,); dtype = Float64, init = :constant, init_a = 2.0)
        @test Dict(parameters(root))["b"] isa Parameter && sort(first.(parameters(root))) == ["a.w", "b"]
        @test size(p) == (3, 2) && size(Tensor(p)) == (3, 2) && Array(Tensor(root["b"])) == fill(2.0, 4)
        @test NXD.class_name(NXD.submodule(root, "a")) == "Child" && first.(NXD.children(root)) == ["a"]
        @test occursin("a.w", thrown(() -> root["a.v"]).message)
        @test thrown(() -> add_child!(child, "r", root)).status === :invalid_argument
        NXD.initialize!(root, 1)
        first_values = Array(Tensor(p))
        NXD.initialize!(root, 1)
        @test Array(Tensor(p)) == first_values
        NXD.set_full!(p, reshape(1:6, 3, 2) .* 1.0f0)
        @test Array(NXD.gather_full(p)) == reshape(1:6, 3, 2) && NXD.shard(p) === nothing
        copyto!(Tensor(p), zeros(Float32, 3, 2))
        @test all(iszero, Array(NXD.gather_full(p)))
        t = Tensor(p)
        close(root)
        @test isopen(t) # its module is the child
        close(child)
        @test !isopen(t) && occursin("belongs", thrown(() -> Array(t)).msg)
    end
end

@testset "forwards written in Julia" begin
    alone() do ctx
        scale = ModuleNode(ctx, "Scale") do self, x, shift
            y = op("mul", x, Tensor(self["w"]); overload = "Tensor")
            shift === nothing ? y : (y, op("add", y, shift; overload = "Tensor"))
        end
        add_parameter!(scale, "w", (3,); init = :constant, init_a = 2.0)
        x = Tensor(Float32[1 2 3; 4 5 6]')
        @test Array(scale(x, nothing)) == 2 .* Array(x)
        y, z = scale(x, x; num_outputs = 2)
        @test Array(z) == 3 .* Array(x)
        seen = []
        NXD.on_gradient!(p -> push!(seen, size(p)), scale["w"])
        backward(op("sum", z))
        @test Array(NXD.grad(Tensor(scale["w"]))) == [5, 7, 9] && seen == [(3,)]
        NXD.on_gradient!(nothing, scale["w"])
        outputs, tape = NXD.forward_tape(scale, x, nothing)
        @test Array(outputs) == 2 .* Array(x)
        grad_x, none = NXD.pullback!(tape, Tensor(ones(Float32, 3, 2)))
        @test Array(grad_x) == fill(2.0, 3, 2) && none === nothing
        @test Array(NXD.grad(Tensor(scale["w"]))) == [10, 14, 18] && seen == [(3,)]
        @test thrown(() -> NXD.pullback!(tape, Tensor(ones(Float32, 3, 2)))).status === :invalid_state
        zero_grad!(scale)
        @test NXD.grad(Tensor(scale["w"])) === nothing || all(iszero, Array(NXD.grad(Tensor(scale["w"]))))
        @test thrown(() -> ModuleNode((self, x) -> throw(Mine(3)), ctx, "Broken")(x)) == Mine(3)
        @test thrown(() -> ModuleNode(ctx, "Empty")(x)) isa NXDError
        NXD.training!(scale, false)
        NXD.trainable!(scale["w"], false)
        @test !NXD.requires_grad(Tensor(scale["w"]))
    end
end

@testset "initial values by place, of modules made without any" begin
    alone() do ctx
        net = NXD.deferred_init() do
            NXD.sequential(ctx, NXD.linear(ctx, 4, 3), NXD.layer_norm(ctx, 3))
        end
        x = Tensor(ones(Float32, 4, 2))
        @test thrown(() -> net(x)).status === :invalid_state
        asked = []
        NXD.initializer!(net) do name, size, first, values
            push!(asked, (name, size))
            values .= first:first + length(values) - 1
        end
        NXD.initializer!(nothing, net["1.bias"])
        NXD.move!(net, :cpu)
        @test ("weight", (4, 3)) in asked && Array(Tensor(net["0.weight"])) == reshape(1:12, 4, 3)
        @test Array(Tensor(net["1.bias"])) == zeros(3) && size(net(x)) == (3, 2)
        NXD.initializer!((name, size, first, values) -> throw(Mine(5)), net["0.bias"])
        @test thrown(() -> NXD.initialize!(net, 3)) == Mine(5)
    end
end

@testset "heads that ranks do not divide" begin
    @test NXD.extra_heads(25, 8) == 7
    @test thrown(() -> NXD.extra_heads(0, 8)).status === :invalid_argument
    x = rand(Float32, 4, 2)
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        net = NXD.sequential(ctx, NXD.column_parallel_linear(ctx, 4, 9; gather_output = :off, pad = true),
                             NXD.row_parallel_linear(ctx, 9, 4; input_is_parallel = true, pad = true))
        before = Array(net(Tensor(x)))
        wrong = thrown(() -> NXD.pad!(net, 2, 3; wrapped_classes = ["Nothing"])).status
        broken = thrown(() -> NXD.pad!((m, n, padded) -> throw(Mine(4)), net, 2, 3))
        seen = []
        NXD.pad!(net, 2, 3) do m, n, padded
            push!(seen, (NXD.class_name(m), n, padded))
        end
        (before ≈ Array(net(Tensor(x))), size(Tensor(net["0.weight"])), size(net["0.weight"]),
         wrong, broken, seen)
    end
    for (same, part, whole, wrong, broken, seen) in found
        @test same && part == (4, 6) && whole == (4, 9) && wrong === :invalid_argument
        @test broken == Mine(4) && length(seen) == 3 && seen[3] == ("Sequential", 3, 4)
    end
end

@testset "files of tensors" begin
    alone() do ctx
        mktempdir() do directory
            path = joinpath(directory, "a.safetensors")
            tensors = Dict("a" => Tensor(Float32[1 2; 3 4]), "b" => Tensor([7]))
            NXD.save(ctx, path, tensors; texts = Dict("epoch" => "3"))
            at_once = read(path)
            NXD.serialization_save(ctx, path, tensors; texts = Dict("epoch" => "3"),
                                   master_only = :off)
            @test read(path) == at_once
            file = NXD.Serialization(path)
            @test keys(file) == ["a", "b"] && length(file) == 2
            @test NXD.texts(file) == Dict("epoch" => "3")
            @test Array(file["a"]) == Float32[1 2; 3 4] && Array(file["b"]) == [7]
            @test NXD.device(NXD.read_tensor(file, "b"; device = :xla)) === :xla
            @test thrown(() -> file["c"]).status === :invalid_argument
            @test thrown(() -> NXD.Serialization(joinpath(directory, "none"))).status === :io
        end
    end
end

@testset "layers, split over two ranks, are the whole ones" begin
    x = rand(Float32, 8, 3)
    build(ctx) = [NXD.column_parallel_linear(ctx, 8, 6; name = "c"),
                  NXD.row_parallel_linear(ctx, 8, 6; name = "r"),
                  NXD.gated_mlp(ctx, 8, 16; name = "m", activation = :gelu)]
    run(ctx) = vcat([Array(layer(Tensor(x))) for layer in build(ctx)],
                    [Array(NXD.layer_norm(ctx, 8)(Tensor(x))), Array(NXD.rms_norm(ctx, 8)(Tensor(x)))],
                    [Array(NXD.attention(ctx, 8, 2; name = "a", rope = (theta = 100.0,))(Tensor(reshape(x, 8, 3, 1)))),
                     Array(NXD.parallel_embedding(ctx, 10, 4; name = "e")(Tensor([1, 5, 9])))])
    whole = alone(run; seed = 5)
    found = two_ranks(seed = 5) do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        results = run(ctx)
        c = build(ctx)[1]
        qkv = NXD.qkv_linear(ctx, 8, 4; name = "q", num_kv_heads = 2, fusion = :by_head)
        @assert size.(qkv(Tensor(x); num_outputs = 3)) == ((2, 2, 3), (2, 1, 3), (2, 1, 3))
        NXD.cast!(qkv, Float64)
        @assert eltype(qkv(Tensor(Float64.(x)); num_outputs = 3)[1]) == Float64
        (results, NXD.shard(c["weight"]), size(c["weight"]), size(Tensor(c["weight"])), Array(NXD.gather_full(c["weight"])))
    end
    for (r, (results, part, size_whole, size_part, weight)) in enumerate(found)
        @test all(isapprox.(results, whole; rtol = 1e-4))
        @test part == (2, [3r - 2:3r]) && size_whole == (8, 6) && size_part == (8, 3)
    end
    @test size(whole[1]) == (6, 3) && size(whole[7]) == (4, 3)
    ctx = Context(; store = Store(), rank = 0, size = 1)
    @test thrown(() -> NXD.column_parallel_linear(ctx, 8, 6)).status === :invalid_state
    init_model_parallel!(ctx)
    d = NXD.dropout(ctx, 0.5, "d")
    dropped = Array(d(Tensor(ones(1000))))
    @test 300 < count(iszero, dropped) < 700 && sum(dropped) ≈ 2 * count(!iszero, dropped)
    @test size(NXD.rotary_embedding(ctx, 4)(Tensor(rand(Float32, 4, 2, 3, 1)))) == (4, 2, 3, 1)
end

@testset "mappings and losses" begin
    logits, labels = rand(Float32, 6, 5), [0, 3, 5, -100, 1]
    nll(c, l) = -(logits[l + 1, c] - log(sum(exp.(logits[:, c]))))
    expected = [l < 0 ? 0.0f0 : nll(c, l) for (c, l) in enumerate(labels)]
    found = two_ranks() do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        part = Tensor(logits[3r + 1:3r + 3, :])
        x = Tensor(logits)
        y = Tensor(Float32[r + 1, 10])
        weight = Tensor(rand(Float32, 6, 3))
        (Array(NXD.parallel_cross_entropy(ctx, part, Tensor(labels); reduction = :none)),
         NXD.parallel_cross_entropy(ctx, part, Tensor(labels))[],
         Array(NXD.gather_from_tensor_region(ctx, part)), Array(NXD.scatter_to_tensor_region(ctx, x)),
         Array(NXD.reduce_from_tensor_region(ctx, y)), Array(NXD.copy_to_tensor_region(ctx, y)),
         size(NXD.gather_from_sequence_region(ctx, part)), size(NXD.scatter_to_sequence_region(ctx, Tensor(ones(3, 4)))),
         size(NXD.reduce_scatter_to_sequence_region(ctx, Tensor(ones(3, 4)))),
         NXD.linear_cross_entropy(ctx, x, weight, Tensor(labels))[] > 0,
         NXD.loss_weights(ctx, [Tensor([0, 1, 2]), nothing, Tensor([1, -100, 3])]))
    end
    for (r, f) in enumerate(found)
        @test f[1] ≈ expected && f[2] ≈ sum(expected) / 4
        @test f[3] == logits && f[4] == logits[3r - 2:3r, :]
        @test f[5] == [3, 20] && f[6] == [r, 10]
        @test f[7] == (3, 10) && f[8] == f[9] == (3, 2) && f[10]
        @test f[11] ≈ [2 / 3, 0, 1 / 3]
    end
end

const tiny_gpt2 = """{"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32,
    "n_positions": 16, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}"""

@testset "models, saved and loaded; a ddp; finished gradients" begin
    ids = rand(0:31, 8, 2)
    mktempdir() do directory
        path = joinpath(directory, "model.safetensors")
        write(joinpath(directory, "config.json"), tiny_gpt2)
        found = two_ranks(seed = 2) do r, ctx
            init_model_parallel!(ctx) # two data-parallel copies
            gpt = NXD.model(ctx, tiny_gpt2)
            input = Tensor(ids)
            ddp = Ddp(gpt; zero_stage = 1)
            optimizer = adamw(ddp; learning_rate = 0.01)
            before = map(1:3) do step
                zero_grad!(gpt)
                loss = gpt(input, input)
                backward(loss)
                step!(optimizer)
                loss[]
            end
            after = gpt(input, input)[]
            NXD.save(gpt, path)
            (before, after)
        end
        @test found[1] == found[2] && issorted(vcat(found[1]...); rev = true)
        alone() do ctx
            gpt = NXD.from_pretrained(ctx, directory)
            input = Tensor(ids)
            loss = gpt(input, input)
            @test loss[] ≈ found[1][2] rtol = 1e-5
            backward(loss)
            @test NXD.finish_grads!(gpt; max_norm = 1.0) > 0
            @test NXD.step_flops(gpt, 2, 8) > 0
            other = NXD.model(ctx, replace(tiny_gpt2, "\"n_layer\": 2" => "\"n_layer\": 3"))
            @test thrown(() -> NXD.load!(other, path)).status === :invalid_argument
            report = NXD.load!(other, path; strict = false)
            @test !isempty(report.missing) && isempty(report.unexpected) && isempty(report.shape)
            NXD.checkpoint!(gpt)
            zero_grad!(gpt)
            backward(gpt(input, input))
            @test thrown(() -> NXD.checkpoint!(gpt, ["nothing"])).status === :invalid_argument
            @test thrown(() -> NXD.model(ctx, "{\"model_type\": \"t5\"}")).status === :unsupported
        end
    end
end

@testset "buffers, and files of TorchScript" begin
    alone() do ctx
        root = ModuleNode(ctx, "Root")
        mean = Tensor(Float32[0, 1, 2])
        NXD.add_buffer!(root, "mean", mean)
        @test thrown(() -> NXD.add_buffer!(root, "mean", mean)).status === :invalid_argument
        @test NXD.buffer_names(root) == ["mean"] && Array(NXD.buffer(root, "mean")) == [0, 1, 2]
        @test thrown(() -> NXD.from_torchscript(ctx, "/nowhere/module.pt")).status === :io
        @test thrown(() -> NXD.save_torchscript(root, "/x")).status === :invalid_argument
    end
end
