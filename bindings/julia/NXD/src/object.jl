"""
An object that the library keeps behind a handle of type `H`.

`close(x)` releases it, any number of times, but not from a function that a call of it runs; what is no
longer reachable is released by the garbage collector. Neither needs another rank, and objects may go
in any order: each keeps alive what it uses. Borrowed objects, whose `owner` is not `nothing`, live as
long as their owner is open.
"""
abstract type Object{H} end

"""
    @object Name handle_t destroy

A type over one kind of handle. `kept` roots Julia memory that the library uses meanwhile.
"""
macro object(name, handle, destroy)
    esc(quote
        mutable struct $name <: Object{$handle}
            handle::Ptr{$handle}
            owner::Any
            kept::Any
            calls::Int # that run, where they are counted
            function $name(handle::Ptr{$handle}; owner = nothing, kept = nothing)
                x = new(handle, owner, kept, 0)
                owner === nothing && finalizer(collect_object, x)
                x
            end
        end
        destroyer(::Type{$name}) = $destroy
    end)
end

Base.isopen(x::Object) = x.handle != C_NULL && owner_is_open(x.owner)
owner_is_open(::Nothing) = true
owner_is_open(owner::Object) = isopen(owner)

function handle(x::Object)
    isopen(x) || throw(ArgumentError("this $(typeof(x)) is closed" *
        (x.handle == C_NULL ? "" : ", as is what it belongs to")))
    x.handle
end

function Base.close(x::Object)
    refuse_within_call(x)
    undisturbed(() -> release(x))
    sweep_callbacks()
    nothing
end

refuse_within_call(x::Object) = nothing

"""
    @may_not_close_within Name

For objects whose calls run functions of the program's, and use the object again afterwards: a function
that closes it gets an error. One thread at a time calls such an object.
"""
macro may_not_close_within(name)
    esc(quote
        count_call(x::$name, n) = (x.calls += n; nothing)
        function refuse_within_call(x::$name)
            x.calls == 0 || throw(NXDError(:invalid_state, $("close: this $name is in a call, of which " *
                "this function is a part: close it when that has ended"), nothing, "", "", nothing, nothing, :none))
            nothing
        end
    end)
end

# Also a finalizer: no lock, no task switch, and of the library only destroy functions, which are
# [local].
function release(x::Object)
    handle = x.handle
    handle == C_NULL && return
    x.handle = C_NULL
    x.owner === nothing && destroyer(typeof(x))(handle)
    x.kept = nothing
    nothing
end

# An interrupt ends a finalizer wherever it is, also one that came before, and Julia goes on without
# either. So the next collection releases what this one could not, and the interrupt comes again, for the
# program.
function collect_object(x::Object)
    try
        undisturbed(() -> release_collected(x))
    catch e
        e isa InterruptException || rethrow()
        ccall(:kill, Cint, (Cint, Cint), getpid(), Base.SIGINT)
    finally
        x.handle == C_NULL || finalizer(collect_object, x)
    end
    nothing
end
release_collected(x::Object) = release(x)

# An interrupt that comes meanwhile is thrown when all is done.
function undisturbed(f)
    Base.sigatomic_begin()
    try
        f()
    finally
        Base.sigatomic_end()
    end
    nothing
end

# Two objects would release one handle.
Base.deepcopy_internal(x::Object, ::IdDict) =
    throw(ArgumentError("a $(nameof(typeof(x))) cannot be copied by deepcopy"))

Base.cconvert(::Type{Ptr{H}}, x::Object{H}) where {H} = x
Base.unsafe_convert(::Type{Ptr{H}}, x::Object{H}) where {H} = handle(x)

Base.show(io::IO, x::Object) = print(io, nameof(typeof(x)), isopen(x) ? "(...)" : "(closed)")

"What a call gives out: `make` gets the place for the handle."
function given(make, ::Type{T}; owner = nothing, kept = nothing) where {H,T<:Object{H}}
    out = Ref{Ptr{H}}(C_NULL)
    check(make(out))
    T(out[]; owner = owner, kept = kept)
end

"A value that a call gives out."
function value(get, ::Type{T}) where {T}
    out = Ref{T}()
    check(get(out))
    out[]
end

number(get) = Int(value(get, Int32))
strings(get) = text(value(get, Cstring))

"Handles in a row; `nothing` is NULL. The objects must be kept while the row is used."
handles(::Type{H}, xs) where {H} = Ptr{H}[x === nothing ? Ptr{H}(C_NULL) : handle(x) for x in xs]

"""
    T(f, arguments...)      with a `do` block

Makes an object, calls `f` with it and closes it at the block's end.
"""
(::Type{T})(f::Function, args...; kw...) where {T<:Object} = scoped(f, T(args...; kw...))

function scoped(f, x::Object)
    try
        return f(x)
    finally
        close(x)
    end
end
