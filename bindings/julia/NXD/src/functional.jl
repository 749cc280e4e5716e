# Differentiable moves between what tensor-parallel ranks hold alike and what they hold in parts.
# "The last dimension" of nxd.h is the first of a Julia array's size, its features; `dim` is that of
# `shape`, from 0.

# A call that the ranks of the tensor-parallel group are in already, or about to be: one of this rank's tensors
# that is closed, or a dimension that is none, fails it on all of them.
function among_tensor_ranks(call, context, tensors...; dim::Integer = 0)
    prepared(() -> (Int32(dim), foreach(handle, tensors)), () -> group_along(context, :tensor))
    given(call, Tensor)
end

"Identity; its backward sums the gradients of all ranks."
copy_to_tensor_region(context::Context, x::Tensor) =
    given(out -> nxd_copy_to_tensor_region(context, x, out), Tensor)
"Sum over ranks; its backward is the identity. [collective: tensor-parallel group]"
reduce_from_tensor_region(context::Context, x::Tensor) =
    among_tensor_ranks(out -> nxd_reduce_from_tensor_region(context, x, out), context, x)
"This rank's part of the features; its backward gathers."
scatter_to_tensor_region(context::Context, x::Tensor) =
    given(out -> nxd_scatter_to_tensor_region(context, x, out), Tensor)
"All ranks' features side by side; its backward takes this rank's part. [collective: tensor-parallel group]"
gather_from_tensor_region(context::Context, x::Tensor) =
    among_tensor_ranks(out -> nxd_gather_from_tensor_region(context, x, out), context, x)
"This rank's part of a dimension; its backward gathers."
scatter_to_sequence_region(context::Context, x::Tensor, dim::Integer = 0) =
    given(out -> nxd_scatter_to_sequence_region(context, x, dim, out), Tensor)
"All ranks' parts along a dimension. [collective: tensor-parallel group]"
gather_from_sequence_region(context::Context, x::Tensor, dim::Integer = 0; to_model_parallel::Bool = true) =
    among_tensor_ranks(context, x; dim = dim) do out
        nxd_gather_from_sequence_region(context, x, dim, to_model_parallel, out)
    end
"This rank's part of the sum over ranks; its backward gathers. [collective: tensor-parallel group]"
reduce_scatter_to_sequence_region(context::Context, x::Tensor, dim::Integer = 0) =
    among_tensor_ranks(out -> nxd_reduce_scatter_to_sequence_region(context, x, dim, out), context, x; dim = dim)

# Options that are none fail the call on all ranks, which are in it already, or about to be.
loss_options(context, options) = prepared(() -> group_along(context, :tensor)) do
    Options(nxd_cross_entropy_options_t; options...)
end

"""
    parallel_cross_entropy(context, logits, labels; label_smoothing, reduction, ...)

Cross entropy on logits whose vocabulary is split over ranks. [collective: tensor-parallel group]
Keywords are the fields of `nxd_cross_entropy_options_t`.
"""
function parallel_cross_entropy(context::Context, logits::Tensor, labels::Tensor; options...)
    made = loss_options(context, options)
    among_tensor_ranks(context, logits, labels) do out
        nxd_parallel_cross_entropy(context, logits, labels, made, out)
    end
end

"""
    linear_cross_entropy(context, x, weight, labels; sequence_dim = -1, ...)

The same of the logits x weight^T, which are never all made. [collective: tensor-parallel group]
"""
function linear_cross_entropy(context::Context, x::Tensor, weight::Tensor, labels::Tensor;
                              sequence_dim::Integer = -1, options...)
    made = loss_options(context, options)
    among_tensor_ranks(context, x, weight, labels; dim = sequence_dim) do out
        nxd_linear_cross_entropy(context, x, weight, labels, sequence_dim, made, out)
    end
end

"""
    loss_weights(context, labels; ignore_index = -100, shifted = true)

Weights that make mean losses of microbatches add up to the mean over all valid tokens of the step.
[collective: the data-parallel group] `labels`: tensors, or `nothing` for no tokens.
"""
function loss_weights(context::Context, labels; ignore_index::Integer = -100, shifted::Bool = true)
    weights = zeros(length(labels))
    ignored = prepared(() -> Int64(ignore_index), () -> group_along(context, :data))
    check(told_tensors(labels) do row
        nxd_loss_weights(context, row, length(labels), ignored, shifted, weights)
    end)
    weights
end
