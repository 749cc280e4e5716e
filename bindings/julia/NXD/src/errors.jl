"""
The error of a call of the library.

`status` is one of `:invalid_argument`, `:invalid_state`, `:unsupported`, `:out_of_memory`,
`:timeout`, `:peer_lost`, `:aborted`, `:io`, `:corrupt`, `:internal`, `:abi_mismatch`, `:user`.
`root_rank` is the world rank that was lost or disagreed, `sequence` the number of the collective
`operation` in `group`, `step` the training step whose end failed, and `parameters` (`:none`,
`:old`, `:new` or `:partial`) what that has left of this rank's parameters. `nothing` and `""` stand
for what does not apply.
"""
struct NXDError <: Exception
    status::Symbol
    message::String
    root_rank::Union{Nothing,Int}
    group::String
    operation::String
    sequence::Union{Nothing,Int}
    step::Union{Nothing,Int}
    parameters::Symbol
end

function Base.showerror(io::IO, e::NXDError)
    print(io, "NXDError: ", uppercase(string(e.status)), ": ", e.message)
    e.parameters === :none || print(io, " (parameters of step ", e.step, ": ", e.parameters, ")")
end

status_name(status::nxd_status_t) = Symbol(replace(string(Symbol(status)), r"^error_" => ""))

text(s::Cstring) = Ptr{UInt8}(s) == C_NULL ? "" : unsafe_string(s)

function error_of(info::nxd_error_info_t, status, message)
    found = info.status == status # an older failure has nothing to do with this one
    operation = found ? text(info.operation) : ""
    NXDError(status_name(status), message,
             found && info.root_rank >= 0 ? Int(info.root_rank) : nothing,
             found ? text(info.group) : "", operation,
             operation == "" ? nothing : Int(info.sequence),
             found && info.step >= 0 ? Int(info.step) : nothing,
             found ? Symbol(info.parameters) : :none)
end

"The library's last error on this thread: read right after the call, before any other task runs."
function last_error(status::nxd_status_t)
    message = unsafe_string(nxd_last_error())
    info = Ref{nxd_error_info_t}()
    fill_defaults(info)
    nxd_last_error_info(info) == NXD_OK || return error_of(info[], NXD_ERROR_INTERNAL, message)
    error_of(info[], status, message)
end

@noinline function fail(status::nxd_status_t)
    raised = take_exception(status)
    throw(raised === nothing ? last_error(status) : raised)
end

"Throws what the call failed with: an exception of a callback of this task's, or an `NXDError`."
@inline check(status::nxd_status_t) = status == NXD_OK ? nothing : fail(status)
