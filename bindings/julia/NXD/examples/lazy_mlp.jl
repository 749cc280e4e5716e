# An MLP of three layers that learns ten labels by SGD, made of operators alone. One switch runs it
# eagerly on the CPU or recorded on device XLA:
#
#   NXD_CPU_MODE=1 julia --project=. examples/lazy_mlp.jl
#   NXD_XLA_BACKEND=replay julia --project=. examples/lazy_mlp.jl
#
# It prints the losses, and what the device has done. The learning rate falls at every step, which
# compiles nothing. A tensor that is still open is a result of the step's graph, so each is closed.
using NXD, Printf

const sizes, rows, steps = (784, 64, 64, 10), 8, 40

"Numbers in [-1, 1), the same on every machine and in every language."
mutable struct Numbers
    state::UInt32
end

function next!(numbers::Numbers)
    numbers.state = numbers.state * 0x0019660d + 0x3c6ef35f
    Float32(numbers.state >> 8) / 8388608f0 - 1
end

on_device(array) = NXD.to_device(Tensor(array), NXD.device())

"A matrix of `rows` by `cols` as libtorch counts, so of `cols` by `rows` here."
random_matrix(numbers, rows, cols, scale) =
    on_device([next!(numbers) * Float32(scale) for _ in 1:cols, _ in 1:rows])

function forward(weights, x, labels)
    hidden = [op("linear", x, weights[1])]
    for weight in weights[2:end]
        push!(hidden, op("relu", hidden[end]))
        push!(hidden, op("linear", hidden[end], weight))
    end
    loss = op("cross_entropy_loss", hidden[end], labels)
    foreach(close, hidden)
    loss
end

"weight -= rate * gradient, outside of the graph that `backward` walks."
function update!(weight, rate)
    value, gradient = NXD.detach(weight), grad(weight)
    result = op("sub_", value, gradient; overload = "Tensor", alpha = rate)
    foreach(close, (value, gradient, result))
    NXD.grad!(weight, nothing)
end

function main()
    numbers = Numbers(1)
    weights = [requires_grad!(random_matrix(numbers, sizes[i + 1], sizes[i], 0.1)) for i in 1:3]
    x = random_matrix(numbers, rows, sizes[1], 1)
    labels = on_device(Int64.(0:rows - 1))
    for step in 0:steps - 1
        loss = forward(weights, x, labels)
        backward(loss)
        foreach(weight -> update!(weight, 0.05 / (1 + step)), weights)
        NXD.mark_step()
        @printf("step %d loss %.7f\n", step, loss[]) # known by now: no sync
        close(loss)
    end
    m = NXD.device_metrics()
    println("steps $(m.steps) compiles $(m.compiles) loads $(m.loads) ",
            "executions $(m.executions) implicit_syncs $(m.implicit_syncs) fallbacks $(m.fallbacks)")
end

main()
