@object DataLoader nxd_data_loader_t nxd_data_loader_destroy

@doc """
    DataLoader(context, paths, batch_size, sequence_length; format, vocab_size, seed, shuffle,
               next_labels, prefetch)

Batches from files of token ids or of text, read ahead by a thread: every sample once an epoch over
all data-parallel ranks, in an order that no number of ranks changes. `format`: `:uint16`,
`:uint32`, `:bytes`; else the first path's ending says it. [collective: world]
""" DataLoader

function DataLoader(context::Context, paths, batch_size::Integer, sequence_length::Integer;
                    options...)
    kept = Any[]
    row, samples, tokens, made = prepared(() -> world(context)) do
        field(Ptr{Cstring}, paths, kept), Int64(batch_size), Int64(sequence_length),
        Options(nxd_data_loader_options_t; options...)
    end
    GC.@preserve kept begin
        given(DataLoader) do out
            nxd_data_loader_create(context, row, length(paths), samples, tokens, made, out)
        end
    end
end

"""
    next!(loader, ids, labels = nothing)

Takes this rank's next batches, as many as fit exactly into `ids`, of size (sequence_length,
batch_size, batches); with `next_labels` into `labels` too.
"""
function next!(loader::DataLoader, ids::Array{Int64}, labels::Union{Array{Int64},Nothing} = nothing)
    labels === nothing || length(labels) == length(ids) || throw(DimensionMismatch(
        "expected $(length(ids)) labels, got $(length(labels))"))
    check(nxd_data_loader_next(loader, ids, labels === nothing ? Ptr{Int64}(C_NULL) : labels,
                               length(ids)))
    ids
end

"Samples of an epoch, over all ranks."
num_samples(loader::DataLoader) =
    Int(value(out -> nxd_data_loader_get_sample_count(loader, out), Int64))
"Samples that all ranks together have taken: what a checkpoint needs to keep."
Base.position(loader::DataLoader) =
    Int(value(out -> nxd_data_loader_get_position(loader, out), Int64))
"Goes on behind so many samples, whatever the ranks and batches were that took them."
Base.seek(loader::DataLoader, position::Integer) =
    (check(nxd_data_loader_set_position(loader, position)); loader)
