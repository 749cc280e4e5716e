# Files of a caller's tensors, by name, and texts.

function write_tensors(call, context, path, tensors, texts, options)
    names, handles_of = collect(keys(tensors)), collect(values(tensors))
    kept = Any[]
    make() = (field(Ptr{Cstring}, names, kept), handles(nxd_tensor_t, handles_of),
              Options(nxd_save_options_t; keys = collect(keys(texts)), values = collect(values(texts)),
                      num_values = length(texts), options...))
    none = (Ptr{Cstring}(C_NULL), Ptr{Ptr{nxd_tensor_t}}(C_NULL), Ptr{nxd_save_options_t}(C_NULL))
    told(path, make, none) do given_path, row, tensor_row, made
        GC.@preserve kept handles_of check(call(context, given_path, row, tensor_row, length(names), made))
    end
end

"""
    save(context, path, tensors; texts = Dict(), master_only, each_host)

Writes tensors by name, and texts by key, as one safetensors file, once they are all in the host's
memory. The first rank writes; with `master_only = :off` each rank does, at a path of its own.
[collective: world]
"""
save(context::Context, path::AbstractString, tensors::AbstractDict{<:AbstractString,Tensor};
     texts = Dict{String,String}(), options...) =
    write_tensors(nxd_save, context, path, tensors, texts, options)

"""
    serialization_save(context, path, tensors; texts = Dict(), master_only, each_host)

The same file, tensor by tensor: one of them is copied to the host's memory at a time.
[collective: world]
"""
serialization_save(context::Context, path::AbstractString,
                   tensors::AbstractDict{<:AbstractString,Tensor}; texts = Dict{String,String}(),
                   options...) =
    write_tensors(nxd_serialization_save, context, path, tensors, texts, options)

@object Serialization nxd_serialization_t nxd_serialization_destroy

@doc """
    Serialization(path)

An open file of [`save`](@ref), [`serialization_save`](@ref), or any other safetensors; `file[name]`
reads a tensor, `keys(file)` are their names, and [`texts`](@ref) the texts.
""" Serialization

Serialization(path::AbstractString) =
    given(out -> nxd_serialization_load(path, out), Serialization)

Base.length(file::Serialization) =
    Int(value(out -> nxd_serialization_get_count(file, out), Csize_t))
Base.keys(file::Serialization) =
    [strings(out -> nxd_serialization_get_name(file, index, out)) for index in 0:length(file) - 1]

"Reads a tensor, to `:cpu` or to the recorded device, `:xla`."
read_tensor(file::Serialization, name::AbstractString; device::Symbol = :cpu) =
    given(out -> nxd_serialization_create_tensor(file, name, device, out), Tensor)
Base.getindex(file::Serialization, name::AbstractString) = read_tensor(file, name)

"The texts of a file by key."
function texts(file::Serialization)
    count = Int(value(out -> nxd_serialization_get_value_count(file, out), Csize_t))
    Dict(map(0:count - 1) do index
        key, given_value = Ref{Cstring}(no_string), Ref{Cstring}(no_string)
        check(nxd_serialization_get_value(file, index, key, given_value))
        text(key[]) => text(given_value[])
    end)
end
