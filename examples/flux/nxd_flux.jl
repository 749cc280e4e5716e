# Tensor-parallel linear layers of libnxd_core as functions that Flux differentiates, by rules of
# ChainRules; and AdamW whose state is divided over the ranks. Flux owns every array.
using NXD
import ChainRulesCore

# x is (features, rows), a weight (inputs, outputs).
for kind in (:column_linear, :row_linear)
    forward!, backward! = Symbol(kind, "_forward!"), Symbol(kind, "_backward!")
    @eval begin
        function $kind(ctx, x, w, b)
            y = similar(x, size(w, 2), size(x, 2))
            NXD.$forward!(ctx, x, w, b, y)
            y
        end

        function ChainRulesCore.rrule(::typeof($kind), ctx, x, w, b)
            # A gradient that nobody asks for is made all the same; the one of x is a sum over ranks.
            function pullback(dy)
                dx, dw, db = similar(x), similar(w), similar(b)
                NXD.$backward!(ctx, x, w, convert(Array, ChainRulesCore.unthunk(dy)), dx, dw, db)
                ChainRulesCore.NoTangent(), ChainRulesCore.NoTangent(), dx, dw, db
            end
            $kind(ctx, x, w, b), pullback
        end
    end
end

@doc "The result of this rank's outputs: `w` and `b` have them." column_linear
@doc "The sum over ranks: `w` has this rank's inputs, `b` is whole." row_linear

"""
    Zero1(ctx, weights; placements, options...)

AdamW over a NamedTuple of arrays, on data-parallel ranks that divide its state. [collective: the
data-parallel group, to create and at each step]
"""
struct Zero1
    ddp::Ddp
    optimizer::Optimizer
end

function Zero1(ctx, weights::NamedTuple; placements, bucket_bytes = 0, options...)
    arrays = collect(values(weights))
    ddp = Ddp(ctx, arrays, zero.(arrays); names = string.(collect(keys(weights))), zero_stage = 1,
              bucket_bytes = bucket_bytes)
    NXD.set_placements!(ddp, placements)
    Zero1(ddp, adamw(ddp; options...))
end

"""
Updates the weights where they are, by gradients wherever Zygote has put them. Where one rank lacks a
weight's, or has one of another size, the step fails on all.
"""
function update!(o::Zero1, gradients::NamedTuple)
    try
        # Copies: Zygote may give two weights one array, which would be reduced twice.
        kept = [Array(g) for g in values(gradients)]
        length(kept) == length(o.ddp) ||
            throw(DimensionMismatch("expected $(length(o.ddp)) gradients, got $(length(kept))"))
        for (i, g) in reverse(collect(enumerate(kept)))
            NXD.rebind!(o.ddp, i - 1, nothing, g)
            NXD.mark_ready!(o.ddp, i - 1)
        end
    catch
        # The peers are in the step, or come to it. One with a factor that no rank takes fails on all of
        # them; it uses the gradients bound last, which the ddp keeps.
        try
            step!(o.optimizer; scale = NaN)
        catch
        end
        rethrow()
    end
    step!(o.optimizer)
end

Base.close(o::Zero1) = (close(o.optimizer); close(o.ddp))
