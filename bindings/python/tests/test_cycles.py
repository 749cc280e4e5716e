"""Handles in reference cycles: the collector ends the pointers and the objects of one in any order.
Each test in a process of its own, which would crash."""

import unittest

from support import run_code

START = """
import gc, threading, time
import numpy as np
import nxd.core as nxd

class Trainer:
    def __init__(self, *parts):
        self.parts, self.itself = parts, self
"""


class Cycles(unittest.TestCase):
    def test_a_running_work_goes_on(self):
        """The collector does not wait for the peer, and ends neither the work nor the group that
        nobody else has."""
        run_code(START + """
def rank(r):
    with nxd.Context(store, r, 2) as context:
        array, group = np.ones(100000), context.group([0, 1])
        if r == 0:
            parts = [group.all_reduce(array, wait=False), group]
            Trainer(*(parts if order else parts[::-1]))
            del parts, group
            gc.collect()
            collected.set()
            while array[-1] != 2:
                time.sleep(0.001)
        else:
            assert collected.wait(100)
            assert group.all_reduce(array)[-1] == 2
    ended.append(r)

for order in range(2):
    store, collected, ended = nxd.Store.local(), threading.Event(), []
    threads = [threading.Thread(target=rank, args=(r,), daemon=True) for r in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert sorted(ended) == [0, 1], ended
""")

    def test_works_end_with_their_context(self):
        run_code(START + """
for i in range(50):
    context = nxd.Context(nxd.Store.local(), 0, 1)
    Trainer(context, context.world.all_reduce(np.ones(3), wait=False))
    Trainer(context, context.world.all_reduce(np.ones(3), wait=False).wait())
    del context
    if i % 3:
        gc.collect()
""")

    def test_an_object_that_ends_later_finds_handles_closed(self):
        run_code(START + """
class Last(Trainer):
    def __del__(self):
        context, group, ddp, optimizer, work = self.parts
        for use in (lambda: context.rank, context.finalize, lambda: group.all_reduce(np.ones(3)),
                    ddp.finish, optimizer.step, work.wait, lambda: work.done):
            try:
                use()
            except nxd.InvalidState as error:
                refused.append(str(error))
        for part in self.parts[::-1]:
            part.close()
        ended.append(True)

ended, refused = [], []
for i in range(5):
    context = nxd.Context(nxd.Store.local(), 0, 1)
    ddp = nxd.Ddp.over_arrays(context, {"w": np.ones(3)}, {"w": np.ones(3)})
    parts = [context, context.group([0]), ddp, nxd.AdamW(ddp)]
    Last(*parts, context.world.all_reduce(np.ones(3), wait=False))
    del context, ddp, parts
    gc.collect()
    assert len(ended) == i + 1
assert all(" is closed" in message for message in refused), refused
""")

    def test_what_a_callback_keeps(self):
        """An object that its callback refers to is freed once it is closed."""
        run_code(START.replace("nxd.core", "nxd") + """
import weakref

class Owner:
    def __init__(self, make, end):
        self.one = make(self.call)
        end(self.one)

    def call(self, *given):
        pass

    set = get = add = call

def layer(set_on, callback):
    linear = nxd.Linear(context, 2, 2, name="l")
    getattr(linear.parameter("weight"), set_on)(callback)
    return linear

def optimizer(callback):
    ddp = nxd.Ddp.over_arrays(context, {"w": np.ones(3)}, {"w": np.ones(3)})
    return nxd.CustomOptimizer(ddp, callback)

def close(one):
    one.close()

def unset(set_on, linear):
    getattr(linear.parameter("weight"), set_on)(None)

def kept(make, end):
    alive = weakref.ref(Owner(make, end))
    gc.collect()
    return alive() is not None

context = nxd.Context()
context.init_model_parallel()
makers = {"function": lambda call: nxd.Function("test::f", call, call), "optimizer": optimizer,
          "store": lambda call: nxd.Store.custom(call.__self__)}
for set_on in ("on_grad", "set_initializer"):
    makers[set_on] = lambda call, way=set_on: layer(way, call)
    assert not kept(makers[set_on], lambda one, way=set_on: unset(way, one)), set_on
for name, make in makers.items():
    assert not kept(make, close), name
""")


if __name__ == "__main__":
    unittest.main()
