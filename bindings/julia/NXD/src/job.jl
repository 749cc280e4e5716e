@object Job nxd_job_t nxd_job_destroy

@doc """
    Job(command::Cmd, n; omp_num_threads)

`n` processes started together on this host, as ranks that `Context()` joins. They have this process's
environment and directory, and are ended when the job is closed or collected, and when this process
ends.
""" Job

function Job(command::Cmd, n::Integer; omp_num_threads = nothing)
    command.env === nothing && isempty(command.dir) || throw(ArgumentError(
        "command: expected one without an environment or a directory of its own, got $command"))
    options = Options(nxd_spawn_options_t; num_processes = n, omp_num_threads = omp_num_threads,
                      argv = command.exec)
    given(out -> nxd_spawn(options, out), Job)
end

"True if nxd_spawn, torchrun, nxdrun, mpirun or srun has started this process as a rank."
function is_rank()
    # The library knows, by the variables that contexts go by too: it starts no job within another. One
    # of so few processes it never starts.
    none, job = Options(nxd_spawn_options_t; num_processes = -1), Ref(Ptr{nxd_job_t}(C_NULL))
    nxd_spawn(none, job) == NXD_ERROR_INVALID_STATE
end

# The script of this program, from any directory that the program goes to; "" for none.
const program_file = Ref("")

"""
    spawn_ranks(n; script = PROGRAM_FILE, args = ARGS)

Starts a Julia program as `n` ranks and waits for them; fails with `:peer_lost` when one does.
"""
function spawn_ranks(n::Integer; script = program_file[], args = ARGS, omp_num_threads = nothing)
    project = Base.active_project()
    flags = project === nothing ? String[] : ["--project=$project"]
    command = `$(Base.julia_cmd()) --startup-file=no $flags $script $args`
    Job(wait, command, n; omp_num_threads = omp_num_threads)
end

"""
    wait(job; timeout_ms = -1)

Waits until all processes have ended well, or one has failed. Other tasks of this thread run
meanwhile.
"""
function Base.wait(job::Job; timeout_ms::Integer = -1)
    left = Int64(timeout_ms)
    while true
        now = left < 0 ? 50 : min(left, 50)
        status = nxd_job_wait(job, now)
        status == NXD_ERROR_TIMEOUT && (left < 0 || (left -= now) > 0) || return check(status)
        yield()
    end
end

"Sends a signal to every process that still runs."
Base.kill(job::Job, signal::Integer = Base.SIGTERM) = check(nxd_job_kill(job, signal))
Base.length(job::Job) = number(out -> nxd_job_get_size(job, out))

"Process id of a rank."
pid(job::Job, rank::Integer) = Int(value(out -> nxd_job_get_pid(job, rank, out), Int64))

"How a process ended, 128 + its signal when one did it; `nothing` while it runs."
function exit_code(job::Job, rank::Integer)
    running, code = Ref{Int32}(0), Ref{Int32}(0)
    check(nxd_job_get_exit_code(job, rank, running, code))
    running[] != 0 ? nothing : Int(code[])
end
