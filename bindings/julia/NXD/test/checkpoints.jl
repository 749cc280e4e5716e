function save_and_go_on(ctx, directory)
    params, grads = [Float32[1, 2, 3]], [Float32[1, 1, 1]]
    optimizer = adamw(Ddp(ctx, params, grads; names = ["w"]))
    before = NXD.open_checkpoint(ctx, directory)
    nothing_to_wait_for, ready = Symbol[], Bool[]
    for step in 1:3
        step!(optimizer)
        checkpoint = NXD.Checkpoint(ctx, directory, step)
        NXD.snapshot(optimizer, checkpoint, "state")
        checkpoint["position"] = "batch $step"
        push!(nothing_to_wait_for, thrown(() -> wait(checkpoint)).status)
        NXD.publish(checkpoint; keep_last = 2, wait = false)
        step!(optimizer)
        wait(checkpoint; timeout_ms = 1000 * limit_s)
        push!(ready, isready(checkpoint))
        close(checkpoint)
    end
    newest = NXD.open_checkpoint(ctx, directory)
    NXD.restore_random_state(newest)
    NXD.load!(optimizer, NXD.path(newest, "state"))
    older = NXD.open_checkpoint(ctx, directory, 2; verify = false)
    gone = thrown(() -> NXD.open_checkpoint(ctx, directory, 1)).status
    (before, nothing_to_wait_for, ready, NXD.checkpoint_step(newest), get(newest, "position", ""),
     get(newest, "absent", 7), NXD.checkpoint_step(older), gone)
end

function save_whole_state(ctx, root, corpus)
    params, grads = [Float32[1, 2, 3]], [Float32[1, 1, 1]]
    optimizer = adamw(Ddp(ctx, params, grads; names = ["w"]))
    loader = DataLoader(ctx, [corpus], 1, 4)
    state = NXD.TrainingState(ctx)
    push!(state, "optimizer" => optimizer)
    push!(state, "data" => loader)
    before = NXD.load!(state, root)
    for step in 1:2
        step!(optimizer)
        NXD.next!(loader, zeros(Int64, 4, 1))
        state["note"] = "step $step"
        NXD.save(state, root, step; wait = step == 1)
        wait(state; timeout_ms = 1000 * limit_s)
    end
    older = NXD.open_checkpoint(ctx, root, 1)
    NXD.load!(state, older)
    found = (get(state, "note", ""), position(loader))
    close(optimizer)
    newest = NXD.load!(state, root)
    checkpoint = NXD.Checkpoint(ctx, root, 3)
    NXD.snapshot(state, checkpoint)
    refused = thrown(() -> NXD.load!(state, checkpoint)).status
    NXD.publish(checkpoint)
    (before, found, newest, get(state, "note", ""), position(loader), refused,
     get(state, "absent", 7))
end

@testset "the whole state is saved by one call" begin
    mktempdir() do directory
        corpus = joinpath(directory, "text.txt")
        write(corpus, "one two three four five six")
        root = joinpath(directory, "run")
        for found in two_ranks((r, ctx) -> save_whole_state(ctx, root, corpus))
            @test found == (nothing, ("step 1", 2), 2, "step 2", 4, :invalid_state, 7)
        end
    end
end

@testset "checkpoints are saved in the background and gone on from" begin
    mktempdir() do directory
        for found in two_ranks((r, ctx) -> save_and_go_on(ctx, directory))
            @test found == (nothing, fill(:invalid_state, 3), fill(true, 3), 3, "batch 3", 7, 2, :io)
        end
    end
end

# A path that one rank alone cannot give is an error of the call on all ranks, which go on.
function paths_with_a_nul(r, ctx, directory)
    optimizer = adamw(Ddp(ctx, [Float32[1, 2, 3]], [Float32[1, 1, 1]]; names = ["w"]))
    state = NXD.TrainingState(ctx)
    bad(path) = r == 1 ? path * "\0" : path
    calls = [() -> NXD.Checkpoint(ctx, bad(directory), 1), () -> NXD.open_checkpoint(ctx, bad(directory)),
             () -> NXD.open_checkpoint(ctx, bad(directory), 1),
             () -> NXD.save(optimizer, bad(joinpath(directory, "state"))),
             () -> NXD.save(state, bad(directory), 1), () -> NXD.load!(state, bad(directory))]
    failures = [thrown(call) for call in calls]
    checkpoint = NXD.Checkpoint(ctx, directory, 1)
    push!(failures, thrown(() -> NXD.snapshot(optimizer, checkpoint, bad("state"))))
    NXD.snapshot(optimizer, checkpoint, "state")
    NXD.publish(checkpoint)
    [failure isa NXDError ? failure.status : typeof(failure) for failure in failures]
end

@testset "peers hear of a path with a NUL" begin
    mktempdir() do directory
        on_0, on_1 = two_ranks((r, ctx) -> paths_with_a_nul(r, ctx, directory))
        @test on_0 == fill(:invalid_argument, 7)
        @test on_1 == fill(ArgumentError, 7)
    end
end
