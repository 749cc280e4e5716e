"""Memory over many creates and drops of every type, and finalizers in every order, on every thread
and at every time: nothing grows, hangs or crashes."""

import gc
import os
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

import nxd
from nxd import _handle, ops
from support import LONG, TIMEOUT_MS, TIMEOUT_S, on_ranks, resident_kb, run_code
from test_arrays import Doubler
from test_core import DictStore
from test_models import CONFIG
from test_module import Affine

# Growth that a run may have, whatever it runs: pools and tables that find their size.
SLACK_KB = 1500


def times(name):
    """How often what a maker of that name makes is made."""
    if LONG:
        return 10000
    return {"slow": 200, "rare": 50}.get(name.split("_", maxsplit=1)[0], 3000)


class Makers:
    """A way to make one object of each type, dropped by the caller."""

    def __init__(self, directory):
        self.context = nxd.Context()
        self.context.init_model_parallel()
        self.array = np.ones(16, "f4")
        self.module = Affine(self.context)
        self.params = {"w": np.ones(8, "f4")}
        self.grads = {"w": np.zeros(8, "f4")}
        self.ddp = nxd.Ddp.over_arrays(self.context, self.params, self.grads)
        self.x = nxd.zeros((1, 4))
        self.path = os.path.join(directory, "m.safetensors")
        self.module.save_safetensors(self.path)

    def store(self):
        nxd.Store.local().set("key", b"value")

    def custom_store(self):
        nxd.Store.custom(DictStore()).set("key", b"value")

    def context_of_one(self):
        nxd.Context(nxd.Store.local(), 0, 1)

    def group(self):
        self.context.group([0])

    def work(self):
        self.context.world.all_reduce(np.ones(4, "f4"), wait=False)

    def work_waited(self):
        self.context.world.all_reduce(np.ones(4, "f4"), wait=False).wait()

    def ddp_over_arrays(self):
        nxd.Ddp.over_arrays(self.context, {"w": np.ones(8, "f4")}, {"w": np.ones(8, "f4")})

    def adamw(self):
        nxd.AdamW(self.ddp)

    def sgd_step(self):
        nxd.Sgd(self.ddp, momentum=0.5).step()

    def custom_optimizer(self):
        nxd.CustomOptimizer(self.ddp, lambda update: None, num_states=1).step()

    def schedule(self):
        nxd.PipelineSchedule.of_kind("1f1b", 2, 1, 4).tasks(1)

    def callback_pipeline(self):
        nxd.CallbackPipeline(self.context, Doubler(0), [[]], [[]])

    def tensor(self):
        nxd.tensor(self.array)

    def dlpack(self):
        np.from_dlpack(nxd.from_dlpack(self.array))

    def numpy(self):
        nxd.zeros((16,)).numpy()

    def capsule(self):
        self.x.__dlpack__()

    def op(self):
        ops.relu(self.x)

    def function(self):
        nxd.Function("test::f", lambda call, x: x * 2, lambda call, g: g * 2)(self.x)

    def graph(self):
        x = nxd.tensor(self.array)
        x.requires_grad = True
        ops.sum(x * 2).backward()

    def module_of_python(self):
        Affine(self.context)(self.x)

    def tree(self):
        nxd.Module(self.context).add_child("a", Affine(self.context)).parameter("w").tensor

    def tape(self):
        self.module.tape(self.x)

    def hook(self):
        self.module.w.on_grad(lambda: None)

    def layer(self):
        nxd.ColumnParallelLinear(self.context, 4, 4)

    def optimizer_over_module(self):
        nxd.Sgd(self.module)

    def load_report(self):
        self.module.load_safetensors(self.path)

    def failure(self):
        try:
            ops.relu(self.x, 1)
        except nxd.InvalidArgument:
            pass

    def failure_of_a_callback(self):
        self.module.fail = KeyError("x")
        try:
            self.module(self.x)
        except KeyError:
            self.module.fail = None

    def ddp_over_module(self):
        nxd.Ddp.over_module(Affine(self.context), zero_stage=1)

    # Fewer of these, unless NXD_LONG is set: each takes milliseconds, and a job's process many.

    def rare_job(self):
        nxd.spawn(["/bin/true"], 1).wait()

    def slow_model(self):
        nxd.Model(self.context, CONFIG)

    def slow_module_pipeline(self):
        model = nxd.Model(self.context, CONFIG, device="meta")
        ids = nxd.zeros((2, 8), "i64", "meta")
        nxd.ModulePipeline(model, [ids, ids], num_microbatches=2)


class Endurance(unittest.TestCase):
    def test_memory_is_flat(self):
        with tempfile.TemporaryDirectory() as directory:
            makers = Makers(directory)
            for name in [n for n in vars(Makers) if not n.startswith("_")]:
                with self.subTest(name):
                    self.repeat(getattr(makers, name), times(name))
            makers.context.close()

    def test_a_leak_would_be_seen(self):
        leaked = []
        with self.assertRaisesRegex(AssertionError, "not less than"):
            self.repeat(lambda: leaked.append(nxd.zeros((4,))), 10000)

    def repeat(self, make, n):
        for _ in range(n // 5):
            make()
        gc.collect()
        nxd.trim_memory()
        before, held = resident_kb(), _handle.user_data.count()
        begin = time.monotonic()
        for _ in range(n):
            make()
        gc.collect()
        nxd.trim_memory()
        growth = resident_kb() - before
        if os.environ.get("NXD_VERBOSE"):
            print(f"{make.__name__:24} {n:6} x {1e6 * (time.monotonic() - begin) / n:7.1f} us "
                  f"{growth:6} kB", flush=True)
        self.assertLess(growth, SLACK_KB)
        self.assertLessEqual(_handle.user_data.count(), held + 1)


OBJECTS = """
import gc, os, sys, threading, time, weakref
import numpy as np
import nxd
from nxd import ops

# Less than a collective's bound: what ended before it did not wait for a peer.
AT_ONCE_S = int(os.environ["NXD_TIMEOUT_MS"]) / 2000

def objects(context, shared):
    "One of each type, some in use by others, some in cycles, works pending."
    context.init_model_parallel()
    params, grads = {"w": np.ones(8, "f4")}, {"w": np.ones(8, "f4")}

    class Net(nxd.Module):
        def __init__(self, context):
            super().__init__(context)
            self.w = self.add_parameter("w", (4, 2), init="normal")
            self.itself = self

        def forward(self, x):
            return x @ self.w.tensor

    net = Net(context)
    ddp = nxd.Ddp.over_arrays(context, params, grads, zero_stage=1)
    y, tape = net.tape(nxd.zeros((1, 4)))
    function = nxd.Function("test::f", lambda call, x: x * 2, lambda call, g: g * 2)
    x = nxd.zeros((4,))
    x.requires_grad = True
    return [shared, context, context.world, context.group(list(range(context.size))), net,
            net.parameter("w"), ddp, nxd.AdamW(ddp), nxd.Sgd(net), y, tape, function, function(x),
            nxd.CustomOptimizer(ddp, lambda update: None), nxd.zeros((4,)).numpy(),
            nxd.PipelineSchedule.of_kind("gpipe", 1, 1, 1), x.detach().__dlpack__()]
"""


class Finalizers(unittest.TestCase):
    def run_objects(self, code, **options):
        done = run_code(OBJECTS + code, **options)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_at_exit(self):
        ends = ["", "alive[:] = alive[::-1]; alive.append(alive)"]
        for end in ends + ["sys.exit(0)", "gc.disable()"] * LONG:
            with self.subTest(end):
                self.run_objects(f"""
store = nxd.Store.local()
alive = objects(nxd.Context(store, 0, 1), store)
work = alive[1].world.barrier(wait=False)
{end}
""")

    def test_copies(self):
        """A copy would be destroyed as well."""
        self.run_objects("""
import copy, pickle
store = nxd.Store.local()
for one in objects(nxd.Context(store, 0, 1), store):
    if isinstance(one, nxd._handle.Handle):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            try:
                make(one)
            except TypeError as error:
                assert "can be neither copied nor pickled" in str(error), error
            else:
                raise AssertionError(f"{make} of {one}")
""")

    def test_an_arena_keeps_its_context(self):
        run_code("""
import gc
import nxd.core as nxd
shared = nxd.Context(nxd.Store.local(), 0, 1).arena((1 << 20,))
gc.collect()
shared[:] = 1
assert shared.sum() == 1 << 20
part = shared[3:5]
del shared
gc.collect()
assert part.tolist() == [1, 1]
""")

    def test_a_context_with_a_layout_ends_with_its_last_reference(self):
        """Without the collector, since peers wait for that end."""
        context = nxd.Context(nxd.Store.local(), 0, 1)
        context.init_model_parallel()
        groups = [context.parallel_group("tensor"), context.parallel_group("data")]
        gone = weakref.ref(context)
        gc.disable()
        try:
            del context
            self.assertIsNotNone(gone())  # which groups keep
            groups.clear()
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_a_work_keeps_its_group(self):
        def run(context):
            if context.rank == 0:
                array = np.ones(1000)
                work = context.group([0, 1]).all_reduce(array, wait=False)
                go.set()
                self.assertEqual(work.wait()[5], 2)
                context.group([0, 1]).barrier(wait=False)  # nobody has the work either
            else:
                group = context.group([0, 1])
                self.assertTrue(go.wait(TIMEOUT_S))
                group.all_reduce(np.ones(1000))
                context.group([0, 1]).barrier()
            context.world.barrier()

        go = threading.Event()
        on_ranks(run)

    def test_user_data_of_a_call_that_is_interrupted(self):
        """It is not known whether the library has it: what it may still use is not freed."""
        held = _handle.user_data.count()
        with self.assertRaises(KeyboardInterrupt), _handle.user_data.given(object()) as data:
            raise KeyboardInterrupt
        self.assertEqual(_handle.user_data.count(), held + 1)
        _handle.user_data.drop(data)
        with self.assertRaises(ValueError), _handle.user_data.given(object()):
            raise ValueError
        self.assertEqual(_handle.user_data.count(), held)

    def test_out_of_order(self):
        self.run_objects("""
import random
order = random.Random(1)
for i in range(60):
    store = nxd.Store.local()
    alive = objects(nxd.Context(store, 0, 1), store)
    del store
    order.shuffle(alive)
    while alive:
        one = alive.pop()
        if i % 2 and hasattr(one, "close"):
            one.close()
        del one
        if i % 3 == 0:
            gc.collect()
""")

    def test_from_another_thread(self):
        self.run_objects("""
for i in range(20):
    store = nxd.Store.local()
    alive = objects(nxd.Context(store, 0, 1), store)
    del store
    threads = [threading.Thread(target=lambda: [alive.pop() for _ in range(4)])
               for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    threading.Thread(target=lambda: (alive.clear(), gc.collect())).start()
""")

    def test_callbacks_that_close_what_calls_them(self):
        """In a process of its own, which would crash."""
        self.run_objects("""
context = nxd.Context()
context.init_model_parallel()
x = nxd.tensor(np.ones((2, 4), "f4"))

def refused(call, one):
    try:
        call()
    except nxd.InvalidState as error:
        assert "cannot close the " + type(one).__name__ in str(error), error
    else:
        raise AssertionError(one)
    assert not one.closed
    one.close()

layer = nxd.Linear(context, 4, 4, name="l")
arrays = [{"w": np.ones(4, "f4")} for _ in range(2)]
for over in (layer, nxd.Ddp.over_arrays(context, *arrays)):
    for way in ("step", "step_without_report", "update"):
        optimizer = nxd.CustomOptimizer(over, lambda update: optimizer.close())
        if over is layer:
            ops.sum(layer(x)).backward()
        refused(getattr(optimizer, way), optimizer)

class Stage:
    def forward(self, call, inputs, outputs): pipeline.close()
    def backward(self, call, inputs, grad_outputs, grad_inputs): pass
pipeline = nxd.CallbackPipeline(context, Stage(), [[]], [[]])
refused(pipeline.run, pipeline)

y, tape = layer.tape(x)
layer.parameter("weight").on_grad(lambda: tape.close())
refused(lambda: tape.backward(y), tape)

class Loss(nxd.Module):
    def __init__(self, context):
        super().__init__(context)
        self.l = self.add_child("l", nxd.Linear(context, 4, 4, name="l"))
    def forward(self, x): return ops.sum(self.l(x))
pipeline = nxd.ModulePipeline(Loss(context), [x], num_microbatches=1)
for parameter in pipeline.local_module.parameters():
    parameter.on_grad(lambda: pipeline.close())
refused(lambda: pipeline.train(x), pipeline)
""")

    def test_a_loader_and_its_iterable(self):
        self.run_objects("""
def batches(use):
    yield nxd.tensor([1.0])
    use()
    yield nxd.tensor([2.0])

for use in (lambda: loader.close(), lambda: next(loader)):
    made = threading.Event()
    loader = nxd.DeviceLoader(batches(lambda: made.wait() and use()), "cpu")
    made.set()
    next(loader)
    try:
        next(loader)
    except nxd.InvalidState as error:
        assert "iterable" in str(error), error
    else:
        raise AssertionError(use)
    loader.close()

taken, used = threading.Event(), threading.Event()
def drop():
    taken.wait()
    gone = weakref.ref(held[0])
    held.clear()
    assert gone() is None
    used.set()
held = [nxd.DeviceLoader(batches(drop), "cpu", prefetch=1)]
next(held[0])
taken.set()
used.wait()
""")

    def test_a_function_call_that_outlives_its_callback(self):
        self.run_objects("""
calls = []
def forward(call, x): calls.append(call); call.save(x); return x * 2
def backward(call, g): calls.append(call); return g * call.saved(0)
function, x = nxd.Function("test::f", forward, backward), nxd.tensor([1.0])
x.requires_grad = True
ops.sum(function(x)).backward()
for call in calls:
    for use in (lambda: call.save(x), lambda: call.saved(0), lambda: call.needs_grad(0)):
        try:
            use()
        except nxd.InvalidState as error:
            assert "after the callback" in str(error), error
        else:
            raise AssertionError(use)
assert len(calls) == 2
""")

    def test_with_a_peer_that_waits(self):
        """A rank's finalizers wait for nobody, and let go of peers that wait for it."""
        self.run_objects("""
store, lost = nxd.Store.local(), []
def rank(r):
    context = nxd.Context(store, r, 2)
    alive = objects(context, store)
    if r == 1:
        work = context.world.all_reduce(np.ones(100000, "f4"), wait=False)
        time.sleep(0.2)  # most likely it has begun
        begin = time.monotonic()
        context.abort()
        del alive, context, work
        gc.collect()
        assert time.monotonic() - begin < AT_ONCE_S
        left.set()
        return
    try:
        left.wait()
        for _ in range(2):
            context.world.all_reduce(np.ones(100000, "f4"))
    except nxd.NxdError as error:
        lost.append(error)
left = threading.Event()
threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
for t in threads: t.start()
for t in threads: t.join()
assert len(lost) == 1 and isinstance(lost[0], (nxd.PeerLost, nxd.Aborted)), lost
""")

    def test_after_a_lost_peer(self):
        """The survivor of a rank killed with SIGKILL drops everything, pending works too, and
        ends."""
        for end in ("del alive, work, context; gc.collect()", ""):
            with self.subTest(end):
                out = self.run_objects(f"""
import signal
if "RANK" not in os.environ:
    job = nxd.spawn([sys.executable, "-c", sys.orig_argv[2]], 2)
    try: job.wait()
    except nxd.PeerLost as error: print(error)
    assert job.exit_code(0) == 0, job.exit_code(0)
    sys.exit(0)
context = nxd.Context()
alive = objects(context, None)
context.world.barrier()
if context.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
work = context.world.all_reduce(np.ones(1000, "f4"), wait=False)
begin = time.monotonic()
try:
    work.wait()
except nxd.PeerLost as error:
    print("root", error.info.root_rank)
work = context.world.barrier(wait=False)
{end}
assert time.monotonic() - begin < AT_ONCE_S
""")
                self.assertIn("root 1", out)
                self.assertIn("rank 1 of 2 was ended by signal 9", out)

    def test_a_thread_that_waits_at_exit(self):
        """Python ends under a daemon thread that is inside a collective: the wait is aborted."""
        for where in ("thread", "main"):
            with self.subTest(where):
                begin = time.monotonic()
                self.run_objects(f"""
store = nxd.Store.local()
def make(r): contexts[r] = nxd.Context(store, r, 2)
contexts = [None, None]
other = threading.Thread(target=make, args=(1,))
other.start()
if {where!r} == "main": make(0)
else:
    t = threading.Thread(target=make, args=(0,)); t.start(); t.join()
other.join()
for _ in range(3):
    threading.Thread(target=lambda: contexts[0].world.barrier(wait=False).wait(),
                     daemon=True).start()
threading.excepthook = lambda *args: None
time.sleep(0.3)  # most likely they wait
""")
                self.assertLess(time.monotonic() - begin, TIMEOUT_MS / 2000)

    def test_collection_inside_of_callbacks(self):
        self.run_objects("""
gc.set_threshold(1, 1, 1)

class Store:
    def __init__(self): self.values = {}
    def set(self, key, value): gc.collect(); self.values[key] = value
    def get(self, key): gc.collect(); return self.values.get(key)
    def add(self, key, n):
        gc.collect(); n += int(self.values.get(key, 0)); self.values[key] = str(n).encode()
        return n

def garbage():
    "Objects of the library that only the collector finds."
    cycle = [nxd.zeros((3,)), nxd.Function("test::g", lambda call, x: x), nxd.Store.local(),
             nxd.Context(nxd.Store.local(), 0, 1)]
    cycle.append(cycle)
    del cycle
    gc.collect()

class Net(nxd.Module):
    def __init__(self, context):
        super().__init__(context)
        self.w = self.add_parameter("w", (4, 2), init="normal")
        self.f = nxd.Function("test::f", self.forward_f, self.backward_f)
        self.w.on_grad(garbage)
    def forward_f(self, call, x): garbage(); call.save(x); return x * x
    def backward_f(self, call, g): garbage(); return g * call.saved(0) * 2
    def forward(self, x): garbage(); return ops.sum(self.f(x @ self.w.tensor))

class Stage:
    def forward(self, call, inputs, outputs): garbage(); return 1.0
    def backward(self, call, inputs, grad_outputs, grad_inputs): garbage()

def rule(update): garbage(); update.param -= update.grad

store, done = nxd.Store.custom(Store()), []
def rank(r):
    with nxd.Context(store, r, 2) as context:
        context.init_model_parallel()
        net = Net(context)
        optimizer = nxd.CustomOptimizer(net, rule)
        pipeline = nxd.CallbackPipeline(context, Stage(), [[]], [[]], num_microbatches=2)
        for _ in range(3):
            net.zero_grad()
            net(nxd.tensor(np.ones((1, 4), "f4"))).backward()
            optimizer.step()
            pipeline.run()
        done.append(r)
threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
for t in threads: t.start()
for t in threads: t.join()
assert sorted(done) == [0, 1], done
""")


if __name__ == "__main__":
    unittest.main()
