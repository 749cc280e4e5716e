"Least squares over samples that are divided among ranks."
module Regression

using NXD

export fit, share

"This rank's share of a matrix's columns."
function share(x, context)
    rank, ranks, n = rank_in(context), size(context), size(x, 2)
    x[:, n * rank ÷ ranks + 1:n * (rank + 1) ÷ ranks]
end

"""
    fit(context, x, y; steps, learning_rate)

Weights w, of size (features, outputs), for which w' x comes closest to y; a sample is a column.
"""
function fit(context, x, y; steps = 300, learning_rate = 0.05)
    samples = [size(x, 2)]
    all_reduce!(world(context), samples)
    w = zeros(size(x, 1), size(y, 1))
    gradient = zero(w)
    ddp = Ddp(context, [w], [gradient]; names = ["w"], zero_stage = 1)
    optimizer = adamw(ddp; learning_rate = learning_rate)
    NXD.schedule!(optimizer, :cosine; warmup_steps = 1, total_steps = steps)
    for step in 1:steps
        gradient .= x * (w' * x .- y)' ./ samples[1]
        step!(optimizer)
    end
    close(optimizer)
    close(ddp)
    w
end

end
