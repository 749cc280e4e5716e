# Cost of the safe layer, over two ranks: a call that does nothing, and a small all-reduce.
#
#   julia --project=bindings/julia/NXD bindings/julia/bench/bench.jl
using NXD

median(xs) = sort(xs)[(length(xs) + 1) ÷ 2]

"Seconds of one call: the median over batches."
function seconds_of(f, batches, calls)
    f()
    median(map(1:batches) do _
        started = time_ns()
        for i in 1:calls
            f()
        end
        (time_ns() - started) / calls / 1e9
    end)
end

function main()
    Context() do ctx
        group, x = world(ctx), zeros(Float32, 256)
        empty_call = seconds_of(() -> rank_in(ctx), 51, 10_000)
        barrier(group)
        all_reduce = seconds_of(() -> all_reduce!(group, x), 51, 200)
        master_print(ctx, "empty_call_ns ", round(1e9 * empty_call; digits = 1))
        master_print(ctx, "all_reduce_1k_us ", round(1e6 * all_reduce; digits = 2))
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
