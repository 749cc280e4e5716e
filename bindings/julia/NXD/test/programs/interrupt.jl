# Two ranks; rank 0 gets a SIGINT while it blocks in one call after the other, and goes on.
using NXD
Base.exit_on_sigint(false)

"Sends this process a SIGINT soon, from outside."
soon() = run(`sh -c "(sleep 1; kill -INT $(getpid())) &"`)

function interrupted(f, what)
    soon()
    try
        f()
        println(what, ": not interrupted")
    catch e
        println(what, ": ", typeof(e))
    end
    flush(stdout)
end

function main()
    context = Context(timeout_ms = 60000)
    first, second, done = (Group(context, [0, 1]; name = name) for name in ("first", "second", "done"))
    x = [1.0]
    if rank_in(context) == 1
        receive_from!(done, x, 0) # comes to no other call
        return close(context)
    end
    interrupted(() -> all_reduce!(first, x), "all_reduce!")
    interrupted(() -> receive_from!(second, x, 1), "receive_from!")
    work = receive_from_async!(world(context), x, 1)
    interrupted(() -> wait(work), "wait of a work")
    @assert !NXD.isdone(work) # it goes on
    alone = Context(store = Store(), rank = 0, size = 1)
    slow = ModuleNode((self, x) -> (while true; sum(rand(100)); end), alone, "Slow")
    interrupted(() -> slow(Tensor(x)), "a forward in Julia")
    interrupted(() -> Context(store = Store(), rank = 0, size = 2, timeout_ms = 60000), "Context")
    send_to(done, x, 1)
    close(context)
end

NXD.is_rank() ? main() : spawn_ranks(2)
