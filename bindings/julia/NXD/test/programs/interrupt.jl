# Two ranks; rank 0 gets a SIGINT while it blocks in one call after the other, and goes on.
using NXD
Base.exit_on_sigint(false)

"""
Sends this process a SIGINT soon, from outside; another one later while the file is there, for Julia
loses one that comes in a finalizer.
"""
soon(file) = run(`sh -c "(sleep 1; while [ -e $file ]; do kill -INT $(getpid()); sleep 10; done) &"`)

function interrupted(f, what)
    file = tempname()
    try
        touch(file)
        soon(file)
        f()
        println(what, ": not interrupted")
    catch e
        println(what, ": ", typeof(e))
    finally
        rm(file)
    end
    flush(stdout)
end

function main()
    context = Context(timeout_ms = 120000)
    first, second, done = (Group(context, [0, 1]; name = name) for name in ("first", "second", "done"))
    x, going = [1.0], Ref(false)
    alone = Context(store = Store(), rank = 0, size = 1)
    slow = ModuleNode((self, x) -> (while going[]; sum(rand(100)); end; x), alone, "Slow")
    # The interrupted calls are compiled by then.
    all_reduce!(done, x)
    rank_in(context) == 0 ? receive_from!(done, x, 1) : send_to(done, x, 0)
    wait(rank_in(context) == 0 ? receive_from_async!(done, x, 1) : send_to_async(done, x, 0))
    slow(Tensor(x))
    if rank_in(context) == 1
        receive_from!(done, x, 0) # comes to no other call
        return close(context)
    end
    going[] = true
    interrupted(() -> all_reduce!(first, x), "all_reduce!")
    interrupted(() -> receive_from!(second, x, 1), "receive_from!")
    work = receive_from_async!(world(context), x, 1)
    interrupted(() -> wait(work), "wait of a work")
    @assert !NXD.isdone(work) # it goes on
    interrupted(() -> slow(Tensor(x)), "a forward in Julia")
    interrupted(() -> Context(store = Store(), rank = 0, size = 2, timeout_ms = 120000), "Context")
    send_to(done, x, 1)
    close(context)
end

NXD.is_rank() ? main() : spawn_ranks(2)
