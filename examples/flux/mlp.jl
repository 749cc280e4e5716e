# A classifier with two layers in Flux alone, in one process. mlp_parallel.jl is the same over several ranks.
#
#   julia --project=. mlp.jl
using Flux

include("problem.jl")

mlp(w, x) = w.w2' * tanh.(w.w1' * x .+ w.b1) .+ w.b2
loss_of(w, x, y) = Flux.logitcrossentropy(mlp(w, x), y; agg = sum) / samples

function main()
    x, labels = data(1:samples)
    y, w = Flux.onehotbatch(labels, 1:classes), weights()
    state = Flux.setup(Adam(rate), w)
    for step in 0:steps - 1
        loss, gradients = Flux.withgradient(w -> loss_of(w, x, y), w)
        state, w = Flux.update!(state, w, gradients[1])
        println("step ", step, " loss ", round(loss; digits = 6))
    end
end

main()
