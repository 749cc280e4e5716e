# Groups, ZeRO-1, pipelines and plans of one's own bring no libtorch into the process.
using NXD

Context(store = Store(), rank = 0, size = 1) do ctx
    init_model_parallel!(ctx)
    x = [1.0]
    all_reduce!(world(ctx), x)
    step!(adamw(Ddp(ctx, [ones(3)], [ones(3)])))
    run!(Pipeline(ctx; forward = (a...) -> 1.0, backward = (a...) -> nothing, inputs = [[]], outputs = [[]],
                  num_microbatches = 2))
end
maps = read("/proc/self/maps", String)
occursin("libnxd_core", maps) || error("libnxd_core is not loaded")
occursin("torch", maps) && error("libtorch is loaded")
println("no libtorch")
