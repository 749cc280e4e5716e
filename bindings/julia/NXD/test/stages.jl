@testset "schedules" begin
    s = Schedule(:gpipe; ranks = 2, microbatches = 3)
    @test nameof(s) isa String && length(NXD.tasks(s, 0)) == 6
    same = Schedule([NXD.tasks(s, r) for r in 0:1]; microbatches = 3)
    @test NXD.tasks(same, 1) == NXD.tasks(s, 1)
    @test NXD.report(same) == NXD.report(s)
    @test NXD.report(s; forward = [1, 2], transfer = 0.5).makespan > NXD.report(s; forward = [1, 1]).makespan
    @test thrown(() -> NXD.report(s; forward = [1])) isa DimensionMismatch
    @test occursin("missing", thrown(() -> Schedule([[(:forward, 0, 0)], []]; microbatches = 1)).message)
    @test thrown(() -> Schedule(:interleaved; ranks = 2, chunks = 2, microbatches = 3)).status === :invalid_argument
end

@testset "chunks without values" begin
    alone() do ctx
        for (inputs, outputs, options) in (([], [], NamedTuple()), ([[]], [[], []], NamedTuple()),
                                           ([[]], [[]], (virtual_size = 3,)))
            make() = Pipeline(ctx; forward = identity, inputs = inputs, outputs = outputs, options...)
            @test thrown(make) isa DimensionMismatch
        end
    end
end

# y = w2 (w1 x), loss = sum(y) / microbatches; a stage has one scalar weight.
function two_stages(r, ctx, fail = (where, call) -> nothing; options...)
    init_model_parallel!(ctx; pipeline_parallel_size = 2)
    w, grad = Float32(r + 2), Ref(0.0f0)
    value = ("h", Float32, (2, 3))
    x(call) = fill(Float32(call.microbatch + 1), 2, 3)
    function forward(call, inputs, outputs)
        fail(:forward, call)
        @assert length(inputs) == r && length(outputs) == 1 - r
        r == 0 ? (outputs[1] .= w .* x(call); nothing) : sum(w .* inputs[1])
    end
    function backward(call, inputs, grad_outputs, grad_inputs)
        fail(:backward, call)
        if r == 0
            grad[] += sum(grad_outputs[1] .* x(call))
        else
            grad[] += call.loss_weight * sum(inputs[1])
            grad_inputs[1] .= call.loss_weight * w
        end
    end
    pipeline = Pipeline(ctx; forward = forward, backward = backward, inputs = [r == 0 ? [] : [value]],
                        outputs = [r == 0 ? [value] : []], num_microbatches = 4,
                        broadcast_and_average_loss = true, options...)
    (pipeline, grad)
end

@testset "stages written in Julia" begin
    for schedule in (Symbol("1f1b"), :gpipe)
        found = two_ranks() do r, ctx
            pipeline, grad = two_stages(r, ctx; schedule = schedule)
            loss = run!(pipeline)
            g = grad[]
            (loss, g, run!(pipeline; training = false), NXD.has_loss(pipeline), nameof(Schedule(pipeline)),
             NXD.buffer_bytes(pipeline) >= 0)
        end
        @test found[1][1] == found[2][1] == 6 * 6 * 2.5
        @test found[1][2] == 3 * 6 * 2.5 && found[2][2] == 2 * 6 * 2.5
        @test found[1][3] == 6 * 6 * 2.5 && !found[1][4] && found[2][4]
    end
    mktempdir() do directory
        path = joinpath(directory, "run.json")
        found = two_ranks() do r, ctx
            tasks = [[(:forward, m, 0) for m in 0:3]; [(:backward, m, 0) for m in 0:3]]
            own = Schedule([tasks, tasks]; microbatches = 4)
            pipeline, = two_stages(r, ctx; custom_schedule = own)
            NXD.timeline!(pipeline)
            loss = run!(pipeline)
            NXD.write_timeline(pipeline, path)
            loss
        end
        @test found == [90, 90] && haskey(json(read(path, String)), "traceEvents")
    end
    # A stage that cannot do the halves of a backward task.
    @test all(e -> e isa NXDError && e.status === :invalid_argument,
              two_ranks((r, ctx) -> two_stages(r, ctx; schedule = :zero_bubble)))
    # Neighbours that disagree.
    @test all(e -> e isa NXDError, two_ranks() do r, ctx
        init_model_parallel!(ctx; pipeline_parallel_size = 2)
        v = ("h", Float32, (2, 3 + r))
        Pipeline(ctx; forward = (a...) -> 0.0, backward = (a...) -> nothing, inputs = [r == 0 ? [] : [v]],
                 outputs = [r == 0 ? [v] : []], num_microbatches = 2)
    end)
end

@testset "a stage that throws" begin
    found = two_ranks() do r, ctx
        broken = Ref(true)
        pipeline, = two_stages(r, ctx, (where, call) ->
            broken[] && r == 1 && where === :backward && call.microbatch == 2 && throw(KeyError(:mine)))
        e = thrown(() -> run!(pipeline))
        broken[] = false
        (e, run!(pipeline))
    end
    @test found[2][1] == KeyError(:mine) # as it was thrown
    @test found[1][1] isa NXDError && found[1][1].root_rank == 1
    @test occursin("KeyError: key :mine not found", found[1][1].message)
    @test found[1][2] == found[2][2] == 90 # the next run is well
end

const small_llama = """{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64,
    "max_position_embeddings": 32, "initializer_range": 0.02}"""

@testset "a model, cut" begin
    ids = rand(0:63, 16, 4)
    whole = alone(seed = 3) do ctx
        llama = NXD.model(ctx, small_llama)
        llama(Tensor(ids), Tensor(ids))[]
    end
    found = two_ranks(seed = 3) do r, ctx
        init_model_parallel!(ctx; pipeline_parallel_size = 2)
        llama = NXD.model(ctx, small_llama; device = :meta)
        example, input = Tensor(Int64, 16, 4; device = :meta), Tensor(ids)
        pipeline = Pipeline(llama, example, example; num_microbatches = 2, broadcast_and_average_loss = true,
                            loss_path = "loss", num_outputs = 2)
        paths = (NXD.output_paths(pipeline), NXD.output_paths(llama),
                 thrown(() -> Pipeline(llama, example, example; loss_path = "losss")).status)
        ddp = Ddp(NXD.local_module(pipeline))
        NXD.ddp!(pipeline, ddp)
        loss = train!(pipeline, input, input)
        optimizer = adamw(ddp; learning_rate = 0.01)
        step!(optimizer)
        NXD.zero_grad!(NXD.local_module(pipeline))
        again = train!(pipeline, "labels" => input, "input_ids" => input)
        NXD.finish!(ddp)
        NXD.ddp!(pipeline, nothing)
        (loss, again, NXD.evaluate(pipeline, input, input).loss,
         NXD.cuts(pipeline), length(NXD.local_module_names(pipeline)), occursin("lm_head", NXD.graph_text(pipeline)), paths)
    end
    @test found[1][1] == found[2][1]
    @test found[1][1] ≈ whole rtol = 1e-5
    @test found[1][2] < found[1][1] && found[1][3] < found[1][2] + 1e-3
    @test length(found[1][4]) == 1 && found[1][5] > 0 && found[1][6]
    @test all(f -> f[7] == (["loss", "logits"], ["loss", "logits"], :invalid_argument), found)

    found = two_ranks(seed = 3) do r, ctx
        init_model_parallel!(ctx; pipeline_parallel_size = 2)
        llama = NXD.model(ctx, small_llama; device = :meta)
        example = Tensor(Int64, 16, 4; device = :meta)
        names, leaves = String[], String[]
        fill_in(parameter, name, tensor) = (push!(names, name); copyto!(tensor, fill(0.01f0, size(tensor))))
        leaf(m, path, is_leaf) = (push!(leaves, path); is_leaf)
        pipeline = Pipeline(llama, example, example; param_init = fill_in, leaf_rule = leaf,
                            pipeline_cuts = ["model.layers.0"], input_names = ["input_ids", "labels"])
        (NXD.cuts(pipeline), length(names), length(leaves),
         thrown(() -> Pipeline(llama, example, example; pipeline_cuts = ["model.layer.0"])).status)
    end
    @test all(f -> f[1] == ["model.layers.0"] && f[2] > 0 && f[3] > 0 && f[4] === :invalid_argument, found)
end

@testset "what a model's pipeline is not given fails on every rank" begin
    found = two_ranks(seed = 3) do r, ctx
        init_model_parallel!(ctx; pipeline_parallel_size = 2)
        llama, bad = NXD.model(ctx, small_llama; device = :meta), r == 1
        example, input = Tensor(Int64, 16, 4; device = :meta), Tensor(rand(0:63, 16, 4))
        closed = Tensor(rand(0:63, 16, 4))
        close(closed)
        make(x = example; options...) = Pipeline(llama, example, x; num_microbatches = 2, num_outputs = 2,
                                                 loss_path = "loss", options...)
        makes = [() -> make(bad ? closed : example), () -> make(; (bad ? (colour = 1,) : NamedTuple())...)]
        errors = Any[thrown(f) for f in makes]
        pipeline, other = make(), bad ? closed : input
        runs = [() -> train!(pipeline, input, other), () -> NXD.evaluate(pipeline, input, other),
                () -> train!(pipeline, "input_ids" => input, "labels" => other),
                () -> NXD.evaluate(pipeline, "input_ids" => input, (bad ? "labels\0" : "labels") => input)]
        append!(errors, [thrown(f) for f in runs])
        (errors, train!(pipeline, input, input))
    end
    @test all(f -> f isa Tuple, found)
    for (told, own) in zip(found[1][1], found[2][1])
        @test own isa ArgumentError
        @test told isa NXDError && told.status === :invalid_argument && occursin("rank 1", told.message)
    end
end

@testset "bad options are told to all that count costs" begin
    errors = two_ranks(seed = 3) do r, ctx
        init_model_parallel!(ctx; tensor_parallel_size = 2)
        llama, example = NXD.model(ctx, small_llama; device = :meta), Tensor(Int64, 16, 4; device = :meta)
        bad = r == 1 ? (colour = 1,) : NamedTuple()
        thrown(() -> Pipeline(llama, example, example; num_microbatches = 2, virtual_size = 2,
                              loss_path = "loss", partition = :cost, bad...))
    end
    @test errors[2] isa ArgumentError && errors[1].status === :invalid_argument
end
