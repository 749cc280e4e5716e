"The same values on a device, such as `:xla`; the tensor itself if it is there already."
to_device(t::Tensor, device::Symbol) = given(out -> nxd_tensor_to_device(t, device, out), Tensor)

"""
Ends a step: runs what this thread has recorded on device XLA as one graph, then its step closures.
With `wait = false` the graph runs while this thread goes on: the next call that needs its values
waits, and fails as this one would have.
Tasks that move between threads record in parts: keep one on its thread (`Threads.@spawn` moves).
"""
mark_step(; wait::Bool = true) = check(nxd_mark_step(wait))

@entry on_step_end(data) run_step_closure
run_step_closure(data) = callback_of(data).run()

"Calls `f()` once, at the end of this thread's next `mark_step`: what the step computed is known."
function add_step_closure(f)
    callback = register(f)
    entry = @cfunction(on_step_end, Int32, (Ptr{Cvoid},))
    taking(callback) do
        check(nxd_add_step_closure(entry, user_data(callback), release_entry[]))
    end
end

"Counts of device XLA in this process, on all threads."
device_metrics() = fields_of(filled(nxd_device_get_metrics, nxd_device_metrics_t))
"Starts all counts from 0 again."
reset_device_metrics() = check(nxd_device_reset_metrics())

"The counts as text, and each operator that made an implicit sync or fell back."
device_report() = copied((buf, cap, needed) -> nxd_device_get_report(buf, cap, needed))

"The graph of the last step that this thread has marked, as `:text` or for Graphviz, `:dot`."
step_graph(format::Symbol = :text) =
    copied((buf, cap, needed) -> nxd_device_get_step_graph(format, buf, cap, needed))

@object DeviceLoader nxd_device_loader_t nxd_device_loader_destroy

@doc """
    DeviceLoader(loader, device = :xla; batches_per_execution, prefetch)

The batches of a data loader, moved to a device by a thread ahead of the steps that take them. The
data loader is the device loader's until `close`. Batches of a function are left to the raw layer:
no thread of the library's may call Julia.
""" DeviceLoader

function DeviceLoader(loader::DataLoader, device::Symbol = :xla; options...)
    made = Options(nxd_device_loader_options_t; options...)
    given(out -> nxd_device_loader_create(loader, device, made, out), DeviceLoader; kept = loader)
end

"""
    next!(loader::DeviceLoader; num_tensors = 1)

The next batch: ids, or with `next_labels` and two tensors, ids and labels. Marks the step before
it, as `mark_step` does.
"""
function next!(loader::DeviceLoader; num_tensors::Integer = 1)
    ended = Ref{Int32}(0)
    several(row -> nxd_device_loader_next(loader, row, num_tensors, ended), num_tensors)
end

"Where the data loader stands behind the last batch that was taken: what a checkpoint needs to keep."
Base.position(loader::DeviceLoader) =
    Int(value(out -> nxd_device_loader_get_position(loader, out), Int64))
"Goes on at a position of the data loader."
Base.seek(loader::DeviceLoader, position::Integer) =
    (check(nxd_device_loader_set_position(loader, position)); loader)
