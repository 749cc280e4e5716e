"""Exceptions of callbacks, which come out of the call that they were in, and of no other."""

import threading
import time
import unittest

import numpy as np

import nxd.core as nxd
from support import TIMEOUT_S
from test_core import DictStore


class Exceptions(unittest.TestCase):
    def test_an_exception_in_a_look_at_a_work_is_not_raised_later(self):
        class Failing(DictStore):
            broken = failed = False

            def get(self, key):
                if self.broken and threading.current_thread() is threading.main_thread():
                    self.failed = True
                    raise nxd.InvalidArgument("mine")
                return super().get(key)

        def other():
            with nxd.Context(store, 1, 2, transport="gloo", local_rank=0) as context:
                looked.wait(TIMEOUT_S)
                context.world.receive(np.zeros(4), 0)

        shared, looked = Failing(), threading.Event()
        store = nxd.Store.custom(shared)
        thread = threading.Thread(target=other)
        thread.start()
        with nxd.Context(store, 0, 2, transport="gloo", local_rank=0) as context:
            shared.broken = True
            work = context.world.send(np.ones(4), 1, wait=False)
            while not shared.failed and not work.done:
                time.sleep(0.01)
            self.assertTrue(shared.failed)
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected"):
                context.group([7])
            shared.broken = False
            looked.set()
            work.wait()
        thread.join(TIMEOUT_S)


if __name__ == "__main__":
    unittest.main()
