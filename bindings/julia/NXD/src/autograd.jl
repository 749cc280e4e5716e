requires_grad(t::Tensor) = number(out -> nxd_tensor_get_requires_grad(t, out)) != 0

"Makes a leaf require a gradient, or not; gives the tensor."
function requires_grad!(t::Tensor, on::Bool = true)
    check(nxd_tensor_set_requires_grad(t, on))
    t
end

maybe_tensor(p::Ptr{nxd_tensor_t}) = p == C_NULL ? nothing : Tensor(p)

"Gradient accumulated in a leaf; `nothing` when there is none yet."
grad(t::Tensor) = maybe_tensor(value(out -> nxd_tensor_share_grad(t, out), Ptr{nxd_tensor_t}))

"Replaces the gradient of a leaf; `nothing` clears it."
grad!(t::Tensor, g::Union{Tensor,Nothing}) =
    check(nxd_tensor_set_grad(t, g === nothing ? Ptr{nxd_tensor_t}(C_NULL) : g))

"A handle on the same memory, outside of the recorded graph."
detach(t::Tensor) = given(out -> nxd_tensor_detach(t, out), Tensor)

# Recording and casts are settings of a thread, which the task does not leave meanwhile. Another task
# of this thread sees them too, so what is called in between should not wait for other tasks.

"Calls `f` without recording."
function no_grad(f)
    on_this_thread() do
        before = value(out -> nxd_set_grad_enabled(0, out), Int32)
        try
            f()
        finally
            check(nxd_set_grad_enabled(before, C_NULL))
        end
    end
end

"""
    autocast(f, T = BFloat16)

Calls `f` with automatic casts: products of matrices run in 16 bits. `T = nothing`: without.
"""
function autocast(f, T = BFloat16)
    wanted = T === nothing ? NXD_DTYPE_INVALID : dtype(T)
    on_this_thread() do
        before = value(out -> nxd_set_autocast(wanted, out), nxd_dtype_t)
        try
            f()
        finally
            check(nxd_set_autocast(before, C_NULL))
        end
    end
end

as_list(x::Tensor) = (x,)
as_list(xs) = xs

function with_handles(f, outputs, grads)
    gs = grads === nothing ? nothing : as_list(grads)
    gs === nothing || length(gs) == length(outputs) || throw(DimensionMismatch(
        "expected one gradient for each of $(length(outputs)) outputs, got $(length(gs))"))
    GC.@preserve outputs gs f(handles(nxd_tensor_t, outputs), gs === nothing ?
        Ptr{Ptr{nxd_tensor_t}}(C_NULL) : handles(nxd_tensor_t, gs))
end

"""
    backward(outputs; grads, retain_graph = false)

Accumulates gradients into the leaves of the graph. [collective: the groups of its layers] Without
`grads` outputs are scalars.
"""
function backward(outputs; grads = nothing, retain_graph::Bool = false)
    xs = as_list(outputs)
    with_handles(xs, grads) do rows, grad_rows
        check(nxd_backward(rows, grad_rows, length(xs), retain_graph))
    end
end

"""
    grad(outputs, inputs; grads, retain_graph = false)

Gradients with respect to inputs, without touching any leaf's; `nothing` where one has no influence.
"""
function grad(outputs, inputs; grads = nothing, retain_graph::Bool = false)
    xs, ys = as_list(outputs), as_list(inputs)
    found = fill(Ptr{nxd_tensor_t}(C_NULL), length(ys))
    with_handles(xs, grads) do rows, grad_rows
        GC.@preserve ys check(nxd_grad(rows, grad_rows, length(xs), handles(nxd_tensor_t, ys),
                                            length(ys), retain_graph, found))
    end
    map(maybe_tensor, found)
end

# ---- tensors inside callbacks: borrowed until the callback ends

"What borrowed arguments of a callback belong to: open while it runs."
mutable struct Scope
    open::Bool
end
owner_is_open(scope::Scope) = scope.open

function in_scope(f)
    scope = Scope(true)
    try
        return f(scope)
    finally
        scope.open = false
    end
end

borrowed_tensor(p::Ptr{nxd_tensor_t}, scope) = p == C_NULL ? nothing : Tensor(p; owner = scope)
borrowed_tensors(row, n, scope) = ntuple(i -> borrowed_tensor(unsafe_load(row, i), scope), Int(n))

# The library takes over what it is given, so it gets handles of its own.
function hand_over(results, row, n)
    list = results isa Union{Tuple,AbstractVector{<:Union{Tensor,Nothing}}} ? results : (results,)
    length(list) == n || throw(DimensionMismatch("expected $n outputs, got $(length(list))"))
    for (i, x) in enumerate(list)
        x === nothing && continue
        t = x isa Tensor ? x : Tensor(x)
        unsafe_store!(row, value(out -> nxd_tensor_retain(t, out), Ptr{nxd_tensor_t}), i)
        x isa Tensor || close(t)
    end
end

# ---- custom functions

@object CustomFunction nxd_function_t nxd_function_destroy

@doc """
    CustomFunction(name, forward; backward, shape, num_outputs = 1)

A differentiable function written in Julia, called like one: `f(inputs...)`.

`forward(call, inputs...)` gives a tensor or an array, or a tuple of `num_outputs`.
`backward(call, grad_outputs...)` gives one gradient for each input, `nothing` where there is none;
a `nothing` among its arguments means zero. `shape(inputs...)` does what forward does, on the meta
device. Arguments are borrowed until the callback ends. See `save`, `saved` and `needs_grad`.
""" CustomFunction

@entry on_forward(call, inputs, num_inputs, outputs, num_outputs, data) function_forward
@entry on_backward(call, grads, num_outputs, grad_inputs, num_inputs, data) function_backward
@entry on_shape(inputs, num_inputs, outputs, num_outputs, data) function_shape

"One application of a custom function, valid inside its callbacks."
struct FunctionCall
    handle::Ptr{nxd_function_call_t}
    scope::Scope
end

function handle(call::FunctionCall)
    call.scope.open || throw(ArgumentError("this call of a custom function is over"))
    call.handle
end

function_forward(call, inputs, num_inputs, outputs, num_outputs, data) = in_scope() do scope
    run = callback_of(data).run
    hand_over(run.forward(FunctionCall(call, scope), borrowed_tensors(inputs, num_inputs, scope)...),
              outputs, num_outputs)
end

function_backward(call, grads, num_outputs, grad_inputs, num_inputs, data) = in_scope() do scope
    run = callback_of(data).run
    hand_over(run.backward(FunctionCall(call, scope), borrowed_tensors(grads, num_outputs, scope)...),
              grad_inputs, num_inputs)
end

function_shape(inputs, num_inputs, outputs, num_outputs, data) = in_scope() do scope
    run = callback_of(data).run
    hand_over(run.shape(borrowed_tensors(inputs, num_inputs, scope)...), outputs, num_outputs)
end

function CustomFunction(name::AbstractString, forward; backward = nothing, shape = nothing,
                        num_outputs::Integer = 1)
    callback = register((forward = forward, backward = backward, shape = shape))
    on_f = @cfunction(on_forward, Int32, (Ptr{nxd_function_call_t}, Ptr{Ptr{nxd_tensor_t}}, Csize_t,
                                          Ptr{Ptr{nxd_tensor_t}}, Csize_t, Ptr{Cvoid}))
    on_b = @cfunction(on_backward, Int32, (Ptr{nxd_function_call_t}, Ptr{Ptr{nxd_tensor_t}}, Csize_t,
                                           Ptr{Ptr{nxd_tensor_t}}, Csize_t, Ptr{Cvoid}))
    on_s = @cfunction(on_shape, Int32, (Ptr{Ptr{nxd_tensor_t}}, Csize_t, Ptr{Ptr{nxd_tensor_t}},
                                        Csize_t, Ptr{Cvoid}))
    taking(callback) do
        options = Options(nxd_function_options_t; name = name, num_outputs = num_outputs, forward = on_f,
                          backward = backward === nothing ? nothing : on_b,
                          shape = shape === nothing ? nothing : on_s,
                          user_data = user_data(callback), destroy = release_entry[])
        given(out -> nxd_function_create(options, out), CustomFunction; kept = Int(num_outputs))
    end
end

# Handles come back in a row: one is itself, several are a tuple.
function several(call, n)
    row = fill(Ptr{nxd_tensor_t}(C_NULL), n)
    check(call(row))
    found = ntuple(i -> maybe_tensor(row[i]), n)
    n == 1 ? found[1] : found
end

(f::CustomFunction)(inputs::Tensor...) = several(f.kept) do row
    GC.@preserve inputs nxd_function_apply(f, handles(nxd_tensor_t, inputs), length(inputs), row,
                                           length(row))
end

"Keeps a tensor from forward for backward."
save(call::FunctionCall, t::Tensor) = check(nxd_function_call_save(handle(call), t))
"A tensor kept by forward, by its order from 1."
saved(call::FunctionCall, index::Integer) = borrowed_tensor(value(Ptr{nxd_tensor_t}) do out
    nxd_function_call_get_saved(handle(call), index - 1, out)
end, call.scope)
"True if backward needs the gradient of an input, counted from 1."
needs_grad(call::FunctionCall, index::Integer) =
    number(out -> nxd_function_call_needs_grad(handle(call), index - 1, out)) != 0
