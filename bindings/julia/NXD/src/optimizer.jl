@object Optimizer nxd_optimizer_t nxd_optimizer_destroy
@may_not_close_within Optimizer

@doc """
Updates parameters from their gradients: `adamw`, `sgd` or `custom_optimizer`, over a model or a
ddp. `step!` ends a training step.
""" Optimizer

# An optimizer works on a ddp's arrays, which must outlive it: it roots what the ddp roots.
function optimizer(over_module, over_ddp, target, options)
    target isa Ddp && return given(out -> over_ddp(target, options, out), Optimizer; kept = target.kept)
    given(out -> over_module(target, options, out), Optimizer)
end

"AdamW over a model or a ddp; keywords are the fields of `nxd_adamw_options_t`."
adamw(target; options...) = optimizer(nxd_optimizer_create_adamw, nxd_optimizer_create_adamw_ddp, target,
                                      Options(nxd_adamw_options_t; options...))

"SGD over a model or a ddp; keywords are the fields of `nxd_sgd_options_t`."
sgd(target; options...) = optimizer(nxd_optimizer_create_sgd, nxd_optimizer_create_sgd_ddp, target,
                                    Options(nxd_sgd_options_t; options...))

"""
The run of elements of one parameter that an update rule works on, as vectors over the memory itself.
They may be used during the call alone.
"""
struct Update{P,G,S}
    parameter::String
    first::Int # of the elements' indices within this rank's parameter, from 1
    param::Vector{P}
    grad::Vector{G}
    grad_scale::Float64
    states::Vector{Vector{S}}
    learning_rate::Float64
    weight_decay::Float64
    step::Int
end

@entry on_update(update, data) run_update

function run_update(update, data)
    u = unsafe_load(update)
    P, G = convert(DataType, u.dtype), convert(DataType, u.grad_dtype)
    S = P === Float64 ? Float64 : Float32
    rule, states = callback_of(data).run
    rule(Update(text(u.parameter), Int(getfield(u, :begin)) + 1,
                unsafe_wrap(Array, Ptr{P}(u.param), u.count),
                unsafe_wrap(Array, Ptr{G}(u.grad), u.count), u.grad_scale,
                Vector{S}[unsafe_wrap(Array, Ptr{S}(unsafe_load(u.states, i)), u.count) for i in 1:states],
                u.learning_rate, u.weight_decay, Int(u.step)))
end

"""
    custom_optimizer(rule, target; states = 0, learning_rate, weight_decay, bf16_update)

An update rule of one's own: `rule(u::Update)` overwrites `u.param` and `u.states`.
"""
function custom_optimizer(rule, target; states::Integer = 0, options...)
    callback = register((rule, Int(states)))
    entry = @cfunction(on_update, Int32, (Ptr{nxd_update_t}, Ptr{Cvoid}))
    taking(callback) do
        made = Options(nxd_custom_optimizer_options_t; update = entry, num_states = states,
                       user_data = user_data(callback), destroy = release_entry[], options...)
        optimizer(nxd_optimizer_create_custom, nxd_optimizer_create_custom_ddp, target, made)
    end
end

"""
    step!(optimizer; max_norm, scale, norm_type, data_parallel_reduce, check_finite)

A training step's end: completes the gradients, clips, updates, and advances the context's step.
[collective: tensor-, pipeline- and data-parallel groups] Gives (norm, learning_rate, updates,
skipped).
"""
function step!(optimizer::Optimizer; options...)
    report = filled(nxd_step_report_t) do out
        finishing(made -> nxd_optimizer_step(optimizer, made, out), options)
    end
    (norm = report.norm, learning_rate = report.learning_rate, updates = Int(report.updates),
     skipped = report.skipped != 0)
end

"""
The same without a report: the recorded device is not asked for the norm, so that the update runs,
and fails, in `mark_step`.
"""
step_without_report!(optimizer::Optimizer; options...) =
    check(finishing(made -> nxd_optimizer_step(optimizer, made, C_NULL), options))

"Updates from gradients that are finished; not with ZeRO."
update!(optimizer::Optimizer) = check(nxd_optimizer_update(optimizer))

"""
    add_group!(optimizer, patterns)

Puts parameters that match, such as "*.bias", into a group with hyperparameters of its own, and
gives its index.
"""
function add_group!(optimizer::Optimizer, patterns)
    kept = Any[]
    row = field(Ptr{Cstring}, patterns, kept)
    GC.@preserve kept number(out -> nxd_optimizer_add_group(optimizer, row, length(patterns), out))
end

"Sets `:learning_rate`, `:weight_decay`, `:beta1` and so on of a group; -1: of all."
set_hyperparameter!(optimizer::Optimizer, which::Symbol, x::Real; group::Integer = -1) =
    check(nxd_optimizer_set_hyperparameter(optimizer, group, which, x))
hyperparameter(optimizer::Optimizer, which::Symbol; group::Integer = 0) =
    value(out -> nxd_optimizer_get_hyperparameter(optimizer, group, which, out), Cdouble)
learning_rate!(optimizer::Optimizer, rate::Real) =
    check(nxd_optimizer_set_learning_rate(optimizer, rate))
"The learning rate of group 0 at the next step."
learning_rate(optimizer::Optimizer) =
    value(out -> nxd_optimizer_get_learning_rate(optimizer, out), Cdouble)

"""
    schedule!(optimizer, kind; warmup_steps, total_steps, final_factor)

Makes the learning rate follow a schedule: `:constant`, `:linear` or `:cosine`.
"""
schedule!(optimizer::Optimizer, kind::Symbol; options...) = check(nxd_optimizer_set_lr_schedule(
    optimizer, Options(nxd_lr_schedule_options_t; kind = kind, options...)))

"The factor of a schedule on the learning rate at a step."
lr_schedule_factor(kind::Symbol, step::Integer; options...) = value(Cdouble) do out
    nxd_lr_schedule_get_factor(Options(nxd_lr_schedule_options_t; kind = kind, options...), step, out)
end

"What the last step left of this rank's parameters (`:none`, `:old`, `:new`, `:partial`), and which it was."
function parameter_state(optimizer::Optimizer)
    state, step = Ref{nxd_parameter_state_t}(), Ref{Int64}(0)
    check(nxd_optimizer_get_parameter_state(optimizer, state, step))
    (Symbol(state[]), Int(step[]))
end

"Bytes of state that this rank holds."
state_bytes(optimizer::Optimizer) = Int(value(out -> nxd_optimizer_get_state_bytes(optimizer, out), UInt64))

"Writes the whole state as safetensors. [collective: tensor, data, pipeline groups]"
save(optimizer::Optimizer, path::AbstractString) =
    told(given_path -> check(nxd_optimizer_save(optimizer, given_path)), path)
"Reads this rank's part of a state that any layout wrote."
load!(optimizer::Optimizer, path::AbstractString) = check(nxd_optimizer_load(optimizer, path))

"Which samples, from 1, a data-parallel rank takes in an epoch."
function sample_epoch(n::Integer, ranks::Integer, rank::Integer, epoch::Integer; seed::Integer = 0,
                      shuffle::Bool = true, drop_last::Bool = false)
    listed(Int64) do row, cap, count
        nxd_sample_epoch(n, ranks, rank, epoch, seed, shuffle, drop_last, row, cap, count)
    end .+ 1
end
