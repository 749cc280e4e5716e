# How every call of the library is made. `@call` writes the method; raw.jl is a list of them.

"A number of one of the header's enums. Symbols stand for them: `:bf16` for `NXD_DTYPE_BF16`."
abstract type Code end

Base.Int32(code::Code) = reinterpret(Int32, code)
Base.Int(code::Code) = Int(Int32(code))
Base.show(io::IO, code::Code) = print(io, typeof(code), "(:", Symbol(code), ")")
Base.convert(::Type{C}, value::Integer) where {C<:Code} = reinterpret(C, Int32(value))
# A flag would name what was not meant; toggles have a method of their own.
Base.convert(::Type{C}, value::Bool) where {C<:Code} =
    throw(ArgumentError("expected one of $(known_names(C)), got $value"))

function Base.Symbol(code::Code)
    for (name, value) in short_names(typeof(code))
        value === Int32(code) && return name
    end
    Symbol(Int32(code))
end

function Base.convert(::Type{C}, name::Symbol) where {C<:Code}
    for (short, value) in short_names(C)
        short === name && return reinterpret(C, value)
    end
    throw(ArgumentError("expected one of $(known_names(C)), got :$name"))
end

known_names(::Type{C}) where {C<:Code} =
    join((":$short" for (short, value) in short_names(C) if value >= 0), ", ")

"""
    @code name begin NAME = value => "short"; ... end

An enum as a type of 32 bits, which calls and structs take as they are.
"""
macro code(name, body)
    rows = filter(row -> row isa Expr, body.args)
    constants = [:(const $(row.args[1]) = reinterpret($name, Int32($(row.args[2].args[2]))))
                 for row in rows]
    names = [:(Symbol($(row.args[2].args[3])) => Int32($(row.args[2].args[2]))) for row in rows]
    esc(quote
        primitive type $name <: Code 32 end
        $(constants...)
        let names = Pair{Symbol,Int32}[$(names...)]
            global short_names(::Type{$name}) = names
        end
    end)
end

const libnxd_core = "libnxd_core.so.0"
const libnxd = "libnxd.so.0"

const engine_loaded = Ref(false)

"Where the libraries are looked for before the loader's own places: what NXD_PREFIX names, or the
tree that this package is installed in."
function library_directories()
    installed = normpath(joinpath(@__DIR__, "..", "..", "..", "..", ".."))
    [joinpath(prefix, "lib") for prefix in (get(ENV, "NXD_PREFIX", ""), installed) if prefix != ""]
end

# Calls name a library by its soname, which finds the copy that is loaded here.
function open_library(name)
    for directory in library_directories()
        path = joinpath(directory, name)
        isfile(path) && return dlopen(path)
    end
    handle = dlopen(name; throw_error = false)
    handle === nothing && error("cannot load $name: install libnxd where the loader looks, or " *
                                "let NXD_PREFIX name the tree whose lib it is in")
    handle
end

function load_core()
    handle = open_library(libnxd_core)
    version = ccall(dlsym(handle, :nxd_abi_version), UInt32, ())
    version == NXD_ABI_VERSION || error("NXD.jl was made for ABI $NXD_ABI_VERSION of libnxd, but ",
        dlpath(handle), " has ABI $version: install the binding that belongs to the library")
    nothing
end

# The functions of nxd/engine.h bring libtorch into the process: at the first call that needs it.
@noinline function load_engine()
    open_library(libnxd)
    engine_loaded[] = true
    nothing
end

"""
    @call library name(argument::Type, ...)::Result

Defines the method that calls a C function. The thread counts as outside of Julia during the call,
so that other threads can collect garbage while it blocks. A Ctrl-C is put off until the call
returns, since it must not unwind C++ frames; Julia code that the library calls takes it (see
`guarded`).

Everything that allocates is done before `jl_gc_safe_enter`.
"""
macro call(library, signature)
    target, result = signature.args
    name = target.args[1]
    params, types = [p.args[1] for p in target.args[2:end]], [p.args[2] for p in target.args[2:end]]
    kept, bits = [gensym(p) for p in params], [gensym(p) for p in params]
    load = library === :libnxd ? :(engine_loaded[] || load_engine()) : nothing
    esc(quote
        function $name($(params...))
            $load
            $([:($k = Base.cconvert($t, $p)) for (k, t, p) in zip(kept, types, params)]...)
            GC.@preserve $(kept...) begin
                $([:($b = Base.unsafe_convert($t, $k)) for (b, t, k) in zip(bits, types, kept)]...)
                ccall(:jl_sigatomic_begin, Cvoid, ())
                $([:(count_call($k, 1)) for k in kept]...)
                state = ccall(:jl_gc_safe_enter, Int8, ())
                result = ccall(($(QuoteNode(name)), $library), $result, ($(types...),), $(bits...))
                ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
                $([:(count_call($k, -1)) for k in kept]...)
                ccall(:jl_sigatomic_end, Cvoid, ())
            end
            result
        end
    end)
end

# An argument of a call that runs: see `@may_not_close_within`.
count_call(argument, n) = nothing

"Zeros, and the struct's size: the defaults where the header has no function for them."
fill_defaults(r::Ref) = set_size(r)

function set_size(r::Ref{T}) where {T}
    ccall(:memset, Ptr{Cvoid}, (Ptr{Cvoid}, Cint, Csize_t), pointer_from_objref(r), 0, sizeof(T))
    fieldname(T, 1) === :struct_size &&
        unsafe_store!(Ptr{Csize_t}(pointer_from_objref(r)), sizeof(T))
    NXD_OK
end
