@object Ddp nxd_ddp_t nxd_ddp_destroy

@doc """
    Ddp(context, params, grads; names, group, zero_stage, bucket_bytes, reduce, ...)
    Ddp(model::ModuleNode; zero_stage, ...)

Data parallelism over arrays of one's own, in the order of use, or over a model's trainable
parameters. [collective: the group] Arrays have no gaps; their dimensions may lie in another order, as
those of a `PermutedDimsArray`, the same in a parameter and its gradient. Gradients are reduced, and parameters updated, where
they are; the arrays live as long as the ddp and its optimizers. Keywords are the fields of
`nxd_ddp_options_t`.
""" Ddp

function Ddp(context::Context, params::AbstractVector{<:AbstractArray},
             grads::AbstractVector{<:AbstractArray}; names = nothing, group = nothing, options...)
    kept = Any[]
    its_group() = group === nothing ? default_group(context) : group
    ps, gs, row, made = prepared(its_group) do
        length(params) == length(grads) || throw(DimensionMismatch(
            "expected one gradient for each of $(length(params)) parameters, got $(length(grads))"))
        names === nothing || length(names) == length(params) || throw(DimensionMismatch(
            "names: expected one for each of $(length(params)) parameters, got $(length(names))"))
        Borrowed[written(p) for p in params], Borrowed[written(g) for g in grads],
        names === nothing ? Ptr{Cstring}(C_NULL) : field(Ptr{Cstring}, names, kept),
        Options(nxd_ddp_options_t; options...)
    end
    in_group = group === nothing ? Ptr{nxd_group_t}(C_NULL) : group
    GC.@preserve ps gs kept begin
        given(Ddp; kept = Any[collect(Any, params), collect(Any, grads)]) do out
            nxd_ddp_create_buffers(context, in_group, row, pointers(ps), pointers(gs), length(ps),
                                   made, out)
        end
    end
end

"""
    rebind!(ddp, index, param, grad)

Says that an array has moved; `nothing`: as before. Indices count from 0, in the order of creation.
"""
function rebind!(ddp::Ddp, index::Integer, param, grad)
    borrowed(a) = a === nothing ? Ptr{DLTensor}(C_NULL) : written(a)
    check(nxd_ddp_rebind(ddp, index, borrowed(param), borrowed(grad)))
    param === nothing || (ddp.kept[1][index + 1] = param)
    grad === nothing || (ddp.kept[2][index + 1] = grad)
    nothing
end

Base.length(ddp::Ddp) = Int(value(out -> nxd_ddp_get_count(ddp, out), Csize_t))
Base.names(ddp::Ddp) = [strings(out -> nxd_ddp_get_name(ddp, i, out)) for i in 0:length(ddp) - 1]

"""
    set_placements!(ddp, placements; tied = ())

Says how the parameters are parts of a model, one for each: the dimension of the array that
tensor-parallel ranks have parts of, `:replicated`, or `:partial_grad`. `tied` has the indices, from
0, of those that another pipeline stage has too, and counts in norms. Norms, clipping and saved
states are then those of the undivided model. [collective: tensor-, pipeline- and data-parallel
groups]
"""
function set_placements!(ddp::Ddp, placements; tied = ())
    kinds, dims, shared = try
        placed(ddp, placements, tied)
    catch
        # All ranks are in the call: one of no parameter makes it fail on them.
        nxd_ddp_set_placements(ddp, C_NULL, C_NULL, C_NULL, 0)
        rethrow()
    end
    check(nxd_ddp_set_placements(ddp, kinds, dims, shared, length(kinds)))
end

function placed(ddp, placements, tied)
    kinds = [p isa Integer && !(p isa Bool) ? NXD_PLACEMENT_SHARDED :
             p === :replicated ? NXD_PLACEMENT_REPLICATED :
             p === :partial_grad ? NXD_PLACEMENT_PARTIAL_GRAD : NXD_PLACEMENT_INVALID
             for p in placements]
    arrays = ddp.kept === nothing ? () : ddp.kept[1] # none over a model
    dims = Int32[p isa Integer && i <= length(arrays) ? c_dimension(p, arrays[i]) : 0
                 for (i, p) in enumerate(placements)]
    shared = zeros(Int32, length(kinds))
    all(index -> 0 <= index < length(shared), tied) ||
        throw(ArgumentError("tied: expected indices from 0 below $(length(shared)), got $tied"))
    foreach(index -> shared[index + 1] = 1, tied)
    (kinds, dims, shared)
end

"""
    set_shards!(ddp, shards; partial_grads, tied)

`set_placements!` for padded vocabularies, fused weights and heads that several ranks share: for each
parameter the keywords by which `shard_initialize!` fills its array, such as `(dim = 1, size = 50257)`
or `(dim = 2, num_fused = 2)`; `nothing`: each rank has the whole parameter. `partial_grads` and `tied`
have a Bool for each parameter. [collective: tensor-, pipeline- and data-parallel groups]
"""
function set_shards!(ddp::Ddp, shards; partial_grads = map(_ -> false, shards),
                     tied = map(_ -> false, shards))
    described, partial, shared = try
        all(list -> length(list) == length(ddp), (shards, partial_grads, tied)) || throw(DimensionMismatch(
            "shards, partial_grads, tied: expected one of each for each of $(length(ddp)) parameters, got " *
            "$(length(shards)), $(length(partial_grads)) and $(length(tied))"))
        ([s === nothing ? nothing :
          shard_options(get(s, :dim, nothing), array, Base.structdiff(s, NamedTuple{(:dim,)}))
          for (array, s) in zip(ddp.kept[1], shards)], Int32[p for p in partial_grads], Int32[t for t in tied])
    catch
        # All ranks are in the call: one of no parameter makes it fail on them.
        nxd_ddp_set_shards(ddp, C_NULL, C_NULL, C_NULL, length(ddp) + 1)
        rethrow()
    end
    GC.@preserve described begin
        pointers = Ptr{nxd_shard_options_t}[
            d === nothing ? C_NULL : Base.unsafe_convert(Ptr{nxd_shard_options_t}, d) for d in described]
        check(nxd_ddp_set_shards(ddp, pointers, partial, shared, length(pointers)))
    end
end

"Says that a gradient is complete for this step, so that its bucket may travel. [collective: the group]"
mark_ready!(ddp::Ddp, index::Integer) = check(nxd_ddp_mark_ready(ddp, index))
"Says that a parameter took no part in this step on this rank. [collective: the group]"
mark_unused!(ddp::Ddp, index::Integer) = check(nxd_ddp_mark_unused(ddp, index))
"Reduces during the next backward passes, or lets gradients add up."
sync!(ddp::Ddp, on::Bool) = check(nxd_ddp_set_sync(ddp, on))
"Says that the arrays hold the values of one step again, after a step that updated them partially."
mark_reloaded!(ddp::Ddp) = check(nxd_ddp_mark_reloaded(ddp))
"Bytes that the ddp holds on this rank beside parameters and gradients."
buffer_bytes(ddp::Ddp) = Int(value(out -> nxd_ddp_get_buffer_bytes(ddp, out), UInt64))

# A call that completes gradients over several groups. Where this rank's options are none, those that no
# rank takes make it fail on all: the peers are in it already, or about to be.
function finishing(call, options)
    made = try
        Options(nxd_finish_options_t; options...)
    catch
        call(Options(nxd_finish_options_t; scale = NaN))
        rethrow()
    end
    call(made)
end

"""
    finish!(ddp; scale, max_norm, norm_type, ...)

Completes the gradients of a ddp of zero_stage 0 and gives their norm before clipping.
[collective: tensor-, pipeline- and data-parallel groups]
"""
finish!(ddp::Ddp; options...) = value(Cdouble) do out
    finishing(made -> nxd_ddp_finish(ddp, made, out), options)
end
