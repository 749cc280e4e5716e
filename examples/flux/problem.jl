# The data and first weights of the examples with frameworks; arrays as Flux has them, (features, samples).
const features, hidden, classes, samples, steps, rate = 12, 32, 4, 64, 40, 0.02

"Class c is where a wave of the features is in its c-th quarter."
function sample(s)
    x = Float32[sin(0.7 * s * i + 0.2 * (i - 1)) for i in 1:features]
    x, min(classes, 1 + floor(Int, (0.5 + 0.5 * sin(sum(x .* cos.(1.1 .* (0:features - 1))))) * classes))
end

function data(range)
    all = sample.(range)
    reduce(hcat, first.(all)), last.(all)
end

"A rank's range of so many, of which all ranks along an axis have as many."
function part(count, what, rank, ranks, axis)
    count % ranks == 0 || error("$count $what do not divide by $ranks $axis-parallel ranks")
    each = count ÷ ranks
    rank * each + 1:(rank + 1) * each
end

"By name, in the order of use; a weight is (inputs, outputs)."
function weights()
    w1 = Float32.(0.3 .* sin.(1.7 .* reshape(0:hidden * features - 1, features, hidden)))
    w2 = Float32.(0.3 .* cos.(2.3 .* reshape(0:classes * hidden - 1, hidden, classes)))
    (w1 = w1, b1 = zeros(Float32, hidden), w2 = w2, b2 = zeros(Float32, classes))
end
