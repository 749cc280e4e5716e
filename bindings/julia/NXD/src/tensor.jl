@object Tensor nxd_tensor_t nxd_tensor_destroy

@doc """
    Tensor(array)                        a copy of an array, any strides
    Tensor(array; copy = false)          over the array's own memory, which it keeps alive
    Tensor(T, dims; device = :cpu)       zeros; on `:meta` shape and dtype only
    Tensor(x::Number)                    a scalar

Handle on a tensor. Its `size` is the reverse of its `shape`, the order in which nxd and ATen count:
an array of size (a, b, c) is a tensor of shape [c, b, a] in the same memory.
""" Tensor

function Tensor(a::AbstractArray; copy::Bool = true)
    copy || return shared(a)
    is_contiguous(a) || return given(out -> nxd_tensor_from_dltensor(Borrowed(a), out), Tensor)
    lengths = Int64[reverse(size(a))...]
    given(Tensor) do out
        nxd_tensor_from_data(a, sizeof(eltype(a)) * length(a), lengths, ndims(a), dtype(eltype(a)), out)
    end
end

Tensor(x::Number) = Tensor(fill(x))

function Tensor(T::Type, dims::Dims; device::Symbol = :cpu)
    lengths = Int64[reverse(dims)...]
    given(out -> nxd_tensor_create(lengths, length(dims), dtype(T), device, out), Tensor)
end
Tensor(T::Type, dims::Integer...; device::Symbol = :cpu) = Tensor(T, Dims(dims); device = device)

"Sizes in the order of nxd and ATen, the reverse of `size`."
shape(t::Tensor) = Tuple(listed((row, cap, n) -> nxd_tensor_get_shape(t, row, cap, n), Int64))
Base.size(t::Tensor) = reverse(shape(t))
Base.size(t::Tensor, d::Integer) = size(t)[d]
Base.strides(t::Tensor) =
    reverse(Tuple(listed((row, cap, n) -> nxd_tensor_get_strides(t, row, cap, n), Int64)))
Base.ndims(t::Tensor) = number(out -> nxd_tensor_get_ndim(t, out))
Base.length(t::Tensor) = Int(value(out -> nxd_tensor_get_element_count(t, out), Int64))
Base.eltype(t::Tensor) = convert(DataType, value(out -> nxd_tensor_get_dtype(t, out), nxd_dtype_t))
device(t::Tensor) = Symbol(value(out -> nxd_tensor_get_device(t, out), nxd_device_t))

"The value of a tensor of one element."
Base.getindex(t::Tensor) = value(out -> nxd_tensor_get_item(t, out), Cdouble)

"A copy of the elements."
function Base.Array(t::Tensor)
    a = Array{eltype(t)}(undef, size(t))
    copyto!(a, t)
end

function check_like(a, t)
    size(a) == size(t) && eltype(a) === eltype(t) && is_contiguous(a) || throw(DimensionMismatch(
        "expected a contiguous array of $(eltype(t)) and size $(size(t)), got $(typeof(a)) of size $(size(a))"))
end

function Base.copyto!(a::AbstractArray, t::Tensor)
    check_like(check_writable(a), t)
    check(nxd_tensor_copy_to_host(t, a, sizeof(eltype(a)) * length(a)))
    a
end

"Overwrites a tensor in place; autograd does not record it."
function Base.copyto!(t::Tensor, a::AbstractArray)
    check_like(a, t)
    check(nxd_tensor_copy_from_host(t, a, sizeof(eltype(a)) * length(a)))
    t
end

"Another handle on the same tensor."
Base.copy(t::Tensor) = given(out -> nxd_tensor_retain(t, out), Tensor)
"""
Says that the tensor's memory was written through `mapped`, so that what was derived from it is made
anew.
"""
mark_modified!(t::Tensor) = check(nxd_tensor_mark_modified(t))

function Base.show(io::IO, t::Tensor)
    isopen(t) || return print(io, "Tensor(closed)")
    type = try
        eltype(t)
    catch e # complex or quantized elements, which operators alone take and give
        e isa NXDError && e.status === :unsupported || rethrow()
        "other"
    end
    print(io, "Tensor{", type, "}", size(t))
end

# ---- the tensor's memory as an array

"An array over memory of the library's, which lives as long as the array."
mutable struct MappedArray{T,N} <: DenseArray{T,N}
    managed::Ptr{DLManagedTensor}
    data::Ptr{T}
    dims::NTuple{N,Int}
end

"""
    mapped(tensor)

The elements of a tensor in C order as an array, without a copy. It stays valid when the tensor is
closed. After writing through it call `mark_modified!`.
"""
function mapped(t::Tensor)
    managed = value(out -> nxd_tensor_to_dlpack(t, out), Ptr{DLManagedTensor})
    a = map_array(managed)
    is_contiguous_tensor(t) && return a
    finalize(a)
    throw(ArgumentError("expected a tensor in C order, got strides $(strides(t)): take Array(tensor)"))
end

function map_array(managed)
    d = unsafe_load(managed).dl_tensor
    T = array_type(d.dtype)
    dims = ntuple(i -> Int(unsafe_load(d.shape, d.ndim - i + 1)), Int(d.ndim))
    finalizer(give_back, MappedArray(managed, Ptr{T}(d.data + d.byte_offset), dims))
end

# Native, and safe in a finalizer: it lets go of the tensor's memory and takes no lock.
give_back(a::MappedArray) = undisturbed() do
    ccall(unsafe_load(a.managed).deleter, Cvoid, (Ptr{DLManagedTensor},), a.managed)
end

function is_contiguous_tensor(t)
    dims, steps, expected = size(t), strides(t), 1
    0 in dims && return true
    for d in 1:length(dims)
        dims[d] == 1 || steps[d] == expected || return false
        expected *= dims[d]
    end
    true
end

# With memory of its own, which lives as long as it.
Base.deepcopy_internal(a::MappedArray, copies::IdDict) = get!(() -> mapped(Tensor(a)), copies, a)

Base.size(a::MappedArray) = a.dims
Base.IndexStyle(::Type{<:MappedArray}) = IndexLinear()
Base.@propagate_inbounds function Base.getindex(a::MappedArray, i::Int)
    @boundscheck checkbounds(a, i)
    GC.@preserve a unsafe_load(a.data, i)
end
Base.@propagate_inbounds function Base.setindex!(a::MappedArray{T}, x, i::Int) where {T}
    @boundscheck checkbounds(a, i)
    GC.@preserve a unsafe_store!(a.data, convert(T, x), i)
    a
end
Base.strides(a::MappedArray) = Base.size_to_strides(1, a.dims...)
Base.unsafe_convert(::Type{Ptr{T}}, a::MappedArray{T}) where {T} = a.data
Base.elsize(::Type{<:MappedArray{T}}) where {T} = sizeof(T)

# ---- an array's memory as a tensor
#
# The library calls a managed tensor's deleter on any thread, where Julia code may not run. So the
# deleter is the C library's sem_post: the first eight bytes of a versioned managed tensor are its
# version, {1, 0}, which are also those of a semaphore of value 1 that nobody waits for; posted they
# are {2, 0}. Exports whose version is no longer 1 are done, and their arrays are let go.

struct Export
    managed::Base.RefValue{DLManagedTensorVersioned}
    borrowed::Borrowed
end

const exports = Export[]
const exports_lock = Threads.SpinLock()
const sweep_exports_at = Ref(64)
const deleter = Ref{Ptr{Cvoid}}(C_NULL)

is_done(e::Export) = unsafe_load(Ptr{UInt32}(pointer_from_objref(e.managed))) != 1

function shared(a::AbstractArray)
    deleter[] == C_NULL && (deleter[] = post_function())
    borrowed = written(a)
    managed = Ref(DLManagedTensorVersioned(DLPackVersion(1, 0), C_NULL, deleter[], 0, borrowed.tensor[]))
    exported = Export(managed, borrowed)
    locked_exports() do # before the library has it, and may say that it is done
        length(exports) >= sweep_exports_at[] && sweep_exports()
        push!(exports, exported)
    end
    try
        return given(out -> nxd_tensor_from_dlpack_versioned(managed, out), Tensor)
    catch e
        # Not taken over, unless a Ctrl-C came after that.
        e isa InterruptException || locked_exports(() -> filter!(x -> x !== exported, exports))
        rethrow()
    end
end

function locked_exports(f)
    lock(exports_lock)
    try
        return f()
    finally
        unlock(exports_lock)
    end
end

function sweep_exports()
    filter!(e -> !is_done(e), exports)
    sweep_exports_at[] = 2 * length(exports) + 64
end

# The layout of semaphores is the C library's own affair: what is relied on is tried first.
function post_function()
    post = cglobal(:sem_post)
    trial = zeros(UInt32, 16)
    trial[1] = 1
    ccall(post, Cint, (Ptr{UInt32},), trial)
    trial[1] == 2 && all(iszero, trial[2:end]) && return post
    throw(ArgumentError("copy = false needs a C library whose semaphores start with their value"))
end
