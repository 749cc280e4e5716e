# A SIGINT comes in a finalizer of the program's, and is pending when those of objects begin.
using NXD
import NXD: Object, collect_object, destroyer
Base.exit_on_sigint(false)

mutable struct thing_t end
const ended = Ref(0)
destroy_thing(handle) = (ended[] += 1; nothing)
NXD.@object Thing thing_t destroy_thing

mutable struct Interrupts end
const sent = Ref(0)
function interrupt(_)
    sent[] += 1
    ccall(:kill, Cint, (Cint, Cint), getpid(), Base.SIGINT)
    ccall(:usleep, Cint, (Cuint,), 300_000) # until Julia's thread for signals has seen it
    nothing
end

const things = 20
@noinline function drop_all()
    foreach(_ -> Thing(Ptr{thing_t}(8)), 1:things ÷ 2)
    finalizer(interrupt, Interrupts())
    foreach(_ -> Thing(Ptr{thing_t}(8)), 1:things ÷ 2)
    nothing
end

function caught(f)
    try
        f()
        Libc.systemsleep(0.3)
        GC.safepoint()
    catch e
        return typeof(e)
    end
end

caught(() -> interrupt(nothing)) # compiled before it is a finalizer
println(caught() do
    drop_all()
    while sent[] < 2
        GC.gc()
    end
end)
while ended[] < things
    GC.gc()
end
println("all ended")
