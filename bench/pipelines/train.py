"""Runs drawn programs of pipelines on this job's ranks, and compares losses, outputs, norms, parameters and buffers with
those of one process: PyTorch's, or with --own the library's on one rank.
usage: nxdrun -n RANKS train.py DIRECTORY COUNT FIRST [--f32] [--own] [--recorded]
    --recorded: on device xla. The seed under way is written to DIRECTORY/last."""
import os
import pathlib
import sys

import nxd
from draw import draw, draw_divided
from program import Difference, Program


def program_class(plan):
    if "kind" not in plan:
        from scripted import ScriptedProgram
        return ScriptedProgram
    from layered import LayeredProgram, ModelProgram
    return {"layers": LayeredProgram, "model": ModelProgram}[plan["kind"]]


def initialize(context, layout):
    context.init_model_parallel(pipeline_parallel_size=layout["ranks"], tensor_parallel_size=layout["tensor"])


def relayout(context, programs, event):
    for program in programs:
        program.save()
        program.close()
        program.model = program.pipeline = program.local = program.optimizer = program.ddp = None
    context.destroy_model_parallel()
    initialize(context, event["layout"])
    for program, schedule in zip(programs, event["schedules"]):
        program.layout = event["layout"]
        program.plan.update(schedule)
        program.restore()
        program.compare_state()


def run(context, layout, seed, directory, dtype):
    where, programs = "making the pipelines", []
    initialize(context, layout)
    try:
        for k, plan in enumerate(layout["pipelines"]):
            where = f"making {plan}"
            if dtype == "F32":  # AdamW makes steps of the rounding of gradients that are 0
                plan["optimizer"] = "sgd"
            programs.append(program_class(plan)(context, layout, plan, directory / f"{seed}-{k}.pt", dtype))
        for number, event in enumerate(layout["events"]):
            if event["what"] == "relayout":
                where = f"event {number}, {event}, of {[program.plan for program in programs]}"
                relayout(context, programs, event)
                continue
            program = programs[event["pipeline"]]
            where = f"event {number}, {event}, of {program.plan}"
            getattr(program, event["what"])(event)
            program.compare_state()
    except (Difference, nxd.errors.NxdError) as error:
        sizes = [layout[name] for name in ("tensor", "ranks", "copies")]
        print(f"FAILED: program {seed}, rank {context.rank} of {context.size}, TP x PP x DP {sizes}: {error}\n  in {where}",
              flush=True)
        os._exit(1)
    for program in programs:
        program.end()


def main():
    directory, count, first = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dtype, is_own = "F32" if "--f32" in sys.argv else "F64", "--own" in sys.argv
    if "--recorded" in sys.argv:
        Program.device = "XLA"
    for seed in range(first, first + count):
        with nxd.Context(seed=1, timeout_ms=60000) as context:
            if context.rank == 0:
                (directory / "last").write_text(str(seed))
            run(context, (draw_divided if is_own else draw)(seed, context.size), seed, directory, dtype)
            size, rank = context.size, context.rank
    if rank == 0:
        print(f"{count} programs of pipelines on {size} ranks agree with {'one rank' if is_own else 'PyTorch'}'s, {dtype}")


main()
