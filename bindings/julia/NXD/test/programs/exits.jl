# exits.jl objects|works|lost: two ranks that end without closing anything, with objects of every
# kind, with works under way, or after a peer was lost. Finalizers run at exit, in any order.
using NXD

const kept = Any[]

function keep_objects(ctx)
    init_model_parallel!(ctx)
    params, grads = [ones(Float32, 100)], [ones(Float32, 100)]
    ddp = Ddp(ctx, params, grads; zero_stage = 1)
    model = ModuleNode((self, x) -> op("relu", x), ctx, "Relu")
    input = requires_grad!(Tensor(Float32[1, 2]))
    push!(kept, params, grads, ddp, adamw(ddp), custom_optimizer(u -> nothing, ddp), model, input,
          NXD.forward_tape(model, input), mapped(Tensor(ones(4))), Tensor(ones(4); copy = false),
          CustomFunction("a::b", (call, x) -> copy(x)), Operator("relu"), NXD.layer_norm(ctx, 4),
          Schedule(:gpipe; ranks = 2, microbatches = 2), Group(ctx, [0, 1]), world(ctx),
          parameters(model))
    NXD.set_log_callback((level, message) -> push!(kept, message))
end

function main(how)
    ctx = Context(timeout_ms = 120000)
    push!(kept, ctx)
    group = world(ctx)
    if how == "objects"
        keep_objects(ctx)
        barrier(group)
    elseif how == "works"
        # Rank 1 leaves while rank 0's work waits for it.
        rank_in(ctx) == 0 && push!(kept, [all_reduce_async!(group, ones(10_000)) for _ in 1:20])
        all_gather_async!(Group(ctx, [0, 1]), zeros(2), ones(1))
    else
        keep_objects(ctx)
        rank_in(ctx) == 1 && exit(0)
        try
            while true
                step!(kept[5]) # adamw's
            end
        catch e
            e isa NXDError && e.status === :peer_lost || rethrow()
        end
    end
    println("leaving with ", how)
end

NXD.is_rank() ? main(ARGS[1]) : spawn_ranks(2)
