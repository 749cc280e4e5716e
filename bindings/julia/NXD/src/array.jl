# Julia arrays as the library sees them. The one rule: an array of size (a, b, c) is the tensor of
# shape [c, b, a]. A Julia array in memory order is then a C array in memory order, and nothing is
# ever copied or transposed.

"The upper half of a `Float32`, as tensors of dtype BF16 hold it."
struct BFloat16
    bits::UInt16
end

function BFloat16(x::Float32)
    isnan(x) && return BFloat16(0x7fc0)
    bits = reinterpret(UInt32, x)
    BFloat16(((bits + 0x7fff + ((bits >> 16) & 0x1)) >> 16) % UInt16) # to nearest, ties to even
end
BFloat16(x::Real) = BFloat16(Float32(x))
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(x.bits) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.convert(::Type{BFloat16}, x::Real) = BFloat16(x)
Base.convert(::Type{T}, x::BFloat16) where {T<:AbstractFloat} = T(Float32(x))
Base.zero(::Type{BFloat16}) = BFloat16(0x0000)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")

const element_types = (
    (Float32, NXD_DTYPE_F32), (Float64, NXD_DTYPE_F64), (BFloat16, NXD_DTYPE_BF16),
    (Float16, NXD_DTYPE_F16), (Int32, NXD_DTYPE_I32), (Int64, NXD_DTYPE_I64), (UInt8, NXD_DTYPE_U8),
    (Int8, NXD_DTYPE_I8), (Int16, NXD_DTYPE_I16), (Bool, NXD_DTYPE_BOOL))

for (T, code) in element_types
    @eval dtype(::Type{$T}) = $code
end
dtype(T) = throw(ArgumentError("no dtype stands for $T: expected one of " *
                               join(first.(element_types), ", ")))

Base.convert(::Type{nxd_dtype_t}, T::DataType) = dtype(T)

function Base.convert(::Type{DataType}, code::nxd_dtype_t)
    for (T, known) in element_types
        known == code && return T
    end
    throw(ArgumentError("no Julia type stands for $code"))
end

const dl_cpu = DLDevice(1, 0)
dl_type(::Type{T}) where {T<:Signed} = DLDataType(0, 8 * sizeof(T), 1)
dl_type(::Type{T}) where {T<:Unsigned} = DLDataType(1, 8 * sizeof(T), 1)
dl_type(::Type{T}) where {T<:AbstractFloat} = DLDataType(2, 8 * sizeof(T), 1)
dl_type(::Type{BFloat16}) = DLDataType(4, 16, 1)
dl_type(::Type{Bool}) = DLDataType(6, 8, 1)

function array_type(type::DLDataType)
    for (T, code) in element_types
        dl_type(T) == type && return T
    end
    throw(ArgumentError("no Julia type stands for $type"))
end

"The library's number of a dimension of an array: from 0, and from the other end."
function c_dimension(dim, a)
    dim in 1:ndims(a) || throw(ArgumentError(
        "expected a dimension of an array that has $(ndims(a)), counted from 1, got $dim"))
    ndims(a) - dim
end

"True if elements follow one another in memory, as those of an array without any do."
function is_contiguous(a::AbstractArray)
    isempty(a) && return true
    expected = 1
    for d in 1:ndims(a)
        size(a, d) == 1 || stride(a, d) == expected || return false
        expected *= size(a, d)
    end
    true
end
is_contiguous(a::Array) = true

"Refuses an array that the library is to write and whose memory is a string's, which never changes."
function check_writable(a::AbstractArray)
    inner, whole = parent(a), a
    while inner !== whole
        inner, whole = parent(inner), inner
    end
    inner isa Base.CodeUnits && throw(ArgumentError(
        "expected an array to write to, got the code units of a string: take Vector{UInt8}(text)"))
    a
end

"A DLTensor over a strided array's memory, which it roots."
struct Borrowed
    tensor::Base.RefValue{DLTensor}
    shape::Vector{Int64}
    strides::Vector{Int64}
    array::AbstractArray
end

function Borrowed(a::AbstractArray{T}) where {T}
    lengths, steps = Int64[reverse(size(a))...], Int64[reverse(strides(a))...]
    data = Ptr{Cvoid}(Base.unsafe_convert(Ptr{T}, Base.cconvert(Ptr{T}, a)))
    tensor = DLTensor(data, dl_cpu, ndims(a), dl_type(T), pointer(lengths),
                      is_contiguous(a) ? Ptr{Int64}(C_NULL) : pointer(steps), 0)
    Borrowed(Ref(tensor), lengths, steps, a)
end

"One that the library writes to."
written(a) = Borrowed(check_writable(a))

Base.cconvert(::Type{Ptr{DLTensor}}, b::Borrowed) = b
Base.unsafe_convert(::Type{Ptr{DLTensor}}, b::Borrowed) =
    Base.unsafe_convert(Ptr{DLTensor}, b.tensor)

pointers(bs::Vector{Borrowed}) = Ptr{DLTensor}[Base.unsafe_convert(Ptr{DLTensor}, b) for b in bs]

"The array that a CPU tensor in C order is, borrowed from the library."
function borrowed_array(p::Ptr{DLTensor})
    t = unsafe_load(p)
    dims = ntuple(i -> Int(unsafe_load(t.shape, t.ndim - i + 1)), Int(t.ndim))
    unsafe_wrap(Array, Ptr{array_type(t.dtype)}(t.data + t.byte_offset), dims)
end
