"""Arrays of frameworks whose use of Python's C interface is a trap."""

import unittest

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


class Capsules(unittest.TestCase):
    def test_other_libraries_share_the_c_interface(self):
        run_code(FOREIGN + EXCHANGE + UNCHANGED)
        run_code(EXCHANGE + FOREIGN + EXCHANGE + UNCHANGED)


if __name__ == "__main__":
    unittest.main()
