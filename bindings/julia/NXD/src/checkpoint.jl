@object Checkpoint nxd_checkpoint_t nxd_checkpoint_destroy

@doc """
A directory of files that appears at once or not at all.

    Checkpoint(context, directory, step)   begins that of a step [collective: world]
    open_checkpoint(context, directory)    opens the newest, or that of a step

Closing one that was not published removes it; one that is being published is waited for.
""" Checkpoint

Checkpoint(context::Context, directory::AbstractString, step::Integer) =
    told(directory, () -> (Int64(step),), (0,)) do given_directory, of_step
        given(out -> nxd_checkpoint_create(context, given_directory, of_step, out), Checkpoint)
    end

"""
    open_checkpoint(context, directory[, step]; verify = true)

The checkpoint of a step; without one the newest that is complete, or `nothing` where there is none.
With `verify` the checksums of all files are compared. [collective: world]
"""
open_checkpoint(context::Context, directory::AbstractString, step::Integer; verify::Bool = true) =
    told(directory, () -> (Int64(step),), (0,)) do given_directory, of_step
        given(out -> nxd_checkpoint_open(context, given_directory, of_step, verify, out), Checkpoint)
    end

function open_checkpoint(context::Context, directory::AbstractString; verify::Bool = true)
    out = Ref{Ptr{nxd_checkpoint_t}}(C_NULL)
    told(given_directory -> check(nxd_checkpoint_open_newest(context, given_directory, verify, out)),
         directory)
    out[] == C_NULL ? nothing : Checkpoint(out[])
end

"The step that a checkpoint is of."
checkpoint_step(checkpoint::Checkpoint) =
    Int(value(out -> nxd_checkpoint_get_step(checkpoint, out), Int64))

"Where a file of the checkpoint is to be written, or lies."
path(checkpoint::Checkpoint, name::AbstractString) =
    copied((buf, cap, needed) -> nxd_checkpoint_get_path(checkpoint, name, buf, cap, needed))

"Keeps a text with the checkpoint."
Base.setindex!(checkpoint::Checkpoint, text::AbstractString, key::AbstractString) =
    check(nxd_checkpoint_set_value(checkpoint, key, text))

"A text that was kept with the checkpoint; the default where there is none."
function Base.get(checkpoint::Checkpoint, key::AbstractString, default)
    needed = Ref{Csize_t}(0)
    check(nxd_checkpoint_get_value(checkpoint, key, UInt8[], 0, needed))
    needed[] == 0 && return default
    copied((buf, cap, room) -> nxd_checkpoint_get_value(checkpoint, key, buf, cap, room))
end

"The state of an optimizer, or the parameters of a module, become a file of a checkpoint. [collective: world]"
snapshot(optimizer::Optimizer, checkpoint::Checkpoint, name::AbstractString) =
    told(given_name -> check(nxd_optimizer_snapshot(optimizer, checkpoint, given_name)), name)
snapshot(root::ModuleNode, checkpoint::Checkpoint, name::AbstractString) =
    told(given_name -> check(nxd_module_snapshot(root, checkpoint, given_name)), name)

"""
    publish(checkpoint; keep_last = 0, wait = true)

Completes the checkpoint and keeps the last so many; 0: all. Without `wait` it goes on in the
background, until [`wait`](@ref). [collective: world]
"""
function publish(checkpoint::Checkpoint; keep_last::Integer = 0, wait::Bool = true)
    call = wait ? nxd_checkpoint_publish : nxd_checkpoint_publish_async
    last = try
        Int32(keep_last)
    catch
        call(checkpoint, -1) # which the library rejects on all ranks
        rethrow()
    end
    check(call(checkpoint, last))
end

"Waits until what was published in the background has ended, and fails as it did."
Base.wait(checkpoint::Checkpoint; timeout_ms::Integer = -1) =
    check(nxd_checkpoint_wait(checkpoint, timeout_ms))

"True when what is published in the background has ended, well or not."
Base.isready(checkpoint::Checkpoint) =
    value(out -> nxd_checkpoint_test(checkpoint, out), Cint) != 0

"The context's random bits continue where those of the checkpoint's writer did."
restore_random_state(checkpoint::Checkpoint) =
    check(nxd_checkpoint_restore_random_state(checkpoint))

@object TrainingState nxd_training_state_t nxd_training_state_destroy

@doc """
    TrainingState(context)

All that a training run goes on from: models, optimizers, positions of data loaders, the context's
random state, and texts, which are the same on all ranks. It keeps its parts alive.

    push!(state, "model" => model)             also an optimizer, or a data loader
    save(state, directory, step)               [collective: world]
    load!(state, directory)                    gives the step, or nothing [collective: world]
""" TrainingState

TrainingState(context::Context) =
    given(out -> nxd_training_state_create(context, out), TrainingState; kept = Any[])

function Base.push!(state::TrainingState, (name, optimizer)::Pair{<:AbstractString,Optimizer})
    check(nxd_training_state_add_optimizer(state, name, optimizer))
    push!(state.kept, optimizer.kept)
    state
end
function Base.push!(state::TrainingState, (name, loader)::Pair{<:AbstractString,DataLoader})
    check(nxd_training_state_add_data_loader(state, name, loader))
    state
end
function Base.push!(state::TrainingState, (name, root)::Pair{<:AbstractString,ModuleNode})
    check(nxd_training_state_add_module(state, name, root))
    push!(state.kept, root)
    state
end

"Keeps a text with the state."
Base.setindex!(state::TrainingState, text::AbstractString, key::AbstractString) =
    check(nxd_training_state_set_value(state, key, text))

"A text that was set, or that the checkpoint had which was loaded since; else the default."
function Base.get(state::TrainingState, key::AbstractString, default)
    needed = Ref{Csize_t}(0)
    check(nxd_training_state_get_value(state, key, UInt8[], 0, needed))
    needed[] == 0 && return default
    copied((buf, cap, room) -> nxd_training_state_get_value(state, key, buf, cap, room))
end

"""
    save(state, directory, step; keep_last = 0, wait = true)

Saves all parts as the checkpoint of a step and keeps the last so many; 0: all. Without `wait` it
goes on in the background, until [`wait`](@ref). [collective: world]
"""
save(state::TrainingState, directory::AbstractString, step::Integer; keep_last::Integer = 0,
     wait::Bool = true) =
    told(directory, () -> (Int64(step), Int32(keep_last)), (0, 0)) do given_directory, of_step, last
        call = wait ? nxd_training_state_save : nxd_training_state_save_async
        check(call(state, given_directory, of_step, last))
    end

"Waits until what was saved in the background has ended, and fails as it did."
Base.wait(state::TrainingState; timeout_ms::Integer = -1) =
    check(nxd_training_state_wait(state, timeout_ms))

"""
    load!(state, directory; verify = true)

Loads all parts from the newest complete checkpoint, and gives its step; `nothing`, and nothing
changed, where there is none. [collective: world]
"""
function load!(state::TrainingState, directory::AbstractString; verify::Bool = true)
    step = told(directory) do given_directory
        value(out -> nxd_training_state_load_newest(state, given_directory, verify, out), Int64)
    end
    step < 0 ? nothing : Int(step)
end

"Loads all parts from a checkpoint that was opened. [collective: world]"
load!(state::TrainingState, checkpoint::Checkpoint) =
    check(nxd_training_state_restore(state, checkpoint))

"All parts become part of a checkpoint that is being written. [collective: world]"
snapshot(state::TrainingState, checkpoint::Checkpoint) =
    check(nxd_training_state_snapshot(state, checkpoint))
