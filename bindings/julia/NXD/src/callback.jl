# Julia functions that the library calls. Their user_data is a Callback, kept in `registered` until
# the library says that it has let go. It may say so from a finalizer, where no lock can be taken:
# so it only sets a flag, and the registry is swept by those who add to it or close an object.

mutable struct Callback
    released::Bool # first, where on_release writes
    run::Any
end

const registered = Callback[]
const any_released = Ref(false)
const registered_lock = Threads.SpinLock()
const sweep_at = Ref(64)

function register(run)
    callback = Callback(false, run)
    length(registered) < sweep_at[] || sweep_callbacks()
    locked() do
        push!(registered, callback)
    end
    callback
end

"Forgets a callback that the library has not taken over."
function unregister(callback::Callback)
    callback.released = any_released[] = true
    sweep_callbacks()
end

# A finalizer of a program's own may close an object while its thread is in here: then the next sweep
# does the rest.
function sweep_callbacks()
    any_released[] && trylock(registered_lock) || return
    try
        any_released[] = false
        filter!(callback -> !callback.released, registered)
        sweep_at[] = 2 * length(registered) + 64
    finally
        unlock(registered_lock)
    end
end

# Finalizers that ran while this thread holds the lock would not find it taken but a list half
# changed; they take no lock, so what is left to exclude are other threads.
function locked(f)
    lock(registered_lock)
    try
        return f()
    finally
        unlock(registered_lock)
    end
end

user_data(callback::Callback) = pointer_from_objref(callback)
callback_of(data::Ptr{Cvoid}) = unsafe_pointer_to_objref(data)::Callback

# Runs in finalizers too, and while the thread counts as outside of Julia: two stores, no more.
function on_release(data::Ptr{Cvoid})
    unsafe_store!(Ptr{UInt8}(data), 0x01)
    any_released[] = true
    nothing
end

const exception_key = :nxd_exception

# An exception must not unwind the library's frames: it waits in its task for the outermost call.
function keep_exception(e)
    status = status_of(e)
    task_local_storage(exception_key, (status, e))
    tell(status, e)
    Int32(status)
end

# That of another failure, such as `:ok`, would tell the library that all went well, or nothing it knows.
function status_of(e)
    e isa NXDError && for (name, value) in short_names(nxd_status_t)
        name === Symbol("error_", e.status) && return reinterpret(nxd_status_t, value)
    end
    NXD_ERROR_USER
end

# The message for the call that the callback is part of, and for other ranks.
function tell(status, e)
    message = try
        e isa NXDError ? e.message : sprint(showerror, e)
    catch
        string(typeof(e))
    end
    nxd_set_last_error(status, replace(message, '\0' => ""))
end

function take_exception(status::nxd_status_t)
    store = task_local_storage()
    found = get(store, exception_key, nothing)
    found === nothing && return nothing
    delete!(store, exception_key)
    found[1] == status ? found[2] : nothing
end

"Calls `f`, and keeps this task on its thread until it has returned."
function on_this_thread(f)
    task = current_task()
    moves = !task.sticky
    task.sticky = true
    try
        return f()
    finally
        moves && (task.sticky = false)
    end
end

# A body that waits, as printing may, lets other tasks run; the library's frames below stay where
# they are.
@noinline function guarded(body::F, arguments...) where {F}
    try
        ccall(:jl_sigatomic_end, Cvoid, ()) # put off by @call; here a Ctrl-C may be raised
        on_this_thread(() -> body(arguments...))
        ccall(:jl_sigatomic_begin, Cvoid, ())
        return Int32(0)
    catch e
        return keep_exception(e)
    end
end

# The entry points below are what C calls. They must not allocate before the thread counts as
# inside Julia again; with arguments of plain bits nothing is.
macro entry(signature, body)
    arguments = signature.args[2:end]
    esc(quote
        function $(signature.args[1])($(arguments...))
            state = ccall(:jl_gc_unsafe_enter, Int8, ())
            status = guarded($body, $(arguments...))
            ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
            status
        end
    end)
end

# Asked every few tens of milliseconds by calls that block: a Ctrl-C is raised inside `guarded`. The
# event loop is turned, which wakes what waits for timers and files on other threads, and does not
# switch tasks: the task below stays inside its call.
@entry on_interrupt(data) interrupt_point
interrupt_point(data) = Base.process_events()

# A log line has no status to hand an exception on by, and Ctrl-C waits for the call's end.
function on_log(level, message, data)
    state = ccall(:jl_gc_unsafe_enter, Int8, ())
    run_log(level, message, data)
    ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
    nothing
end

@noinline function run_log(level, message, data)
    try
        callback_of(data).run(Symbol(convert(nxd_log_level_t, level)), unsafe_string(message))
    catch e
        Core.println(Core.stderr, "NXD: the log callback failed: ", sprint(showerror, e))
    end
    nothing
end

# Addresses of entry points, made anew in every process.
const release_entry = Ref{Ptr{Cvoid}}(C_NULL)
const interrupt_entry = Ref{Ptr{Cvoid}}(C_NULL)

function make_callbacks()
    release_entry[] = @cfunction(on_release, Cvoid, (Ptr{Cvoid},))
    interrupt_entry[] = @cfunction(on_interrupt, Int32, (Ptr{Cvoid},))
end

"""
Makes what takes a callback over; when that fails the library has not, and it is forgotten. A Ctrl-C
may come after the call went well: then it stays.
"""
function taking(make, callback::Callback)
    try
        return make()
    catch e
        e isa InterruptException || unregister(callback)
        rethrow()
    end
end
