"""Arrays of frameworks whose capsules, or whose use of Python's C interface, are traps."""

import unittest

import numpy as np

import nxd
from support import run_code

# The types that NVIDIA's Warp, and examples of DLPack, give functions that all libraries share.
FOREIGN = """
import ctypes
python = ctypes.pythonapi
python.PyCapsule_New.argtypes = [
    ctypes.c_void_p, ctypes.c_char_p, ctypes.CFUNCTYPE(None, ctypes.py_object)]
python.PyCapsule_GetPointer.restype = ctypes.POINTER(ctypes.c_int)
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.Py_IncRef.argtypes = [ctypes.c_void_p]
"""
EXCHANGE = """
import numpy as np
import nxd
array = np.arange(3, dtype="f4")
assert np.from_dlpack(nxd.from_dlpack(array)).tolist() == [0, 1, 2]
"""
UNCHANGED = """
assert python.PyCapsule_GetPointer.restype is ctypes.POINTER(ctypes.c_int)
assert python.Py_IncRef.argtypes == [ctypes.c_void_p]
"""


class OldCapsule:
    """An array of elements that no buffer has a format for, in a capsule that cannot say more than
    where they are."""

    def __init__(self, array, shown):
        self._array, self._shown = array, shown

    def __dlpack__(self):
        return self._array.__dlpack__()

    def __array__(self, *_, **__):
        if self._shown is None:
            raise TypeError("no such elements")
        return self._shown


class Capsules(unittest.TestCase):
    def test_other_libraries_share_the_c_interface(self):
        run_code(FOREIGN + EXCHANGE + UNCHANGED)
        run_code(EXCHANGE + FOREIGN + EXCHANGE + UNCHANGED)

    def test_read_only_arrays_of_old_capsules(self):
        frozen = np.ones(3, "f4")
        frozen.flags.writeable = False
        array = np.ones(3, "f4")
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            for shown in (array, None):
                context.world.broadcast(OldCapsule(array, shown))
            read_only = OldCapsule(array, frozen)
            out = np.zeros(3, "f4")
            context.world.all_reduce(read_only, out)
            np.testing.assert_array_equal(out, array)
            with self.assertRaisesRegex(nxd.InvalidArgument, "the array is read-only"):
                context.world.all_reduce(read_only)
            with self.assertRaisesRegex(nxd.InvalidArgument, "the array is read-only"):
                nxd.Ddp.over_arrays(context, {"w": read_only}, {"w": out})

    def test_read_only_buffers_of_arrays_that_numpy_gets_copies_of(self):
        """As TensorFlow's tensors give them."""
        class Constant(bytes):
            def __dlpack__(self):
                return self.array.__dlpack__()

            def __array__(self, *_, **__):
                return self.array.copy()

        constant = Constant(4)
        constant.array = np.zeros(4, "u1")
        with self.assertRaisesRegex(nxd.InvalidArgument, r"read-only, .*: nxd.tensor\(\) copies it"):
            nxd.from_dlpack(constant)

    def test_no_tensor_shares_memory_that_is_read_only(self):
        """It could be written in place."""
        array, frozen = np.ones(3, "f4"), np.ones(3, "f4")
        frozen.flags.writeable = False
        for shown in (array, None):
            self.assertEqual(nxd.from_dlpack(OldCapsule(array, shown)).shape, (3,))
        with self.assertRaisesRegex(nxd.InvalidArgument, r"read-only, .*: nxd.tensor\(\) copies it"):
            nxd.from_dlpack(OldCapsule(array, frozen))
        with nxd.tensor(OldCapsule(array, frozen)) as copied:
            nxd.ops.add_(copied, 1.0, overload="Scalar")
        np.testing.assert_array_equal(array, 1)


if __name__ == "__main__":
    unittest.main()
