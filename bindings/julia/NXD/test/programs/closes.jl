# A SIGINT comes in the middle of a close, which goes on to its end before it throws.
using NXD
import NXD: Object, collect_object, destroyer
Base.exit_on_sigint(false)

mutable struct thing_t end
const ended = Ref(false)

function destroy_thing(handle)
    ccall(:kill, Cint, (Cint, Cint), getpid(), Base.SIGINT)
    for _ in 1:100
        Libc.systemsleep(0.01)
        GC.safepoint()
    end
    ended[] = true
end

NXD.@object Thing thing_t destroy_thing

thing = Thing(Ptr{thing_t}(8))
try
    close(thing)
catch e
    println(typeof(e))
end
println("ended: ", ended[])
