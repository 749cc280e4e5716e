# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/base.h."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """Outcome of a call. Values never change their meaning."""

    OK = 0
    # NULL, shape, dtype, size, range, or ranks that disagree
    INVALID_ARGUMENT = -1
    # wrong order of calls, after fork, after finalize
    INVALID_STATE = -2
    # valid, but not on this device, build or layout
    UNSUPPORTED = -3
    OUT_OF_MEMORY = -4
    # a peer, or a store, did not answer in time; after a call on a group the context's groups are
    # poisoned
    TIMEOUT = -5
    # a peer died or left; the context's groups are poisoned
    PEER_LOST = -6
    # nxd_group_abort or nxd_context_abort was called
    ABORTED = -7
    # file or network, not a peer of the group
    IO = -8
    # a file's content contradicts itself or its checksum
    CORRUPT = -9
    # a defect of the library: please report it
    INTERNAL = -10
    # a struct from a header this library does not know
    ABI_MISMATCH = -11
    # a callback's own failure; passed through unchanged
    USER = -12


class DType(IntEnum):
    """Element types."""

    INVALID = -1
    F32 = 0
    F64 = 1
    BF16 = 2
    F16 = 3
    I32 = 4
    I64 = 5
    U8 = 6
    I8 = 7
    I16 = 8
    BOOL = 9


class Toggle(IntEnum):
    """On, off, or the default that the field's comment names."""

    INVALID = -1
    DEFAULT = 0
    ON = 1
    OFF = 2


class ParameterState(IntEnum):
    """The step that this rank's parameters belong to after an optimizer's step."""

    INVALID = -1
    # no step was concerned
    NONE = 0
    # all are as before the step
    OLD = 1
    # all are as after it
    NEW = 2
    # some of each: of no use until they are loaded again
    PARTIAL = 3


class LogLevel(IntEnum):
    """Severity of log lines; lines below the process-wide level are dropped."""

    INVALID = -1
    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
    OFF = 4


class Device(IntEnum):
    """Kind of a device."""

    INVALID = -1
    CPU = 0
    # holds no tensors: NXD_DEVICE_XLA runs by Neuron's plug-in
    NEURON = 1
    # shapes and dtypes, no values
    META = 2
    # records operators, and runs a step as one graph; see nxd/device.h
    XLA = 3


class ErrorInfo(NamedTuple):
    """The distributed call that failed. Strings are borrowed like nxd_last_error."""

    status: Status
    # world rank that was lost or disagreed; -1 when none is to blame
    root_rank: int
    # number of the collective in its group, from 0
    sequence: int
    # name of the group; "" when no group was involved
    group: str
    # such as "all_reduce"; "" when no collective was involved
    operation: str
    # of the training step whose end failed; -1 when none did
    step: int
    # what that failure has left of this rank's parameters
    parameters: ParameterState


FIELDS: dict[str, dict[str, type]] = {
    "nxd_error_info_t": {
        "status": Status,
        "parameters": ParameterState,
    },
}
