@object ModuleNode nxd_module_t nxd_module_destroy

@doc """
    ModuleNode(context, class_name)              a container
    ModuleNode(forward, context, class_name)     with a forward function written in Julia

Node of a model, called like a function: `m(inputs...; num_outputs = 1)`; `nothing` stands for an
input that is left out. [collective: the groups of its layers]

`forward(self, inputs...)` gives a tensor or a tuple of as many as were asked for; its arguments are
borrowed until it ends. The module keeps `forward` and what it captures alive: take `self`, since a
function that captures its own module is never let go.
""" ModuleNode

@entry on_module_forward(self, inputs, num_inputs, outputs, num_outputs, data) module_forward

module_forward(self, inputs, num_inputs, outputs, num_outputs, data) = in_scope() do scope
    forward = callback_of(data).run
    hand_over(forward(ModuleNode(self; owner = scope), borrowed_tensors(inputs, num_inputs, scope)...),
              outputs, num_outputs)
end

ModuleNode(context::Context, class_name::AbstractString) = given(ModuleNode) do out
    nxd_module_create(context, class_name, C_NULL, C_NULL, C_NULL, out)
end

function ModuleNode(forward::Function, context::Context, class_name::AbstractString)
    callback = register(forward)
    entry = @cfunction(on_module_forward, Int32, (Ptr{nxd_module_t}, Ptr{Ptr{nxd_tensor_t}}, Csize_t,
                                                  Ptr{Ptr{nxd_tensor_t}}, Csize_t, Ptr{Cvoid}))
    taking(callback) do
        given(ModuleNode) do out
            nxd_module_create(context, class_name, entry, user_data(callback), release_entry[], out)
        end
    end
end

"A module that calls its children in order; they become \"0\", \"1\" and so on."
sequential(context::Context, children::ModuleNode...) = given(ModuleNode) do out
    GC.@preserve children nxd_module_create_sequential(context, handles(nxd_module_t, children),
                                                       length(children), out)
end

"""
    deferred_init(f)

Calls `f`, in which modules are made on the meta device: their parameters have shapes and no memory
until they are moved or loaded, or a pipeline has them.
"""
function deferred_init(f)
    on_this_thread() do
        before = value(out -> nxd_set_deferred_init(1, out), Int32)
        try
            f()
        finally
            check(nxd_set_deferred_init(before, C_NULL))
        end
    end
end

(m::ModuleNode)(inputs::Union{Tensor,Nothing}...; num_outputs::Integer = 1) = several(num_outputs) do row
    told_tensors(given_row -> nxd_module_forward(m, given_row, length(inputs), row, length(row)), inputs)
end

"Adds a child under a name; the parent keeps it alive."
add_child!(parent::ModuleNode, name::AbstractString, child::ModuleNode) =
    check(nxd_module_add_child(parent, name, child))

"""
The path of each output that the last forward could give: names, keys and positions that lead to it in
the result, joined by dots.
"""
output_paths(m::ModuleNode) =
    named(nxd_module_get_output_count, nxd_module_get_output_path, m)

class_name(m::ModuleNode) = strings(out -> nxd_module_get_class_name(m, out))

"A module below this one by its dotted path."
submodule(root::ModuleNode, path::AbstractString) =
    given(out -> nxd_module_find_module(root, path, out), ModuleNode; owner = root)

"Direct children by name, in order of addition."
function children(m::ModuleNode)
    count = Int(value(out -> nxd_module_get_child_count(m, out), Csize_t))
    map(0:count - 1) do index
        name = Ref{Cstring}(no_string)
        child = given(out -> nxd_module_get_child(m, index, out, name), ModuleNode; owner = m)
        text(name[]) => child
    end
end

"Switches the module and all below it between training and evaluation."
training!(m::ModuleNode, on::Bool = true) = check(nxd_module_set_training(m, on))
"Draws all parameters of the tree anew."
initialize!(root::ModuleNode, seed::Integer) = check(nxd_module_initialize(root, seed))
"Moves all parameters of the tree to `:cpu` or `:meta`, in place."
move!(root::ModuleNode, device::Symbol) = check(nxd_move_model_to_device(root, device))
"Casts all parameters of the tree to the dtype of `T`, in place."
cast!(root::ModuleNode, ::Type{T}) where {T} = check(nxd_module_cast(root, dtype(T)))
"Makes a parameter stand for another's as well."
tie!(root::ModuleNode, owner_path::AbstractString, alias_path::AbstractString) =
    check(nxd_module_tie(root, owner_path, alias_path))
"Adds a tensor that no gradient reaches, such as a running mean, and shares it."
add_buffer!(m::ModuleNode, name::AbstractString, tensor::Tensor; saved::Bool = true) =
    check(nxd_module_add_buffer(m, name, tensor, saved))
"A buffer of the tree by its name."
buffer(root::ModuleNode, name::AbstractString) =
    given(out -> nxd_module_share_buffer(root, name, out), Tensor)
"The names of all buffers of the tree."
function buffer_names(root::ModuleNode)
    count = Int(value(out -> nxd_module_get_buffer_count(root, out), Csize_t))
    map(0:count - 1) do index
        copied((buf, cap, needed) -> nxd_module_get_buffer_name(root, index, buf, cap, needed))
    end
end
"Forgets the gradients of all parameters of the tree."
zero_grad!(root::ModuleNode) = check(nxd_module_zero_grad(root))
"The whole initial weight of a layer made with keep_master_weight."
master_weight(m::ModuleNode) =
    given(out -> nxd_module_get_master_weight(m, out), Tensor; owner = m)

"""
    checkpoint!(root, names = []; on = true)

Recomputes the activations of modules, by path or class name, in their backward pass; no names: of
all transformer layers of a built-in model.
"""
function checkpoint!(root::ModuleNode, names = String[]; on::Bool = true)
    kept = Any[]
    row = isempty(names) ? Ptr{Cstring}(C_NULL) : field(Ptr{Cstring}, names, kept)
    GC.@preserve kept check(nxd_apply_checkpoint(root, row, length(names), on))
end

@entry on_pad(m, num_heads, num_padded_heads, data) pad_hook
pad_hook(m, num_heads, num_padded_heads, data) = in_scope() do scope
    callback_of(data).run(ModuleNode(m; owner = scope), Int(num_heads), Int(num_padded_heads))
end

"""
    pad!([hook,] root, tp_degree, num_heads; wrapped_classes = [])

Has column- and row-parallel layers, those below modules of some classes or all, share whole heads,
as if heads of zeros followed up to a multiple of `tp_degree`. `hook(m, num_heads, num_padded_heads)`
is called with each module that is visited. [collective: tensor-parallel group]
"""
function pad!(hook, root::ModuleNode, tp_degree::Integer, num_heads::Integer;
              wrapped_classes = String[])
    kept = Any[]
    row = try
        isempty(wrapped_classes) ? Ptr{Cstring}(C_NULL) : field(Ptr{Cstring}, wrapped_classes, kept)
    catch
        # The peers are in the call already, or about to be: names without an array fail it on them.
        nxd_pad_model(root, tp_degree, num_heads, C_NULL, length(wrapped_classes), C_NULL, C_NULL)
        rethrow()
    end
    callback = hook === nothing ? nothing : register(hook)
    entry = callback === nothing ? C_NULL :
        @cfunction(on_pad, Int32, (Ptr{nxd_module_t}, Int64, Int64, Ptr{Cvoid}))
    data = callback === nothing ? C_NULL : user_data(callback)
    try
        GC.@preserve kept check(nxd_pad_model(root, tp_degree, num_heads, row,
                                              length(wrapped_classes), entry, data))
    finally
        callback === nothing || unregister(callback) # it is called by this call alone
    end
end
pad!(root::ModuleNode, tp_degree::Integer, num_heads::Integer; options...) =
    pad!(nothing, root, tp_degree, num_heads; options...)

# ---- parameters

"Parameter of a module, or rather this rank's shard of it; it belongs to the module."
mutable struct Parameter <: Object{nxd_parameter_t}
    handle::Ptr{nxd_parameter_t}
    owner::Any
    kept::Any
    Parameter(handle::Ptr{nxd_parameter_t}; owner, kept = nothing) = new(handle, owner, kept)
end

"""
    add_parameter!(m, name, dims; dtype, shard_dim, sequence_parallel, init, init_a, ...)

Adds a parameter whose whole has size `dims`; keywords are the fields of `nxd_parameter_options_t`,
whose dimensions are those of the reversed size.
"""
function add_parameter!(m::ModuleNode, name::AbstractString, dims; options...)
    lengths, made = Int64[reverse(Tuple(dims))...], Options(nxd_parameter_options_t; options...)
    given(Parameter; owner = m) do out
        nxd_module_add_parameter(m, name, lengths, length(lengths), made, out)
    end
end

"Parameters of the tree by name; tied ones once."
function parameters(root::ModuleNode)
    count = Int(value(out -> nxd_module_get_parameter_count(root, out), Csize_t))
    map(0:count - 1) do index
        name = Ref{Cstring}(no_string)
        p = given(out -> nxd_module_get_parameter(root, index, out, name), Parameter; owner = root)
        text(name[]) => p
    end
end

"A parameter of the tree by its name."
Base.getindex(root::ModuleNode, name::AbstractString) =
    given(out -> nxd_module_find_parameter(root, name, out), Parameter; owner = root)

"This rank's shard."
Tensor(p::Parameter) = given(out -> nxd_parameter_get_tensor(p, out), Tensor; owner = p)

"Size of the whole parameter."
Base.size(p::Parameter) = reverse(Tuple(listed(Int64) do row, cap, n
    nxd_parameter_get_global_shape(p, row, cap, n)
end))

"""
Which part of the whole this rank has: the dimension of `size` that is split, and the ranges of
indices in it; `nothing` for a replicated parameter.
"""
function shard(p::Parameter)
    dim, n = Ref{Int32}(-1), Ref{Csize_t}(0)
    check(nxd_parameter_get_shard(p, dim, C_NULL, C_NULL, 0, n))
    dim[] < 0 && return nothing
    begins, ends = zeros(Int64, n[]), zeros(Int64, n[])
    check(nxd_parameter_get_shard(p, dim, begins, ends, length(begins), n))
    (length(size(p)) - Int(dim[]), [b + 1:e for (b, e) in zip(begins, ends)])
end

"Overwrites this rank's shard with its part of the whole value."
set_full!(p::Parameter, whole::Tensor) = check(nxd_parameter_set_full(p, whole))
set_full!(p::Parameter, whole::AbstractArray) = Tensor(t -> set_full!(p, t), whole)

"The whole value. [collective: tensor-parallel group]"
gather_full(p::Parameter) = given(out -> nxd_parameter_gather_full(p, out), Tensor)
"The whole gradient, or `nothing`. [collective: tensor-parallel group]"
gather_full_grad(p::Parameter) =
    maybe_tensor(value(out -> nxd_parameter_gather_full_grad(p, out), Ptr{nxd_tensor_t}))
"Freezes or frees a parameter."
trainable!(p::Parameter, on::Bool) = check(nxd_parameter_set_trainable(p, on))

@entry on_grad(parameter, data) grad_hook
grad_hook(parameter, data) = in_scope() do scope
    callback_of(data).run(Parameter(parameter; owner = scope))
end

"Calls `f(parameter)` when a backward pass has added to its gradient; `nothing`: no longer."
function on_gradient!(f, p::Parameter)
    callback = register(f)
    entry = @cfunction(on_grad, Int32, (Ptr{nxd_parameter_t}, Ptr{Cvoid}))
    taking(callback) do
        check(nxd_parameter_set_grad_hook(p, entry, user_data(callback), release_entry[]))
    end
end
on_gradient!(::Nothing, p::Parameter) =
    check(nxd_parameter_set_grad_hook(p, C_NULL, C_NULL, C_NULL))

@entry on_initializer(name, shape, ndim, first, values, count, data) initial_values
initial_values(name, shape, ndim, first, values, count, data) =
    callback_of(data).run(unsafe_string(name), reverse(Tuple(unsafe_wrap(Array, shape, ndim))),
                          Int(first) + 1, unsafe_wrap(Array, values, count))

"""
    initializer!(f, target)

A parameter, or all that a tree has now, take their initial values from `f(name, size, first,
values)` whenever they are drawn: it fills `values` with those of the whole array's elements from the
linear index `first` on. `nothing` for `f`: from their layers' options and the seed again.
"""
function initializer!(f, target::Union{Parameter,ModuleNode})
    callback = register(f)
    entry = @cfunction(on_initializer, Int32, (Ptr{UInt8}, Ptr{Int64}, Csize_t, Int64, Ptr{Cdouble},
                                               Csize_t, Ptr{Cvoid}))
    taking(callback) do
        check(set_initializer(target, entry, user_data(callback), release_entry[]))
    end
end
initializer!(::Nothing, target::Union{Parameter,ModuleNode}) =
    check(set_initializer(target, C_NULL, C_NULL, C_NULL))
set_initializer(p::Parameter, arguments...) = nxd_parameter_set_initializer(p, arguments...)
set_initializer(m::ModuleNode, arguments...) = nxd_module_set_initializer(m, arguments...)

# ---- files

"""
    load!(root, path; strict = true)

Reads parameters from safetensors, each rank its own shards; gives what did not match, the names
that are missing, unexpected and of another shape.
"""
function load!(root::ModuleNode, path::AbstractString; strict::Bool = true)
    report = Ref{Ptr{nxd_load_report_t}}(C_NULL)
    status = nxd_module_load_safetensors(root, path, strict, report)
    status == NXD_OK || (raised = last_error(status))
    try
        status == NXD_OK || throw(raised)
        return (missing = mismatches(report[], :missing), unexpected = mismatches(report[], :unexpected),
                shape = mismatches(report[], :shape))
    finally
        nxd_load_report_destroy(report[])
    end
end

function mismatches(report, kind)
    count = Int(value(out -> nxd_load_report_get_count(report, kind, out), Csize_t))
    [strings(out -> nxd_load_report_get_name(report, kind, i, out)) for i in 0:count - 1]
end

"Writes the whole parameters as one safetensors file. [collective: tensor- and pipeline-parallel groups]"
save(root::ModuleNode, path::AbstractString) =
    told(given_path -> check(nxd_module_save_safetensors(root, given_path)), path)

# ---- tapes

@object Tape nxd_tape_t nxd_tape_destroy
@may_not_close_within Tape

@doc "One run of a module that a framework with its own differentiation can go back through." Tape

"""
    forward_tape(m, inputs...; num_outputs = 1)

Runs the module and gives its outputs and a tape; `pullback!(tape, grad_outputs...)` adds to the
parameters' gradients and gives those of the inputs. [collective: the groups of its layers]
"""
function forward_tape(m::ModuleNode, inputs::Union{Tensor,Nothing}...; num_outputs::Integer = 1)
    tape = Ref{Ptr{nxd_tape_t}}(C_NULL)
    outputs = several(num_outputs) do row
        told_tensors(inputs) do given_row
            nxd_module_forward_tape(m, given_row, length(inputs), row, length(row), tape)
        end
    end
    (outputs, Tape(tape[]; kept = length(inputs)))
end

pullback!(tape::Tape, grads::Union{Tensor,Nothing}...) = several(tape.kept) do row
    told_tensors(given_row -> nxd_tape_backward(tape, given_row, length(grads), row, length(row)), grads)
end
