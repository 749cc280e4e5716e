# A pipeline whose stages are plain Julia: a network of tanh layers with its own forward and backward
# pass, cut over two ranks. libnxd_core runs the schedule and carries the values; plain SGD on the
# program's arrays follows each step. Losses are the same to the last digit for every number of
# ranks and every schedule. No libtorch is loaded.
#
#   julia --project=. examples/pipeline_stages.jl [1f1b|gpipe|zero-bubble]
using NXD

const layers, width, rows, microbatches, steps, rate = 8, 24, 16, 8, 30, 0.5f0

struct Layer # w of size (inputs, outputs); a microbatch is a matrix of size (width, rows)
    w::Matrix{Float32}
    b::Vector{Float32}
end
wave(l, i, o) = Float32(0.1 * sin(1.7 * (i + width * o) + 5.3 * l))
Layer(l::Int) = Layer([wave(l, i, o) for i in 0:width - 1, o in 0:width - 1], zeros(Float32, width))
no_gradient() = Layer(zeros(Float32, width, width), zeros(Float32, width))

# ---- the data: waves, and what is to be made of them

read_sample(step, microbatch) =
    Float32[sin(0.11 * (((step % 4) * microbatches + microbatch) * rows + r + 1) * (i % 5 + 1) + i)
            for i in 0:width - 1, r in 0:rows - 1]
target(x) = 0.5f0 .* x .* circshift(x, (-1, 0))

# ---- the model: h = h + tanh(w' h + b), eight times; mean squared error. Sums are written out, so
# that their order does not depend on a BLAS.

function layer_forward(l::Layer, h)
    y = similar(h)
    for r in axes(h, 2), o in 1:width
        z = l.b[o]
        for i in 1:width
            z += l.w[i, o] * h[i, r]
        end
        y[o, r] = h[o, r] + tanh(z)
    end
    y
end

"dy becomes the gradient of h; `g`, if there is one, takes the weights' part."
function layer_backward!(l::Layer, h, y, dy, g)
    for r in axes(h, 2)
        dh = dy[:, r]
        for o in 1:width
            t = y[o, r] - h[o, r]
            dz = dy[o, r] * (1 - t * t)
            g === nothing || (g.b[o] += dz)
            for i in 1:width
                g === nothing || (g.w[i, o] += dz * h[i, r])
                dh[i] += dz * l.w[i, o]
            end
        end
        dy[:, r] = dh
    end
end

# ---- this rank's stage

mutable struct Stage
    net::Vector{Layer}
    grads::Vector{Layer}
    first::Bool
    last::Bool
    step::Int
end

"The rows before each of the stage's layers and after the last."
function rows_of(stage, call, inputs)
    hs = [stage.first ? read_sample(stage.step, call.microbatch) : inputs[1]]
    for layer in stage.net
        push!(hs, layer_forward(layer, hs[end]))
    end
    hs
end

function forward(stage, call, inputs, outputs)
    y = rows_of(stage, call, inputs)[end]
    stage.last || (copyto!(outputs[1], y); return nothing)
    errors = y .- target(read_sample(stage.step, call.microbatch))
    foldl((s, e) -> s + Float64(e) * Float64(e), errors; init = 0.0) / (rows * width)
end

# Computes the rows anew from its inputs, which libnxd has kept, instead of keeping all of them.
function backward!(stage, call, inputs, grad_outputs, grad_inputs, grads)
    hs = rows_of(stage, call, inputs)
    dy = if stage.last
        errors = hs[end] .- target(read_sample(stage.step, call.microbatch))
        Float32(call.loss_weight) * 2 .* errors ./ Float32(rows * width)
    else
        copy(grad_outputs[1])
    end
    for l in length(stage.net):-1:1
        layer_backward!(stage.net[l], hs[l], hs[l + 1], dy, grads === nothing ? nothing : grads[l])
    end
    stage.first || grad_inputs === nothing || copyto!(grad_inputs[1], dy)
end

function train_step(ctx, pipeline, stage)
    foreach(g -> (fill!(g.w, 0); fill!(g.b, 0)), stage.grads)
    loss = run!(pipeline)
    for (l, g) in zip(stage.net, stage.grads)
        l.w .-= rate .* g.w
        l.b .-= rate .* g.b
    end
    master_print(ctx, "step ", stage.step, " loss ", loss)
    stage.step += 1
end

const schedules = Dict("default" => :default, "1f1b" => Symbol("1f1b"), "gpipe" => :gpipe,
                       "zero-bubble" => :zero_bubble)
const wanted = get(ARGS, 1, "default")
haskey(schedules, wanted) || error("expected 1f1b, gpipe or zero-bubble, got $wanted")

function main()
    Context() do ctx
        rank, ranks = rank_in(ctx), size(ctx)
        init_model_parallel!(ctx; pipeline_parallel_size = ranks)
        mine = layers * rank ÷ ranks:layers * (rank + 1) ÷ ranks - 1
        stage = Stage(Layer.(mine), [no_gradient() for l in mine], rank == 0, rank == ranks - 1, 0)
        value = ("h", Float32, (width, rows))
        pipeline = Pipeline(ctx;
            inputs = [stage.first ? [] : [value]], outputs = [stage.last ? [] : [value]],
            forward = (call, inputs, outputs) -> forward(stage, call, inputs, outputs),
            backward = (call, i, go, gi) -> backward!(stage, call, i, go, gi, stage.grads),
            backward_input = (call, i, go, gi) -> backward!(stage, call, i, go, gi, nothing),
            backward_weight = (call, i, go) -> backward!(stage, call, i, go, nothing, stage.grads),
            num_microbatches = microbatches, schedule = schedules[wanted],
            broadcast_and_average_loss = true)
        for step in 1:steps
            train_step(ctx, pipeline, stage)
        end
        close(pipeline)
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
