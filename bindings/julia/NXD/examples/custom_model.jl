# A model, an activation and a loss of one's own, in Julia: a two-layer network split over two ranks
# whose forward function, snake activation (Ziyin et al. 2020) and Huber loss are written here,
# trained on data made by a formula. Losses do not depend on the number of ranks.
#
#   NXD_CPU_MODE=1 julia --project=. examples/custom_model.jl
using NXD

const samples, features, hidden, steps = 16, 6, 8, 30
const frequency = 1.5f0 # of snake
const delta = 0.5f0     # where Huber's loss turns from a square to a line

# ---- snake(z) = z + sin(a z)^2 / a, with the slope 1 + sin(2 a z)

function snake_forward(call, z)
    NXD.save(call, z)
    map(z -> z + sin(frequency * z)^2 / frequency, mapped(z))
end

snake_backward(call, g) =
    map((z, g) -> g * (1 + sin(2 * frequency * z)), mapped(NXD.saved(call, 1)), Array(g))

# ---- the mean of Huber's loss of prediction - target; the target gets no gradient

huber(e) = abs(e) <= delta ? e^2 / 2 : delta * (abs(e) - delta / 2)

function huber_forward(call, prediction, target)
    NXD.save(call, prediction)
    NXD.save(call, target)
    Tensor(Float32(sum(Float64.(huber.(Array(prediction) .- Array(target)))) / length(prediction)))
end

function huber_backward(call, g)
    errors = Array(NXD.saved(call, 1)) .- Array(NXD.saved(call, 2))
    (clamp.(errors, -delta, delta) .* Float32(g[] / length(errors)), nothing)
end

# ---- the model: (x, target) -> loss

function make_model(ctx)
    snake = CustomFunction("example::snake", snake_forward; backward = snake_backward)
    loss = CustomFunction("example::huber", huber_forward; backward = huber_backward)
    up = NXD.column_parallel_linear(ctx, features, hidden; gather_output = :off)
    down = NXD.row_parallel_linear(ctx, hidden, 1; input_is_parallel = true)
    model = ModuleNode(ctx, "SnakeNetwork") do self, x, target
        loss(down(snake(up(x))), target)
    end
    add_child!(model, "up", up)
    add_child!(model, "down", down)
    for (name, amplitude, rate, phase) in (("up.weight", 0.5, 0.7, 0.3), ("up.bias", 0.1, 1.0, pi / 2),
                                           ("down.weight", 0.4, 0.9, 0.2 + pi / 2),
                                           ("down.bias", 0.05, 0.0, pi / 2))
        whole = zeros(Float32, size(model[name]))
        for i in eachindex(whole)
            whole[i] = amplitude * sin(rate * (i - 1) + phase)
        end
        NXD.set_full!(model[name], whole)
    end
    model
end

function main()
    Context() do ctx
        init_model_parallel!(ctx; tensor_parallel_size = size(ctx))
        model = make_model(ctx)
        optimizer = adamw(model; learning_rate = 0.02, weight_decay = 0.01)
        x = Tensor(Float32[sin(0.37 * (i + features * s) + 0.1) for i in 0:features - 1, s in 0:samples - 1])
        target = Tensor(Float32[sin(1.3 * s) + 0.5 * cos(0.4 * s) for i in 1:1, s in 0:samples - 1])
        for step in 0:steps - 1
            zero_grad!(model)
            loss = model(x, target)
            backward(loss)
            step!(optimizer)
            master_print(ctx, "step ", step, " loss ", loss[])
        end
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
