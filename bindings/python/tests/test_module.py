"""Differentiation, modules with forwards in Python, layers and losses."""

import gc
import os
import tempfile
import unittest
import unittest.mock
import weakref

import numpy as np

import nxd
from nxd import ops
from support import on_ranks

def leaf(values):
    tensor = nxd.tensor(values)
    tensor.requires_grad = True
    return tensor


class Affine(nxd.Module):
    """x w + b, with parameters of its own."""

    def __init__(self, context):
        super().__init__(context)
        self.w = self.add_parameter("w", (4, 2), init="normal", init_b=1.0)
        self.b = self.add_parameter("b", (2,), init="constant", init_a=0.5)
        self.fail = None

    def forward(self, x):
        if self.fail is not None:
            raise self.fail
        return x @ self.w.tensor + self.b.tensor


class Autograd(unittest.TestCase):
    def test_backward_and_gradients(self):
        x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        loss = ops.sum(x * y)
        dx, dy = nxd.grad([loss], [x, y], retain_graph=True)
        self.assertEqual((dx.numpy().tolist(), dy.numpy().tolist()), ([3, 4], [1, 2]))
        self.assertIsNone(x.grad)
        loss.backward()
        (x * x).backward(nxd.tensor([1.0, 1.0]))
        for call in (lambda grads: nxd.backward([x * x, x + x], grads),
                     lambda grads: nxd.grad([x * x, x + x], [x], grads)):
            for grads in [], [None], [None] * 3:
                with self.assertRaisesRegex(nxd.InvalidArgument, "grads: expected one for each of 2"):
                    call(grads)
        self.assertEqual(x.grad.numpy().tolist(), [5, 8])
        x.grad = None
        self.assertIsNone(x.grad)
        with self.assertRaises(nxd.InvalidState):
            loss.backward()
        self.assertEqual(nxd.grad([ops.sum(x)], [x, y]), [unittest.mock.ANY, None])

    def test_recording(self):
        x = leaf([1.0])
        with nxd.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with nxd.grad_enabled(True):
                self.assertTrue((x * 2).requires_grad)
        self.assertTrue((x * 2).requires_grad)
        self.assertFalse(x.detach().requires_grad)
        with nxd.autocast():
            product = nxd.zeros((2, 2)) @ nxd.zeros((2, 2))
        self.assertEqual(product.dtype, nxd.DType.BF16)

    def test_function(self):
        def forward(call, x):
            call.save(x)
            self.assertTrue(call.needs_grad(0))
            return x * x, x * 3

        def backward(call, of_square, of_triple):
            x = call.saved(0)
            self.assertIsNone(of_triple)
            return of_square * x * 2

        function = nxd.Function("test::both", forward, backward, num_outputs=2)
        x = leaf([3.0, 5.0])
        square, triple = function(x)
        self.assertEqual(triple.detach().numpy().tolist(), [9, 15])
        ops.sum(square).backward()
        self.assertEqual(x.grad.numpy().tolist(), [6, 10])

    def test_exceptions_of_functions(self):
        def broken(call, *tensors):
            raise ArithmeticError("broken")

        x = leaf([1.0])
        with self.assertRaisesRegex(ArithmeticError, "broken"):
            nxd.Function("test::broken", broken)(x)
        function = nxd.Function("test::late", lambda call, x: x * 1, broken)
        with self.assertRaisesRegex(ArithmeticError, "broken"):
            function(x).backward()
        with self.assertRaisesRegex(nxd.InvalidArgument, "expected 1 tensors, got 2"):
            nxd.Function("test::many", lambda call, x: (x, x))(x)
        with self.assertRaises(nxd.InvalidArgument):
            nxd.Function("", broken)


class Modules(unittest.TestCase):
    def setUp(self):
        self.context = nxd.Context()
        self.context.init_model_parallel()
        self.addCleanup(self.context.close)

    def test_training(self):
        net, x = Affine(self.context), nxd.tensor(np.eye(4, dtype="f4"))
        self.assertEqual(net.class_name, "Affine")
        optimizer = nxd.Sgd(net, learning_rate=0.1)
        losses = []
        for _ in range(30):
            net.zero_grad()
            y = net(x)
            loss = ops.mean(y * y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_exceptions_of_a_forward(self):
        root = nxd.Module(self.context)
        net = root.add_child("net", Affine(self.context))

        class Outer(nxd.Module):
            def forward(self, x):
                return net(x)

        net.fail = KeyError("inside")
        with self.assertRaisesRegex(KeyError, "inside"):
            Outer(self.context)(nxd.zeros((1, 4)))
        net.fail = None
        self.assertEqual(Outer(self.context)(nxd.zeros((1, 4))).shape, (1, 2))
        with self.assertRaises(nxd.InvalidState):
            root(nxd.zeros((1, 4)))  # a container has no forward

    def test_tree(self):
        root = nxd.Module(self.context, "Root")
        a = root.add_child("a", Affine(self.context))
        root.add_child("b", Affine(self.context))
        self.assertEqual([name for name, _ in root.children()], ["a", "b"])
        self.assertIs(root.module("a"), a)
        self.assertEqual([p.name for p in root.parameters()], ["a.w", "a.b", "b.w", "b.b"])
        lent = root.parameter("b.w")
        root.tie("a.w", "b.w")
        self.assertEqual(len(root.parameters()), 3)
        a.w.set_full(nxd.tensor(np.full((4, 2), 3, "f4")))
        self.assertEqual(lent.tensor.detach().numpy().sum(), 24)  # it is that of a.w now
        with self.assertRaisesRegex(nxd.InvalidArgument, "a"):
            root.parameter("a.c")
        with self.assertRaises(nxd.InvalidArgument):
            root.add_child("a", nxd.Module(self.context))
        root.initialize(seed=3)
        root.train(False)
        root.move_to("cpu")
        parameter = root.parameter("a.w")
        parameter.set_full(nxd.tensor(np.full((4, 2), 2, "f4")))
        self.assertEqual(parameter.gather_full().numpy().sum(), 16)
        self.assertEqual((parameter.global_shape, parameter.shard), ((4, 2), (-1, [])))
        self.assertIsNone(parameter.gather_full_grad())
        parameter.set_trainable(False)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "m.safetensors")
            a.save_safetensors(path)
            with self.assertRaisesRegex(nxd.InvalidArgument, "b.b|a.b|w"):
                root.load_safetensors(path)
            report = root.load_safetensors(path, strict=False)
            self.assertEqual((report.unexpected, len(report.missing)), (["b", "w"], 3))
        owner = root.parameter("a.b")
        root.close()
        with self.assertRaises(nxd.InvalidState):
            owner.global_shape

    def test_buffers(self):
        def body(context):
            root = nxd.Module(context)
            child = root.add_child("norm", nxd.Module(context))
            mean = nxd.tensor(np.arange(3, dtype=np.float32))
            child.add_buffer("mean", mean)
            child.add_buffer("scratch", mean, saved=False)
            self.assertEqual(sorted(root.buffers()), ["norm.mean", "norm.scratch"])
            self.assertEqual(root.buffer("norm.mean").numpy().tolist(), [0, 1, 2])
            with self.assertRaisesRegex(nxd.InvalidArgument, "norm.mean"):
                root.buffer("norm.meen")
            with self.assertRaisesRegex(nxd.InvalidArgument, "taken"):
                child.add_buffer("mean", mean)
            with self.assertRaises(nxd.InputOutput):
                nxd.TorchScript(context, "/nowhere/module.pt")
            with self.assertRaisesRegex(nxd.InvalidArgument, "TorchScript"):
                root.save_torchscript("/nowhere/module.pt")
        on_ranks(body, n=1)

    def test_initial_values(self):
        def by_place(name, shape, first, values):
            asked.append((name, shape))
            for i in range(len(values)):
                values[i] = first + i

        asked = []
        with nxd.deferred_init():
            net = nxd.Sequential(self.context, nxd.Linear(self.context, 4, 3),
                                 nxd.LayerNorm(self.context, 3))
        self.assertEqual(net.class_name, "Sequential")
        with self.assertRaisesRegex(nxd.InvalidState, "it has no values"):
            net(nxd.zeros((2, 4)))
        net.set_initializer(by_place)
        net.parameter("1.bias").set_initializer(None)
        net.move_to("cpu")
        self.assertIn(("weight", (3, 4)), asked)
        self.assertEqual(net.parameter("0.weight").tensor.detach().numpy().tolist(),
                         np.arange(12).reshape(3, 4).tolist())
        self.assertEqual(net.parameter("1.bias").tensor.detach().numpy().tolist(), [0, 0, 0])
        self.assertEqual(net(nxd.zeros((2, 4))).shape, (2, 3))

        def broken(name, shape, first, values):
            raise ArithmeticError("broken")

        net.set_initializer(broken)
        with self.assertRaisesRegex(ArithmeticError, "broken"):
            net.initialize(3)

    def test_options_that_are_given_count(self):
        """As padding_idx=0 does, without has_padding_idx as well."""
        def run(context):
            module = nxd.Module(context)
            self.assertEqual(module.add_parameter("whole", (2, 4)).shard, (-1, []))
            self.assertEqual(module.add_parameter("part", (2, 4), shard_dim=1).shard,
                             (1, [(2 * context.rank, 2 * context.rank + 2)]))
            table = nxd.ParallelEmbedding(context, 4, 2, name="table", padding_idx=0)
            ops.sum(table(nxd.tensor([0, 1, 2, 3]))).backward()
            self.assertEqual(table.parameter("weight").grad.numpy()[:, 0].tolist(),
                             [[0, 1], [1, 1]][context.rank])

        on_ranks(run, 2, {"tensor_parallel_size": 2})

    def test_padding(self):
        self.assertEqual(nxd.number_of_extra_heads(25, 8), 7)
        with self.assertRaises(nxd.InvalidArgument):
            nxd.number_of_extra_heads(0, 8)

        class Pair(nxd.Module):
            def __init__(self, context):
                super().__init__(context)
                self.q = self.add_child("q", nxd.ColumnParallelLinear(
                    context, 4, 9, gather_output=False, pad=1))
                self.o = self.add_child("o", nxd.RowParallelLinear(
                    context, 9, 4, input_is_parallel=1, pad=1))
                self.heads = 3

            def forward(self, x):
                return self.o(self.q(x))

        def body(context):
            pair = Pair(context)
            net = nxd.Sequential(context, pair, nxd.LayerNorm(context, 4))
            x = nxd.tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
            before = net(x).detach().numpy().copy()
            self.assertEqual(net.parameter("0.q.weight").tensor.shape, (5, 4))
            with self.assertRaisesRegex(nxd.InvalidArgument, "near names: Pair"):
                net.pad(2, 3, ["Pairs"])

            def broken(module, heads, padded):
                raise ArithmeticError("broken")

            with self.assertRaisesRegex(ArithmeticError, "broken"):
                net.pad(2, 3, ["Pair"], broken)
            seen = []

            def count(module, heads, padded):
                seen.append(module)
                if isinstance(module, Pair):
                    module.heads = padded // 2

            net.pad(2, 3, ["Pair"], count)
            self.assertEqual((len(seen), seen[-1] is pair, pair.heads), (3, True, 2))
            weight = net.parameter("0.q.weight")
            self.assertEqual((weight.tensor.shape, weight.global_shape), ((6, 4), (9, 4)))
            np.testing.assert_allclose(net(x).detach().numpy(), before, rtol=1e-5, atol=1e-6)
        on_ranks(body, n=2, layout={"tensor_parallel_size": 2})

    def test_files_of_tensors(self):
        tensors = {"b": nxd.tensor(np.array([7])), "a": nxd.tensor(np.ones((2, 3), "f4"))}
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.safetensors")
            nxd.save(self.context, path, tensors, {"epoch": "3"})
            with open(path, "rb") as file:
                at_once = file.read()
            nxd.serialization_save(self.context, path, tensors, {"epoch": "3"}, master_only=False)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), at_once)
            with nxd.serialization_load(path) as file:
                self.assertEqual((list(file), file.texts), (["a", "b"], {"epoch": "3"}))
                self.assertEqual(file["a"].numpy().tolist(), [[1, 1, 1], [1, 1, 1]])
                self.assertEqual(file.read("b", "xla").device, nxd.Device.XLA)
                with self.assertRaises(nxd.InvalidArgument):
                    file["c"]
            deep = {"a": nxd.tensor(np.ones((1,) * 32, "f4")), "b": nxd.zeros((1,) * 33)}
            nxd.save(self.context, path, deep)
            with nxd.serialization_load(path) as file:
                self.assertEqual(file["a"].numpy().shape, (1,) * 32)
                with self.assertRaisesRegex(nxd.Unsupported, "32 dimensions, the tensor has 33"):
                    file["b"].numpy()
            with self.assertRaises(nxd.InputOutput):
                nxd.serialization_load(os.path.join(directory, "none"))

    def test_bad_texts_of_one_rank_fail_all(self):
        def body(context):
            net = Affine(context)
            tensors = {"a": nxd.tensor(np.ones((2, 3), "f4"))}
            own = context.rank == 1
            checkpoint = nxd.Checkpoint.create(context, directory, 1)
            calls = [lambda: nxd.save(context, None if own else path, tensors),
                     lambda: nxd.save(context, path, tensors, {"a": "b\0" if own else "b"}),
                     lambda: nxd.serialization_save(context, path + "\0" * own, tensors),
                     lambda: net.save_safetensors(path + "\0" * own),
                     lambda: net.snapshot(checkpoint, "net" + "\0" * own)]
            for call in calls:
                with self.assertRaises((nxd.InvalidArgument, TypeError)) as raised:
                    call()
                if not own:
                    self.assertIn("rank 1 rejected", str(raised.exception))
            checkpoint.close()

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.safetensors")
            on_ranks(body, 2, {"tensor_parallel_size": 2})

    def test_hooks(self):
        net, seen = Affine(self.context), []
        net.w.on_grad(lambda: seen.append("w"))
        ops.sum(net(nxd.zeros((1, 4)))).backward()
        self.assertEqual(seen, ["w"])

        def broken():
            raise RuntimeError("hook")

        net.b.on_grad(broken)
        with self.assertRaisesRegex(RuntimeError, "hook"):
            ops.sum(net(nxd.zeros((1, 4)))).backward()
        net.b.on_grad(None)
        net.w.on_grad(None)
        ops.sum(net(nxd.zeros((1, 4)))).backward()
        self.assertEqual(len(seen), 2 if "w" in seen[1:] else 1)

    def test_gradients_in_f32(self):
        """A ddp keeps them of BF16 parameters; any handle on one shows its own."""
        net = Affine(self.context)
        net.cast("bf16")
        ddp = nxd.Ddp.over_module(net, fp32_grads=1)
        self.assertIsNone(net.b.grad)
        ops.sum(net(nxd.zeros((3, 4)).to("bf16"))).backward()
        ddp.finish()
        self.assertEqual((net.b.grad.dtype, net.b.grad.numpy().tolist()), (nxd.DType.F32, [3, 3]))
        net.b.tensor.grad = None
        self.assertIsNone(net.b.grad)

    def test_tape(self):
        net = Affine(self.context)
        y, tape = net.tape(nxd.tensor(np.ones((1, 4), "f4")))
        grads = tape.backward(nxd.tensor(np.ones((1, 2), "f4")))
        np.testing.assert_allclose(grads[0].numpy()[0], net.w.tensor.detach().numpy().sum(1),
                                   rtol=1e-6)
        self.assertEqual(net.b.grad.numpy().tolist(), [1, 1])
        with self.assertRaises(nxd.InvalidState):
            tape.backward(nxd.tensor(np.ones((1, 2), "f4")))

    def test_checkpoint(self):
        net = Affine(self.context)
        root = nxd.Module(self.context)
        root.add_child("net", net)
        root.checkpoint(["net"])
        x = leaf([[1.0, 2.0, 3.0, 4.0]])
        ops.sum(net(x)).backward()
        np.testing.assert_allclose(x.grad.numpy()[0], net.w.tensor.detach().numpy().sum(1),
                                   rtol=1e-6)
        with self.assertRaises(nxd.InvalidArgument):
            root.checkpoint(["nett"])

    def test_lifetime_in_python(self):
        """A forward refers to its module weakly; owners over a root keep it."""
        net = Affine(self.context)
        dead = weakref.ref(net)
        optimizer = nxd.Sgd(net)
        del net
        gc.collect()
        self.assertIsNotNone(dead())
        optimizer.close()
        del optimizer
        gc.collect()
        self.assertIsNone(dead())


class Layers(unittest.TestCase):
    def test_split_equals_whole(self):
        x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype("f4")

        def run(context):
            outputs = []
            column = nxd.ColumnParallelLinear(context, 8, 16, name="c", keep_master_weight=True,
                                              bias=False)
            whole = column.master_weight().numpy()
            outputs.append((column(nxd.tensor(x)), x @ whole.T))
            row = nxd.RowParallelLinear(context, 8, 6, name="r", keep_master_weight=True,
                                        bias=False)
            outputs.append((row(nxd.tensor(x)), x @ row.master_weight().numpy().T))
            norm = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5)
            outputs.append((nxd.RmsNorm(context, 8, name="n")(nxd.tensor(x)), norm))
            for got, want in outputs:
                np.testing.assert_allclose(got.detach().numpy(), want, rtol=2e-4, atol=1e-5)
            for layer in (nxd.LayerNorm(context, 8), nxd.GatedMlp(context, 8, 16, name="m"),
                          nxd.Attention(context, 8, 4, name="a", rope={"theta": 1e4}),
                          nxd.Dropout(context, 0.5, "d")):
                self.assertEqual(layer(nxd.tensor(x)).shape, x.shape)
            qkv = nxd.QkvLinear(context, 8, 4, name="q", num_kv_heads=2, fusion="by_head")
            self.assertEqual([part.shape for part in qkv(nxd.tensor(x))],
                             [x.shape[:-1] + (heads, 2) for heads in (2, 1, 1)])
            qkv.cast("f64")
            self.assertEqual(qkv(nxd.tensor(x.astype("f8")))[0].dtype, nxd.DType.F64)
            embedding = nxd.ParallelEmbedding(context, 10, 8, name="e")
            self.assertEqual(embedding(nxd.tensor([[1, 9]])).shape, (1, 2, 8))
            rotary = nxd.RotaryEmbedding(context, 8, type="linear", factor=2.0)
            self.assertEqual(rotary(nxd.tensor(x.reshape(2, 3, 1, 8))).shape, (2, 3, 1, 8))
            weight = column.parameter("weight")
            begin = 8 * context.rank
            self.assertEqual(weight.shard, (0, [(begin, begin + 8)]))
            self.assertEqual(weight.global_shape, (16, 8))
            np.testing.assert_array_equal(weight.gather_full().numpy(), whole)

        on_ranks(run, 2, {"tensor_parallel_size": 2})

    def test_what_is_no_option_or_tensor_is_told_to_the_peers(self):
        def run(context):
            x, weight = nxd.tensor(np.ones((2, 8), "f4")), nxd.tensor(np.ones((4, 8), "f4"))
            labels, bad = nxd.tensor(np.array([1, 2])), context.rank == 1
            losses = (
                lambda x, **wrong: nxd.parallel_cross_entropy(context, x, labels, **wrong),
                lambda x, **wrong: nxd.linear_cross_entropy(context, x, weight, labels, **wrong))
            mappings = (
                lambda x: nxd.reduce_from_tensor_region(context, x),
                lambda x: nxd.gather_from_tensor_region(context, x),
                lambda x: nxd.gather_from_sequence_region(context, x),
                lambda x: nxd.reduce_scatter_to_sequence_region(context, x))

            def refused(call, array, options):
                with self.assertRaises((AttributeError, TypeError, ValueError)) as caught:
                    call(array if bad else x, **(options if bad else {}))
                if not bad:
                    self.assertIn("rank 1 rejected", str(caught.exception))
                call(x)

            for loss in losses:
                refused(loss, x, {"smooth": 1})
            for call in losses + mappings:
                refused(call, [1], {})

        on_ranks(run, 2, {"tensor_parallel_size": 2})

    def test_inputs_that_are_none_are_told_to_the_peers(self):
        def run(context):
            bad = context.rank == 1
            layer = nxd.RowParallelLinear(context, 8, 4, input_is_parallel=True, bias=False)
            net, x = nxd.Sequential(context, layer), nxd.tensor(np.ones((2, 4), "f4"))
            calls = (
                lambda wrong: layer([1] if wrong else x),
                lambda wrong: layer.tape([1] if wrong else x),
                lambda wrong: net.pad(2, 4, ["Sequential\0" if wrong else "Sequential"]),
                lambda wrong: net.pad("2" if wrong else 2, 4))
            for call in calls:
                with self.assertRaises((AttributeError, TypeError, nxd.InvalidArgument)) as caught:
                    call(bad)
                if not bad:
                    self.assertRegex(str(caught.exception), "rank 1")
            self.assertEqual(layer(x).shape, (2, 4))
            column = nxd.ColumnParallelLinear(context, 4, 8, gather_output=False)
            _, tape = column.tape(x)
            with self.assertRaises(AttributeError if bad else nxd.NxdError) as caught:
                tape.backward([1] if bad else x)
            if not bad:
                self.assertRegex(str(caught.exception), "rank 1 rejected")
            context.close()  # in the middle of a backward pass nobody goes on

        on_ranks(run, 2, {"tensor_parallel_size": 2})

    def test_regions_and_losses(self):
        logits = np.random.default_rng(2).standard_normal((3, 8)).astype("f4")
        labels = np.array([1, 7, 4])
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        want = -np.log(p[np.arange(3), labels]).mean()

        def run(context):
            part = nxd.scatter_to_tensor_region(context, nxd.tensor(logits))
            self.assertEqual(part.shape, (3, 4))
            loss = nxd.parallel_cross_entropy(context, part, nxd.tensor(labels))
            self.assertAlmostEqual(loss.item(), want, places=5)
            eye = nxd.scatter_to_sequence_region(context, nxd.tensor(np.eye(8, dtype="f4")), 0)
            loss = nxd.linear_cross_entropy(context, nxd.tensor(logits), eye, nxd.tensor(labels))
            self.assertAlmostEqual(loss.item(), want, places=5)
            whole = nxd.gather_from_tensor_region(context, part)
            np.testing.assert_array_equal(whole.numpy(), logits)
            twice = nxd.reduce_from_tensor_region(context, nxd.tensor(logits))
            np.testing.assert_array_equal(twice.numpy(), 2 * logits)
            x = leaf([1.0, 2.0])
            ops.sum(nxd.copy_to_tensor_region(context, x)).backward()
            self.assertEqual(x.grad.numpy().tolist(), [2, 2])
            part = nxd.reduce_scatter_to_sequence_region(context, nxd.tensor([1.0, 2.0]))
            self.assertEqual(part.numpy().tolist(), [2 * (context.rank + 1)])
            whole = nxd.gather_from_sequence_region(context, part)
            self.assertEqual(whole.numpy().tolist(), [2, 4])
            with self.assertRaises(nxd.InvalidArgument):
                nxd.parallel_cross_entropy(context, nxd.tensor(logits[:, :4]),
                                           nxd.tensor([1, 8, 4]))

        on_ranks(run, 2, {"tensor_parallel_size": 2})


if __name__ == "__main__":
    unittest.main()
