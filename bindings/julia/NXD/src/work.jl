@object Work nxd_work_t nxd_work_destroy

@doc """
A call that goes on while its caller does other things. It keeps its arrays alive until it is done;
until then what is sent must not be written, and what is received not touched.
""" Work

"True if the work is done, well or not; from any thread."
isdone(work::Work) = number(out -> nxd_work_test(work, out)) != 0

const slice_ms = 5

"""
    wait(work; timeout_ms = -1)

Waits until the work is done, while other tasks of this thread run too, and throws what it failed
with. When `timeout_ms` has passed it throws `:timeout`, and the work goes on.
"""
function Base.wait(work::Work; timeout_ms::Integer = -1)
    left = Int64(timeout_ms)
    while true
        now = left < 0 ? slice_ms : min(left, slice_ms)
        status = nxd_work_wait(work, now)
        status == NXD_ERROR_TIMEOUT || return check(status)
        # The slice's timeout, or how the work itself ended.
        isdone(work) && return check(nxd_work_wait(work, 0))
        left < 0 || (left -= now) > 0 || return check(nxd_work_wait(work, 0))
        yield()
    end
end

"A descriptor that `FileWatching.poll_fd` finds readable once the work is done; the work's own."
descriptor(work::Work) = RawFD(number(out -> nxd_work_get_descriptor(work, out)))

"Takes back a work that has not begun on this rank."
cancel(work::Work) = check(nxd_work_cancel(work))

"How a work that is done ended: an `NXDError`, or `nothing` when it went well."
function error_of(work::Work)
    info = filled(out -> nxd_work_get_error_info(work, out), nxd_error_info_t)
    info.status == NXD_OK && return nothing
    error_of(info, info.status, unsafe_string(nxd_status_string(info.status)))
end

function release(work::Work)
    kept = work.kept
    invoke(release, Tuple{Object}, work)
    kept === nothing || count_work(first(kept), -1)
    nothing
end

# Destroying a work that runs would wait for it, which a finalizer must not: it is looked at again
# at the next collection, and keeps its arrays until then.
function release_collected(work::Work)
    work.handle == C_NULL && return
    done = Ref{Int32}(0)
    nxd_work_test(work.handle, done) == NXD_OK && done[] == 0 || release(work)
    nothing
end
