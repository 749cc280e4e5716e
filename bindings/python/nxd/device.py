"""The recorded device: operators recorded on device XLA, and a step run as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nxd._handle import drop_user_data, fill, read_struct, report, to_enum, user_data
from nxd.enums import GraphFormat
from nxd.errors import callback, check
from nxd.raw import engine, ffi


class DeviceMetrics(NamedTuple):
    """Counts of device XLA in this process, on all threads."""

    recorded: int
    steps: int
    graphs: int
    compiles: int
    cache_hits: int
    executions: int
    implicit_syncs: int
    fallbacks: int
    compile_seconds: float
    execute_seconds: float


def mark_step(wait: bool = True) -> None:
    """Ends a step: runs what this thread has recorded as one graph, then its step closures."""
    check(engine.nxd_mark_step(wait))


@callback("nxd_status_t(void*)")
def _closure(held: Any) -> None:
    ffi.from_handle(held)()


def add_step_closure(closure: Callable[[], None]) -> None:
    """Has closure() called once by this thread's next mark_step(), when the graph has run."""
    with user_data.given(closure) as held:
        check(engine.nxd_add_step_closure(_closure, held, drop_user_data))


def device_metrics() -> DeviceMetrics:
    counts = report("nxd_device_metrics_t")
    check(engine.nxd_device_get_metrics(counts))
    return read_struct(DeviceMetrics, counts)


def reset_device_metrics() -> None:
    check(engine.nxd_device_reset_metrics())


def _copied(characters: list[Any]) -> str:
    return b"".join(characters[:-1]).decode()


def device_report() -> str:
    """The counts as text, and each operator that made an implicit sync or fell back."""
    return _copied(fill(engine.nxd_device_get_report, "char"))


def step_graph(format: GraphFormat | str = GraphFormat.TEXT) -> str:
    """The graph of the last step that this thread has marked."""
    return _copied(fill(engine.nxd_device_get_step_graph, "char", to_enum(GraphFormat, format)))
