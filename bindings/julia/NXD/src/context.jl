@object Context nxd_context_t nxd_context_destroy

@doc """
    Context(; rank, size, store, timeout_ms, transport, seed, ...)
    Context(f; ...)

One rank: joins the world, which is collective. Without `store`, `rank` and `size` the launcher's
environment says which rank this is; other keywords are the fields of `nxd_context_options_t`.

`finalize!` leaves in agreement with all ranks; `close` leaves at once, and peers that wait for
this rank get `:peer_lost`. With a `do` block the context is finalized at its normal end, and only
closed when it throws. While a call blocks, Ctrl-C raises `InterruptException` as anywhere
(`Base.exit_on_sigint(false)` in scripts).
""" Context

function Context(; store = nothing, rendezvous = nothing, fields...)
    placed = any(x -> x !== nothing, (store, get(fields, :rank, nothing), get(fields, :size, nothing)))
    how = rendezvous === nothing ? (placed ? :store : :environment) : rendezvous
    placed && how === :environment && throw(ArgumentError(
        "store, rank, size: expected none with rendezvous :environment"))
    options = try
        Options(nxd_context_options_t; rendezvous = how, store = store, interrupt = interrupt_entry[],
                fields...)
    catch
        refuse_context(how, store, fields)
        rethrow()
    end
    given(out -> nxd_context_create(options, out), Context; kept = ContextState(WeakRef[], false))
end

# Makes the contexts of the other ranks fail, who wait for this one, where an option is none: by those
# that say which rank it is, and a transport that is none.
function refuse_context(rendezvous, store, fields)
    place = (; (name => value for (name, value) in fields if name in (:rank, :size, :interrupt))...)
    try
        options = Options(nxd_context_options_t; rendezvous = rendezvous, store = store,
                          interrupt = interrupt_entry[], place..., transport = NXD_TRANSPORT_INVALID)
        check(nxd_context_create(options, Ref(Ptr{nxd_context_t}(C_NULL))))
    catch
    end
end

mutable struct ContextState
    groups::Vector{WeakRef} # borrowed from the layout, and closed with it
    finalized::Bool
end

function Context(f::Function; fields...)
    scoped(Context(; fields...)) do context
        result = f(context)
        isopen(context) && !context.kept.finalized && finalize!(context)
        result
    end
end

"""
    finalize!(context)

Waits for this rank's works and for all ranks, then disconnects. [collective: world] Afterwards only
getters and `close` work.
"""
function finalize!(context::Context)
    check(nxd_context_finalize(context))
    context.kept.finalized = true
    nothing
end

"Makes every pending and later collective of the context fail with `:aborted`; from any thread."
abort(context::Context) = check(nxd_context_abort(context))

rank_in(context::Context) = number(out -> nxd_context_get_rank(context, out))
Base.size(context::Context) = number(out -> nxd_context_get_size(context, out))
local_rank(context::Context) = number(out -> nxd_context_get_local_rank(context, out))

"The last collectives and messages of each group, as JSON; from any thread."
flight_record(context::Context) =
    copied((buf, cap, needed) -> nxd_context_get_flight_record(context, buf, cap, needed))

"Text by the rule of a buffer, its room and what is needed."
function copied(get)
    needed, buffer = Ref{Csize_t}(0), UInt8[]
    check(get(buffer, 0, needed))
    while needed[] > length(buffer)
        resize!(buffer, needed[] + 4096)
        status = get(buffer, length(buffer), needed)
        needed[] > length(buffer) || check(status)
    end
    String(buffer[1:needed[] - 1])
end

"Switches the context's layers between fused kernels and plain ATen operators."
plain_kernels!(context::Context, on::Bool) = check(nxd_context_set_plain_kernels(context, on))
plain_kernels(context::Context) = number(out -> nxd_context_get_plain_kernels(context, out)) != 0

"Sets the training step and microbatch that random bits are drawn for."
set_step!(context::Context, step::Integer, microbatch::Integer = 0) =
    check(nxd_context_set_step(context, step, microbatch))

"The training step and microbatch that random bits are drawn for."
function step(context::Context)
    step, microbatch = Ref{Int64}(0), Ref{Int64}(0)
    check(nxd_context_get_step(context, step, microbatch))
    (Int(step[]), Int(microbatch[]))
end

"Prints a line on world rank 0."
master_print(context::Context, parts...) = check(nxd_master_print(context, string(parts...)))

cpu_mode() = nxd_cpu_mode() != 0

"Device this process trains on: `:cpu` with NXD_CPU_MODE=1."
device() = Symbol(value(nxd_get_device, nxd_device_t))

# ---- memory that ranks of this host share

"""
    arena(context, T, dims)

An array in memory that the other ranks of this host can read and write too, in which collectives
over shared memory work in place. It may be used until `free_arena!` or until the context is closed;
a context that is not reachable any more stays as long as the array.
"""
function arena(context::Context, ::Type{T}, dims::Dims) where {T}
    isbitstype(T) || throw(ArgumentError("expected a type of plain bits, got $T"))
    bytes = Base.checked_mul(reduce(Base.checked_mul, dims; init = 1), sizeof(T))
    data = value(out -> nxd_arena_alloc(context, bytes, out), Ptr{Cvoid})
    keep_while(unsafe_wrap(Array, Ptr{T}(data), dims), context)
end

# Objects that others need, where these cannot name them. A finalizer's function is no use for that:
# the collector finalizes objects that it alone refers to.
mutable struct Needed
    object::Any # nothing: not any more
end
const needed = Needed[]

function keep_while(a::Array, object)
    entry = Needed(object)
    locked() do
        filter!(other -> other.object !== nothing, needed)
        push!(needed, entry)
    end
    finalizer(_ -> (entry.object = nothing), memory_of(a))
    a
end

# From Julia 1.11 on several arrays may have one memory.
memory_of(a::Array) = hasfield(typeof(a), :ref) ? getfield(getfield(a, :ref), :mem) : a
arena(context::Context, T::Type, dims::Integer...) = arena(context, T, Dims(dims))
free_arena!(context::Context, a::Array) = check(nxd_arena_free(context, a))
