"""Tensors, their memory shared with numpy and torch, and operators by name."""

import gc
import sys
import tempfile
import threading
import unittest
import weakref

import numpy as np

import nxd
from nxd import ops, raw
from support import on_ranks, resident_kb, skip

try:
    import torch
except ImportError:
    torch = None


class Dlpack(unittest.TestCase):
    def test_numpy_sees_the_tensors_memory(self):
        tensor = nxd.tensor(np.arange(6, dtype="f4").reshape(2, 3))
        view = np.from_dlpack(tensor)
        writable = tensor.numpy()
        writable[1, 2] = 50
        tensor.mark_modified()
        self.assertEqual((view[1, 2], ops.max(tensor).item()), (50, 50))
        tensor.close()
        gc.collect()
        self.assertEqual(view.tolist(), [[0, 1, 2], [3, 4, 50]])  # numpy keeps the memory
        self.assertEqual(writable[1, 2], 50)

    def test_comparisons_are_of_elements(self):
        x, y = (nxd.tensor(np.array(v, "f4")) for v in ([1, 2, 3], [3, 2, 1]))
        for compared, expected in ((x == y, [0, 1, 0]), (x != y, [1, 0, 1]), (x < y, [1, 0, 0]),
                                   (x <= 2, [1, 1, 0]), (2 < x, [0, 0, 1]), (x >= y, [0, 1, 1]),
                                   (x == np.float32(2), [0, 1, 0]),
                                   (x == np.bool_(True), [1, 0, 0])):
            self.assertEqual(compared.dtype, nxd.DType.BOOL)
            self.assertEqual(compared.numpy().tolist(), [bool(e) for e in expected])
        self.assertIs(x == None, False)  # noqa: E711
        self.assertIs(x != "x", True)
        self.assertTrue(nxd.tensor(np.ones((), "f4")) == 1)
        self.assertEqual({x: "x", y: "y"}[y], "y")  # by handle
        self.assertIs(x == np.str_("x"), False)
        self.assertIs(x == np.float32, False)
        with self.assertRaises(TypeError):
            x < None  # noqa: B015
        array = np.array([1, 2, 3], "f4")
        for mixed in (lambda: x == array, lambda: array == x, lambda: x != array, lambda: x < array,
                      lambda: x == np.array(1.0), lambda: x == 1j):
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected a tensor, a number"):
                mixed()

    def test_functions_of_numpy_take_tensors(self):
        tensor = nxd.tensor(np.arange(6, dtype="f4").reshape(2, 3))
        self.assertEqual((np.mean(tensor), np.asarray(tensor).shape), (2.5, (2, 3)))
        self.assertEqual(np.stack([tensor, tensor]).shape, (2, 2, 3))
        np.asarray(tensor)[0, 0] = 7  # its memory
        tensor.mark_modified()
        copied = np.array(tensor)
        copied[0, 0] = 8
        wide = np.asarray(tensor, "f8")
        self.assertEqual((tensor.numpy()[0, 0], wide[0, 0], wide.dtype), (7, 7, np.float64))
        with self.assertRaises(ValueError):
            tensor.__array__("f8", copy=False)
        with self.assertRaises(nxd.Unsupported):
            np.asarray(tensor.to("bf16"))
        with self.assertRaisesRegex(nxd.InvalidArgument, "detach"):
            tensor.requires_grad = True
            np.asarray(tensor)

    def test_the_truth_of_a_tensor_is_that_of_its_element(self):
        x = nxd.tensor([1.0, float("nan")])
        self.assertFalse(ops.all(ops.isfinite(x)))
        self.assertTrue(ops.any(ops.isnan(x)))
        self.assertEqual([bool(nxd.tensor([n])) for n in (0, 2, -0.0, float("nan"))],
                         [False, True, False, True])
        for many in (x, nxd.zeros((0,))):
            with self.assertRaisesRegex(nxd.InvalidArgument, "element"):
                bool(many)

    def test_the_tensor_sees_numpys_memory(self):
        array = np.zeros((3, 2))
        tensor = nxd.from_dlpack(array.T)
        array[2, 1] = 7
        self.assertEqual((tensor.shape, tensor.strides), ((2, 3), (1, 2)))
        self.assertEqual(tensor.numpy()[1, 2], 7)
        references = sys.getrefcount(array)
        del tensor
        gc.collect()
        self.assertLess(sys.getrefcount(array), references)  # and numpy has its memory back

    def test_dtypes(self):
        for name in ("f4", "f8", "f2", "i4", "i8", "u1", "i1", "i2"):
            array = np.arange(4).astype(name)
            tensor = nxd.from_dlpack(array)
            np.testing.assert_array_equal(np.from_dlpack(tensor), array)
            np.testing.assert_array_equal(tensor.numpy(), array)
            np.testing.assert_array_equal(nxd.tensor(array).numpy(), array)
            self.assertEqual(tensor.tobytes(), array.tobytes())
        self.assertEqual(nxd.tensor(np.array([True, False])).numpy().tolist(), [True, False])

    def test_strides_and_scalars(self):
        array = np.arange(24, dtype="f4").reshape(2, 3, 4)
        for view in (array.T, array[:, ::2], array[1:, 1], array[:, :0]):
            np.testing.assert_array_equal(nxd.from_dlpack(view).numpy(), view)
            np.testing.assert_array_equal(nxd.tensor(view).numpy(), view)
            copied = nxd.tensor(nxd.from_dlpack(view))
            np.testing.assert_array_equal(copied.numpy(), view)
            self.assertTrue(copied.numpy().flags.c_contiguous)
        backwards = memoryview(b"abcdef")[::-2]
        self.assertEqual(nxd.tensor(backwards).tobytes(), b"fdb")
        self.assertEqual(nxd.tensor(2.5).item(), 2.5)
        self.assertEqual(nxd.tensor([[1, 2], [3, 4]]).dtype, nxd.DType.I64)
        for wrong in ([[1, 2], [3]], ["text"], [None], [np.ones(2), np.ones(3)], [np.complex64(1)]):
            with self.assertRaises(nxd.InvalidArgument):
                nxd.tensor(wrong)

    def test_numbers_of_numpy_keep_their_dtype(self):
        for values in (np.float64(0.1), np.float32(0.1), [np.float64(0.1)], [np.float32(1)],
                       [np.int64(2**40)], [[np.int16(1)], [np.int16(2)]], [np.bool_(True)],
                       [np.ones(2), np.zeros(2)], [np.float32(1), 2.5]):
            made, expected = nxd.tensor(values).numpy(), np.array(values)
            self.assertEqual(made.dtype, expected.dtype)
            np.testing.assert_array_equal(made, expected)
        for values in (np.float64(0.1), [np.float64(0.1)], [np.float32(0.1)]):
            np.testing.assert_array_equal(nxd.tensor(values, "f32").numpy(), np.float32(values))

    def test_versioned(self):
        tensor = nxd.tensor([1.0, 2.0])
        again = nxd.from_dlpack(tensor)  # asks for the versioned form
        again.copy_from(np.array([3, 4], "f4"))
        self.assertEqual(tensor.numpy().tolist(), [3, 4])
        capsule = tensor.__dlpack__()
        nxd.from_dlpack(capsule)
        with self.assertRaisesRegex(nxd.InvalidArgument, "nobody has consumed"):
            nxd.from_dlpack(capsule)
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))

    def test_refusals_are_clean(self):
        """A rejection by either side is its usual error, and leaks nothing."""
        self.addCleanup(nxd.set_aten_pool, nxd.aten_pool())
        nxd.set_aten_pool(True)  # off at first where torch was there before
        bf16 = nxd.zeros((100000,), "bf16")
        grads = nxd.zeros((4,))
        grads.requires_grad = True
        frozen = np.zeros(100000, "f4")
        frozen.flags.writeable = False
        meta = nxd.zeros((4,), device="meta")
        refused = [
            (lambda: np.from_dlpack(bf16), RuntimeError), (bf16.numpy, nxd.Unsupported),
            (lambda: np.from_dlpack(grads), nxd.InvalidArgument),
            (grads.numpy, nxd.InvalidArgument),
            (lambda: nxd.from_dlpack(frozen), (TypeError, BufferError, ValueError)),
            (lambda: np.from_dlpack(meta), nxd.Unsupported),
            (lambda: nxd.from_dlpack("text"), (nxd.InvalidArgument, TypeError)),
            (lambda: nxd.from_dlpack(np.zeros(3, "c8")), nxd.NxdError)]
        for refuse, error in refused:
            with self.assertRaises(error):
                refuse()
        gc.collect()
        in_use, references = nxd.memory_stats().bytes_in_use, sys.getrefcount(frozen)
        for _ in range(200):
            for refuse, error in refused:
                with self.assertRaises(error):
                    refuse()
            capsule = bf16.__dlpack__()  # one that nobody consumes
            del capsule
        gc.collect()
        self.assertEqual(nxd.memory_stats().bytes_in_use, in_use)
        self.assertEqual(sys.getrefcount(frozen), references)
        bf16.close()
        gc.collect()
        self.assertLess(nxd.memory_stats().bytes_in_use, in_use)

    def test_round_trips_hold_memory_flat(self):
        array = np.zeros(250000, "f4")

        def loop(n):
            for _ in range(n):
                np.from_dlpack(nxd.from_dlpack(array))
                nxd.from_dlpack(nxd.tensor(array)).numpy()

        loop(50)
        before = resident_kb()
        loop(200)
        self.assertLess(resident_kb() - before, 4000)  # 200 MB went through

    def test_to(self):
        tensor = nxd.tensor(np.array([1, 2], dtype="i8"))
        self.assertEqual(tensor.to("f32").dtype, nxd.DType.F32)
        self.assertEqual(tensor.to(nxd.DType.BF16).dtype, nxd.DType.BF16)
        for device in "cpu", nxd.Device.CPU:
            self.assertEqual(tensor.to(device).numpy().tolist(), [1, 2])
        recorded = tensor.to(nxd.Device.XLA)
        self.assertEqual((recorded.device, recorded.dtype), (nxd.Device.XLA, nxd.DType.I64))
        # Numbers of another enum, and flags, are no dtypes.
        for wrong in nxd.Reduce.SUM, True, "none such", 10**6:
            with self.assertRaises(nxd.InvalidArgument):
                tensor.to(wrong)
        with self.assertRaises(nxd.InvalidArgument):
            tensor.to_device(nxd.DType.F32)

    def test_torch(self):
        if torch is None:
            skip(self, "tensors of torch", "torch is missing", "python3-torch")
        tensor = nxd.tensor(np.arange(6, dtype="f4").reshape(2, 3))
        theirs = torch.from_dlpack(tensor)
        theirs[0, 0] = 9
        self.assertEqual(tensor.numpy()[0, 0], 9)
        source = torch.arange(6).reshape(2, 3).t()
        ours = nxd.from_dlpack(source)
        source[2, 1] = 70
        self.assertEqual((ours.shape, ours.numpy()[2, 1]), ((3, 2), 70))
        self.assertEqual(nxd.tensor(source).tobytes(), source.contiguous().numpy().tobytes())
        spread = torch.ones(2, 1, requires_grad=True).to(torch.bfloat16).expand(2, 3)
        self.assertEqual(nxd.tensor(spread).to("f32").numpy().tolist(), [[1, 1, 1], [1, 1, 1]])
        half = nxd.from_dlpack(torch.tensor([1.5, 2.5]).to(torch.bfloat16))
        self.assertEqual(half.dtype, nxd.DType.BF16)
        self.assertEqual(torch.from_dlpack(half).tolist(), [1.5, 2.5])
        self.assertEqual(half.to("f32").numpy().tolist(), [1.5, 2.5])
        with self.assertRaises((RuntimeError, BufferError)):
            nxd.from_dlpack(torch.ones(2, requires_grad=True))
        with nxd.Context() as context:
            values = torch.ones(3, dtype=torch.bfloat16)
            self.assertIs(context.world.all_reduce(values), values)

    def test_views_of_torch_with_the_other_sign(self):
        """Their memory does not have their values."""
        if torch is None:
            skip(self, "views with the negative bit", "torch is missing", "python3-torch")
        view = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
        plain = torch._neg_view(torch.ones(2))
        self.assertTrue(view.is_neg() and plain.is_neg())
        with nxd.Context() as context:
            out = np.zeros(2, "f4")
            context.world.all_reduce(plain, out)
            self.assertEqual(out.tolist(), [-1, -1])
            self.assertEqual(nxd.tensor(plain).numpy().tolist(), [-1, -1])
            self.assertEqual(nxd.tensor(view.contiguous()).numpy().tolist(), [-2, -4])
            context.world.all_reduce(plain.resolve_neg())
            for share in (lambda: nxd.from_dlpack(plain), lambda: nxd.from_dlpack(view),
                          lambda: context.world.all_reduce(plain),
                          lambda: context.world.broadcast(plain)):
                with self.assertRaisesRegex(nxd.InvalidArgument, "resolve_neg"):
                    share()
        self.assertEqual(plain.tolist(), [-1, -1])


class WrittenByCalls(unittest.TestCase):
    """Calls over arrays that write into a tensor: the library knows that its values are others."""

    def test_an_optimizer_goes_on_from_them(self):
        def broadcast(context, weight):
            context.world.broadcast(weight)

        def all_reduce(context, weight):
            context.world.all_reduce(weight, op="max")

        def all_gather(context, weight):
            context.world.all_gather(np.full(2, 0x40a0, np.uint16), weight, dtype="bf16")

        def receive(context, weight):
            if context.rank == 0:
                context.world.send(weight, 1)
            else:
                context.world.receive(weight, 0)

        def work(context, weight):
            context.world.broadcast(weight, wait=False).wait()

        def dropped_work(context, weight):
            context.world.broadcast(weight, wait=False)
            context.world.barrier()

        def initialize(context, weight):
            nxd.shard_initialize(context, "w", "constant", 5.0, 0.0, weight)

        def set_full(context, weight):
            nxd.shard_set_full(context, nxd.tensor(np.full((2, 2), 5, "f4")).to("bf16"), weight)

        def map_region(context, weight):
            whole = nxd.tensor(np.full((2, 2), 5, "f4")).to("bf16")
            nxd.region_mapping_forward(context, "copy_to", 0, whole, weight)

        def run(context, write):
            layer = nxd.Linear(context, 2, 2, name="l", dtype="bf16")
            optimizer = nxd.AdamW(layer, learning_rate=1e-3)  # with a master in f32
            x = nxd.tensor(np.ones((1, 2), "f4")).to("bf16")

            def step():
                layer.zero_grad()
                ops.sum(layer(x).to("f32")).backward()
                optimizer.step()

            step()
            weight = layer.parameter("weight").tensor
            if context.rank == 0:
                weight.copy_from(np.full((2, 2), 0x40a0, np.uint16))  # 5 in bf16
            write(context, weight.detach())
            step()
            return weight.detach().to("f32").numpy().tolist()

        for write in (broadcast, all_reduce, all_gather, receive, work, dropped_work, initialize,
                      set_full, map_region):
            with self.subTest(write.__name__):
                found = on_ranks(lambda context: run(context, write), layout={})
                self.assertEqual(found, [[[5, 5], [5, 5]]] * 2)

    def test_a_graph_does_not_use_them(self):
        def layer(context, saved):
            nxd.layer_norm_forward(context, np.ones((1, 3), "f4"), None, None, saved)

        def gather(context, saved):
            context.world.all_gather(np.full((1, 3), 7, "f4"), saved)

        def run(context):
            for write in (layer, gather):
                x, saved = nxd.tensor(np.ones((1, 3), "f4")), nxd.tensor(np.ones((1, 3), "f4"))
                x.requires_grad = True
                total = ops.sum(x * saved)
                write(context, saved)
                with self.assertRaisesRegex(nxd.InvalidState, "modified"):
                    total.backward()
                total = ops.sum(x * saved)
                context.world.all_gather(saved, np.empty((1, 3), "f4"))
                total.backward()  # to read them is no harm

        on_ranks(run, 1, layout={})

    def test_batches(self):
        with tempfile.TemporaryDirectory() as folder, \
                nxd.Context(nxd.Store.local(), 0, 1) as context:
            path = f"{folder}/tokens.bin"
            np.arange(64, dtype="<u2").tofile(path)
            with nxd.DataLoader(context, [path], 2, 4, next_labels=1, shuffle=False) as loader:
                for written in range(2):
                    batch = [nxd.tensor(np.zeros((2, 4), np.int64)) for _ in range(2)]
                    table = nxd.tensor(np.ones((64, 2), "f4"))
                    table.requires_grad = True
                    total = ops.sum(ops.embedding(table, batch[written]))
                    loader.next(*batch)
                    with self.assertRaisesRegex(nxd.InvalidState, "modified"):
                        total.backward()


class Operators(unittest.TestCase):
    def test_calls(self):
        x = nxd.tensor([[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_allclose(ops.softmax(x, -1, overload="int").numpy().sum(1), 1, rtol=1e-6)
        self.assertEqual(ops.sum(x, dim=[1], overload="dim_IntList").numpy().tolist(), [3, 7])
        values, indices = ops.topk(x, 1)
        self.assertEqual(indices.numpy().tolist(), [[1], [1]])
        self.assertEqual(ops.cat([x, x], dim=0).shape, (4, 2))
        self.assertEqual(len(ops.split(x, 1, 1, overload="Tensor")), 2)
        self.assertEqual(ops.clamp(x, None, 2.0).numpy().max(), 2)
        self.assertEqual(ops.equal(x, x), 1.0)
        first = ops.index(x, [None, nxd.tensor([0])], overload="Tensor")
        self.assertEqual(first.numpy().tolist(), [[1], [3]])
        self.assertEqual(ops.full([1], True).dtype, nxd.DType.BOOL)
        self.assertEqual(ops.neg(self=x).numpy().tolist(), ops.neg(x).numpy().tolist())
        with nxd.Op("aten::relu") as relu:
            self.assertEqual(relu.schema, "aten::relu(Tensor self) -> Tensor")
            self.assertEqual(relu(x * -1).numpy().max(), 0)
            self.assertEqual(relu(x).numpy().max(), 4)

    def test_results_that_are_no_plain_tensors(self):
        x = nxd.tensor([[1.0, 2.0]])
        for parts in (ops.split(x, 1, overload="Tensor"), ops.unbind(x, overload="int"),
                      ops._foreach_add([x], [x], overload="List")):
            self.assertIsInstance(parts, tuple)  # a list of one is one, too
            self.assertEqual([part.size for part in parts], [2])
        for device in "cpu", "xla":
            on, row = x.to(device), nxd.tensor([[1.0]]).to(device)
            grad, *left_out = ops.native_layer_norm_backward(on, on, [2], row, row, None, None,
                                                             [True, False, False])
            self.assertEqual(grad.to("cpu").numpy().tolist(), [[-0.5, -0.5]])
            self.assertEqual(left_out, [None, None])
        self.assertEqual((repr(x), repr(ops.complex(x, x))),
                         ("<nxd.Tensor f32[1, 2]>", "<nxd.Tensor other[1, 2]>"))
        self.assertEqual(ops._foreach_add_([x], [x], overload="List"), ())

    def test_arithmetic(self):
        x, y = nxd.tensor([1.0, 2.0]), nxd.tensor([3.0, 5.0])
        for got, want in ((x + y, [4, 7]), (x - y, [-2, -3]), (x * y, [3, 10]), (y / x, [3, 2.5]),
                          (x + 1, [2, 3]), (2 * x, [2, 4]), (1 - x, [0, -1]), (-x, [-1, -2])):
            self.assertEqual(got.numpy().tolist(), want)
        self.assertEqual((x @ y).item(), 13)
        for number in (np.float32(2), np.float64(2), np.float16(2), np.int64(2), np.uint8(2)):
            for got, want in ((x * number, [2, 4]), (number * x, [2, 4]), (number - x, [1, 0]),
                              (x - number, [-1, 0]), (number + x, [3, 4]), (x / number, [0.5, 1])):
                self.assertIsInstance(got, nxd.Tensor)
                self.assertEqual(got.numpy().tolist(), want)
        self.assertEqual(ops.sum(x, dim=[np.int64(0)], keepdim=np.bool_(True),
                                 overload="dim_IntList").shape, (1,))
        for mixed in (lambda: np.ones(2, "f4") + x, lambda: x * np.ones(2)):
            with self.assertRaisesRegex(nxd.InvalidArgument, "expected a tensor, a number"):
                mixed()
        for dtype, values, number, want in (("u1", [3, 5], 10.5, [7.5, 5.5]),
                                            ("u1", [3, 5], 300, [41, 39]),
                                            ("i1", [-128], 0.5, [128.5])):
            self.assertEqual((number - nxd.tensor(np.array(values, dtype))).numpy().tolist(), want)

    def test_errors(self):
        with self.assertRaisesRegex(nxd.InvalidArgument, "softmax"):
            ops.softmaxx(nxd.tensor([1.0]))
        with self.assertRaisesRegex(nxd.InvalidArgument, "relu"):
            ops.relu(nxd.tensor([1.0]), 2)
        with self.assertRaises(nxd.InvalidArgument):
            ops.matmul(nxd.zeros((2, 3)), nxd.zeros((2, 3)))
        with self.assertRaises(nxd.InvalidArgument):
            ops.relu(object())
        with self.assertRaises(nxd.InvalidArgument):
            nxd.zeros((2,)).item()
        with self.assertRaises(nxd.InvalidArgument):
            nxd.zeros((2,)).copy_from(np.zeros(3, "f4"))
        for other in (np.ones(2, "i4"), np.ones(2, ">f4")):
            with self.assertRaisesRegex(nxd.InvalidArgument, "f32"):
                nxd.zeros((2,)).copy_from(other)

    def test_raw_functions_reach_the_rest(self):
        out = raw.ffi.new("nxd_tensor_t**")
        shape = raw.ffi.new("int64_t[]", [2, 2])
        nxd.check(raw.engine.nxd_tensor_create(shape, 2, nxd.DType.F64, nxd.Device.CPU, out))
        self.assertEqual(nxd.Tensor(out[0]).shape, (2, 2))
        with self.assertRaisesRegex(nxd.InvalidArgument, "ndim"):
            nxd.check(raw.engine.nxd_tensor_create(shape, -2, 0, 0, out))


class RecordedDevice(unittest.TestCase):
    def test_a_step_is_a_graph(self):
        self.assertIs(nxd.device(), nxd.Device.CPU)
        x = nxd.tensor(np.arange(4, dtype="f4")).to_device("xla")
        self.assertIs(x.device, nxd.Device.XLA)
        nxd.reset_device_metrics()
        total = ops.sum(x * x)
        seen = []
        nxd.add_step_closure(lambda: seen.append(total.item()))
        self.assertEqual(seen, [])
        nxd.mark_step()
        self.assertEqual(seen, [14])
        metrics = nxd.device_metrics()
        self.assertEqual((metrics.steps, metrics.executions, metrics.implicit_syncs), (1, 1, 0))
        self.assertEqual((metrics.argument_bytes, metrics.result_bytes), (16, 4))
        self.assertIn("aten::mul.Tensor(f32[4], f32[4])", nxd.step_graph())
        self.assertTrue(nxd.step_graph("dot").startswith("digraph step {"))
        self.assertIn("executions 1\n", nxd.device_report())
        self.assertEqual(x.to_device("cpu").numpy().tolist(), [0, 1, 2, 3])

    def test_closures_raise(self):
        def fail():
            raise KeyError("mine")
        nxd.add_step_closure(fail)
        with self.assertRaises(KeyError):
            nxd.mark_step()
        nxd.mark_step()
        with self.assertRaises(nxd.InvalidArgument):
            nxd.step_graph("svg")

    def test_closures_on_a_thread(self):
        x = nxd.tensor(np.arange(4, dtype="f4")).to_device("xla")
        total, seen = ops.sum(x * x), []

        def read():
            seen.append((total.item(), threading.get_ident()))
        nxd.add_step_closure_async(read)
        nxd.mark_step(wait=False)
        nxd.wait_step_closures()
        self.assertEqual([value for value, _ in seen], [14])
        self.assertNotEqual(seen[0][1], threading.get_ident())

        def fail():
            raise KeyError("mine")
        nxd.add_step_closure_async(fail)
        with self.assertRaises(nxd.UserError):
            nxd.mark_step()
            nxd.wait_step_closures()

    def test_failures_on_other_threads_do_not_meet(self):
        """One that is handled in a batch or closure is not that of an earlier one."""
        found = []

        def fail(mine):
            try:
                nxd.tensor([1.0, 2.0]).item()
            except nxd.InvalidArgument as error:
                found.append(str(error))
            raise nxd.InvalidArgument(mine)

        class Batches:
            def __iter__(self):
                return self

            def __next__(self):
                fail("mine")

        with nxd.DeviceLoader(Batches(), "cpu", prefetch=1) as loader:
            for _ in range(2):
                with self.assertRaisesRegex(nxd.InvalidArgument, "mine"):
                    next(loader)
        for _ in range(2):
            nxd.add_step_closure_async(lambda: fail("mine"))
            with self.assertRaises(nxd.InvalidArgument):
                nxd.mark_step()
                nxd.wait_step_closures()
        self.assertEqual(len(found), 4)
        self.assertEqual(len(set(found)), 1, found)
        gone = []

        def fail_with(value):
            gone.append(weakref.ref(value))
            raise KeyError("mine")

        nxd.add_step_closure_async(lambda: fail_with(np.zeros(1)))
        with self.assertRaises(nxd.UserError):
            nxd.mark_step()
            nxd.wait_step_closures()
        gc.collect()
        self.assertIsNone(gone[0]())  # the thread keeps no exception

    def test_batches_of_an_iterator(self):
        def batches():
            for i in range(3):
                yield nxd.tensor(np.full(2, i, "f4")), nxd.tensor(np.array([i]))
            raise KeyError("mine")

        nxd.reset_device_metrics()
        seen = []
        with nxd.DeviceLoader(batches(), "xla", num_tensors=2, prefetch=3) as loader:
            with self.assertRaises(KeyError):
                for x, y in loader:
                    self.assertIs(x.device, nxd.Device.XLA)
                    total = ops.sum(x)
                    nxd.add_step_closure(lambda total=total: seen.append(total.item()))
                    del y
            self.assertEqual(loader.position, 3)
            with self.assertRaises(nxd.Unsupported):
                loader.position = 0
        self.assertEqual(seen, [0, 2, 4])
        self.assertEqual(nxd.device_metrics().steps, 3)
        with nxd.DeviceLoader([nxd.tensor(np.array([7]))], "cpu") as loader:
            self.assertEqual([x.numpy().tolist() for x in loader], [[7]])
        with nxd.DeviceLoader([3], "cpu") as loader, self.assertRaises(AttributeError):
            next(loader)

    def test_batches_of_a_data_loader(self):
        with tempfile.TemporaryDirectory() as folder, \
                nxd.Context(nxd.Store.local(), 0, 1) as context:
            path = f"{folder}/tokens.bin"
            np.arange(64, dtype="<u2").tofile(path)
            options = {"shuffle": False, "next_labels": 1}
            with nxd.DataLoader(context, [path], 2, 4, **options) as tokens, \
                    nxd.DeviceLoader(tokens, "xla") as loader:
                ids, labels = next(loader)
                self.assertEqual(ids.to_device("cpu").numpy().tolist(), [[0, 1, 2, 3], [4, 5, 6, 7]])
                self.assertEqual(labels.to_device("cpu").numpy()[1, 3], 8)
                loader.position = 4
                ids, labels = next(loader)
                self.assertEqual(ids.to_device("cpu").numpy()[0, 0], 16)
                self.assertEqual(loader.position, 6)
                with self.assertRaises(nxd.InvalidState):
                    tokens.position = 0


if __name__ == "__main__":
    unittest.main()
