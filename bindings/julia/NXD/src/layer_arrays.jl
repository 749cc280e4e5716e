# Layers over arrays of one's own, forward and backward, without libtorch. Arrays are read and written
# in place, in any strides; "the last dimension" of nxd.h is the first of a Julia array's size, so that
# x is (features, rows) and a weight (in_features, out_features). Options are the fields of the C
# struct; `nothing` leaves an array out, such as a gradient that is not wanted.

borrowed_or_null(::Nothing) = Ptr{DLTensor}(C_NULL)
borrowed_or_null(a::AbstractArray) = Borrowed(a)

"Arrays and options of a call; where they are bad, the peers are told, who are in it or about to be."
function described(context, T, options, arrays)
    prepared(() -> group_along(context, :tensor)) do
        map(borrowed_or_null, arrays), Options(T; options...)
    end
end

for (name, options, inputs, outputs) in (
        (:column_linear_forward, :column_linear, (:x, :weight, :bias), (:y,)),
        (:column_linear_backward, :column_linear, (:x, :weight, :grad_y), (:grad_x, :grad_weight, :grad_bias)),
        (:row_linear_forward, :row_linear, (:x, :weight, :bias), (:y,)),
        (:row_linear_backward, :row_linear, (:x, :weight, :grad_y), (:grad_x, :grad_weight, :grad_bias)),
        (:vocab_parallel_embedding_forward, :vocab_parallel_embedding, (:ids, :weight), (:y,)),
        (:vocab_parallel_embedding_backward, :vocab_parallel_embedding, (:ids, :grad_y), (:grad_weight,)),
        (:parallel_cross_entropy_forward, :parallel_cross_entropy, (:logits, :labels), (:statistics, :loss)),
        (:parallel_cross_entropy_backward, :parallel_cross_entropy,
         (:logits, :labels, :statistics, :grad_loss), (:grad_logits,)),
        (:rms_norm_forward, :normalization, (:x, :weight), (:y, :statistics)),
        (:rms_norm_backward, :normalization, (:x, :weight, :statistics, :grad_y), (:grad_x, :grad_weight)),
        (:layer_norm_forward, :normalization, (:x, :weight, :bias), (:y, :statistics)),
        (:layer_norm_backward, :normalization, (:x, :weight, :statistics, :grad_y),
         (:grad_x, :grad_weight, :grad_bias)),
        (:linear_cross_entropy_forward, :linear_cross_entropy, (:x, :weight, :bias, :labels), (:statistics, :loss)),
        (:linear_cross_entropy_backward, :linear_cross_entropy,
         (:x, :weight, :bias, :labels, :statistics, :grad_loss), (:grad_x, :grad_weight, :grad_bias)))
    f, call, T = Symbol(name, "!"), Symbol("nxd_", name), Symbol("nxd_", options, "_options_t")
    every, n = (inputs..., outputs...), length(inputs)
    what = "    $f(context, $(join(every, ", ")); options...)\n\n`$call` over arrays of one's own. " *
           "[collective: tensor-parallel group]"
    @eval @doc $what function $f(context::Context, $(every...); options...)
        arrays, made = described(context, $T, options, ($(every...),))
        check($call(context, arrays[1:$n]..., made, arrays[$(n + 1):end]...))
    end
end

# Lists with one array per weight; `nothing` where one, or all of them, are left out.
lists(count, name, ::Nothing) = nothing
function lists(count, name, arrays)
    length(arrays) == count || throw(DimensionMismatch(
        "$name: expected one for each of $count weights, got $(length(arrays))"))
    map(borrowed_or_null, collect(Any, arrays))
end
list_pointers(::Nothing) = Ptr{Ptr{DLTensor}}(C_NULL)
list_pointers(list) = Ptr{DLTensor}[Base.unsafe_convert(Ptr{DLTensor}, b) for b in list]

function described_lists(context, options, weights, given)
    prepared(() -> group_along(context, :tensor)) do
        n = length(weights)
        kept = Any[lists(n, name, arrays) for (name, arrays) in (:weights => weights, given...)]
        kept, n, Options(nxd_column_linear_options_t; options...)
    end
end

"""
    column_linears_forward!(context, x, weights, biases, ys; options...)

`column_linear_forward!` of one `x` by several weights, such as those of query, key and value: under
sequence parallelism `x` is gathered once. [collective: tensor-parallel group]
"""
function column_linears_forward!(context::Context, x, weights, biases, ys; options...)
    kept, n, made = described_lists(context, options, weights, (:biases => biases, :ys => ys))
    (input,), _ = described(context, nxd_column_linear_options_t, (), (x,))
    GC.@preserve kept check(nxd_column_linears_forward(
        context, input, list_pointers(kept[1]), list_pointers(kept[2]), n, made, list_pointers(kept[3])))
end

"""
    column_linears_backward!(context, x, weights, grad_ys, grad_x, grad_weights, grad_biases; options...)

Its gradients; that of `x` is one sum over weights and ranks. [collective: tensor-parallel group]
"""
function column_linears_backward!(context::Context, x, weights, grad_ys, grad_x, grad_weights, grad_biases;
                                  options...)
    kept, n, made = described_lists(context, options, weights,
                                    (:grad_ys => grad_ys, :grad_weights => grad_weights,
                                     :grad_biases => grad_biases))
    (input, gradient), _ = described(context, nxd_column_linear_options_t, (), (x, grad_x))
    GC.@preserve kept check(nxd_column_linears_backward(
        context, input, list_pointers(kept[1]), list_pointers(kept[2]), n, made, gradient,
        list_pointers(kept[3]), list_pointers(kept[4])))
end

for (name, from, to) in ((:dropout_forward, :x, :y), (:dropout_backward, :grad_y, :grad_x))
    f, call = Symbol(name, "!"), Symbol("nxd_", name)
    what = "    $f(context, name, $from, $to; p, options...)\n\n`$call` over arrays of one's own. " *
           "[collective: tensor-parallel group]"
    @eval @doc $what function $f(context::Context, name::AbstractString, $from, $to; options...)
        kept = Any[]
        input, made, output, label = prepared(() -> group_along(context, :tensor)) do
            Borrowed($from), Options(nxd_dropout_options_t; options...), written($to), c_string(name, kept)
        end
        GC.@preserve kept check($call(context, label, input, made, output))
    end
end

for (name, from, to) in ((:region_mapping_forward, :x, :y), (:region_mapping_backward, :grad_y, :grad_x))
    f, call = Symbol(name, "!"), Symbol("nxd_", name)
    what = "    $f(context, mapping, dim, $from, $to)\n\n`$call`; `dim` is that of the shape in C, " *
           "from 0, or from its end when negative. [collective: tensor-parallel group]"
    @eval @doc $what function $f(context::Context, mapping, dim::Integer, $from, $to)
        which, along, input, output = prepared(() -> group_along(context, :tensor)) do
            convert(nxd_region_mapping_t, mapping), Int32(dim), Borrowed($from), written($to)
        end
        check($call(context, which, along, input, output))
    end
end

# Shards of weights. `dim` is the dimension of the Julia array, from 1, that ranks have parts of;
# `nothing`: each rank has the whole weight.
function shard_options(dim, array, options)
    dim === nothing && return Options(nxd_shard_options_t; options...)
    Options(nxd_shard_options_t; dim = c_dimension(dim, array), options...)
end

"""
    shard_initialize!(context, name, init, a, b, shard; dim, options...)

Fills a shard with the initial values that the undivided weight of that name has.
"""
shard_initialize!(context::Context, name::AbstractString, init, a::Real, b::Real, shard::AbstractArray;
                  dim = nothing, options...) =
    check(nxd_shard_initialize(context, name, init, a, b, shard_options(dim, shard, options),
                               Borrowed(shard)))

"Copies this rank's part of a whole weight."
shard_set_full!(context::Context, full::AbstractArray, shard::AbstractArray; dim = nothing, options...) =
    check(nxd_shard_set_full(context, Borrowed(full), shard_options(dim, shard, options),
                             Borrowed(shard)))

"Puts a whole weight together on every rank. [collective: tensor-parallel group]"
function shard_gather_full!(context::Context, shard::AbstractArray, full::AbstractArray; dim = nothing,
                            options...)
    part, made, whole = prepared(() -> group_along(context, :tensor)) do
        Borrowed(shard), shard_options(dim, shard, options), written(full)
    end
    check(nxd_shard_gather_full(context, part, made, whole))
end

"Reads this rank's part of a tensor of safetensors, and no other bytes of it."
shard_load_safetensors!(context::Context, path::AbstractString, name::AbstractString, shard::AbstractArray;
                        dim = nothing, options...) =
    check(nxd_shard_load_safetensors(context, path, name, shard_options(dim, shard, options),
                                     Borrowed(shard)))
