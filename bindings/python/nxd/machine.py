"""The process and its machine: versions, log, memory, where the time goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nxd._handle import drop_user_data, get, read_struct, report, text, to_enum, user_data, whole
from nxd._raw import MemoryStats, PhaseStats
from nxd.enums import DType, LogLevel, Phase
from nxd.errors import callback, check
from nxd.raw import core, ffi


def version() -> str:
    """Release of the loaded library."""
    return text(core.nxd_version())


def build_info() -> dict[str, Any]:
    """Versions of the library, its compiler, libtorch, Gloo and oneDNN."""
    return json.loads(text(core.nxd_build_info()))


def environment_table() -> str:
    """Every environment variable the library reads, one per line."""
    return text(core.nxd_environment_table())


def set_log_level(level: LogLevel | str) -> None:
    check(core.nxd_log_set_level(to_enum(LogLevel, level)))


@callback("nxd_log_fn")
def _log(level: int, message: Any, held: Any) -> None:
    ffi.from_handle(held)(LogLevel(level), text(message))


def set_log_callback(callback: Callable[[LogLevel, str], None] | None) -> None:
    """Where log lines go; None: to stderr, as at first. Exceptions of the callback are printed."""
    if callback is None:
        check(core.nxd_log_set_callback(ffi.NULL, ffi.NULL, ffi.NULL))
        return
    with user_data.given(callback) as held:
        check(core.nxd_log_set_callback(_log, held, drop_user_data))


def cpu_mode() -> bool:
    """True if NXD_CPU_MODE asks for eager execution on the CPU."""
    return bool(core.nxd_cpu_mode())


def measure_gemm_peak(dtype: DType | str = DType.F32, n: int = 0) -> float:
    """Floating-point operations per second of square products of size n."""
    return get("double*", core.nxd_measure_gemm_peak, to_enum(DType, dtype), whole(n))


def release_threads() -> None:
    """Ends the threads kept for this thread's calls; the next call makes them anew."""
    check(core.nxd_release_threads())


def memory_stats() -> MemoryStats:
    stats = report("nxd_memory_stats_t")
    check(core.nxd_memory_get_stats(stats))
    return read_struct(MemoryStats, stats)


def set_memory_cap(bytes_: int) -> None:
    """Bounds what tensors may take; 0: no cap."""
    check(core.nxd_memory_set_cap(whole(bytes_)))


def trim_memory() -> None:
    """Gives the pool's unused memory back to the system."""
    check(core.nxd_memory_trim())


@contextmanager
def profile() -> Iterator[dict[str, PhaseStats]]:
    """Counts where the time goes in a with block; the dictionary is filled at its end."""
    phases: dict[str, PhaseStats] = {}
    check(core.nxd_profile_start())
    try:
        yield phases
    finally:
        check(core.nxd_profile_stop())
        for phase in Phase:
            if phase is not Phase.INVALID:
                stats = report("nxd_phase_stats_t")
                check(core.nxd_profile_get_phase(phase, stats))
                found = read_struct(PhaseStats, stats)
                phases[found.name] = found
