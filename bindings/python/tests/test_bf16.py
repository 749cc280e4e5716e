"""Arrays of bf16 that the library gives, in callbacks and of the arena: with ml_dtypes their
values, without it nothing that could be taken for values."""

import sys
import unittest
from contextlib import contextmanager
from unittest import mock

import numpy as np

import nxd.core as nxd
from nxd import _bf16
from nxd.tensors import tensor
from support import on_ranks, run_code, skip

HALVES = [0x3F00, 0x3FC0]  # 0.5 and 1.5 in bf16


@contextmanager
def without_ml_dtypes():
    _bf16._ml_dtypes.cache_clear()
    try:
        with mock.patch.dict(sys.modules, {"ml_dtypes": None}):
            yield
    finally:
        _bf16._ml_dtypes.cache_clear()


def given(context):
    """Memory of bf16 with 0.5 and 1.5, whatever is installed."""
    array = context.arena((2,), "bf16")
    array.view(np.uint16)[:] = HALVES
    return array


def update(rule, bf16_update, make=given):
    """The parameters, 0.5 and 1.5 before, after a rule with gradients of these values."""
    with nxd.Context() as context:
        params, grads = {"w": make(context)}, {"w": make(context)}
        ddp = nxd.Ddp.over_arrays(context, params, grads)
        nxd.CustomOptimizer(ddp, rule, bf16_update=bf16_update, learning_rate=0.5).step()
        return params["w"].view(np.uint16).tolist()


class Stages:
    """Two stages: 0.5 and 1.5, then their sum."""

    def __init__(self, write, read):
        self.write, self.read, self.grads = write, read, None

    def forward(self, call, inputs, outputs):
        if call.stage == 0:
            self.write(outputs[0], np.float32([0.5, 1.5]))
            return None
        return float(self.read(inputs[0]).sum())

    def backward(self, call, inputs, grad_outputs, grad_inputs):
        if call.stage == 1:
            self.write(grad_inputs[0], np.float32([0.25, -0.5]))
        else:
            self.grads = self.read(grad_outputs[0]).tolist()


def run_stages(write, read):
    """Each rank's loss and the gradients that its stage was given, or its error."""
    def run(context):
        value, stages = nxd.Value("h", (2,), "bf16"), Stages(write, read)
        ends = [[[]], [[value]]]
        pipeline = nxd.CallbackPipeline(context, stages, ends[context.rank],
                                        ends[1 - context.rank], num_microbatches=1,
                                        broadcast_and_average_loss=True)
        try:
            return pipeline.run(), stages.grads
        except nxd.NxdError as error:
            return error

    return on_ranks(run, 2, {"pipeline_parallel_size": 2})


def assign(target, values):
    target[:] = values


def write_words(target, values):
    target.view(np.uint16)[:] = values.view("u4") >> 16


def read_words(array):
    return (array.view(np.uint16).astype("u4") << 16).view("f4")


class Values(unittest.TestCase):
    def setUp(self):
        try:
            import ml_dtypes
        except ImportError:
            skip(self, "bf16 in callbacks", "ml_dtypes is missing", "ml_dtypes, with pip")
        self.bfloat16 = np.dtype(ml_dtypes.bfloat16)

    def test_custom_rule(self):
        def rule(update):
            seen.append((update.param.dtype, update.grad.dtype))
            update.param -= (update.learning_rate * update.grad).astype(update.param.dtype)

        for how, dtype in (("nearest", self.bfloat16), ("master", np.float32)):
            with self.subTest(how):
                seen = []
                made = update(rule, how, lambda _: np.array([0.5, 1.5], self.bfloat16))
                self.assertEqual(made, [0x3E80, 0x3F40])  # 0.25 and 0.75
                self.assertEqual(seen, [(dtype, self.bfloat16)])

    def test_pipeline(self):
        for write, read in ((assign, lambda array: array.astype("f4")), (write_words, read_words)):
            (loss, grads), (same, _) = run_stages(write, read)
            self.assertEqual((loss, same, grads), (2, 2, [0.25, -0.5]))

    def test_arena(self):
        def run(context):
            shared = context.arena((2, 1), "bf16")
            shared[:] = [[0.5], [1.5 + context.rank]]
            self.assertEqual(shared.dtype, self.bfloat16)
            context.world.all_reduce(shared)
            np.testing.assert_array_equal(shared.astype("f4"), [[1], [4]])
            context.free_arena(shared)

        on_ranks(run)

    def test_imported_for_bf16_alone(self):
        run_code("import sys, numpy, nxd.core as nxd\n"
                 "with nxd.Context() as context:\n"
                 "    context.world.all_reduce(context.arena((2,)))\n"
                 "    assert 'ml_dtypes' not in sys.modules\n"
                 "    context.arena((2,), 'bf16')\n"
                 "    assert 'ml_dtypes' in sys.modules\n")


class Words(unittest.TestCase):
    def setUp(self):
        self.enterContext(without_ml_dtypes())

    def test_nothing_is_taken_for_values(self):
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            array, values = given(context), np.float32([2.5, 3.5])
            for name, use in {
                    "add": lambda: array + values, "reversed": lambda: values * array,
                    "in place": lambda: np.subtract(array, 1, out=array),
                    "into": lambda: np.add(values, values, out=array, casting="unsafe"),
                    "sum": lambda: array.sum(), "clip": lambda: np.clip(values, 0, 1, out=array),
                    "values": lambda: assign(array, values), "one": lambda: assign(array, 2.5),
                    "scalar": lambda: assign(array[:1], values[0]),
                    "integers": lambda: assign(array, np.uint16(HALVES)),
                    "part": lambda: assign(array.reshape(2, 1)[1], values[:1]),
                    "fill": lambda: array.fill(values[0]), "put": lambda: array.put([0], values),
                    "itemset": lambda: array.itemset(0, values[0]),
                    "flat": lambda: array.flat}.items():
                with self.subTest(name), self.assertRaisesRegex(nxd.Unsupported, "ml_dtypes"):
                    use()
            for use in (lambda: values @ array, lambda: array.astype("f4"), lambda: float(array[0]),
                        lambda: assign(values, array), lambda: np.copyto(array, values),
                        lambda: np.concatenate([array, values])):
                with self.assertRaises((TypeError, ValueError, nxd.Unsupported)):
                    use()
            self.assertEqual(array.view(np.uint16).tolist(), HALVES)
            self.assertIs(type(array.view(np.uint16)), np.ndarray)
            self.assertIn("Bf16Words", repr(array))
            array[:] = array[::-1].copy()
            self.assertEqual(array.view(np.uint16).tolist(), HALVES[::-1])

    def test_custom_rule(self):
        def wrong(update):
            update.param -= update.learning_rate * update.grad

        def right(update):
            if update.param.dtype == np.float32:
                update.param -= np.float32(0.5) * read_words(update.grad)
            else:
                write_words(update.param, read_words(update.param) / 2)

        for how in ("nearest", "master"):
            with self.subTest(how), self.assertRaisesRegex(nxd.Unsupported, "ml_dtypes"):
                update(wrong, how)
            self.assertEqual(update(right, how), [0x3E80, 0x3F40])

    def test_pipeline(self):
        for rank, use in enumerate(((assign, read_words), (write_words, lambda array: array))):
            errors = run_stages(*use)
            self.assertIsInstance(errors[rank], nxd.Unsupported)
            self.assertIsInstance(errors[1 - rank], nxd.Unsupported)
        (loss, grads), _ = run_stages(write_words, read_words)
        self.assertEqual((loss, grads), (2, [0.25, -0.5]))

    def test_arena_goes_back_in(self):
        """By the elements alone it is bf16: in collectives, in layers, and where it is freed."""
        def run(context):
            shared = given(context)
            context.world.all_reduce(shared)
            self.assertEqual(read_words(shared).tolist(), [1, 3])
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected f32, got bf16"):
                context.world.all_reduce(shared, dtype="f32")
            opaque = np.array(HALVES, "u2").view("V2")  # as numpy loads a file of bf16
            context.world.all_reduce(opaque, dtype="bf16")
            self.assertEqual(read_words(opaque).tolist(), [1, 3])
            context.free_arena(shared.view(np.uint16) if context.rank else shared)

        on_ranks(run)
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            context.init_model_parallel()
            row, out = given(context).reshape(1, 2), np.zeros((1, 1), "u2")
            nxd.column_linear_forward(context, row, row, None, out)
            self.assertEqual(read_words(out).tolist(), [[2.5]])

    def test_a_tensor_of_an_arena(self):
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            array = given(context)
            for source, want in ((array, HALVES), (array[::-1], HALVES[::-1]),
                                 (array.reshape(2, 1).T, HALVES)):
                made = tensor(source)
                self.assertIs(made.dtype, nxd.DType.BF16)
                self.assertEqual(made.shape, source.shape)
                self.assertEqual(np.frombuffer(made.tobytes(), np.uint16).tolist(), want)
            self.assertIs(tensor(array.view(np.uint16), "bf16").dtype, nxd.DType.BF16)
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected f32, got bf16"):
                tensor(array, "f32")


if __name__ == "__main__":
    unittest.main()
