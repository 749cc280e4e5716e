const axes_of_layouts =
    "`:world`, `:tensor`, `:pipeline`, `:data`, `:context`, `:expert_model` or `:expert_data`"

"""
    init_model_parallel!(context; tensor_parallel_size, pipeline_parallel_size, ...)

Lays out the context's world and makes its groups. [collective: world] Keywords are the fields of
`nxd_parallel_options_t`.
"""
function init_model_parallel!(context::Context; fields...)
    options = prepared(() -> Options(nxd_parallel_options_t; fields...), () -> world(context))
    check(nxd_init_model_parallel(context, options))
end

"""
Forgets the layout, so that it may be made anew. Groups that `group(context, axis)` gave are closed.
"""
function destroy_model_parallel!(context::Context)
    check(nxd_destroy_model_parallel(context))
    foreach(ref -> ref.value === nothing || release(ref.value), context.kept.groups)
    empty!(context.kept.groups)
    nothing
end

is_model_parallel(context::Context) = nxd_model_parallel_is_initialized(context) != 0

"Ranks in this rank's group along an axis: $axes_of_layouts."
parallel_size(context::Context, axis::Symbol) = number(out -> nxd_parallel_get_size(context, axis, out))
"This rank's place in its group along an axis."
parallel_rank(context::Context, axis::Symbol) = number(out -> nxd_parallel_get_rank(context, axis, out))
"World rank of the first member of this rank's group along an axis."
source_rank(context::Context, axis::Symbol) =
    number(out -> nxd_parallel_get_source_rank(context, axis, out))
"World rank of the next pipeline stage."
next_stage_rank(context::Context) = number(out -> nxd_parallel_get_pipeline_next_rank(context, out))
"World rank of the previous pipeline stage."
previous_stage_rank(context::Context) = number(out -> nxd_parallel_get_pipeline_previous_rank(context, out))

"World ranks of all groups along an axis."
function group_list(context::Context, axis::Symbol)
    size, count = Ref{Csize_t}(0), Ref{Int32}(0)
    check(nxd_parallel_get_group_list(context, axis, 0, C_NULL, 0, size, count))
    map(0:count[] - 1) do index
        listed(Int32) do row, cap, n
            nxd_parallel_get_group_list(context, axis, index, row, cap, n, count)
        end
    end
end

"""
    layout_groups(world_size, axis; tensor_parallel_size, ...)

World ranks of all groups along an axis of a layout; no context needed.
"""
function layout_groups(world_size::Integer, axis::Symbol; fields...)
    options = Options(nxd_parallel_options_t; fields...)
    count = number(out -> nxd_layout_get_group_count(options, world_size, axis, out))
    map(0:count - 1) do index
        listed(Int32) do row, cap, n
            nxd_layout_get_group(options, world_size, axis, index, row, cap, n)
        end
    end
end

"Index of the group that a rank belongs to along an axis of a layout, and its place there."
function layout_place(world_size::Integer, axis::Symbol, rank::Integer; fields...)
    options, index, place = Options(nxd_parallel_options_t; fields...), Ref{Int32}(0), Ref{Int32}(0)
    check(nxd_layout_find_rank(options, world_size, axis, rank, index, place))
    (Int(index[]), Int(place[]))
end

"A list by the rule of a buffer, its room and how many there are."
function listed(get, ::Type{T}) where {T}
    n = Ref{Csize_t}(0)
    check(get(Ptr{T}(C_NULL), 0, n))
    row = Vector{T}(undef, n[])
    check(get(row, length(row), n))
    T <: Integer ? Int.(row) : row
end
