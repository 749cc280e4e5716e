@object Pipeline nxd_pp_t nxd_pp_destroy
@may_not_close_within Pipeline

@doc """
    Pipeline(context; forward, backward, inputs, outputs, num_microbatches, ...)   Julia's own stages
    Pipeline(model, examples...; num_microbatches, ...)                            a model, cut

Stages on this rank and the schedule they run by. [collective: the pipeline-parallel group]

**Stages written in Julia**: `inputs` and `outputs` say what comes from the stage before and goes to
the stage after: for each of this rank's chunks a list of `(name, T, size)` or
`(name, T, size, needs_grad)`; the first stage has no inputs, the last no outputs. The functions get
arrays over the pipeline's own memory:

  * `forward(call, inputs, outputs)` fills outputs; in the last stage it gives the loss;
  * `backward(call, inputs, grad_outputs, grad_inputs)` fills `grad_inputs` and adds to gradients of
    its own; an array is `nothing` where a value needs no gradient;
  * `backward_input`, `backward_weight(call, inputs, grad_outputs)`: its two halves, if there are.

`call` has stage, chunk, microbatch, last and loss_weight, as `nxd_pp_call_t`. Other keywords are
the fields of `nxd_pp_callbacks_options_t`; `run!` runs a step.

**A model**: it is traced on `examples`, cut into stages, and run with `train!` and `evaluate`.
Keywords are the fields of `nxd_pp_options_t`, with `pipeline_cuts`, `leaf_modules` and
`input_names` as lists; `leaf_rule(module, path, is_leaf)` and `param_init(parameter, name, tensor)`
are functions.
""" Pipeline

# ---- stages written in Julia

borrowed_or_none(p::Ptr{DLTensor}) = p == C_NULL ? nothing : borrowed_array(p)
stage_arrays(row, n) = ntuple(i -> borrowed_or_none(unsafe_load(row, i)), n)

function stage_counts(data, call)
    run, chunk = callback_of(data).run, Int(call.chunk) + 1
    (run, run.num_inputs[chunk], run.num_outputs[chunk])
end

@entry on_stage_forward(call, inputs, outputs, out_loss, data) stage_forward
@entry on_stage_backward(call, inputs, grad_outputs, grad_inputs, data) stage_backward
@entry on_stage_backward_input(call, inputs, grad_outputs, grad_inputs, data) stage_backward_input
@entry on_stage_backward_weight(call, inputs, grad_outputs, data) stage_backward_weight

function stage_forward(call_pointer, inputs, outputs, out_loss, data)
    call = unsafe_load(call_pointer)
    run, n, m = stage_counts(data, call)
    loss = run.forward(call, stage_arrays(inputs, n), stage_arrays(outputs, m))
    out_loss == C_NULL || loss === nothing || unsafe_store!(out_loss, loss)
end

function stage_backward(call_pointer, inputs, grad_outputs, grad_inputs, data)
    call = unsafe_load(call_pointer)
    run, n, m = stage_counts(data, call)
    run.backward(call, stage_arrays(inputs, n), stage_arrays(grad_outputs, m), stage_arrays(grad_inputs, n))
end

function stage_backward_input(call_pointer, inputs, grad_outputs, grad_inputs, data)
    call = unsafe_load(call_pointer)
    run, n, m = stage_counts(data, call)
    run.backward_input(call, stage_arrays(inputs, n), stage_arrays(grad_outputs, m),
                       stage_arrays(grad_inputs, n))
end

function stage_backward_weight(call_pointer, inputs, grad_outputs, data)
    call = unsafe_load(call_pointer)
    run, n, m = stage_counts(data, call)
    run.backward_weight(call, stage_arrays(inputs, n), stage_arrays(grad_outputs, m))
end

"What a chunk's values are, one after the other, and how many each chunk has."
function described(chunks, kept)
    row = nxd_pp_value_t[]
    for values in chunks, described_value in values
        name, T, dims = described_value
        needs_grad = length(described_value) < 4 || described_value[4]
        lengths = Int64[reverse(Tuple(dims))...]
        push!(kept, lengths)
        push!(row, nxd_pp_value_t(c_string(name, kept), pointer(lengths), length(lengths), dtype(T),
                                  needs_grad, 0))
    end
    (row, Csize_t[length(values) for values in chunks])
end

function stage_entries(callback, run)
    forward = @cfunction(on_stage_forward, Int32, (Ptr{nxd_pp_call_t}, Ptr{Ptr{DLTensor}},
                         Ptr{Ptr{DLTensor}}, Ptr{Cdouble}, Ptr{Cvoid}))
    backward = @cfunction(on_stage_backward, Int32, (Ptr{nxd_pp_call_t}, Ptr{Ptr{DLTensor}},
                          Ptr{Ptr{DLTensor}}, Ptr{Ptr{DLTensor}}, Ptr{Cvoid}))
    input = @cfunction(on_stage_backward_input, Int32, (Ptr{nxd_pp_call_t}, Ptr{Ptr{DLTensor}},
                       Ptr{Ptr{DLTensor}}, Ptr{Ptr{DLTensor}}, Ptr{Cvoid}))
    weight = @cfunction(on_stage_backward_weight, Int32, (Ptr{nxd_pp_call_t}, Ptr{Ptr{DLTensor}},
                        Ptr{Ptr{DLTensor}}, Ptr{Cvoid}))
    nxd_pp_stage_callbacks_t(sizeof(nxd_pp_stage_callbacks_t), user_data(callback), release_entry[],
                             forward, run.backward === nothing ? C_NULL : backward,
                             run.backward_input === nothing ? C_NULL : input,
                             run.backward_weight === nothing ? C_NULL : weight)
end

function Pipeline(context::Context; forward, backward = nothing, backward_input = nothing,
                  backward_weight = nothing, inputs, outputs, options...)
    kept = Any[]
    in_row, n_in, out_row, n_out, made = prepared(() -> group_along(context, :pipeline)) do
        chunks = get(options, :virtual_size, max(length(inputs), 1))
        length(inputs) == length(outputs) == chunks || throw(DimensionMismatch(
            "inputs, outputs: expected a list of values for each of $chunks chunks, got " *
            "$(length(inputs)) and $(length(outputs)) lists"))
        (described(inputs, kept)..., described(outputs, kept)...,
         Options(nxd_pp_callbacks_options_t; virtual_size = length(inputs), options...))
    end
    run = (forward = forward, backward = backward, backward_input = backward_input,
           backward_weight = backward_weight, num_inputs = Int.(n_in), num_outputs = Int.(n_out))
    callback = register(run)
    entries = stage_entries(callback, run)
    GC.@preserve kept taking(callback) do
        given(Pipeline) do out
            nxd_pp_create_callbacks(context, made, in_row, n_in, out_row, n_out, Ref(entries), out)
        end
    end
end

"""
    run!(pipeline; training = true)

One step of a pipeline over Julia's own stages; gives the loss. [collective: the pipeline-parallel
group] When a stage throws, all ranks that still have to do with the run fail, and the rank itself
throws what its stage threw.
"""
run!(pipeline::Pipeline; training::Bool = true) =
    value(out -> nxd_pp_run(pipeline, training, out), Cdouble)

# ---- pipelines of modules

@entry on_param_init(parameter, name, tensor, data) param_init
param_init(parameter, name, tensor, data) = in_scope() do scope
    callback_of(data).run.param_init(Parameter(parameter; owner = scope), unsafe_string(name),
                                     Tensor(tensor; owner = scope))
end

@entry on_leaf(node, path, is_leaf, data) leaf_rule
leaf_rule(node, path, is_leaf, data) = in_scope() do scope
    answer = callback_of(data).run.leaf_rule(ModuleNode(node; owner = scope), unsafe_string(path),
                                             unsafe_load(is_leaf) != 0)
    unsafe_store!(is_leaf, answer)
end

"How many a list field has goes into a field of its own."
list_options(fields) = [(n, fields[l]) for (l, n) in ((:pipeline_cuts, :num_cuts),
    (:leaf_modules, :num_leaf_modules), (:input_names, :num_input_names)) if haskey(fields, l)]

# Says who else is in the call; C_NULL, the default, where that is no partition.
partition_alone(fields) = try
    Options(nxd_pp_options_t; partition = get(fields, :partition, :default))
catch
    C_NULL
end

function Pipeline(model::ModuleNode, examples::Union{Tensor,Nothing}...; param_init = nothing,
                  leaf_rule = nothing, options...)
    made = try
        Options(nxd_pp_options_t; options...)
    catch
        # The peers are in the call already, or about to be: one without an array of examples fails there.
        nxd_pp_create(model, C_NULL, 1, partition_alone(options), Ref(Ptr{nxd_pp_t}(C_NULL)))
        rethrow()
    end
    for (name, list) in list_options(options)
        set_field!(made, name, length(list))
    end
    # The functions have no destroy callback: the pipeline itself keeps them.
    callback = Callback(false, (param_init = param_init, leaf_rule = leaf_rule))
    if param_init !== nothing
        set_field!(made, :param_init, @cfunction(on_param_init, Int32,
            (Ptr{nxd_parameter_t}, Ptr{UInt8}, Ptr{nxd_tensor_t}, Ptr{Cvoid})))
        set_field!(made, :param_init_data, user_data(callback))
    end
    if leaf_rule !== nothing
        set_field!(made, :leaf_rule, @cfunction(on_leaf, Int32,
            (Ptr{nxd_module_t}, Ptr{UInt8}, Ptr{Int32}, Ptr{Cvoid})))
        set_field!(made, :leaf_rule_data, user_data(callback))
    end
    given(Pipeline; kept = Any[callback, nothing]) do out
        told_tensors(row -> nxd_pp_create(model, row, length(examples), made, out), examples)
    end
end

"Forwards and backwards of all microbatches of a batch; gives the loss, where there is one."
train!(pipeline::Pipeline, inputs::Union{Tensor,Nothing}...) = value(Cdouble) do out
    told_tensors(row -> nxd_pp_run_train(pipeline, row, length(inputs), out), inputs)
end

"Forwards alone; gives the loss and, on the rank with the last stage, `num_outputs` outputs."
function evaluate(pipeline::Pipeline, inputs::Union{Tensor,Nothing}...; num_outputs::Integer = 0)
    loss, row = Ref{Cdouble}(0), fill(Ptr{nxd_tensor_t}(C_NULL), num_outputs)
    check(told_tensors(inputs) do given_row
        nxd_pp_run_eval(pipeline, given_row, length(inputs), loss, row, num_outputs)
    end)
    (loss = loss[], outputs = map(maybe_tensor, row))
end

# A run with inputs by name: the array of names, that of tensors, and how many there are. Gives its status.
function with_names(f, inputs)
    kept, tensors = Any[], Tuple(last(each) for each in inputs)
    names = try
        field(Ptr{Cstring}, [String(first(each)) for each in inputs], kept)
    catch
        f(Ptr{Cstring}(C_NULL), Ptr{Ptr{nxd_tensor_t}}(C_NULL), length(tensors)) # fails on all ranks
        rethrow()
    end
    GC.@preserve kept told_tensors(row -> f(names, row, length(tensors)), tensors)
end

"The same with inputs by name, such as `\"labels\" => y`; those that are not named are left out."
train!(pipeline::Pipeline, input::Pair, inputs::Pair...) = value(Cdouble) do out
    with_names((input, inputs...)) do names, row, n
        nxd_pp_run_train_named(pipeline, names, row, n, out)
    end
end

"The same with inputs by name."
function evaluate(pipeline::Pipeline, input::Pair, inputs::Pair...; num_outputs::Integer = 0)
    loss, out = Ref{Cdouble}(0), fill(Ptr{nxd_tensor_t}(C_NULL), num_outputs)
    check(with_names((input, inputs...)) do names, row, n
        nxd_pp_run_eval_named(pipeline, names, row, n, loss, out, num_outputs)
    end)
    (loss = loss[], outputs = map(maybe_tensor, out))
end

"Losses of the last run's microbatches, on the rank with the last stage; with return_mb_loss."
losses(pipeline::Pipeline) = listed((row, cap, n) -> nxd_pp_get_losses(pipeline, row, cap, n), Float64)

"""
Reduces gradients while runs go on; `nothing`: no more. The pipeline keeps the ddp alive. Take it away
before the ddp is closed.
"""
function ddp!(pipeline::Pipeline, ddp::Union{Ddp,Nothing})
    check(nxd_pp_set_ddp(pipeline, ddp === nothing ? Ptr{nxd_ddp_t}(C_NULL) : ddp))
    pipeline.kept[2] = ddp
    nothing
end

"The part of the model that this rank has, for optimizers, ddps, saving and loading."
local_module(pipeline::Pipeline) =
    given(out -> nxd_pp_get_local_module(pipeline, out), ModuleNode; owner = pipeline)

function named(count, name, owner)
    n = Int(value(out -> count(owner, out), Csize_t))
    [strings(out -> name(owner, i, out)) for i in 0:n - 1]
end
"Paths of the modules that this rank's stages call."
local_module_names(pipeline::Pipeline) =
    named(nxd_pp_get_local_module_count, nxd_pp_get_local_module_name, pipeline)
"Paths of the modules that the cuts come after."
cuts(pipeline::Pipeline) = named(nxd_pp_get_cut_count, nxd_pp_get_cut, pipeline)
"Paths of the outputs that `evaluate` gives, in its order."
output_paths(pipeline::Pipeline) =
    named(nxd_pp_get_output_count, nxd_pp_get_output_path, pipeline)
"Parameters whose weight gradients a zero-bubble schedule cannot put off."
unsplit(pipeline::Pipeline) = named(nxd_pp_get_unsplit_count, nxd_pp_get_unsplit_name, pipeline)
"The traced graph as text."
graph_text(pipeline::Pipeline) = strings(out -> nxd_pp_get_graph_text(pipeline, out))

# ---- both

"True if this rank has the last stage, and so the losses."
has_loss(pipeline::Pipeline) = number(out -> nxd_pp_has_loss(pipeline, out)) != 0
"The schedule of training runs."
Schedule(pipeline::Pipeline) =
    given(out -> nxd_pp_get_schedule(pipeline, out), Schedule; owner = pipeline)
buffer_bytes(pipeline::Pipeline) = Int(value(out -> nxd_pp_get_buffer_bytes(pipeline, out), UInt64))
"Records when tasks, messages and waits begin and end, from now on or no longer."
timeline!(pipeline::Pipeline, on::Bool = true) = check(nxd_pp_set_timeline(pipeline, on))
"Writes what all ranks recorded, as a trace (\".json\"). [collective: world]"
write_timeline(pipeline::Pipeline, path::AbstractString) =
    told(given_path -> check(nxd_pp_write_timeline(pipeline, given_path)), path)
