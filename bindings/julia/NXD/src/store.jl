@object Store nxd_store_t nxd_store_destroy

@doc """
Key-value store through which ranks find one another.

    Store()                     of the ranks that are threads of this process
    Store(path)                 in a fresh file
    Store(host, port; server)   over TCP, served by one rank; port 0 there picks one, see `port`
    Store(set, get, add)        over functions of one's own
""" Store

Store() = given(nxd_store_create_local, Store)
Store(path::AbstractString) = given(out -> nxd_store_create_file(path, out), Store)

function Store(host::AbstractString, port::Integer; server::Bool, timeout_ms::Integer = 0)
    given(out -> nxd_store_create_tcp(host, port, server, timeout_ms, out), Store)
end

"Port that a TCP store's server listens on."
port(store::Store) = number(out -> nxd_store_get_port(store, out))

function Base.setindex!(store::Store, value, key::AbstractString)
    bytes = bytes_of(value)
    check(nxd_store_set(store, key, bytes, length(bytes)))
end

bytes_of(value) = convert(Vector{UInt8}, value)
bytes_of(value::AbstractString) = Vector{UInt8}(codeunits(value))

"""
    get(store, key, timeout_ms)

The bytes under a key; waits for it, while other tasks of this thread run too, and fails with
`:timeout` when it does not come.
"""
function Base.get(store::Store, key::AbstractString, timeout_ms::Integer)
    buffer, needed, left = Vector{UInt8}(undef, 256), Ref{Csize_t}(0), Int64(timeout_ms)
    while true
        now = min(left, 50)
        status = nxd_store_get(store, key, now, buffer, length(buffer), needed)
        if status == NXD_ERROR_INVALID_ARGUMENT && needed[] > length(buffer)
            resize!(buffer, needed[])
        elseif status == NXD_ERROR_TIMEOUT && (left -= now) > 0
            yield()
        else
            check(status)
            return resize!(buffer, needed[])
        end
    end
end

"Adds to an integer that starts at 0, atomically, and gives the new value."
add!(store::Store, key::AbstractString, amount::Integer) =
    value(out -> nxd_store_add(store, key, amount, out), Int64)

# ---- stores of the caller's own

@entry on_store_set(key, value, size, data) store_set
@entry on_store_get(key, buffer, cap, out_size, out_found, data) store_get
@entry on_store_add(key, amount, out_value, data) store_add

function store_set(key, value, size, data)
    callback_of(data).run.set(unsafe_string(key), copy(unsafe_wrap(Array, value, size)))
end

function store_get(key, buffer, cap, out_size, out_found, data)
    found = callback_of(data).run.get(unsafe_string(key))
    unsafe_store!(out_found, found !== nothing)
    found === nothing && return
    bytes = bytes_of(found)
    unsafe_store!(out_size, length(bytes))
    length(bytes) <= cap && GC.@preserve bytes unsafe_copyto!(buffer, pointer(bytes), length(bytes))
end

store_add(key, amount, out_value, data) =
    unsafe_store!(out_value, callback_of(data).run.add(unsafe_string(key), amount))

"""
    Store(set, get, add)

`set(key, bytes)`; `get(key)` gives bytes, or `nothing` at once when the key is absent;
`add(key, amount)` gives the new value.
"""
function Store(set::Function, get::Function, add::Function)
    callback = register((set = set, get = get, add = add))
    entries = nxd_store_callbacks_t(
        sizeof(nxd_store_callbacks_t), user_data(callback), release_entry[],
        @cfunction(on_store_set, Int32, (Ptr{UInt8}, Ptr{UInt8}, Csize_t, Ptr{Cvoid})),
        @cfunction(on_store_get, Int32, (Ptr{UInt8}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Int32},
                                         Ptr{Cvoid})),
        @cfunction(on_store_add, Int32, (Ptr{UInt8}, Int64, Ptr{Int64}, Ptr{Cvoid})))
    taking(callback) do
        given(out -> nxd_store_create_callbacks(Ref(entries), out), Store)
    end
end
