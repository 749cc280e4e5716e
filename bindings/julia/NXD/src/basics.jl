"Release of the loaded library, such as \"0.1.0\"."
version() = unsafe_string(nxd_version())

"Versions of the library, its compiler, libtorch, Gloo and oneDNN, as JSON."
build_info() = unsafe_string(nxd_build_info())

"Every environment variable the library reads, one per line: name, default, meaning."
environment_table() = unsafe_string(nxd_environment_table())

"""
    set_log_callback(f)        f(level::Symbol, message::String)
    set_log_callback(nothing)

Replaces where the process's log lines go; `nothing` is stderr again.
"""
function set_log_callback(f)
    callback = register(f)
    status = nxd_log_set_callback(@cfunction(on_log, Cvoid, (Int32, Cstring, Ptr{Cvoid})),
                                  user_data(callback), release_entry[])
    status == NXD_OK || unregister(callback)
    check(status)
end
set_log_callback(::Nothing) = check(nxd_log_set_callback(C_NULL, C_NULL, C_NULL))

"Drops log lines below a level: `:debug`, `:info`, `:warn`, `:error` or `:off`."
set_log_level(level::Symbol) = check(nxd_log_set_level(level))
