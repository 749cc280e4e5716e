# Generated from include/nxd.h by scripts/bindings. Do not edit.
"""nxd/autograd.h."""

from __future__ import annotations

from typing import Any, TypedDict


class FunctionOptions(TypedDict, total=False):
    """Callbacks of a custom function. Inputs are borrowed, and outside of the recorded graph.
    Outputs are new handles that the library takes over, also those filled before the callback
    fails; a borrowed handle goes out by nxd_tensor_retain. Inside the callbacks nothing is
    recorded. Tensors that backward gives may be those that it was given or that were saved: they
    are not written to.
    """

    # stable and unique, such as "mylib::swish"
    name: str
    # 0: 1
    num_outputs: int
    forward: Any
    backward: Any
    shape: Any
    user_data: Any
    # called when the function and its last recorded graph are gone
    destroy: Any
