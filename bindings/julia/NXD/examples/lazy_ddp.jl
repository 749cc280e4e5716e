# Data parallelism in its smallest form: a network of two linear layers, of which every rank has a
# copy, on samples that the ranks share out anew each epoch. Eagerly on the CPU, or recorded on
# device XLA, where a step is one graph:
#
#   NXD_CPU_MODE=1 julia --project=. examples/lazy_ddp.jl
#   NXD_XLA_BACKEND=replay julia --project=. examples/lazy_ddp.jl
#
# A tensor that is still open is a result of the step's graph, so each is closed.
using NXD, Printf

const features, outputs, samples, batch, epochs = 10, 5, 240, 24, 10

"(x, target) -> mean squared error of net2(relu(net1(x)))"
function make_model(ctx)
    # Without tensor parallelism a column-parallel layer is a linear layer.
    net1, net2 = (NXD.column_parallel_linear(ctx, features, to; name = name, device = NXD.device())
                  for (name, to) in (("net1", features), ("net2", outputs)))
    model = ModuleNode(ctx, "Model") do self, x, target
        z = net1(x)
        h = op("relu", z)
        y = net2(h)
        loss = op("mse_loss", y, target)
        foreach(close, (z, h, y))
        loss
    end
    add_child!(model, "net1", net1)
    add_child!(model, "net2", net2)
    model
end

"Features are waves of a sample's index, targets a function of them: a column for each sample."
function make_batch(indices)
    x = Float32[sin(0.37 * s * (i + 1) + i) for i in 0:features - 1, s in indices]
    target = x[1:outputs, :] .* x[2:outputs + 1, :] .+ 0.5f0 .* x[1:2:features, :]
    map((x, target)) do values
        host = Tensor(values)
        moved = NXD.to_device(host, NXD.device())
        close(host)
        moved
    end
end

function train_step!(model, optimizer, indices)
    inputs = make_batch(indices)
    zero_grad!(model)
    loss = model(inputs...)
    backward(loss)
    NXD.step_without_report!(optimizer)
    NXD.mark_step()
    value = loss[] # known by now
    foreach(close, (loss, inputs...))
    value
end

function main()
    Context() do ctx
        init_model_parallel!(ctx)
        copies = group(ctx, :data)
        size(copies) <= batch || error("expected at most $batch ranks, got $(size(copies))")
        model = make_model(ctx)
        optimizer = sgd(Ddp(model; reduce = :avg); learning_rate = 0.05)
        share = batch ÷ size(copies)
        for epoch in 0:epochs - 1
            indices = NXD.sample_epoch(samples, size(copies), rank_in(copies), epoch; seed = 1,
                                       drop_last = true) .- 1
            # A rest that is smaller than a batch is left out.
            starts = 1:share:length(indices) - share + 1
            losses = [train_step!(model, optimizer, indices[i:i + share - 1]) for i in starts]
            mean = [foldl(+, losses) / length(losses)]
            all_reduce!(copies, mean; op = :avg)
            master_print(ctx, @sprintf("epoch %d loss %.6f", epoch, mean[1]))
        end
        m = NXD.device_metrics()
        master_print(ctx, "steps $(m.steps) compiles $(m.compiles) loads $(m.loads) ",
                     "executions $(m.executions) implicit_syncs $(m.implicit_syncs) fallbacks $(m.fallbacks)")
    end
end

NXD.is_rank() ? main() : spawn_ranks(2)
