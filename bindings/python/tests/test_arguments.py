"""Arguments that Python has many kinds of: iterators, texts, numbers of numpy's, views."""

import array
import tempfile
import unittest
from decimal import Decimal
from fractions import Fraction

import numpy as np

import nxd
from nxd import ops
from support import on_ranks, run_code


class Lists(unittest.TestCase):
    def test_names_from_iterators(self):
        """They are as good as lists, though they give each name once."""
        def run(context):
            def norm(**names):
                params, grads = ({n: np.ones(4, "f4") for n in ("a", "b")} for _ in range(2))
                with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                    ddp.set_shards({"a": None, "b": None}, **names)
                    return ddp.finish()

            def norm_of_placements(tied):
                params, grads = ({n: np.ones(4, "f4") for n in ("a", "b")} for _ in range(2))
                with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                    ddp.set_placements({"a": "replicated", "b": "replicated"}, tied)
                    return ddp.finish()

            whole, each = norm(), norm_of_placements(["b"])
            self.assertLess(each, whole)
            self.assertEqual(norm_of_placements(n for n in ["b"]), each)
            for name in ("partial_grads", "tied"):
                each = norm(**{name: ["b"]})
                self.assertNotEqual(each, whole)
                self.assertEqual(norm(**{name: (n for n in ["b"])}), each)
                self.assertEqual(norm(**{name: filter(None, ["b"])}), each)

        on_ranks(run, layout={"tensor_parallel_size": 2})

    def test_a_text_is_no_list(self):
        """Its characters would be, such as the pattern * in "*.bias"."""
        def run(context):
            module = nxd.Linear(context, 2, 2, name="l")
            ddp = nxd.Ddp.over_arrays(context, {"w": np.ones(2, "f4")}, {"w": np.ones(2, "f4")})
            optimizer = nxd.AdamW(module)
            refused = {
                "argv": lambda: nxd.spawn("true", 1),
                "patterns": lambda: optimizer.add_group("*.bias", {"learning_rate": 0}),
                "names": lambda: module.checkpoint("l"),
                "wrapped_classes": lambda: module.pad(1, 2, "Linear"),
                "partial_grads": lambda: ddp.set_shards({"w": None}, partial_grads="w"),
                "tied": lambda: ddp.set_shards({"w": None}, tied="w"),
                "paths": lambda: nxd.DataLoader(context, b"file", 1, 1)}
            for name, call in refused.items():
                with self.assertRaisesRegex(nxd.InvalidArgument, f"{name}: expected a list, got "):
                    call()
            self.assertEqual(optimizer.hyperparameter("learning_rate", 0), 1e-3)
            with self.assertRaisesRegex(nxd.InvalidArgument, "tied: expected a list"):
                ddp.set_placements({"w": 0}, tied="w")
            self.assertEqual(optimizer.add_group(n for n in ["*weight"]), 1)
            model = nxd.Sequential(context, module)
            model.checkpoint(n for n in ["0"])
            model.checkpoint(np.array(["0"]))

        on_ranks(run, 1, {})
        nxd.spawn((word for word in ["true"]), 1).wait()


class Told(unittest.TestCase):
    def test_numbers_refused_here_are_told_to_the_peers(self):
        """They would wait until their time is over."""
        class Stage:
            def forward(self, call, inputs, outputs):
                return 1.0

        def linear(context):
            return nxd.ColumnParallelLinear(context, 4, 4, name="l"), nxd.zeros((2, 4))

        def forward(context, outputs):
            layer, x = linear(context)
            layer(x, num_outputs=outputs)

        def tape(context, outputs):
            layer, x = linear(context)
            layer.tape(x, num_outputs=outputs)

        def run_pipeline(context, training):
            value = [nxd.Value("h", (4,))]
            lists = ([[]], [value]) if context.rank == 0 else ([value], [[]])
            nxd.CallbackPipeline(context, Stage(), *lists).run(training)

        def publish(context, keep_last):
            nxd.Checkpoint.create(context, directory, 5).publish(keep_last)

        def publish_async(context, keep_last):
            nxd.Checkpoint.create(context, directory, 5).publish_async(keep_last)

        large, outputs = 2**40, "outputs: "
        calls = [
            (lambda c, step: nxd.Checkpoint.create(c, directory, step), 1.5, 1, "step: "),
            (lambda c, step: nxd.Checkpoint.create(c, directory, step), 2**64, 1, "step: "),
            (lambda c, step: nxd.Checkpoint.open(c, directory, step), "1", 1, "step: |verify: "),
            (lambda c, verify: nxd.Checkpoint.open_newest(c, directory, verify), 0.5, 1, "verify"),
            (publish, large, 1, "keep_last: "), (publish_async, 1.0, 1, "keep_last: "),
            (lambda c, step: nxd.TrainingState(c).save(directory, step), np.float64(1), 1, "step"),
            (lambda c, keep: nxd.TrainingState(c).save(directory, 1, keep), large, 1, ""),
            (lambda c, keep: nxd.TrainingState(c).save_async(directory, 1, keep), "1", 1, ""),
            (lambda c, verify: nxd.TrainingState(c).load_newest(directory, verify), "", 1,
             "verify"),
            (run_pipeline, "x", 1, "training: "), (forward, "a", 1, outputs),
            (forward, 1.0, 1, outputs), (forward, -1, 1, outputs), (tape, [1], 1, outputs)]

        def run(context, call, bad, good, reason):
            here = context.rank == 1
            with self.assertRaises(Exception if here else nxd.InvalidArgument) as caught:
                call(context, bad if here else good)
            if not here:
                self.assertRegex(str(caught.exception), "rank 1 rejected its arguments: .*"
                                 + reason)

        for case in calls:
            call, bad, _, reason = case
            split = "pipeline" if call is run_pipeline else "tensor"
            with self.subTest(reason, bad=bad), tempfile.TemporaryDirectory() as directory:
                on_ranks(lambda context: run(context, *case),
                         layout={split + "_parallel_size": 2})

    def test_numbers_of_numpys(self):
        with nxd.Context() as context, tempfile.TemporaryDirectory() as directory:
            nxd.Checkpoint.create(context, directory, np.int64(3)).publish(np.int32(2))
            self.assertEqual(nxd.Checkpoint.open(context, directory, np.uint8(3), True).step, 3)
            context.set_step(np.array(2), nxd.tensor([3]).numpy()[0])
            self.assertEqual(context.step, (2, 3))
            context.init_model_parallel(expert_parallel_size=np.uint8(1))
            x, y = np.ones((2, 4), "f4"), np.empty((2, 4), "f4")
            nxd.core.rms_norm_forward(context, x, None, y, sequence_parallel=np.bool_(False))

    def test_a_number_that_is_no_integer_is_not_cut_to_one(self):
        """Numbers of numpy, tensors and decimals have an int() that does."""
        def run(context, number):
            params, grads = ({"w": np.ones(4, "f4")} for _ in range(2))
            for call in (
                    lambda: context.group([number]),
                    lambda: context.world.broadcast(np.ones(1), number),
                    lambda: context.world.broadcast(np.ones(1), number, wait=False),
                    lambda: nxd.Ddp.over_arrays(context, params, grads, bucket_bytes=number),
                    lambda: nxd.DataLoader(context, ["none"], number, 4),
                    lambda: nxd.Checkpoint.create(context, "none", number),
                    lambda: context.set_step(number), lambda: context.set_step(1, number),
                    lambda: nxd.Context(seed=number),
                    lambda: nxd.zeros((2, number)),
                    lambda: ops.reshape(nxd.zeros((2, 3)), [Fraction(float(number)), 3]),
                    lambda: nxd.Module(context).add_parameter("w", [number]),
                    lambda: nxd.PipelineSchedule.of_kind("1f1b", 2, 1, number),
                    lambda: nxd.sample_epoch(8, 2, number, 0),
                    lambda: nxd.lr_schedule_factor(number, kind="linear", total_steps=9),
                    lambda: nxd.ColumnParallelLinear(context, 8, number, name="l"),
                    lambda: nxd.Dropout(context, np.float32(0.5), "d", number),
                    lambda: nxd.layout_groups(4, "data", {"tensor_parallel_size": number})):
                with self.assertRaisesRegex((nxd.InvalidArgument, TypeError),
                                            "an integer is required"):
                    call()

        def told(context):
            with self.assertRaisesRegex((nxd.InvalidArgument, TypeError), "an integer is required"):
                context.world.broadcast(np.ones(1), np.float32(0.5) if context.rank else 0)

        for number in (np.float32(0.5), np.array(1.7), Decimal("1.7"), Fraction(17, 10),
                       nxd.tensor([1.7]).numpy()[0]):
            with self.subTest(number):
                on_ranks(lambda context: run(context, number), 1)
        on_ranks(told)

    def test_numbers_and_flags_beside_arrays_are_not_cut(self):
        def run(context, number):
            x, y, world = np.ones((2, 4), "f4"), np.ones((2, 4), "f4"), context.world
            tensor, module = nxd.zeros((2, 4)), nxd.Linear(context, 4, 4, name="l")
            module.add_parameter("more", [4])
            weight = module.parameter("more")
            optimizer, state = nxd.AdamW(module), nxd.TrainingState(context)
            ddp = nxd.Ddp.over_arrays(context, {"w": x}, {"w": y})
            schedule = nxd.PipelineSchedule.of_kind("1f1b", 2, 1, 4)
            stored, work = nxd.Store.local(), world.barrier(wait=False)
            checkpoint = nxd.Checkpoint.create(context, directory, 1)
            model = {"layers": 1, "hidden": 8}
            calls = [
                lambda: work.wait(number), lambda: world.set_timeout(number),
                lambda: world.set_next_key(number), lambda: world.reject("", "", True, number),
                lambda: world.reject("", "", True, 0, number), lambda: state.wait(number),
                lambda: checkpoint.wait(number), lambda: stored.add("key", number),
                lambda: stored.get("none", number), lambda: job.exit_code(number),
                lambda: job.pid(number), lambda: job.kill(number),
                lambda: nxd.Store.tcp("localhost", number),
                lambda: nxd.Store.tcp("localhost", 1, number),
                lambda: nxd.Store.tcp("localhost", 1, False, number),
                lambda: setattr(context, "plain_kernels", number),
                lambda: context.arena((number, 2)), lambda: nxd.layout_groups(number, "data"),
                lambda: nxd.layout_find(number, "data", 0),
                lambda: nxd.layout_find(4, "data", number),
                lambda: nxd.sample_epoch(8, 2, 0, 0, 0, number), lambda: ddp.set_sync(number),
                lambda: schedule.tasks(number), lambda: schedule.of_tasks(1, 1, [[(0, number, 0)]]),
                lambda: nxd.CallbackPipeline(context, None, [[]], [[nxd.Value("v", (number,))]]),
                lambda: nxd.plan_search(model, limit=number),
                lambda: nxd.measure_gemm_peak("f32", number),
                lambda: nxd.set_memory_cap(number), lambda: nxd.loss_weights(context, [], number),
                lambda: nxd.loss_weights(context, [], -100, number), lambda: module.train(number),
                lambda: module.initialize(number), lambda: module.checkpoint(on=number),
                lambda: module.pad(number, 4), lambda: module.pad(1, number),
                lambda: module.add_buffer("b", tensor, number),
                lambda: weight.set_trainable(number),
                lambda: module.load_safetensors("none", number),
                lambda: nxd.deferred_init(number).__enter__(),
                lambda: optimizer.set_hyperparameter("learning_rate", 1, number),
                lambda: optimizer.hyperparameter("learning_rate", number),
                lambda: setattr(tensor, "requires_grad", number),
                lambda: nxd.set_aten_pool(number), lambda: nxd.number_of_extra_heads(number, 2),
                lambda: nxd.number_of_extra_heads(4, number), lambda: nxd.mark_step(number),
                lambda: nxd.DeviceLoader([], num_tensors=number),
                lambda: nxd.backward([tensor], None, number),
                lambda: nxd.grad([tensor], [tensor], None, number),
                lambda: nxd.grad_enabled(number).__enter__(),
                lambda: nxd.scatter_to_sequence_region(context, tensor, number),
                lambda: nxd.gather_from_sequence_region(context, tensor, number),
                lambda: nxd.gather_from_sequence_region(context, tensor, 0, number),
                lambda: nxd.reduce_scatter_to_sequence_region(context, tensor, number),
                lambda: nxd.linear_cross_entropy(context, tensor, tensor, tensor, number),
                lambda: nxd.tensor_parallel.region_mapping_forward(context, "copy_to", number, x,
                                                                   y)]
            for index, call in enumerate(calls):
                with self.subTest(index, number=number), self.assertRaisesRegex(
                        (nxd.InvalidArgument, TypeError), "an integer is required"):
                    call()
            work.wait(np.int64(1000))
            self.assertEqual(stored.add("key", np.int64(2)), 2)

        with nxd.spawn(["true"], 1) as job, tempfile.TemporaryDirectory() as directory:
            job.wait()
            self.assertEqual(job.exit_code(np.int32(0)), 0)
            for number in (np.float32(0.5), Decimal("1.7"), float("nan"), 2.0):
                on_ranks(lambda context: run(context, number), 1, {})

    def test_numbers_beyond_their_type(self):
        with nxd.Store.local() as store, nxd.Context() as context:
            for number in (2**63, -2**63 - 1):
                for call in (lambda: store.add("key", number),
                             lambda: context.world.set_timeout(number),
                             lambda: context.world.barrier(wait=False).wait(number),
                             lambda: nxd.layout_find(number, "data", 0)):
                    self.assertRaises(OverflowError, call)
            self.assertRaises(OverflowError, nxd.layout_find, 4, "data", 2**31)
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected 0 or more, got -1"):
                store.get("none", -1)
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected sizes of 0 or more"):
                context.arena((-2, -2))
            sizes = np.array([2**16, 2**16], "i4")  # whose product numpy would take for 0
            self.assertRaises(nxd.OutOfMemory, context.arena, (*sizes, 2**20))

    def test_dimensions_refused_here_are_told_to_the_peers(self):
        def run(context, call):
            here = context.rank == 1
            with self.assertRaises((TypeError, OverflowError) if here
                                   else nxd.InvalidArgument) as caught:
                call(context, nxd.zeros((2, 4)), bad if here else 0)
            if not here:
                self.assertRegex(str(caught.exception), "rank 1 rejected its arguments")

        labels = nxd.zeros((4,), "i64")
        for bad in (2**31, 1.0):
            for call in (nxd.gather_from_sequence_region, nxd.reduce_scatter_to_sequence_region,
                         lambda context, x, dim: nxd.linear_cross_entropy(context, x, x, labels,
                                                                          dim)):
                on_ranks(lambda context: run(context, call), layout={"tensor_parallel_size": 2})


class Memory(unittest.TestCase):
    def test_values_of_stores(self):
        """Their bytes count, whatever elements they are seen as."""
        class Shown(dict):
            def set(self, key, value):
                self[key] = value

            def get(self, key):
                return self.show(self[key]) if key in self else None

            def add(self, key, amount):
                raise NotImplementedError

        values = Shown()
        with nxd.Store.custom(values) as custom, nxd.Store.local() as store:
            for show in (bytes, bytearray, lambda v: memoryview(v).cast("i"),
                         lambda v: array.array("h", v), lambda v: np.frombuffer(v, "f8"),
                         lambda v: np.frombuffer(2 * v, "u1")[:2 * len(v):2]):
                values.show = show
                custom.set("key", b"12345678")
                store.set("key", show(b"12345678"))
                self.assertEqual(custom.get("key"), bytes(memoryview(show(b"12345678"))))
                self.assertEqual(store.get("key"), bytes(memoryview(show(b"12345678"))))
            values.show = lambda value: value.decode()
            with self.assertRaises(TypeError):
                custom.get("key")
            with self.assertRaises(TypeError):
                store.set("key", "text")

    def test_arenas_without_elements(self):
        """They have a block of memory as well, which free_arena gives back."""
        code = """
for shape in ((0,), (2, 0), (3,)):
    for dtype in ("f32", "bf16", "u8"):
        before = nxd.memory_stats().arena_bytes_in_use
        array = context.arena(shape, dtype)
        assert nxd.memory_stats().arena_bytes_in_use > before
        context.free_arena(array)
        assert nxd.memory_stats().arena_bytes_in_use == before, (shape, dtype)
        for other in (array, bytearray(0), bytearray(3)):
            try:
                context.free_arena(other)
            except nxd.InvalidArgument:
                continue
            raise AssertionError("freed")
"""
        for numpy in ("", "import sys; sys.modules['numpy'] = None\n"):
            run_code(f"{numpy}import nxd.core as nxd\ncontext = nxd.Context()\n{code}")


if __name__ == "__main__":
    unittest.main()
