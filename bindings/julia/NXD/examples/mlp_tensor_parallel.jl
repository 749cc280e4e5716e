# Two linear layers split over two ranks, the first by columns and the second by rows, and the same
# computed unsplit with plain operators: both must agree.
#
#   NXD_CPU_MODE=1 julia --project=. examples/mlp_tensor_parallel.jl
using NXD

const hidden, rows = 1024, 4

"The same inputs on every rank, in [0, 1): a column for each row of the C example."
function make_input()
    state = UInt32(1)
    x = Matrix{Float32}(undef, hidden, rows)
    for i in eachindex(x)
        state = state * 0x0019660d + 0x3c6ef35f
        x[i] = Float32(state >> 8) / 16777216f0
    end
    x
end

plain_linear(layer, x) = op("linear", x, NXD.master_weight(layer))

function main()
    Context() do ctx
        init_model_parallel!(ctx; tensor_parallel_size = size(ctx))
        column = NXD.column_parallel_linear(ctx, hidden, hidden; name = "0", bias = :off,
                                            gather_output = :off, keep_master_weight = true)
        row = NXD.row_parallel_linear(ctx, hidden, hidden; name = "1", bias = :off,
                                      input_is_parallel = true, keep_master_weight = true)
        x = Tensor(make_input())
        got = Array(row(column(x)))
        want = Array(plain_linear(row, plain_linear(column, x)))
        difference, largest = maximum(abs.(got .- want)), maximum(abs.(want))
        total = round(sum(Float64.(got)); digits = 6)
        master_print(ctx, "Output sum is ", total, "; largest difference to the unsplit MLP ",
                     difference, " of ", largest)
        difference <= 1e-5 * largest || error("the split MLP differs")
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
