@object Schedule nxd_pp_schedule_t nxd_pp_schedule_destroy

@doc """
    Schedule(kind; ranks, chunks = 1, microbatches)
    Schedule(tasks; chunks, microbatches)

The tasks of all ranks of a pipeline, known to be complete and free of deadlock: one of the
library's (`:1f1b` as `Symbol("1f1b")`, `:interleaved`, `:gpipe`, `:zero_bubble`, `:inference`), or
one's own: for each rank its `(kind, microbatch, chunk)` in order, where kind is `:forward`,
`:backward`, `:input_grad` or `:weight_grad`.
""" Schedule

Schedule(kind::Symbol; ranks::Integer, chunks::Integer = 1, microbatches::Integer) =
    given(out -> nxd_pp_schedule_create(kind, ranks, chunks, microbatches, out), Schedule)

function Schedule(tasks::AbstractVector; chunks::Integer = 1, microbatches::Integer)
    row = [nxd_pp_task_t(convert(nxd_pp_task_kind_t, kind), microbatch, chunk)
           for of_rank in tasks for (kind, microbatch, chunk) in of_rank]
    counts = Csize_t[length(of_rank) for of_rank in tasks]
    given(Schedule) do out
        nxd_pp_schedule_create_tasks(length(tasks), chunks, microbatches, row, counts, out)
    end
end

"A rank's tasks in order, as `Schedule` takes them."
tasks(schedule::Schedule, rank::Integer) =
    [(Symbol(t.kind), Int(t.microbatch), Int(t.chunk)) for t in listed(nxd_pp_task_t) do row, cap, n
        nxd_pp_schedule_get_tasks(schedule, rank, row, cap, n)
    end]

Base.nameof(schedule::Schedule) = strings(out -> nxd_pp_schedule_get_name(schedule, out))

# Ranks times chunks.
function stage_count(schedule)
    ranks, count = 1, Ref{Csize_t}(0)
    while nxd_pp_schedule_get_tasks(schedule, ranks, C_NULL, 0, count) == NXD_OK
        ranks += 1 # one past the last is rejected
    end
    ranks * (1 + maximum(last(task) for task in tasks(schedule, 0)))
end

"""
    report(schedule; forward, backward_input, backward_weight, transfer)

Plays a schedule through, given the durations of each stage's tasks: (makespan, critical_path,
bubble_share, peak_activations, fullest_rank).
"""
function report(schedule::Schedule; costs...)
    for (name, given_costs) in costs
        given_costs isa AbstractVector || continue
        length(given_costs) == stage_count(schedule) || throw(DimensionMismatch(
            "$name: expected one for each of $(stage_count(schedule)) stages, got $(length(given_costs))"))
    end
    made = Options(nxd_pp_costs_t; costs...)
    fields_of(filled(out -> nxd_pp_schedule_get_report(schedule, made, out), nxd_pp_report_t))
end
