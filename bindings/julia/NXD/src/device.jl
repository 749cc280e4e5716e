"The same values on a device, such as `:xla`; the tensor itself if it is there already."
to_device(t::Tensor, device::Symbol) = given(out -> nxd_tensor_to_device(t, device, out), Tensor)

"""
Ends a step: runs what this thread has recorded on device XLA as one graph, then its step closures.
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
