"""Optimizers, data parallelism and pipelines over arrays that Python owns; planning."""

import ctypes
import importlib.util
import json
import os
import re
import tempfile
import unittest

import numpy as np

import nxd.core as nxd
from nxd import _arrays, _dlpack
from nxd.raw import ffi
from support import on_ranks, run_code, skip

RATE, STEPS = 0.1, 5


def parameters():
    return {"w": np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4), "b": np.ones(5, "f4")}


def gradient(name, step, rank):
    shape = parameters()[name].shape
    return np.sin(np.arange(np.prod(shape)) + step + 7 * rank).reshape(shape).astype("f4")


def train(context, make_optimizer, **options):
    """The parameters after some steps in which each rank has gradients of its own."""
    params = parameters()
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    ddp = nxd.Ddp.over_arrays(context, params, grads, **options)
    optimizer = make_optimizer(ddp)
    for step in range(STEPS):
        for name, grad in grads.items():
            grad[:] = gradient(name, step, context.rank)
        report = optimizer.step()
    assert report.updates == STEPS and not report.skipped
    return params, optimizer


def sgd_by_hand(ranks):
    params = parameters()
    for step in range(STEPS):
        for name, value in params.items():
            total = sum(gradient(name, step, rank) for rank in range(ranks))
            value -= np.float32(RATE) * total
    return params


class Exporter:
    """An array of another library, which exports its memory or fails to."""

    def __init__(self, outcome):
        self.outcome = outcome

    def __dlpack__(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def nxd_exporter(array):
    """An array that has DLPack alone."""
    held = array

    class Held:
        def __dlpack__(self):
            return held.__dlpack__()

    return Held()


# Debian's torch, in a process of its own.
PARAMETERS = """
import torch
import nxd.core as nxd
with nxd.Context(nxd.Store.local(), 0, 1) as context:
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(3, 2).to(dtype)
        params = dict(layer.named_parameters())
        before = {name: p.detach().clone() for name, p in params.items()}
        grads = {name: torch.ones_like(p) for name, p in params.items()}
        with nxd.Ddp.over_arrays(context, params, grads) as ddp:
            nxd.Sgd(ddp, learning_rate=0.5).step()
        for name, p in params.items():
            assert p.requires_grad and torch.equal(p.detach(), before[name] - 0.5), (name, p)
    try:
        context.world.all_reduce(torch.ones(4, requires_grad=True)[::2])
    except nxd.InvalidArgument as error:
        assert "is not in C order" in str(error), error
"""


class Intake(unittest.TestCase):
    def test_memory_that_is_not_exported(self):
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            for outcome in (BufferError("of a kind"), ValueError("of a kind"),
                            TypeError("of a kind"), RuntimeError("of a kind")):
                with self.assertRaisesRegex(nxd.InvalidArgument,
                                            "Exporter does not export its memory: of a kind"):
                    context.world.all_reduce(Exporter(outcome))

    def test_elements_are_taken_for_no_others(self):
        """Bytes of another type or another order would give sums without any sense."""
        others = [np.ones(4, "i4"), np.ones(4, ">f4"), np.ones(4, "u4"), np.ones(4, "S4"),
                  nxd_exporter(np.ones(4, "i4"))]
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            for array in others:
                with self.subTest(array), self.assertRaisesRegex(nxd.InvalidArgument, "f32"):
                    context.world.all_reduce(array, dtype="f32")
            for array in (np.ones((2, 3), "f8"), np.ones((2, 3), ">f4"), np.ones((2, 3), "i4")):
                # In strides, which are told by another interface.
                held, grad = np.asfortranarray(array), np.zeros((2, 3), "f4", order="F")
                with self.subTest(held), self.assertRaisesRegex(nxd.InvalidArgument, "f32"):
                    nxd.Ddp.over_arrays(context, {"w": held}, {"w": grad}, dtype="f32")
            words = np.array([0x3f80, 0x4000], "u2")  # 1 and 2
            for array in (words, words.view("i2"), nxd_exporter(words.view("i2"))):
                context.world.all_reduce(array, dtype="bf16")
            self.assertEqual(words.tolist(), [0x3f80, 0x4000])
            context.world.broadcast(np.ones(2, "?"), dtype="u8")
            context.world.all_reduce(np.ones(2, "u8"), dtype="i64")

    def test_read_only_memory_of_a_versioned_capsule(self):
        array = np.arange(3, dtype="f4")
        tensor, kept = _arrays.dltensor(_arrays.buffer(array))
        managed = ffi.new("struct DLManagedTensorVersioned*", {
            "version": {"major": 1, "minor": 0}, "dl_tensor": tensor[0], "flags": 1})
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            out = np.empty(3, "f4")
            context.world.all_reduce(Exporter(_dlpack.capsule(managed, versioned=True)), out)
            np.testing.assert_array_equal(out, array)
            with self.assertRaisesRegex(nxd.InvalidArgument, "read-only"):
                context.world.all_reduce(Exporter(_dlpack.capsule(managed, versioned=True)))
            managed.flags = 0
            context.world.all_reduce(Exporter(_dlpack.capsule(managed, versioned=True)))

    def test_zero_elements_have_no_order(self):
        """Frameworks write what they like for the strides of an array without elements."""
        tensor, kept = _arrays.dltensor(_arrays.Buffer(ffi.NULL, (0, 3), nxd.DType.F32, None,
                                                       [0, 3]))
        managed = ffi.new("struct DLManagedTensorVersioned*", {
            "version": {"major": 1, "minor": 0}, "dl_tensor": tensor[0]})
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            context.world.all_reduce(Exporter(_dlpack.capsule(managed, versioned=True)))

    def test_a_capsule_is_not_an_array(self):
        """Nobody but its owner could make another one for the next call."""
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            for call in (context.world.all_reduce, lambda capsule: nxd.column_linear_forward(
                    context, capsule, *[np.ones((1, 1), "f4")] * 3)):
                with self.assertRaisesRegex(nxd.InvalidArgument, "give the object itself, which "
                                                                 "has __dlpack__"):
                    call(np.ones((1, 1), "f4").__dlpack__())

    def test_elements_that_dlpack_alone_knows(self):
        """A buffer whose format is none of Python's, such as mlx's "bfloat16"."""
        class Foreign(ctypes.Structure):
            _fields_ = [("values", ctypes.c_float * 4)]

            def __dlpack__(self):
                return np.frombuffer(self, "f4").__dlpack__()

        array = Foreign((1, 2, 3, 4))
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            out = np.empty(4, "f4")
            context.world.all_reduce(array, out)
            np.testing.assert_array_equal(out, [1, 2, 3, 4])
            context.world.all_reduce(2 * out, array)
            self.assertEqual(list(array.values), [2, 4, 6, 8])
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected f64, got f32"):
                context.world.all_reduce(array, dtype="f64")
            del Foreign.__dlpack__
            with self.assertRaisesRegex(nxd.InvalidArgument, "have no DType of their own"):
                context.world.all_reduce(array)

    def test_parameters_of_torch(self):
        if importlib.util.find_spec("torch") is None:
            skip(self, "parameters of torch", "torch is missing", "python3-torch")
        run_code(PARAMETERS)

    def test_bf16_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            skip(self, "bf16 of ml_dtypes", "ml_dtypes is missing", "ml_dtypes, with pip")
        values = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            context.world.all_reduce(values, op="max")
            grads = {"w": np.ones(3, ml_dtypes.bfloat16)}
            with nxd.Ddp.over_arrays(context, {"w": values}, grads) as ddp:
                nxd.Sgd(ddp, learning_rate=0.5).step()
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected f32, got bf16"):
                context.world.all_reduce(values, dtype="f32")
        np.testing.assert_array_equal(values.astype("f4"), [1, -2.5, 2.5])


class Placements(unittest.TestCase):
    def test_a_parameter_that_another_stage_counts(self):
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            context.init_model_parallel()
            params = {"a": np.zeros(4, "f4"), "b": np.zeros(9, "f4")}
            grads = {name: np.ones_like(value) for name, value in params.items()}
            with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                placed = dict.fromkeys(params, nxd.Placement.REPLICATED)
                with self.assertRaisesRegex(nxd.InvalidArgument, "tied"):
                    ddp.set_placements(placed, tied=["c"])
                ddp.set_placements(placed, tied=["b"])
                self.assertEqual(ddp.finish(), 2)


class BadArrays(unittest.TestCase):
    def test_one_rank_refuses(self):
        """An error that one rank finds before the call reaches its peers at once: not after a minute."""
        def bad(context):
            good = {"w": np.zeros((2, 3), "f4"), "b": np.zeros(3, "f4")}
            good_grads = {name: np.zeros_like(value) for name, value in good.items()}
            frozen = np.zeros(3, "f4")
            frozen.flags.writeable = False
            for group in (None, context.world):
                for params, grads, options, reason in (
                        ({**good, "w": [1, 2]}, good_grads, {}, "params['w']: expected an array"),
                        (good, {**good_grads, "b": frozen}, {}, "grads['b']: the array is read-only"),
                        (good, {"w": good_grads["w"]}, {}, "grads: expected an array for each"),
                        (good, good_grads, {"zero_stage": "one"}, "zero_stage"),
                        (good, good_grads, {"stage": 1}, "no option 'stage'")):
                    if context.rank == 0:
                        params, grads, options = good, good_grads, {}
                        reason = f"rank 1 rejected its arguments: call: .*{re.escape(reason)}"
                    else:
                        reason = re.escape(reason)
                    with self.assertRaisesRegex((nxd.InvalidArgument, TypeError), reason):
                        nxd.Ddp.over_arrays(context, params, grads, group=group, **options)
            nxd.Ddp.over_arrays(context, good, good_grads).close()

        on_ranks(bad)
        on_ranks(bad, layout={})


class Optimizers(unittest.TestCase):
    def assert_same(self, got, want):
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)

    def test_sgd_by_stage(self):
        for stage in (0, 1):
            with self.subTest(stage):
                results = on_ranks(lambda context: train(
                    context, lambda ddp: nxd.Sgd(ddp, learning_rate=RATE), zero_stage=stage)[0])
                for got in results:
                    self.assert_same(got, sgd_by_hand(2))

    def test_custom_rule(self):
        def momentum(update):
            velocity, = update.states
            velocity *= 0.9
            velocity += update.grad * np.float32(update.grad_scale)
            update.param -= np.float32(update.learning_rate) * velocity
            seen.add((update.parameter, update.step))

        def check(context):
            ours, _ = train(context, lambda ddp: nxd.CustomOptimizer(
                ddp, momentum, learning_rate=RATE, num_states=1), zero_stage=1)
            theirs, _ = train(context, lambda ddp: nxd.Sgd(
                ddp, learning_rate=RATE, momentum=0.9), zero_stage=1)
            self.assert_same(ours, theirs)

        seen = set()
        on_ranks(check)
        self.assertEqual(seen, {(n, s) for n in ("w", "b") for s in range(1, STEPS + 1)})

    def test_custom_rule_on_bf16(self):
        """States are f32."""
        def rule(update):
            state, = update.states
            seen.append((state.dtype, state.tolist()))
            state += np.arange(1, 4)
            update.param.view(np.uint16)[:] = 0x4000

        with nxd.Context() as context:
            params = {"w": np.full(3, 0x3f80, np.uint16)}
            grads = {"w": np.zeros(3, "f4")}
            ddp = nxd.Ddp.over_arrays(context, params, grads, dtype="bf16")
            optimizer = nxd.CustomOptimizer(ddp, rule, num_states=1, bf16_update="nearest")
            seen = []
            for _ in range(2):
                optimizer.step()
        self.assertEqual(seen, [(np.float32, [0, 0, 0]), (np.float32, [1, 2, 3])])
        self.assertEqual(params["w"].tolist(), [0x4000] * 3)

    def test_gradients_in_bf16(self):
        """16-bit words, also where both arrays of a parameter move."""
        one, two = 0x3f80, 0x4000
        with nxd.Context() as context:
            params = {"w": np.full(3, two, np.uint16)}
            grads = {"w": np.full(3, one, np.uint16)}
            with nxd.Ddp.over_arrays(context, params, grads, dtype="bf16") as ddp:
                optimizer = nxd.Sgd(ddp, learning_rate=1.0)
                optimizer.step()
                self.assertEqual(params["w"].tolist(), [one] * 3)
                moved, elsewhere = np.full(3, two, np.uint16), np.full(3, one, np.uint16)
                ddp.rebind("w", moved, elsewhere)
            with self.assertRaisesRegex(nxd.InvalidArgument, "bf16"):
                nxd.Ddp.over_arrays(context, {"w": np.zeros(3, "f4")}, grads)

    def test_exception_of_a_rule(self):
        def rule(update):
            raise ZeroDivisionError(update.parameter)

        with nxd.Context() as context:
            with self.assertRaisesRegex(ZeroDivisionError, "w"):
                train(context, lambda ddp: nxd.CustomOptimizer(ddp, rule))

    def test_lost_peer_in_a_step(self):
        """The error says of which step this rank's parameters are."""
        def run(context):
            params, grads = parameters(), parameters()
            ddp = nxd.Ddp.over_arrays(context, params, grads, zero_stage=1)
            adamw = nxd.AdamW(ddp)
            adamw.step()
            if context.rank == 1:
                context.close()
                return
            with self.assertRaises(nxd.PeerLost) as caught:
                for _ in range(2):
                    adamw.step()
            info = caught.exception.info
            self.assertEqual((info.root_rank, info.status), (1, nxd.Status.PEER_LOST))
            self.assertEqual((info.parameters, info.step), adamw.parameter_state)
            self.assertIn(info.parameters, (nxd.ParameterState.OLD, nxd.ParameterState.PARTIAL))
            self.assertEqual(info.step, 1)
            context.close()

        on_ranks(run)

    def test_groups_schedule_and_state(self):
        with nxd.Context() as context, tempfile.TemporaryDirectory() as directory:
            params, adamw = train(context, lambda ddp: nxd.AdamW(ddp, weight_decay=0.1))
            group = adamw.add_group(["b"], {"weight_decay": 0})
            self.assertEqual(adamw.hyperparameter("weight_decay", group), 0)
            self.assertEqual(adamw.hyperparameter("weight_decay", 0), 0.1)
            with self.assertRaisesRegex(nxd.InvalidArgument, "bias"):
                adamw.add_group(["bias"])
            adamw.learning_rate = 0.5
            adamw.set_lr_schedule(kind="linear", total_steps=2 * STEPS, final_factor=0)
            self.assertAlmostEqual(adamw.learning_rate, 0.25)
            self.assertAlmostEqual(
                nxd.lr_schedule_factor(STEPS, kind="linear", total_steps=2 * STEPS), 0.5)
            self.assertEqual(adamw.state_bytes, 2 * sum(p.nbytes for p in params.values()))
            self.assertEqual(adamw.parameter_state, (nxd.ParameterState.NEW, STEPS - 1))
            path = os.path.join(directory, "state.safetensors")
            adamw.save(path)
            adamw.load(path)
            with self.assertRaises(nxd.InputOutput):
                adamw.load(path + ".absent")
            with self.assertRaises(nxd.InvalidArgument):
                adamw.set_hyperparameter("momentum", 0.9)

    def test_norms_of_a_model_over_ranks(self):
        def run(context):
            params = {"w": np.zeros((2, 3), "f4"), "b": np.zeros(3, "f4")}
            grads = {"w": np.full((2, 3), 1 + context.rank, "f4"), "b": np.full(3, 2, "f4")}
            with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                with self.assertRaisesRegex(nxd.InvalidArgument, "expected one for each of"):
                    ddp.set_placements({"w": 0})
                # A rank that finds its own bad tells the others.
                for bad in ("shared", 0.0, True, 2**40, nxd.DType.F64):
                    expected = "placements" if context.rank and bad != "shared" else ""
                    with self.assertRaisesRegex(nxd.InvalidArgument, expected):
                        ddp.set_placements({"w": bad if context.rank else 0, "b": "replicated"})
                ddp.set_placements({"w": np.int64(0), "b": "replicated"})
                # Six ones and six twos of the whole weight, and each element of the bias once.
                self.assertAlmostEqual(ddp.finish(), (6 + 24 + 12) ** 0.5, places=5)

        on_ranks(run, layout={"tensor_parallel_size": 2})

    def test_shards_of_a_model(self):
        rows = {"dim": 0, "num_fused": 2}
        whole = np.arange(24, dtype="f4").reshape(8, 3)

        def run(context):
            held = np.zeros((8 // context.parallel_size("tensor"), 3), "f4")
            nxd.shard_set_full(context, whole, held, **rows)
            params = {"gate_up": held, "norm": np.ones(3, "f4")}
            grads = {"gate_up": held.copy(), "norm": np.ones(3, "f4")}
            with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                told = "expected one for each of" if context.rank == 0 else "rank 0 rejected"
                with self.assertRaisesRegex(nxd.InvalidArgument, told):
                    ddp.set_shards({"norm": None} if context.rank == 0 else
                                   {"gate_up": rows, "norm": None})
                with self.assertRaisesRegex(nxd.InvalidArgument, "no parameter 'bias'"):
                    ddp.set_shards({"gate_up": rows, "norm": None}, partial_grads=["bias"])
                ddp.set_shards({"gate_up": rows, "norm": None}, partial_grads=["norm"])
                with nxd.AdamW(ddp) as adamw:
                    adamw.step()
                    adamw.save(os.path.join(directory, f"{context.size}.safetensors"))

        with tempfile.TemporaryDirectory() as directory:
            for ranks in (1, 2):
                on_ranks(run, n=ranks, layout={"tensor_parallel_size": ranks})
            state = np.zeros((8, 3), "f4")
            for ranks in (1, 2):
                with nxd.Context() as context:
                    context.init_model_parallel()
                    nxd.shard_load_safetensors(context, os.path.join(
                        directory, f"{ranks}.safetensors"), "gate_up.exp_avg", state)
                np.testing.assert_allclose(state, whole / 10, rtol=1e-6)

    def test_ddp_of_a_stage_without_parameters(self):
        with nxd.Context() as context:
            ddp = nxd.Ddp.over_arrays(context, {}, {})
            self.assertTrue(ddp)
            self.assertEqual(len(ddp), 0)

    def test_ddp(self):
        with nxd.Context() as context:
            params = parameters()
            grads = {name: np.ones_like(value) for name, value in params.items()}
            ddp = nxd.Ddp.over_arrays(context, params, grads)
            self.assertEqual((len(ddp), ddp.names), (2, ["w", "b"]))
            ddp.mark_ready("b")
            with self.assertRaises(nxd.InvalidState):
                ddp.mark_ready("b")
            ddp.mark_unused("w")
            self.assertAlmostEqual(ddp.finish(), np.sqrt(5), places=5)
            self.assertGreaterEqual(ddp.buffer_bytes, 0)
            moved = np.full(5, 2, "f4")
            ddp.rebind("b", grad=moved)
            self.assertAlmostEqual(ddp.finish(), np.sqrt(20 + 12), places=5)
            ddp.set_sync(False)
            ddp.mark_reloaded()
            with self.assertRaisesRegex(nxd.InvalidArgument, "no parameter 'c'"):
                ddp.mark_ready("c")
            with self.assertRaisesRegex(nxd.InvalidArgument, "in this order"):
                nxd.Ddp.over_arrays(context, params, {"w": grads["w"]})
            with self.assertRaises(nxd.InvalidArgument):
                nxd.Ddp.over_arrays(context, {"w": params["w"]}, {"w": params["b"]})
            with self.assertRaisesRegex(nxd.InvalidArgument, r"grads\[0\].*order of dimensions"):
                nxd.Ddp.over_arrays(context, {"w": params["w"].T}, {"w": grads["w"].T.copy()})
            wide = np.zeros((2, 8), "f4")[:, ::2]
            with self.assertRaisesRegex(nxd.InvalidArgument, r"params\[0\].*a dense array"):
                nxd.Ddp.over_arrays(context, {"w": wide}, {"w": wide.copy()})

    def test_channels_last(self):
        def run(context):
            def turned(values):  # the second dimension innermost
                return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1)

            whole = np.arange(24, dtype="f4").reshape(2, 3, 2, 2)
            value, grad = turned(whole), turned(np.full_like(whole, context.rank + 1))
            with nxd.Ddp.over_arrays(context, {"w": value}, {"w": grad}, zero_stage=1) as ddp:
                nxd.Sgd(ddp, learning_rate=0.5).step()
            np.testing.assert_array_equal(value, whole - 1.5)

        on_ranks(run, 2)

    def test_samples(self):
        parts = [nxd.sample_epoch(10, 2, rank, 0, seed=3) for rank in range(2)]
        self.assertEqual(sorted(parts[0] + parts[1]), list(range(10)))
        self.assertEqual(nxd.sample_epoch(5, 2, 1, 0, shuffle=False, drop_last=True), [1, 3])


class Doubler:
    """Two stages: y = 2 x, then the mean of y."""

    def __init__(self, rank):
        self.rank, self.grads, self.fail = rank, [], None

    def forward(self, call, inputs, outputs):
        if self.fail is not None:
            raise self.fail
        if call.stage == 0:
            outputs[0][:] = 2 * (call.microbatch + np.arange(4))
            return None
        return float(inputs[0].mean())

    def backward(self, call, inputs, grad_outputs, grad_inputs):
        if call.stage == 1:
            grad_inputs[0][:] = call.loss_weight / 4
        else:
            self.grads.append(grad_outputs[0].copy())


class Pipelines(unittest.TestCase):
    def make(self, context, **options):
        value = nxd.Value("y", (4,), "f64")
        stage = Doubler(context.rank)
        ends = [[[]], [[value]]]
        return stage, nxd.CallbackPipeline(context, stage, ends[context.rank],
                                           ends[1 - context.rank], num_microbatches=3,
                                           broadcast_and_average_loss=True, **options)

    def test_run(self):
        def run(context):
            stage, pipeline = self.make(context)
            self.assertEqual(pipeline.has_loss, context.rank == 1)
            self.assertEqual(pipeline.schedule.name, "1F1B")
            self.assertAlmostEqual(pipeline.run(), 2 * 2.5)
            self.assertAlmostEqual(pipeline.run(training=False), 5.0)
            if context.rank == 0:
                np.testing.assert_allclose(stage.grads, np.full((3, 4), 1 / 12))
            self.assertGreater(pipeline.buffer_bytes, 0)
            pipeline.set_timeline(True)
            pipeline.run()
            pipeline.write_timeline(path)
            with self.assertRaises(nxd.InvalidArgument):  # without backward_input
                self.make(context, schedule="zero_bubble")

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "run.json")
            on_ranks(run, 2, {"pipeline_parallel_size": 2})
            with open(path) as file:
                self.assertTrue(json.load(file)["traceEvents"])

    def test_exception_of_a_stage(self):
        def run(context):
            stage, pipeline = self.make(context)
            if context.rank == 1:
                stage.fail = OverflowError("too much")
            with self.assertRaises(OverflowError if context.rank == 1 else nxd.NxdError) as caught:
                pipeline.run()
            if context.rank == 0:
                self.assertIn("rank 1", str(caught.exception))
                self.assertIn("OverflowError: too much", str(caught.exception))
            stage.fail = None
            self.assertAlmostEqual(pipeline.run(), 5.0)

        on_ranks(run, 2, {"pipeline_parallel_size": 2})

    def test_error_of_a_call_in_a_stage(self):
        """Its status is that of the run on all ranks."""
        def run(context):
            stage, pipeline = self.make(context)
            if context.rank == 1:
                stage.fail = nxd.OutOfMemory("no room")
            with self.assertRaisesRegex(nxd.OutOfMemory, "no room") as caught:
                pipeline.run()
            self.assertIs(caught.exception is stage.fail, context.rank == 1)
            stage.fail = None
            self.assertAlmostEqual(pipeline.run(), 5.0)

        on_ranks(run, 2, {"pipeline_parallel_size": 2})

    def test_schedules(self):
        schedule = nxd.PipelineSchedule.of_kind("zero_bubble", 2, 1, 4)
        tasks = [schedule.tasks(rank) for rank in range(2)]
        self.assertEqual(tasks[0][0], nxd.PpTask(nxd.PpTaskKind.FORWARD, 0, 0))
        own = nxd.PipelineSchedule.of_tasks(1, 4, tasks)
        self.assertEqual(own.tasks(1), tasks[1])
        costs = {"forward": [1.0, 2.0], "transfer": 0.5}
        self.assertEqual(own.report(**costs), schedule.report(**costs))
        self.assertGreater(schedule.report(**costs).makespan, schedule.report().makespan)
        with self.assertRaisesRegex(nxd.InvalidArgument, "forward: expected .* 2 stages, got 1"):
            own.report(forward=[1.0])
        with self.assertRaisesRegex(nxd.InvalidArgument, "forward: expected .* 2 stages, got 1"):
            own.report(forward=iter([1.0]))  # which has no length
        self.assertEqual(own.report(forward=iter([1.0, 2.0]), transfer=0.5), own.report(**costs))

    def test_chunks_without_values(self):
        def run(context):
            for inputs, outputs, options in (([], [], {}), ([[]], [[], []], {}),
                                             ([[]], [[]], {"virtual_size": 3})):
                with self.assertRaisesRegex(nxd.InvalidArgument, "a list of values for each of"):
                    nxd.CallbackPipeline(context, object(), inputs, outputs, **options)

        on_ranks(run, 1, {})

    def test_tasks_that_are_no_schedule(self):
        schedule = nxd.PipelineSchedule.of_kind("zero_bubble", 2, 1, 4)
        tasks = [schedule.tasks(rank) for rank in range(2)]
        with self.assertRaisesRegex(nxd.InvalidArgument, "microbatch"):
            nxd.PipelineSchedule.of_tasks(1, 4, [tasks[0][1:], tasks[1]])


class Planner(unittest.TestCase):
    MODEL = ('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256,'
             ' "num_attention_heads": 4, "intermediate_size": 128}')

    def test_plans(self):
        model = nxd.plan_model_from_config(self.MODEL)
        self.assertEqual((model["hidden_size"], model["num_layers"]), (64, 2))
        found = nxd.plan_search(model, world_size=2, sequence_length=64, batch_size=4, limit=3)
        self.assertEqual(len(found), 3)
        for layout, prediction in found:
            self.assertEqual(nxd.plan_predict(model, layout), prediction)
        slow = nxd.plan_predict(model, found[0][0], {"gemm_rate_f32": 1e9})
        self.assertGreater(slow.step_seconds, found[0][1].step_seconds)
        with self.assertRaises(nxd.Unsupported):
            nxd.plan_model_from_config(self.MODEL.replace("llama", "mamba"))


if __name__ == "__main__":
    unittest.main()
