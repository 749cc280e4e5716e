# The rules and the optimizer of examples/flux/nxd_flux.jl without Flux: the functions of ChainRulesCore
# that it uses stand here, and what Zygote would do with the rules is written out.
#   julia --project=NXD flux_rules.jl EXAMPLES RANKS TP
module ChainRulesCore
struct NoTangent end
function rrule end
unthunk(x) = x
end

const examples = ARGS[1]
include(joinpath(examples, "problem.jl"))
# Its import of the package is that of the module above.
include_string(Main, replace(read(joinpath(examples, "nxd_flux.jl"), String),
                             "import ChainRulesCore" => "import .ChainRulesCore"))

# mlp_parallel.jl without its first lines, which load Flux, and its last ones, which run it.
const program = read(joinpath(examples, "mlp_parallel.jl"), String)
const own = match(r"\"This rank's outputs.*?\nend\n"s, program).match
include_string(Main, own)

function loss_and_gradients(ctx, w, x, labels)
    h, pull_column = ChainRulesCore.rrule(column_linear, ctx, x, w.w1, w.b1)
    a = tanh.(h)
    z, pull_row = ChainRulesCore.rrule(row_linear, ctx, a, w.w2, w.b2)
    p = exp.(z .- maximum(z; dims = 1))
    p ./= sum(p; dims = 1)
    right = CartesianIndex.(labels, axes(z, 2))
    loss = -sum(log, p[right]) / samples
    p[right] .-= 1
    _, _, da, dw2, db2 = pull_row(p ./ Float32(samples))
    _, _, _, dw1, db1 = pull_column(da .* (1 .- a .^ 2))
    loss, (w1 = dw1, b1 = db1, w2 = dw2, b2 = db2)
end

"mlp.jl in plain Julia."
function alone()
    x, labels = data(1:samples)
    w = weights()
    m, v = map(zero, w), map(zero, w)
    for step in 0:steps - 1
        a = tanh.(w.w1' * x .+ w.b1)
        z = w.w2' * a .+ w.b2
        p = exp.(z .- maximum(z; dims = 1))
        p ./= sum(p; dims = 1)
        right = CartesianIndex.(labels, axes(z, 2))
        println("step ", step, " loss ", round(-sum(log, p[right]) / samples; digits = 6))
        p[right] .-= 1
        dz = p ./ Float32(samples)
        dh = (w.w2 * dz) .* (1 .- a .^ 2)
        g = (w1 = x * dh', b1 = vec(sum(dh; dims = 2)), w2 = a * dz', b2 = vec(sum(dz; dims = 2)))
        for (w, g, m, v) in zip(w, g, m, v)
            m .= 0.9f0 .* m .+ 0.1f0 .* g
            v .= 0.999f0 .* v .+ 0.001f0 .* g .^ 2
            w .-= Float32.(rate .* (m ./ (1 - 0.9^(step + 1))) ./ (sqrt.(v ./ (1 - 0.999^(step + 1))) .+ 1e-8))
        end
    end
end

function main(tp)
    Context() do ctx
        init_model_parallel!(ctx; tensor_parallel_size = tp)
        ranks = group(ctx, :data)
        x, labels = data(part(samples, "samples", rank_in(ranks), size(ranks), "data"))
        w = own_weights(ctx)
        optimizer = Zero1(ctx, w; placements = (2, 1, 1, :replicated), bucket_bytes = 1024, learning_rate = rate)
        for step in 0:steps - 1
            loss, gradients = loss_and_gradients(ctx, w, x, labels)
            update!(optimizer, gradients)
            total = [Float64(loss)]
            all_reduce!(ranks, total)
            master_print(ctx, "step ", step, " loss ", round(total[1]; digits = 6))
        end
        # A gradient that one rank lacks is an error on all, and a next step goes well.
        _, gradients = loss_and_gradients(ctx, w, x, labels)
        lacking = rank_in(ctx) == 1 ? merge(gradients, (b1 = nothing,)) : gradients
        failure = try
            update!(optimizer, lacking)
        catch e
            e
        end
        (rank_in(ctx) == 1 ? failure isa MethodError : failure isa NXDError && occursin("scale", failure.message)) ||
            error("expected a step that fails, got $failure")
        update!(optimizer, gradients)
        close(optimizer)
    end
end

const ranks = parse(Int, ARGS[2])
if ranks == 0
    alone()
else
    NXD.is_rank() ? main(parse(Int, ARGS[3])) : spawn_ranks(ranks)
end
