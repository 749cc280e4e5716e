# The classifier of mlp.jl over several ranks: its layers are split over the tensor-parallel ones, its
# samples over the others, which also divide the optimizer's state (ZeRO-1). Losses are those of mlp.jl.
#
#   julia --project=. mlp_parallel.jl 2 2      two tensor-parallel ranks
#   julia --project=. mlp_parallel.jl 2 1      two data-parallel ranks
#   julia --project=. mlp_parallel.jl 4 2      two of two
using Flux

include("problem.jl")
include("nxd_flux.jl")

mlp(ctx, w, x) = row_linear(ctx, tanh.(column_linear(ctx, x, w.w1, w.b1)), w.w2, w.b2)
loss_of(ctx, w, x, y) = Flux.logitcrossentropy(mlp(ctx, w, x), y; agg = sum) / samples

"This rank's outputs of the first layer, and inputs of the second."
function own_weights(ctx)
    tensor, whole = group(ctx, :tensor), weights()
    mine = part(hidden, "hidden units", rank_in(tensor), size(tensor), "tensor")
    (w1 = whole.w1[:, mine], b1 = whole.b1[mine], w2 = whole.w2[mine, :], b2 = whole.b2)
end

function main(tp)
    Context() do ctx
        init_model_parallel!(ctx; tensor_parallel_size = tp)
        ranks = group(ctx, :data)
        x, labels = data(part(samples, "samples", rank_in(ranks), size(ranks), "data"))
        y, w = Flux.onehotbatch(labels, 1:classes), own_weights(ctx)
        # Two buckets, so that one may travel while the other is made.
        optimizer = Zero1(ctx, w; placements = (2, 1, 1, :replicated), bucket_bytes = 1024,
                          learning_rate = rate)
        for step in 0:steps - 1
            loss, gradients = Flux.withgradient(w -> loss_of(ctx, w, x, y), w)
            update!(optimizer, gradients[1])
            total = [Float64(loss)]
            all_reduce!(ranks, total)
            master_print(ctx, "step ", step, " loss ", round(total[1]; digits = 6))
        end
        close(optimizer)
    end
end

const ranks = parse(Int, get(ARGS, 1, "2"))
NXD.is_rank() ? main(parse(Int, get(ARGS, 2, string(ranks)))) : spawn_ranks(ranks)
