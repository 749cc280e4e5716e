# Failures and how they look: a call that is wrong on one rank, on both of them; and a rank that is
# killed in the middle of a collective, in the one that is left.
#
#   julia --project=. examples/lost_peer.jl
using NXD

function main()
    ctx = Context(timeout_ms = 60000)
    rank = rank_in(ctx)
    group = world(ctx)
    x = ones(Float32, rank == 0 ? 4 : 5)
    try
        all_reduce!(group, x) # the ranks disagree about the length: nothing is changed
    catch e
        e isa NXDError || rethrow()
        println("rank ", rank, ": ", sprint(showerror, e))
        flush(stdout)
    end
    x = ones(Float32, 4)
    all_reduce!(group, x) # the group goes on
    rank == 1 && kill_me_soon()
    started = time()
    try
        while true
            all_reduce!(group, x)
            sleep(0.01)
        end
    catch e
        e isa NXDError && e.status === :peer_lost || rethrow()
        println("rank ", rank, ": lost rank ", e.root_rank, " in ", e.operation, " #", e.sequence,
                " after ", round(time() - started; digits = 1), " s: ", e.message)
    end
    close(ctx) # finalize! would want the lost rank
end

kill_me_soon() = @async (sleep(0.5); ccall(:kill, Cint, (Cint, Cint), getpid(), 9))

if NXD.is_rank()
    main()
else
    try
        spawn_ranks(2)
    catch e
        e isa NXDError || rethrow()
        println("job: ", sprint(showerror, e))
    end
end
