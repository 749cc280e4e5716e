# Tensor parallelism and ZeRO-1 over arrays of one's own: libnxd multiplies what each rank has of the
# weights, sums over the ranks, and divides the optimizer's state; the rest is plain Julia. Needs no
# libtorch. Losses do not depend on the ranks, and are those of the C example of the same name.
#
#   julia --project=. examples/embed_tensor_parallel.jl 2 2    # ranks, and how many are tensor parallel
#   julia --project=. examples/embed_tensor_parallel.jl 2 1    # ZeRO-1 over two ranks
using NXD

const features, hidden, classes, samples, steps = 12, 32, 4, 64, 40

# ---- differentiable functions: a value, and its pullback as ChainRules has them. With ChainRulesCore,
#   ChainRulesCore.rrule(::typeof(column_linear), ctx, x, w, b) = column_linear_rule(ctx, x, w, b)
# is all that Zygote and Flux need; `nothing` stands for NoTangent() here.

function column_linear_rule(ctx, x, w, b)
    y = similar(x, size(w, 2), size(x, 2))
    NXD.column_linear_forward!(ctx, x, w, b, y)
    function pullback(dy)
        dx, dw, db = zero(x), zero(w), zero(b)
        NXD.column_linear_backward!(ctx, x, w, dy, dx, dw, db) # dx is summed over ranks
        (nothing, nothing, dx, dw, db)
    end
    y, pullback
end

function row_linear_rule(ctx, x, w, b)
    y = similar(x, size(w, 2), size(x, 2))
    NXD.row_linear_forward!(ctx, x, w, b, y) # the sum over ranks
    function pullback(dy)
        dx, dw, db = zero(x), zero(w), zero(b)
        NXD.row_linear_backward!(ctx, x, w, dy, dx, dw, db)
        (nothing, nothing, dx, dw, db)
    end
    y, pullback
end

function tanh_rule(x)
    y = tanh.(x)
    y, dy -> (nothing, dy .* (1 .- y .^ 2))
end

# The loss of this rank's samples.
function cross_entropy_rule(z, labels)
    p = exp.(Float64.(z) .- maximum(z; dims = 1))
    p ./= sum(p; dims = 1)
    right = CartesianIndex.(labels, axes(z, 2))
    function pullback(dloss)
        dz = copy(p)
        dz[right] .-= 1
        (nothing, eltype(z).(dz .* (dloss / samples)), nothing)
    end
    -sum(log, p[right]) / samples, pullback
end

# ---- the data: class c is where a wave of the features is in its c-th quarter

sample(s) = Float32[sin(0.7 * s * i + 0.2 * (i - 1)) for i in 1:features]
label(x) = min(classes, 1 + floor(Int, (0.5 + 0.5 * sin(sum(x .* cos.(1.1 .* (0:features - 1))))) * classes))

# ---- softmax(w2' tanh(w1' x + b1) + b2), and its gradients

function loss_and_gradients!(ctx, w, g, x, labels)
    h, pull_column = column_linear_rule(ctx, x, w.w1, w.b1)
    a, pull_tanh = tanh_rule(h)
    z, pull_row = row_linear_rule(ctx, a, w.w2, w.b2)
    loss, pull_loss = cross_entropy_rule(z, labels)
    _, dz, _ = pull_loss(1.0)
    _, _, da, dw2, db2 = pull_row(dz)
    _, dh = pull_tanh(da)
    _, _, _, dw1, db1 = pull_column(dh)
    foreach(copyto!, g, (dw1, db1, dw2, db2))
    loss
end

"This rank's part of a weight that starts the same, however many ranks divide it."
function weight(ctx, name, inputs, outputs, dim)
    w = zeros(Float32, inputs, outputs)
    NXD.shard_initialize!(ctx, name, :normal, 0, 0.3, w; dim = dim)
    w
end

function main(tp)
    Context() do ctx
        init_model_parallel!(ctx; tensor_parallel_size = tp)
        data = group(ctx, :data)
        hidden % tp == 0 && samples % size(data) == 0 ||
            error("$hidden units do not divide by $tp ranks, or $samples samples by $(size(data))")
        part, count = hidden ÷ tp, samples ÷ size(data)
        first = rank_in(data) * count
        xs = sample.(first + 1:first + count)
        x, labels = hcat(xs...), label.(xs)
        w = (w1 = weight(ctx, "w1", features, part, 2), b1 = zeros(Float32, part),
             w2 = weight(ctx, "w2", part, classes, 1), b2 = zeros(Float32, classes))
        g = map(zero, w)
        ddp = Ddp(ctx, collect(values(w)), collect(values(g)); names = ["w1", "b1", "w2", "b2"],
                  zero_stage = 1, bucket_bytes = 1024)
        NXD.set_placements!(ddp, (2, 1, 1, :replicated)) # norms are those of the undivided network
        optimizer = adamw(ddp; learning_rate = 0.02)
        for step in 0:steps - 1
            loss = [loss_and_gradients!(ctx, w, g, x, labels)]
            step!(optimizer)
            all_reduce!(data, loss)
            master_print(ctx, "step ", step, " loss ", round(loss[1]; digits = 6))
        end
        close(optimizer)
        close(ddp)
    end
end

const ranks = parse(Int, get(ARGS, 1, "2"))
NXD.is_rank() ? main(parse(Int, get(ARGS, 2, string(ranks)))) : spawn_ranks(ranks)
