const package = dirname(@__DIR__)
const root = normpath(joinpath(package, "..", "..", ".."))

"Ends what hangs, however slow and busy the machine: no test is about how long it is."
const limit_s = 300
"Bound of every collective, so that a rank that is missing is an error."
const timeout_ms = 120_000

"Starts `f` as a task of a thread of its own."
function on_thread(f, thread)
    task = Task(f)
    task.sticky = true
    ccall(:jl_set_task_tid, Cvoid, (Any, Cint), task, thread - 1)
    schedule(task)
end

"""
Runs `f(rank, context)` on a thread for each of two ranks, and gives what each gave, or threw.
"""
function two_ranks(f; finalize = true, options...)
    store = Store()
    function rank(r)
        try
            context = Context(; store = store, rank = r, size = 2, timeout_ms = timeout_ms, options...)
            try
                result = f(r, context)
                finalize && finalize!(context)
                return result
            finally
                close(context)
            end
        catch e
            return e
        end
    end
    tasks = [on_thread(() -> rank(r), r + 1) for r in 0:1]
    map(fetch, tasks)
end

# A rank that failed where a test takes its values apart: shown as what it is.
Base.indexed_iterate(e::NXDError, ::Int) = throw(e)

"Waits until another thread has done something."
function until(f)
    deadline = time() + limit_s
    while !f()
        time() < deadline || error("waited in vain")
        Libc.systemsleep(0.002)
        GC.safepoint()
    end
end

"A context of one rank, with its layout."
alone(f; options...) = Context(; store = Store(), rank = 0, size = 1, options...) do context
    init_model_parallel!(context)
    f(context)
end

"What `f` throws."
function thrown(f)
    try
        f()
    catch e
        return e
    end
    nothing
end

# Garbage is collected after every third call of the library (every one with NXD_LONG), in callbacks
# too, while everything that the call was given or gave is in flight; and now and then all of it, old
# objects as well.
const long = get(ENV, "NXD_LONG", "0") == "1"
const forcing, calls, collections = Ref(true), Threads.Atomic{Int}(0), Threads.Atomic{Int}(0)

@eval NXD function check(status::nxd_status_t)
    Main.force_collection()
    status == NXD_OK ? nothing : fail(status)
end

function force_collection()
    forcing[] && (long || Threads.atomic_add!(calls, 1) % 3 == 0) || return
    n = Threads.atomic_add!(collections, 1)
    GC.gc(n % 100 == 0)
end

function without_forcing(f)
    forcing[] = false
    try
        return f()
    finally
        forcing[] = true
    end
end

"Without pages of files, which the system may drop at any moment."
resident_mb() = parse(Int, match(r"RssAnon:\s+(\d+) kB", read("/proc/self/status", String))[1]) / 2^10

"""
Runs a Julia program in a process of its own and gives (exit code, output). It is killed when it
takes longer than `limit_s`, which fails the test.
"""
function program(path, args...; env = (), julia = ())
    out, err = tempname(), tempname()
    command = `$(Base.julia_cmd()) -t 1 -O1 --compile=yes --startup-file=no --project=$package $(collect(julia)) $path $(collect(args))`
    whole = merge(Dict{String,String}(ENV), Dict{String,String}(env...))
    process = run(pipeline(setenv(ignorestatus(command), whole); stdout = out, stderr = err); wait = false)
    timer = Timer(_ -> kill(process, Base.SIGKILL), limit_s)
    wait(process)
    late = !isopen(timer)
    close(timer)
    text = read(out, String) * read(err, String)
    late && error("$path took more than $limit_s s:\n$text")
    process.termsignal == 0 || return (128 + process.termsignal, text)
    (process.exitcode, text)
end

"A program that must end well; gives its output."
function succeeding(path, args...; options...)
    code, text = program(path, args...; options...)
    code == 0 || println(text)
    @test code == 0
    text
end

"Starts a program as two ranks; `finished` waits for them and gives what both printed."
function started(path, args...; julia = ())
    directory = mktempdir()
    script = "exec \"\$@\" > \"\$0/\$RANK\" 2>&1"
    command = `sh -c $script $directory $(Base.julia_cmd()) -t 1 -O1 --compile=yes --startup-file=no --project=$package $(collect(julia)) $path $(collect(args))`
    (Job(command, 2), directory)
end

function finished((job, directory))
    failure = thrown(() -> wait(job; timeout_ms = 1000 * limit_s))
    close(job)
    text = join(read(joinpath(directory, string(r)), String) for r in 0:1)
    failure === nothing || println(sprint(showerror, failure), "\n", text)
    @test failure === nothing
    text
end

two_processes(path, args...; options...) = finished(started(path, args...; options...))
