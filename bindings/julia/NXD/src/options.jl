"""
    Options(T; field = value, ...)

One of the header's structs, with its defaults and the fields given. `nothing` leaves a default;
symbols stand for enums, types for dtypes, `true` and `false` for on and off, or 1 and 0. A field that
counts only by another, such as `ignore_index` by `has_ignore_index`, counts where it is given.
"""
struct Options{T}
    ref::Base.RefValue{T}
    kept::Vector{Any}
end

Options(::Type{T}; fields...) where {T} = set_fields!(Options(Ref{T}(), Any[]), values(fields))

function set_fields!(options, @nospecialize(fields))
    check(fill_defaults(options.ref))
    for name in keys(fields)
        fields[name] === nothing && continue
        set_field!(options, name, fields[name])
        counted = counted_by(typeof(options), name)
        counted === nothing || get(fields, counted, nothing) !== nothing || set_field!(options, counted, 1)
    end
    options
end

# The field that says that another counts; `nothing` where there is none.
function counted_by(::Type{Options{T}}, name) where {T}
    counted = name in (:step, :microbatch) ? :has_position : Symbol("has_", name)
    counted in fieldnames(T) ? counted : nothing
end

function set_field!(options::Options{T}, name::Symbol, @nospecialize(value)) where {T}
    i = findfirst(==(name), fieldnames(T))
    (i === nothing || name in (:struct_size, :reserved)) && throw(ArgumentError(
        "no option $name; expected one of " *
        join(filter(n -> !(n in (:struct_size, :reserved)), fieldnames(T)), ", ")))
    F = fieldtype(T, i)
    place = Ptr{F}(pointer_from_objref(options.ref) + fieldoffset(T, i))
    given = try
        field(F, value, options.kept)
    catch error
        error isa InexactError || rethrow()
        throw(ArgumentError("$name: expected a number that $F holds, got $value"))
    end
    unsafe_store!(place, given)
    nothing
end

# Off is not 0 here, which is the default.
Base.convert(::Type{nxd_toggle_t}, on::Bool) = on ? NXD_TOGGLE_ON : NXD_TOGGLE_OFF

# A field's value, and in `kept` what must live as long as the struct.
field(::Type{F}, value, kept) where {F} = convert(F, value)
field(::Type{Cstring}, value, kept) = c_string(value, kept)
function field(::Type{Ptr{Cstring}}, values, kept)
    row = Cstring[[c_string(value, kept) for value in values]; no_string] # ends like an argv
    push!(kept, row)
    pointer(row)
end
function field(::Type{Ptr{H}}, value::Object{H}, kept) where {H}
    push!(kept, value)
    handle(value)
end
function field(::Type{Ptr{T}}, value::Options{T}, kept) where {T}
    push!(kept, value)
    Base.unsafe_convert(Ptr{T}, value.ref)
end
function field(::Type{Ptr{T}}, values::AbstractVector{<:Real}, kept) where {T<:Real}
    row = convert(Vector{T}, values)
    push!(kept, row)
    pointer(row)
end

function c_string(value, kept)
    s = String(value)
    push!(kept, s)
    Base.unsafe_convert(Cstring, Base.cconvert(Cstring, s))
end

Base.cconvert(::Type{Ptr{T}}, options::Options{T}) where {T} = options
Base.unsafe_convert(::Type{Ptr{T}}, options::Options{T}) where {T} =
    Base.unsafe_convert(Ptr{T}, options.ref)

const no_string = Cstring(Ptr{UInt8}(C_NULL))
c_string_or_null(s) = s === nothing ? no_string : s

# A collective call with a path or a text of this rank's, and what `make` gives. Where there is a NUL in
# the one, or the other is not to be had, the call goes with NULL, and `others`, which the library rejects
# on all ranks: the peers, who are in it already or about to be, would wait otherwise.
function told(call, s::AbstractString, make = () -> (), others = ())
    more = try
        '\0' in s && throw(ArgumentError("expected no NUL within a string, got $(repr(s))"))
        make()
    catch
        try
            call(no_string, others...)
        catch
        end
        rethrow()
    end
    call(s, more...)
end

"A struct that a call fills, whose `struct_size` says which version of it this is."
function filled(fill, ::Type{T}) where {T}
    r = Ref{T}()
    check(set_size(r))
    check(fill(r))
    r[]
end

"""
Fields of a struct as a named tuple: numbers, symbols of enums and strings, without what is only
there for the ABI.
"""
function fields_of(s)
    names = filter(n -> !(n in (:struct_size, :reserved)), fieldnames(typeof(s)))
    NamedTuple{names}(map(n -> plain(getfield(s, n)), names))
end
plain(x) = x
plain(x::Code) = Symbol(x)
plain(x::Cstring) = text(x)
plain(x::Union{Int32,UInt64}) = Int(x)
