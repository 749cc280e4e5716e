"""Layers over arrays that Python owns: an MLP and a vocabulary over two ranks, against numpy."""

import array
import gc
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

import nxd.core as nxd
from support import on_ranks

TP = {"tensor_parallel_size": 2}
IN, HIDDEN, OUT, ROWS = 6, 8, 5, 7


def numbers(*shape, phase=0.0):
    return np.sin(np.arange(np.prod(shape, dtype=int)) + phase).reshape(shape)


class Layers(unittest.TestCase):
    def test_mlp(self):
        x, dy = numbers(ROWS, IN), numbers(ROWS, OUT, phase=1)
        w1, b1, w2 = numbers(HIDDEN, IN, phase=2), numbers(HIDDEN, phase=3), numbers(OUT, HIDDEN)
        hidden = x @ w1.T + b1
        dhidden = dy @ w2

        def run(context):
            half = slice(context.rank * HIDDEN // 2, (context.rank + 1) * HIDDEN // 2)
            own1, own2 = w1[half], w2[:, half]  # the latter in strides of the whole
            h, y = np.zeros((ROWS, HIDDEN // 2)), np.zeros((ROWS, OUT))
            nxd.column_linear_forward(context, x, own1, b1[half], h)
            nxd.row_linear_forward(context, h, own2, None, y)
            np.testing.assert_allclose(h, hidden[:, half], rtol=1e-12)
            np.testing.assert_allclose(y, hidden @ w2.T, rtol=1e-12)
            dh, dw2 = np.zeros_like(h), np.ones((HIDDEN // 2, OUT)).T
            nxd.row_linear_backward(context, h, own2, dy, dh, dw2, accumulate_grads=1)
            np.testing.assert_allclose(dw2, dy.T @ hidden[:, half] + 1, rtol=1e-12)
            dx, dw1, db1 = np.zeros_like(x), np.zeros_like(own1), np.zeros(HIDDEN // 2)
            arrays = {"x": x, "weight": own1, "grad_y": dh, "grad_weight": dw1, "grad_bias": db1}
            size = nxd.column_linear_backward.workspace_size(context, grad_x=dx, **arrays)
            nxd.column_linear_backward(context, grad_x=dx, workspace=bytearray(size), **arrays)
            np.testing.assert_allclose(dx, dhidden @ w1, rtol=1e-12)
            np.testing.assert_allclose(dw1, dhidden[:, half].T @ x, rtol=1e-12)
            np.testing.assert_allclose(db1, dhidden[:, half].sum(0), rtol=1e-12)

        on_ranks(run, 2, TP)

    def test_several_weights(self):
        x, weights = numbers(ROWS + 1, IN), [numbers(8, IN, phase=1), numbers(4, IN, phase=2)]
        ys = [x @ w.T for w in weights]

        def run(context):
            def own(a, n):
                return np.split(a, 2, axis=n)[context.rank]

            parts, bias = [own(w, 0) for w in weights], numbers(4)
            found = [np.zeros((ROWS + 1, len(w))) for w in parts]
            nxd.column_linears_forward(context, own(x, 0), parts, [bias, None], found,
                                       sequence_parallel=1)
            np.testing.assert_allclose(found[0], own(ys[0], 1) + bias, rtol=1e-12)
            np.testing.assert_allclose(found[1], own(ys[1], 1), rtol=1e-12)
            dx, dw, grads = np.zeros((ROWS // 2 + 1, IN)), np.zeros((2, IN)), [own(y, 1) for y in ys]
            nxd.column_linears_backward(context, own(x, 0), parts, grads, dx, [None, dw],
                                        sequence_parallel=1)
            expected = sum(y @ w for y, w in zip(ys, weights))
            np.testing.assert_allclose(dx, own(expected, 0), rtol=1e-12)
            np.testing.assert_allclose(dw, grads[1].T @ x, rtol=1e-12)
            with self.assertRaisesRegex(nxd.InvalidArgument, "ys: expected one for each of 2"):
                nxd.column_linears_forward(context, x, parts, None, found[:1])

        on_ranks(run, 2, TP)

    def test_vocabulary(self):
        table, ids = numbers(10, 4), np.array([3, 9, 0, 5], "i4")
        logits = table[ids] @ table.T
        exps = np.exp(logits)
        losses = np.log(exps.sum(1)) - logits[np.arange(4), ids]

        def run(context):
            own = table[context.rank * 5:context.rank * 5 + 5]
            x, z = np.zeros((4, 4)), np.zeros((4, 5))
            nxd.vocab_parallel_embedding_forward(context, ids, own, x)
            np.testing.assert_array_equal(x, table[ids])
            nxd.column_linear_forward(context, x, own, None, z)
            rows, loss = np.zeros((2, 4)), np.zeros(4)
            nxd.parallel_cross_entropy_forward(context, z, ids, rows, loss, reduction="none")
            np.testing.assert_allclose(loss, losses, rtol=1e-12)
            nxd.parallel_cross_entropy_backward(context, z, ids, rows, None, z, reduction="none")
            fused, fused_rows, dx, dw = np.zeros(()), np.zeros((2, 4)), np.zeros_like(x), \
                np.zeros_like(own)
            nxd.linear_cross_entropy_forward(context, x, own, None, ids, fused_rows, fused,
                                             block_tokens=3)
            np.testing.assert_allclose(fused, losses.mean(), rtol=1e-12)
            nxd.linear_cross_entropy_backward(context, x, own, None, ids, fused_rows, None, dx, dw)
            np.testing.assert_allclose(dw, z.T @ x / 4, rtol=1e-12)
            grad = np.zeros_like(own)
            nxd.vocab_parallel_embedding_backward(context, ids, dx, grad)
            expected = np.zeros_like(table)
            np.add.at(expected, ids, dx)
            np.testing.assert_allclose(grad, expected[context.rank * 5:context.rank * 5 + 5])

        on_ranks(run, 2, TP)

    def test_norms_and_dropout(self):
        x, dy, weight = numbers(8, 6), numbers(8, 6, phase=1), numbers(6, phase=2)
        inv = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
        centred = x - x.mean(1, keepdims=True)
        std = np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)

        def run(context):
            own = slice(context.rank * 4, context.rank * 4 + 4)
            y, rows, dw = np.zeros((4, 6)), np.zeros(4), np.zeros(6)
            nxd.rms_norm_forward(context, x[own], weight, y, rows)
            np.testing.assert_allclose(y, (x * inv * weight)[own], rtol=1e-12)
            nxd.rms_norm_backward(context, x[own], weight, rows, dy[own], None, dw,
                                  sequence_parallel=1)
            np.testing.assert_allclose(dw, (dy * x * inv).sum(0), rtol=1e-12)
            both, db = np.zeros((2, 4)), np.zeros(6)
            nxd.layer_norm_forward(context, x[own], None, weight, y, both)
            np.testing.assert_allclose(y, (centred / std + weight)[own], rtol=1e-12)
            nxd.layer_norm_backward(context, x[own], None, both, dy[own], None, dw, db,
                                    sequence_parallel=1)
            np.testing.assert_allclose(db, dy.sum(0), rtol=1e-12)
            whole, part, back = np.zeros((8, 6)), np.zeros((4, 6)), np.zeros((4, 6))
            nxd.dropout_forward(context, "drop", x, whole, p=0.5)
            nxd.dropout_forward(context, "drop", x[own], part, p=0.5, has_shard_dim=1)
            np.testing.assert_array_equal(part, whole[own])
            self.assertTrue(np.isin(whole, [0, *(2 * x).ravel()]).all() and (whole == 0).any())
            nxd.dropout_backward(context, "drop", x[own], back, p=0.5, has_shard_dim=1)
            np.testing.assert_array_equal(back, part)
            self.assertEqual(nxd.dropout_forward.workspace_size(context, "drop", x, whole), 48 + 79)

        on_ranks(run, 2, TP)

    def test_options_that_are_given_count(self):
        """ignore_index=0 ignores label 0, without has_ignore_index as well."""
        ids, logits = np.array([0, 1, 0, 3]), numbers(4, 8)
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        terms = -np.log(shifted[range(4), ids] / shifted.sum(1))

        def run(context):
            def loss(**options):
                out = np.zeros(())
                nxd.parallel_cross_entropy_forward(context, logits, ids, None, out, **options)
                return float(out)

            np.testing.assert_allclose(loss(), terms.mean())
            np.testing.assert_allclose(loss(ignore_index=0), terms[ids != 0].mean())
            np.testing.assert_allclose(loss(ignore_index=0, has_ignore_index=0), terms.mean())
            grad = np.zeros((4, 2))
            nxd.vocab_parallel_embedding_backward(context, ids, np.ones((4, 2)), grad,
                                                  padding_idx=0)
            np.testing.assert_array_equal(grad[:, 0], [0, 1, 0, 1])
            x = np.ones((8, 8))

            def drop(**options):
                out = np.zeros_like(x)
                nxd.dropout_forward(context, "drop", x, out, p=0.5, **options)
                return out.tolist()

            context.set_step(3, 2)
            there = drop()
            context.set_step(0)
            here = drop()
            self.assertNotEqual(there, here)
            self.assertEqual(drop(step=3, microbatch=2), there)
            self.assertEqual(drop(step=3, microbatch=2, has_position=0), here)
            context.set_step(3)
            self.assertEqual(drop(microbatch=0), here)

        on_ranks(run, 1, {})

    def test_regions(self):
        x = numbers(4, 6)

        def run(context):
            half, whole = np.zeros((4, 3)), np.zeros((4, 6))
            nxd.region_mapping_forward(context, "scatter_to", -1, x, half)
            np.testing.assert_array_equal(half, np.split(x, 2, 1)[context.rank])
            nxd.region_mapping_backward(context, nxd.RegionMapping.SCATTER_TO, -1, half, whole)
            np.testing.assert_array_equal(whole, x)

        on_ranks(run, 2, TP)

    def test_16_bit_words_and_views(self):
        def words(values):
            return (np.asarray(values, "f4").view("u4") >> 16).astype("u2")

        x, weight = np.array([[1, 2], [3, 4]]), np.array([[1, 0], [0, 2]])

        def run(context):
            y = np.zeros((2, 2), "u2")
            nxd.column_linear_forward(context, words(x), words(weight), None, y)
            np.testing.assert_array_equal(y, words(x @ weight.T))
            # A view of another's rows, every second column, as bf16 and as f32.
            wide = np.zeros((2, 4), "u2")
            nxd.column_linear_forward(context, words(x).T, words(weight), None, wide[:, ::2])
            np.testing.assert_array_equal(wide, words([[1, 0, 6, 0], [2, 0, 8, 0]]))
            steps = np.zeros((2, 4), "f4")
            nxd.column_linear_forward(context, x.astype("f4")[::-1], weight.astype("f4"), None,
                                      steps[:, 1::2])
            np.testing.assert_array_equal(steps, [[0, 3, 0, 8], [0, 1, 0, 4]])

        on_ranks(run, 2, TP)

    def test_strided_memoryviews(self):
        """Buffers that tell their strides, and have no other interface."""
        def matrix(values, rows):
            return memoryview(values).cast("B").cast("f", [rows, len(values) // rows])

        x, wide = array.array("f", range(8)), array.array("f", [7] * 8)
        weight = np.array([[1, 0], [0, 2]], "f4")
        with nxd.Context(nxd.Store.local(), 0, 1) as context:
            context.init_model_parallel()
            nxd.column_linear_forward(context, matrix(x, 4)[2::-2], weight, None,
                                      matrix(wide, 4)[1::2])
            self.assertEqual(wide.tolist(), [7, 7, 4, 10, 7, 7, 0, 2])
            with self.assertRaisesRegex(nxd.InvalidArgument, "read-only"):
                nxd.column_linear_forward(context, matrix(x, 4)[::2], weight, None,
                                          matrix(wide, 4).toreadonly()[::2])
            with self.assertRaisesRegex(nxd.InvalidArgument, "is not in C order"):
                context.world.all_reduce(matrix(x, 4)[::2])
            params, grads = {"w": matrix(x, 4)[::-1]}, {"w": matrix(wide, 4)[::-1]}
            with self.assertRaisesRegex(nxd.InvalidArgument, r"params\[0\].*a dense array"):
                nxd.Ddp.over_arrays(context, params, grads)
        del params, grads
        # No call holds the arrays any more, which could not grow then.
        gc.collect()
        x.append(0)
        wide.append(0)

    def test_a_bad_array_of_one_rank_is_an_error_on_all(self):
        def run(context):
            x, w, y = np.zeros((2, 3), "f4"), np.zeros((4, 3), "f4"), np.zeros((2, 4), "f4")
            bad = [([], w, None, y), (x, w, None, "text"), (x, w, None, np.zeros((2, 5), "f4")),
                   (x, w, None, np.broadcast_to(y[:1], (2, 4)))]
            for arrays in bad:
                with self.assertRaises(nxd.InvalidArgument) as caught:
                    nxd.column_linear_forward(context, *(arrays if context.rank else (x, w, None, y)))
                if context.rank == 0:
                    self.assertIn("rank 1", str(caught.exception))
                nxd.column_linear_forward(context, x, w, None, y)
            with self.assertRaises(TypeError):
                nxd.column_linear_forward(context, x, w)
            with self.assertRaises(TypeError):
                nxd.column_linear_forward(context, x, w, None, y, none_such=1)
            with self.assertRaises(nxd.InvalidArgument):
                nxd.shard_set_full(context, None, y)

        on_ranks(run, 2, TP)


class Weights(unittest.TestCase):
    def test_shards(self):
        def run(context):
            whole, shard = np.zeros((8, 6)), np.zeros((4, 6))
            nxd.shard_initialize(context, "fc.weight", "normal", 0, 0.02, whole)
            nxd.shard_initialize(context, "fc.weight", nxd.Init.NORMAL, 0, 0.02, shard, 0)
            np.testing.assert_array_equal(shard, np.split(whole, 2)[context.rank])
            self.assertAlmostEqual(whole.std(), 0.02, delta=0.006)
            columns, again = np.zeros((8, 3)), np.zeros((8, 6))
            nxd.shard_set_full(context, whole, columns, -1)
            np.testing.assert_array_equal(columns, np.split(whole, 2, 1)[context.rank])
            nxd.shard_gather_full(context, columns, again, -1)
            np.testing.assert_array_equal(again, whole)

        on_ranks(run, 2, TP)

    def test_safetensors(self):
        values = np.arange(12, dtype="f4").reshape(6, 2)
        header = b'{"w":{"dtype":"F32","shape":[6,2],"data_offsets":[0,48]}}'

        def run(context):
            shard = np.zeros((3, 2))
            nxd.shard_load_safetensors(context, path, "w", shard, 0)
            np.testing.assert_array_equal(shard, np.split(values, 2)[context.rank])

        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "w.safetensors"
            path.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
            on_ranks(run, 2, TP)


if __name__ == "__main__":
    unittest.main()
