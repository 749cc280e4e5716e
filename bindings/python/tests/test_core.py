"""Stores, contexts, groups, collectives, works and errors, with ranks that are threads."""

import array
import gc
import os
import selectors
import tempfile
import threading
import time
import types
import unittest
from unittest import mock
import weakref

import numpy as np

import nxd.core as nxd
from support import TIMEOUT_MS, TIMEOUT_S, on_ranks, run_code


class DictStore:
    def __init__(self):
        self.values, self.lock = {}, threading.Lock()

    def set(self, key, value):
        with self.lock:
            self.values[key] = value

    def get(self, key):
        return self.values.get(key)

    def add(self, key, amount):
        with self.lock:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            return total


class Stores(unittest.TestCase):
    def use(self, store):
        store.set("key", b"\0value")
        self.assertEqual(store.get("key"), b"\0value")
        store.set("long", b"x" * 10000)
        self.assertEqual(store.get("long"), b"x" * 10000)
        self.assertEqual([store.add("n", 2), store.add("n", 3)], [2, 5])
        begin = time.monotonic()
        with self.assertRaisesRegex(nxd.Timeout, 'key "absent" was not set within 250 ms'):
            store.get("absent", timeout_ms=250)
        self.assertGreater(time.monotonic() - begin, 0.2)

    def test_local(self):
        self.use(nxd.Store.local())

    def test_file(self):
        with tempfile.TemporaryDirectory() as directory:
            self.use(nxd.Store.file(os.path.join(directory, "store")))

    def test_tcp(self):
        with nxd.Store.tcp("127.0.0.1", 0, server=True, timeout_ms=TIMEOUT_MS) as server:
            self.use(nxd.Store.tcp("127.0.0.1", server.port, timeout_ms=TIMEOUT_MS))

    def test_custom(self):
        self.use(nxd.Store.custom(DictStore()))

    def test_custom_store_carries_a_world(self):
        store = nxd.Store.custom(DictStore())

        def run(rank):
            with nxd.Context(store, rank, 2, transport="gloo") as context:
                sums.append(context.world.all_reduce(np.ones(3, "f4"))[0])

        sums = []
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        self.assertEqual(sums, [2.0, 2.0])

    def test_exceptions_of_a_custom_store_come_back(self):
        class Broken(DictStore):
            def add(self, key, amount):
                raise LookupError(f"no {key} here")

        store = nxd.Store.custom(Broken())
        with self.assertRaisesRegex(LookupError, "no n here"):
            store.add("n", 1)
        store.set("key", b"")  # and it goes on
        self.assertEqual(store.get("key"), b"")


class Collectives(unittest.TestCase):
    def test_all(self):
        def run(context):
            g, r = context.world, context.rank
            np.testing.assert_array_equal(g.all_reduce(np.full(5, r + 1, "f8")), np.full(5, 3.0))
            out = np.empty(5, "i4")
            self.assertIs(g.all_reduce(np.full(5, r, "i4"), out, op="max"), out)
            np.testing.assert_array_equal(out, np.ones(5))
            got = g.all_gather(np.full((2, 2), r, "i8"), np.empty((2, 2, 2), "i8"))
            np.testing.assert_array_equal(got[1], np.ones((2, 2)))
            got = g.reduce_scatter(np.arange(4, dtype="f4"), np.empty(2, "f4"))
            np.testing.assert_array_equal(got, 2 * np.arange(4)[2 * r:2 * r + 2])
            got = g.all_to_all(np.array([10 * r, 10 * r + 1], "u1"), np.empty(2, "u1"))
            np.testing.assert_array_equal(got, [r, 10 + r])
            self.assertEqual(g.broadcast(np.full(3, r, "f4"), root=1)[0], 1)
            if r == 0:
                g.send(np.arange(3, dtype="f4"), to=1, tag=7)
            else:
                got = g.receive(np.empty(3, "f4"), source=0, tag=7)
                np.testing.assert_array_equal(got, np.arange(3))
            g.barrier()

        on_ranks(run)

    def test_rendezvous(self):
        def run(context):
            g, r = context.world, context.rank
            self.assertEqual(g.rendezvous("here", b"\0x" * r), [b"", b"\0x"])
            self.assertEqual(g.rendezvous("there"), [b"", b""])
            with self.assertRaisesRegex(nxd.InvalidArgument, 'got "place 0" on rank 0'):
                g.rendezvous(f"place {r}", bytearray(3))

        on_ranks(run)

    def test_other_arrays(self):
        def run(context):
            g = context.world
            values = array.array("d", [1, 2])
            g.all_reduce(values)
            self.assertEqual(list(values), [2, 4])
            raw = bytearray(8)
            self.assertIs(g.broadcast(raw), raw)
            words = np.array([0x3F80, 0x4000], "u2")  # 1 and 2 as bf16
            g.all_reduce(words, dtype="bf16")
            np.testing.assert_array_equal(words, [0x4000, 0x4080])
            empty = np.empty(0, "f4")
            self.assertIs(g.all_reduce(empty), empty)

        on_ranks(run)

    def test_works(self):
        def run(context):
            g = context.world
            works = [g.all_reduce(np.full(1000, i, "f4"), wait=False) for i in range(8)]
            message = g.send(np.ones(2, "f4"), 1 - context.rank, wait=False)
            np.testing.assert_array_equal(
                g.receive(np.empty(2, "f4"), 1 - context.rank, wait=False).wait(), np.ones(2))
            message.wait()
            for i, work in enumerate(works):
                self.assertEqual(work.wait()[0], 2 * i)
                self.assertTrue(work.done)
            self.assertEqual(works[0].info.operation, "all_reduce")
            # One that is dropped goes on.
            g.barrier(wait=False)
            g.barrier()

        on_ranks(run)

    def test_a_dropped_work_goes_on(self):
        """Nobody waits for it, and its array lives until it is done."""
        def run(context):
            g = context.world
            if context.rank == 0:
                array = np.ones(100000)
                alive = weakref.ref(array)
                g.all_reduce(array, wait=False)
                del array
                gc.collect()
                self.assertIsNotNone(alive())
                go.set()
                g.barrier()
                g.barrier(wait=False).wait()
                self.assertIsNone(alive())
            else:
                self.assertTrue(go.wait(TIMEOUT_S))
                self.assertEqual(g.all_reduce(np.ones(100000))[5], 2)
                g.barrier()
                g.barrier()

        go = threading.Event()
        on_ranks(run)

    def test_closing_a_work(self):
        def run(context):
            g = context.world
            if context.rank == 0:
                works = [g.barrier(wait=False) for _ in range(3)]
                while "'started'" not in str(context.flight_record()):
                    time.sleep(0.001)
                works[2].close()  # not begun: taken back
                with self.assertRaises(nxd.InvalidState):
                    works[2].done
                with self.assertRaises(nxd.InvalidState):
                    works[0].cancel()
                go.set()
                works[1].wait()
                works[1].close()
            else:
                self.assertTrue(go.wait(TIMEOUT_S))
                g.barrier()
                g.barrier()
                with self.assertRaisesRegex(nxd.InvalidArgument, "rank 0"):
                    g.barrier()
            g.barrier()

        go = threading.Event()
        on_ranks(run)

    def test_a_wait_has_a_bound_of_its_own(self):
        def run(context):
            g = context.world
            if context.rank == 0:
                work = g.barrier(wait=False)
                with self.assertRaises(nxd.Timeout):
                    work.wait(timeout_ms=50)
                self.assertFalse(work.done)
                go.set()
                work.wait()
            else:
                self.assertTrue(go.wait(TIMEOUT_S))
                g.barrier()

        go = threading.Event()
        on_ranks(run)

    def test_groups(self):
        def run(context):
            g = context.group([1, 0], "turned")
            self.assertEqual((g.size, g.rank, g.ranks), (2, 1 - context.rank, [1, 0]))
            self.assertEqual(g.broadcast(np.full(1, context.rank, "i4"), root=0)[0], 1)
            g.set_timeout(TIMEOUT_MS)
            self.assertEqual(g.transport, nxd.Transport.SHARED_MEMORY)
            g.close()
            with self.assertRaises(nxd.InvalidState):
                g.barrier()

        on_ranks(run)

    def test_keys_that_differ(self):
        def run(context):
            g = context.world
            g.set_next_key(10 + context.rank)
            with self.assertRaisesRegex(nxd.InvalidArgument, "with key 10.*with key 11"):
                g.all_reduce(np.ones(2, "f4"))
            g.set_next_key(2**64 - 1)
            self.assertEqual(g.all_reduce(np.ones(2, "f4"))[1], 2)

        on_ranks(run)

    def test_an_event_loop_awaits_a_work(self):
        def run(context):
            g = context.world
            if context.rank == 0:
                work = g.barrier(wait=False)
                selector = selectors.DefaultSelector()
                selector.register(work, selectors.EVENT_READ)
                self.assertEqual(selector.select(0), [])
                go.set()
                self.assertEqual(len(selector.select(20)), 1)
                self.assertTrue(work.done)
                selector.close()
            else:
                self.assertTrue(go.wait(TIMEOUT_S))
                g.barrier()

        go = threading.Event()
        on_ranks(run)

    def test_arena(self):
        def run(context):
            shared = context.arena((4, 2), "f32")
            shared[:] = context.rank
            context.world.all_reduce(shared)
            np.testing.assert_array_equal(shared, np.ones((4, 2)))
            context.free_arena(shared)
            with self.assertRaises(nxd.InvalidArgument):
                context.free_arena(np.zeros(3))

        on_ranks(run)


class Errors(unittest.TestCase):
    def test_disagreement(self):
        def run(context):
            with self.assertRaises(nxd.InvalidArgument) as caught:
                context.world.all_reduce(np.ones(3 + context.rank, "f4"))
            error = caught.exception
            self.assertIn("rank 1 calls all_reduce of 4 x f32", str(error))
            self.assertEqual((error.info.operation, error.info.group), ("all_reduce", "world"))
            self.assertEqual((error.status, error.info.root_rank), (nxd.Status.INVALID_ARGUMENT, 1))
            self.assertIsInstance(error, ValueError)
            context.world.barrier()

        on_ranks(run)

    def test_each_status_is_an_exception_of_the_package(self):
        of_status = {e.status for e in vars(nxd).values()
                     if isinstance(e, type) and issubclass(e, nxd.NxdError)}
        self.assertEqual(of_status, {s for s in nxd.Status if s.value < 0})
        self.assertTrue(issubclass(nxd.OutOfMemory, MemoryError))

    def test_an_array_refused_here_is_told_to_the_peers(self):
        bad = [np.ones((4, 4), "f4").T, np.ones(3, "c8"), b"read-only", object(), "text"]

        def run(context):
            for value in bad:
                with self.assertRaises(nxd.InvalidArgument):
                    context.world.all_reduce(value if context.rank else np.ones(16, "f4"))
            for op in ("summ", 99) if context.rank else ("sum", "sum"):
                with self.assertRaisesRegex(nxd.InvalidArgument, "summ|99|rank 1 rejected"):
                    context.world.all_reduce(np.ones(2), op=op)
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected 8 elements|rank 1"):
                context.world.all_gather(np.ones(4, "f4"), np.ones(8 - context.rank, "f4"))
            with self.assertRaises(nxd.InvalidArgument):
                context.world.broadcast(np.ones(4)[::2] if context.rank else np.ones(2), root=1)
            context.world.barrier()

        on_ranks(run)

    def test_arguments_refused_here_are_told_to_the_peers(self):
        """Calls whose arguments Python cannot hand over: peers hear of it at once, not when their
        time is over, and the group goes on."""
        values = [nxd.Value("h", (4,))]
        stage = types.SimpleNamespace(forward=None, backward=None)

        def pipeline(context, value):
            empty, given = [[]], [[value]]
            of = (empty, given) if context.rank == 0 else (given, empty)
            return nxd.CallbackPipeline(context, stage, *of)

        def optimizer(context):
            ones = {"w": np.ones(4, "f4")}
            return nxd.Sgd(nxd.Ddp.over_arrays(context, ones, {"w": np.ones(4, "f4")}))

        unread = "rank 1 rejected its arguments: ranks: .* that they cannot read"
        calls = {
            "payload": (lambda c, bad: c.world.rendezvous("a", 3 if bad else b"x"), "rank 1"),
            "tag": (lambda c, bad: c.world.rendezvous(3 if bad else "a"), "rank 1"),
            "ranks": (lambda c, bad: c.group(["0", 1] if bad else [0, 1]), unread),
            "no list": (lambda c, bad: c.group(None if bad else [0, 1]), unread),
            "iterator": (lambda c, bad: c.group(iter([0, 1]) if bad else [0, 1]), unread),
            "name": (lambda c, bad: c.group([0, 1], 3 if bad else "pair"), unread),
            "batch": (lambda c, bad: nxd.DataLoader(c, [__file__], "2" if bad else 1, 4,
                                                    format="bytes"), "rank 1"),
            "value": (lambda c, bad: pipeline(
                c, values[0]._replace(dtype="f33") if bad else values[0]), "f33"),
            "shape": (lambda c, bad: pipeline(
                c, values[0]._replace(shape=("4",)) if bad else values[0]), "rank 1"),
            "option": (lambda c, bad: optimizer(c).step(max_norm="x" if bad else 1.0), "rank 1"),
            "finish": (lambda c, bad: optimizer(c).step_without_report(
                **({"nothing": 1} if bad else {})), "rank 1"),
            "layout": (lambda c, bad: c.init_model_parallel(
                tensor_parallel_size="2" if bad else 2), "rank 1"),
            "mapping": (lambda c, bad: nxd.region_mapping_forward(
                c, "nowhere" if bad else "copy_to", 0, np.ones(2, "f4"),
                np.ones(2, "f4")), "rank 1")}

        def run(context, name):
            call, reason = calls[name]
            bad = context.rank == 1
            with self.assertRaises(Exception if bad else nxd.InvalidArgument) as caught:
                call(context, bad)
            if not bad:
                self.assertRegex(str(caught.exception), reason)
                self.assertEqual(caught.exception.info.root_rank, 1)
            context.world.barrier()

        layouts = {"value": {"pipeline_parallel_size": 2}, "shape": {"pipeline_parallel_size": 2},
                   "option": {}, "finish": {}, "mapping": {"tensor_parallel_size": 2}}
        for name in calls:
            with self.subTest(name):
                on_ranks(lambda context: run(context, name), layout=layouts.get(name))

    def test_peers_read_the_reason(self):
        good, bad = np.ones(4, "f4"), [1, 2, 3, 4]
        reason = "array: expected an array with the buffer protocol or DLPack, got list"
        calls = {
            "all_reduce": lambda g, a, w: g.all_reduce(a, wait=w),
            "all_gather": lambda g, a, w: g.all_gather(a, np.empty(8, "f4"), wait=w),
            "reduce_scatter": lambda g, a, w: g.reduce_scatter(a, np.empty(2, "f4"), wait=w),
            "all_to_all": lambda g, a, w: g.all_to_all(a, np.empty(4, "f4"), wait=w),
            "broadcast": lambda g, a, w: g.broadcast(a, 1, wait=w)}

        def call(function, context, wait):
            work = function(context.world, bad if context.rank else good, wait)
            return work if wait else work.wait()

        def check_error(context, operation, call, reason=reason):
            with self.assertRaises(nxd.InvalidArgument) as caught:
                call()
            if context.rank == 0:
                named = "" if operation is None else operation + ": "
                reason = f"rank 1 rejected its arguments: {named}{reason}"
            self.assertIn(reason, str(caught.exception))

        def run(context):
            world = context.world
            for wait in (True, False):
                for operation, function in calls.items():
                    with self.subTest(operation, wait=wait):
                        check_error(context, operation, lambda: call(function, context, wait))
            if context.rank:
                check_error(context, None, lambda: world.send(bad, 0, tag=3))
                check_error(context, None, lambda: world.receive(bad, 0, tag=4, wait=False))
            else:
                check_error(context, None, lambda: world.receive(good, 1, tag=3))
                check_error(context, None, lambda: world.send(good, 1, tag=4))
            check_error(context, "all_reduce", lambda: world.all_reduce(
                good, op="summ" if context.rank else "sum"), "Reduce: expected one of sum")
            odd = np.ones(5 if context.rank else 4, "f4")
            uneven = "array: expected elements that divide by the 2 ranks of the group, got 5"
            check_error(context, "reduce_scatter",
                        lambda: world.reduce_scatter(odd, np.empty(2, "f4")), uneven)
            check_error(context, "all_to_all", lambda: world.all_to_all(odd, odd.copy()), uneven)
            root = "one" if context.rank else 0
            with self.assertRaisesRegex((TypeError, nxd.InvalidArgument), "int"):
                world.broadcast(good, root)
            world.barrier()

        on_ranks(run)

    def test_lost_peer(self):
        def run(rank):
            context = nxd.Context(store, rank, 2)
            if rank == 1:
                context.close()
                return
            for _ in range(2):  # the group stays poisoned
                with self.assertRaises(nxd.PeerLost) as caught:
                    context.world.barrier()
                found.append(caught.exception)
            context.close()

        store, found = nxd.Store.local(), []
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        self.assertEqual([e.info.root_rank for e in found], [1, 1])
        self.assertIsInstance(found[0], ConnectionError)

    def test_timeout(self):
        def run(context):
            if context.rank == 0:
                context.world.set_timeout(300)
                with self.assertRaises(TimeoutError) as caught:
                    context.world.barrier()
                self.assertEqual(caught.exception.info.root_rank, 1)
                done.set()
            else:
                self.assertTrue(done.wait(TIMEOUT_S))
            context.abort()

        done = threading.Event()
        with self.assertRaises(nxd.NxdError):
            on_ranks(run)

    def test_abort_from_another_thread(self):
        context = nxd.Context(store := nxd.Store.local(), 0, 1)
        context.close()

        def run(context):
            if context.rank == 0:
                aborting = threading.Timer(0.2, context.world.abort)
                aborting.start()
                with self.assertRaises(nxd.Aborted):
                    context.world.barrier()
                done.set()
                context.close()  # waits for the call, which may have yet to return
                aborting.join()
            self.assertTrue(done.wait(TIMEOUT_S))
            context.close()

        done = threading.Event()
        on_ranks(run)
        del store

    def test_closed(self):
        context = nxd.Context()
        world = context.world
        self.assertEqual((context.rank, context.size, context.local_rank), (0, 1, 0))
        context.close()
        context.close()
        self.assertTrue(context.closed and world.closed)
        for use in (lambda: context.rank, lambda: world.barrier(), context.finalize):
            with self.assertRaisesRegex(nxd.InvalidState, "is closed"):
                use()

    def test_options(self):
        with self.assertRaisesRegex(TypeError, "no option 'time_out'; there are rendezvous"):
            nxd.Context(time_out=3)
        with self.assertRaisesRegex(nxd.InvalidArgument, "expected one of auto, gloo"):
            nxd.Context(transport="pigeon")
        with self.assertRaisesRegex(nxd.InvalidArgument, "timeout_ms"):
            nxd.Context(timeout_ms="long")
        with self.assertRaises(nxd.InvalidArgument):
            nxd.Context(nxd.Store.local(), 2, 2)

    def test_rank_and_size_take_a_store(self):
        for options in ({"rendezvous": "store"}, {}):
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected a store for 2 ranks"):
                nxd.Context(rank=1, size=2, **options)
        with self.assertRaisesRegex(nxd.InvalidArgument, "size: expected at least 1, got 0"):
            nxd.Context(nxd.Store.local(), rank=0, size=0)
        with self.assertRaisesRegex(nxd.InvalidArgument, "expected none with rendezvous env"):
            nxd.Context(rendezvous="environment", rank=0, size=2)
        with nxd.Context(rendezvous="store") as alone:
            self.assertEqual((alone.rank, alone.size), (0, 1))

    def test_log(self):
        def lose(context):
            if context.rank == 0:
                with self.assertRaises(nxd.PeerLost):
                    context.world.barrier()
            context.close()

        def written():
            """The log of a group that fails when it cannot write its flight record."""
            lines.clear()
            on_ranks(lose)
            return list(lines)

        lines = []
        nxd.set_log_callback(lambda level, message: lines.append((level, message)))
        try:
            with mock.patch.dict(os.environ, NXD_FLIGHT_RECORD="/no/such/directory/record."):
                found = written()
                self.assertTrue(any(level is nxd.LogLevel.WARN and "flight record" in message
                                    for level, message in found), found)
                nxd.set_log_level("error")
                self.assertEqual(written(), [])
                nxd.set_log_level("debug")
                self.assertTrue(written())
                nxd.set_log_level("off")
                nxd.set_log_callback(None)
                self.assertEqual(written(), [])
        finally:
            nxd.set_log_level("warn")
            nxd.set_log_callback(None)


class Layouts(unittest.TestCase):
    def test_of_a_context(self):
        def run(context):
            r = context.rank
            self.assertEqual(context.parallel_size("tensor"), 2)
            self.assertEqual(context.parallel_rank("tensor"), r % 2)
            self.assertEqual(context.parallel_source_rank(nxd.Axis.DATA), r % 2)
            self.assertEqual(context.parallel_groups("tensor"), [[0, 1], [2, 3]])
            group = context.parallel_group("data")
            self.assertEqual(group.ranks, [r % 2, r % 2 + 2])
            self.assertEqual((context.next_stage_rank, context.previous_stage_rank), (r, r))
            context.world.barrier()
            context.destroy_model_parallel()
            self.assertFalse(context.model_parallel)
            with self.assertRaises(nxd.InvalidState):
                group.barrier()
            with self.assertRaises(nxd.InvalidState):
                context.parallel_rank("tensor")

        on_ranks(run, 4, {"tensor_parallel_size": 2})

    def test_without_one(self):
        options = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
        self.assertEqual(nxd.layout_groups(4, "pipeline", options), [[0, 2], [1, 3]])
        self.assertEqual(nxd.layout_find(4, "pipeline", 3, options), (1, 1))
        with self.assertRaises(nxd.InvalidArgument):
            nxd.layout_groups(3, "tensor", options)


class WithoutNumpy(unittest.TestCase):
    def test_arrays_of_python(self):
        run_code("import sys; sys.modules['numpy'] = None\n"
                 "import array\n"
                 "import nxd.core as nxd\n"
                 "def rule(update):\n"
                 "    for i in range(len(update.param)):\n"
                 "        update.param[i] -= update.learning_rate * update.grad[i]\n"
                 "with nxd.Context() as context:\n"
                 "    w, g = array.array('f', [1, 2]), array.array('f', [2, 2])\n"
                 "    context.world.all_reduce(g)\n"
                 "    ddp = nxd.Ddp.over_arrays(context, {'w': w}, {'w': g})\n"
                 "    nxd.CustomOptimizer(ddp, rule, learning_rate=0.5).step()\n"
                 "    assert list(w) == [0, 1], w\n"
                 "    assert context.arena((2, 3), 'f64').shape == (2, 3)\n")


if __name__ == "__main__":
    unittest.main()
