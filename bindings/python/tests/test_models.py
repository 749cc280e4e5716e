"""Models, over layouts and as pipelines."""

import gc
import os
import tempfile
import unittest

import numpy as np

import nxd
from nxd import ops
from support import on_ranks

CONFIG = ('{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, '
          '"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, '
          '"max_position_embeddings": 16}')


class Models(unittest.TestCase):
    def test_training_over_layouts(self):
        """Two ranks that split a model, or its layers, or the batch train as one rank does."""
        ids = np.random.default_rng(3).integers(0, 64, (4, 16))

        def train(context, cut=False):
            copies = context.parallel_size("data")
            rank = context.parallel_rank("data")
            mine = nxd.tensor(ids[4 // copies * rank:4 // copies * (rank + 1)])
            model = nxd.Model(context, CONFIG, device="meta" if cut else "cpu")
            pipeline = nxd.ModulePipeline(
                model, [mine, mine], num_microbatches=2, broadcast_and_average_loss=True,
                loss_path="loss", num_outputs=2
            ) if cut else None
            root = pipeline.local_module if cut else model
            ddp = nxd.Ddp.over_module(root, zero_stage=1, reduce="sum" if cut else "avg")
            adamw = nxd.AdamW(ddp, learning_rate=1e-2)
            if cut:
                pipeline.set_ddp(ddp)
            losses = []
            for _ in range(3):
                root.zero_grad()
                if cut:
                    loss = pipeline.train(mine, mine)
                else:
                    output = model(mine, mine)
                    output.backward()
                    loss = output.item()
                adamw.step(max_norm=1.0)
                total = np.array([loss])
                losses.append(context.parallel_group("data").all_reduce(total, op="avg")[0])
            if cut:
                self.assertEqual((len(pipeline.cuts), pipeline.unsplit), (1, []))
                self.assertEqual(pipeline.output_paths, ["loss", "logits"])
                self.assertEqual(model.output_paths, ["loss", "logits"])
                with self.assertRaisesRegex(nxd.InvalidArgument, "near names: loss"):
                    nxd.ModulePipeline(model, [mine, mine], loss_path="losss")
                with self.assertRaisesRegex(nxd.InvalidState, "has cut"):
                    model.cast("f64")
                self.assertIn("layers", pipeline.graph + str(pipeline.local_modules))
                loss, outputs = pipeline.evaluate(mine, mine, num_outputs=1)
                self.assertLess(loss, losses[0])
                self.assertEqual(outputs is not None, pipeline.has_loss)
            return losses

        one, = on_ranks(train, 1, {})
        self.assertLess(one[-1], one[0])
        for layout in ({"tensor_parallel_size": 2}, {}):
            for losses in on_ranks(train, 2, layout):
                np.testing.assert_allclose(losses, one, rtol=2e-5)
        for losses in on_ranks(lambda c: train(c, True), 2, {"pipeline_parallel_size": 2}):
            np.testing.assert_allclose(losses, one, rtol=2e-5)

    def test_what_is_no_tensor_is_told_to_the_peers(self):
        """A stage that cannot hand its inputs over fails the call on all, and none waits."""
        def run(context):
            ids = nxd.tensor(np.zeros((2, 16), "i8"))
            bad = context.rank == 1
            other = [1, 2] if bad else ids

            def refused(call, reason):
                with self.assertRaises((AttributeError, TypeError, ValueError)) as caught:
                    call()
                if not bad:
                    self.assertRegex(str(caught.exception), "rank 1 rejected.*" + reason)

            def pipeline(*inputs, **options):
                model = nxd.Model(context, CONFIG, device="meta")
                return nxd.ModulePipeline(model, inputs, num_microbatches=1, num_outputs=2,
                                          loss_path="loss", **options)

            refused(lambda: pipeline(ids, other), "list")
            refused(lambda: pipeline(ids, ids, **({"nothing": 1} if bad else {})), "nothing")
            made = pipeline(ids, ids)
            refused(lambda: made.train(ids, other), "list")
            refused(lambda: made.train(input_ids=other), "list")
            refused(lambda: made.evaluate(ids, other), "list")
            refused(lambda: made.evaluate(ids, ids, num_outputs="1" if bad else 1), "")
            made.train(ids, ids)

        on_ranks(run, 2, {"pipeline_parallel_size": 2})

    def test_bad_options_are_told_to_all_that_count_costs(self):
        """Also to the tensor-parallel peers, which are in another pipeline."""
        def run(context):
            ids = nxd.tensor(np.zeros((2, 16), "i8"))
            bad = {"nothing": 1} if context.rank == 1 else {}
            model = nxd.Model(context, CONFIG, device="meta")
            with self.assertRaises((TypeError, ValueError)) as caught:
                nxd.ModulePipeline(model, [ids, ids], num_microbatches=2, virtual_size=2,
                                   loss_path="loss", partition="cost", **bad)
            self.assertIn("nothing", str(caught.exception))

        on_ranks(run, 2, {"tensor_parallel_size": 2})

    def test_pipeline_of_python_modules(self):
        def fill_in(parameter, name, tensor):
            names.add(name)
            tensor.copy_from(np.full(tensor.shape, 0.1, "f4"))

        class Block(nxd.Module):
            def __init__(self, context, name):
                super().__init__(context)
                self.linear = self.add_child("linear", nxd.ColumnParallelLinear(
                    context, 4, 4, name=name, device="meta"))

            def forward(self, x):
                return ops.tanh(self.linear(x))

        class Net(nxd.Module):
            def __init__(self, context):
                super().__init__(context)
                self.blocks = [self.add_child(f"block{i}", Block(context, f"block{i}.linear"))
                               for i in range(2)]

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return ops.mean(x * x)

        def run(context):
            x = nxd.tensor(np.ones((4, 4), "f4"))
            pipeline = nxd.ModulePipeline(
                Net(context), [x], num_microbatches=2, pipeline_cuts=["block0"],
                param_init=fill_in, leaf_rule=lambda module, path, is_leaf: is_leaf,
                broadcast_and_average_loss=True)
            gc.collect()
            self.assertEqual(pipeline.cuts, ["block0"])
            loss = pipeline.train(input_0=x)
            with self.assertRaisesRegex(nxd.InvalidArgument, "input_0"):
                pipeline.train(input_1=x)
            with self.assertRaisesRegex(TypeError, "by position"):
                pipeline.train(x, input_0=x)
            self.assertEqual(pipeline.evaluate(input_0=x)[0], pipeline.evaluate(x)[0])
            inner = np.tanh(4 * 0.1 + 0.1)
            self.assertAlmostEqual(loss, np.tanh(4 * 0.1 * inner + 0.1) ** 2, places=5)
            with self.assertRaisesRegex(nxd.InvalidArgument, "block0"):
                nxd.ModulePipeline(Net(context), [x], pipeline_cuts=["blok0"])

        names = set()
        on_ranks(run, 2, {"pipeline_parallel_size": 2})
        self.assertIn("block0.linear.weight", names)

    def test_pretrained(self):
        with nxd.Context(seed=5) as context, tempfile.TemporaryDirectory() as directory:
            context.init_model_parallel()
            model = nxd.Model(context, CONFIG)
            model.save_safetensors(os.path.join(directory, "model.safetensors"))
            with open(os.path.join(directory, "config.json"), "w") as file:
                file.write(CONFIG)
            ids = nxd.tensor([[1, 2, 3, 4]])
            again = nxd.Model.from_pretrained(context, directory)
            with nxd.no_grad():
                self.assertEqual(again(ids).tobytes(), model(ids).tobytes())
            self.assertGreater(model.step_flops(1, 4), 0)
            self.assertGreater(nxd.finish_grads(self.backward(model, ids)), 0)
            self.assertEqual(nxd.loss_weights(context, [ids, None]), [1.0, 0.0])
            with self.assertRaises(nxd.Unsupported):
                nxd.Model(context, CONFIG.replace("llama", "mamba"))
            with self.assertRaises(nxd.InputOutput):
                nxd.Model.from_pretrained(context, directory + "/absent")

    def backward(self, model, ids):
        model(ids, ids).backward()
        return model


if __name__ == "__main__":
    unittest.main()
