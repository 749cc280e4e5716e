@object Operator nxd_op_t nxd_op_destroy

@doc """
    Operator(name; overload)

One call of an ATen operator: set arguments with `o[name] = value`, run it with `o()`, which gives
its result, or a tuple of several or of a list's members. `nothing` is None, in a list of tensors too,
and a result that the operator leaves out.
Names, dimensions and shapes are ATen's: dimension 0 is the first of `shape`, the last of `size`.
""" Operator

Operator(name::AbstractString; overload = nothing) =
    given(out -> nxd_op_create(name, c_string_or_null(overload), out), Operator)

"The operator's signature, such as \"aten::relu(Tensor self) -> Tensor\"."
schema(o::Operator) = strings(out -> nxd_op_get_schema(o, out))

Base.setindex!(o::Operator, value, name::Union{Symbol,AbstractString}) =
    check(set_argument(o, String(name), value))

set_argument(o, name, t::Tensor) = nxd_op_set_tensor(o, name, t)
set_argument(o, name, ::Nothing) = nxd_op_set_tensor(o, name, Ptr{nxd_tensor_t}(C_NULL))
set_argument(o, name, a::AbstractArray{<:AbstractFloat}) = set_argument(o, name, Tensor(a))
set_argument(o, name, x::Bool) = nxd_op_set_bool(o, name, x)
set_argument(o, name, x::Integer) = nxd_op_set_int(o, name, x)
set_argument(o, name, x::AbstractFloat) = nxd_op_set_double(o, name, x)
set_argument(o, name, s::AbstractString) = nxd_op_set_string(o, name, s)
set_argument(o, name, T::Union{DataType,nxd_dtype_t}) = nxd_op_set_dtype(o, name, T)
function set_argument(o, name, xs::Union{Tuple,AbstractVector{<:Union{Nothing,Tensor}}})
    list = collect(xs)
    eltype(list) <: Integer && return nxd_op_set_ints(o, name, Int64.(list), length(list))
    eltype(list) <: Real && return nxd_op_set_doubles(o, name, Float64.(list), length(list))
    GC.@preserve list nxd_op_set_tensors(o, name, handles(nxd_tensor_t, list), length(list))
end

function (o::Operator)()
    check(nxd_op_run(o))
    n = Int(value(out -> nxd_op_get_result_count(o, out), Csize_t))
    results = ntuple(i -> result(o, i - 1), n)
    given = last(split(schema(o), " -> "))
    n == 1 && !endswith(given, "[]") && !startswith(given, "(") ? results[1] : results
end

# A result is a tensor, nothing where the operator leaves it out, or a number.
function result(o, index)
    out = Ref{Ptr{nxd_tensor_t}}(C_NULL)
    status = nxd_op_share_tensor(o, index, out)
    status == NXD_OK && return out[] == C_NULL ? nothing : Tensor(out[])
    number = Ref{Cdouble}(0)
    nxd_op_get_double(o, index, number) == NXD_OK ? number[] : fail(status)
end

"""
    op(name, tensors...; overload, arguments...)

Calls an ATen operator once: tensors for its leading arguments, others by name.

    op("linear", x, weight)
    op("softmax", x; overload = "int", dim = 0)
"""
function op(name::AbstractString, tensors::Tensor...; overload = nothing, arguments...)
    o = Operator(name; overload = overload)
    try
        for (argument, t) in zip(argument_names(schema(o)), tensors)
            o[argument] = t
        end
        for (argument, x) in arguments
            o[argument] = x
        end
        return o()
    finally
        close(o)
    end
end

# "aten::linear(Tensor input, Tensor weight, ...) -> Tensor": the names in order.
function argument_names(schema)
    inside = match(r"\((.*)\) -> ", schema).captures[1]
    [match(r"(\w+)(=[^,]*)?$", strip(a)).captures[1] for a in split(inside, ", ") if a != "*" && a != ""]
end
