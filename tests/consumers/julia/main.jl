# Two ranks fit what one can solve, and compare.
using NXD, Regression

features, outputs, samples = 4, 2, 200
x = [sin(1.3 * i * s + i) for i in 1:features, s in 1:samples]
truth = [0.5 * i - o for i in 1:features, o in 1:outputs]
y = truth' * x

function main()
    Context() do context
        w = fit(context, share(x, context), share(y, context))
        others = all_gather(world(context), w)
        error = maximum(abs.(others .- truth))
        error < 1e-3 || throw(ErrorException("the fit is off by $error"))
        master_print(context, size(context), " ranks: weights agree with the truth to ", round(error; sigdigits = 2))
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
