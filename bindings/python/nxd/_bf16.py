"""numpy arrays of bf16, for which numpy has no type: ml_dtypes' where that is installed, else
elements of two opaque bytes."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

from nxd.errors import Unsupported


@cache
def _ml_dtypes() -> Any:
    """ml_dtypes.bfloat16, or None. Imported once an array of bf16 is made, and not before."""
    try:
        return import_module("ml_dtypes").bfloat16
    except ImportError:
        return None


def _refuse(*_: object, **__: object) -> Any:
    raise Unsupported("numpy does not compute with bf16, nor convert to it: install ml_dtypes, "
                      "or read and write 16-bit words by .view(numpy.uint16)")


@cache
def _opaque() -> Any:
    """The class of arrays of two opaque bytes. It closes the ways by which numpy would copy the
    first two bytes of other elements into them, or convert without being asked."""
    import numpy
    ndarray: Any = numpy.ndarray

    class Bf16Words(ndarray):  # type: ignore[misc]  # numpy.ndarray
        def __setitem__(self, index: Any, value: Any) -> None:
            if numpy.asarray(value).dtype != self.dtype:
                _refuse()
            super().__setitem__(index, value)

        def view(self, *types: Any, **named: Any) -> Any:
            made = super().view(*types, **named)
            # As words of another type it is an array like any other.
            return made if made.dtype == self.dtype else made.view(ndarray)

        flat = property(_refuse, _refuse)
        __array_ufunc__ = fill = put = itemset = setfield = _refuse

    return Bf16Words


def of_words(words: Any) -> Any:
    """An array of bf16 over a numpy array of 16-bit words."""
    bfloat16 = _ml_dtypes()
    return words.view("V2").view(_opaque()) if bfloat16 is None else words.view(bfloat16)


def words_of(array: Any) -> Any:
    """The 16-bit words of a numpy array of bf16, of ml_dtypes' or of of_words; None for others."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        return None
    if array.dtype.name == "bfloat16" or isinstance(array, _opaque()):
        return array.view(numpy.uint16)
    return None
