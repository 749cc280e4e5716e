# ZeRO-1 inside a program that has its own model: a two-layer network, its backward pass and its
# arrays are plain Julia, and libnxd_core reduces the gradients while the backward pass goes on,
# keeps the optimizer's state divided over the ranks and updates the weights in place. No libtorch
# is loaded. Losses do not depend on the number of ranks.
#
#   julia --project=. examples/embed_zero1.jl
using NXD

const features, hidden, classes, samples, steps = 12, 32, 4, 64, 40

# ---- the data: class c is where a wave of the features is in its c-th quarter

sample(s) = Float32[sin(0.7 * s * i + 0.2 * (i - 1)) for i in 1:features]
label(x) = min(classes, 1 + floor(Int, (0.5 + 0.5 * sin(sum(x .* cos.(1.1 .* (0:features - 1))))) * classes))

# ---- the model: softmax(w2' tanh(w1' x + b1) + b2), and its cross entropy. A weight of size
# (inputs, outputs) is the tensor [outputs, inputs] of the C example, in the same memory.

function forward(w, x)
    h = tanh.(w.w1' * x .+ w.b1)
    z = w.w2' * h .+ w.b2
    p = exp.(z .- maximum(z))
    (h, p ./ sum(p))
end

function backward_head!(g, w, h, p, c)
    dz = copy(p)
    dz[c] -= 1
    dz ./= samples
    g.b2 .+= dz
    g.w2 .+= h * dz'
    (w.w2 * dz) .* (1 .- h .^ 2)
end

function backward_body!(g, x, ds)
    g.b1 .+= ds
    g.w1 .+= x * ds'
end

# ---- libnxd: where the arrays are, and a step

function train_step(ctx, ddp, optimizer, w, g, step)
    rank, ranks = rank_in(ctx), size(ctx)
    mine = samples * rank ÷ ranks + 1:samples * (rank + 1) ÷ ranks
    foreach(a -> fill!(a, 0), g)
    xs = sample.(mine)
    acts = [forward(w, x) for x in xs]
    labels = label.(xs)
    loss = [-sum(log(Float64(p[c])) for ((h, p), c) in zip(acts, labels)) / samples]
    ds = [backward_head!(g, w, h, p, c) for ((h, p), c) in zip(acts, labels)]
    NXD.mark_ready!(ddp, 3)
    NXD.mark_ready!(ddp, 2) # its bucket may travel during what follows
    foreach((x, d) -> backward_body!(g, x, d), xs, ds)
    NXD.mark_ready!(ddp, 1)
    NXD.mark_ready!(ddp, 0)
    report = step!(optimizer; max_norm = 1.0)
    all_reduce!(world(ctx), loss)
    master_print(ctx, "step ", step, " loss ", round(loss[1]; digits = 6),
                 " norm ", round(report.norm; digits = 6))
end

function main()
    Context() do ctx
        # Only rank 0's weights count: the others get them from it.
        w = (w1 = Float32[0.3 * sin(1.7 * (i + features * j)) for i in 0:features - 1, j in 0:hidden - 1],
             b1 = zeros(Float32, hidden),
             w2 = Float32[0.3 * cos(2.3 * (i + hidden * j)) for i in 0:hidden - 1, j in 0:classes - 1],
             b2 = zeros(Float32, classes))
        g = map(zero, w)
        ddp = Ddp(ctx, collect(values(w)), collect(values(g)); names = ["w1", "b1", "w2", "b2"],
                  zero_stage = 1, bucket_bytes = 1024) # two buckets, so that there is something to overlap
        optimizer = adamw(ddp; learning_rate = 0.02, weight_decay = 0.01)
        biases = NXD.add_group!(optimizer, ["b?"])
        NXD.set_hyperparameter!(optimizer, :weight_decay, 0; group = biases)
        for step in 0:steps - 1
            train_step(ctx, ddp, optimizer, w, g, step)
        end
        master_print(ctx, size(ctx), " ranks; rank 0 keeps ", NXD.state_bytes(optimizer),
                     " bytes of state for ", sum(sizeof, w), " of weights")
        close(optimizer)
        close(ddp)
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
